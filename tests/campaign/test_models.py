"""Real models: all end without a crash, and what was compiled is right."""

import pytest
import torch

import regional_explorer as rx
from regional_explorer.measure.reference import find_reference

transformers = pytest.importorskip("transformers")

from benchmarks import round_trips  # noqa: E402 - they import transformers
from benchmarks.architectures import ARCHITECTURES  # noqa: E402
from benchmarks.models import run  # noqa: E402

pytestmark = [pytest.mark.compiles, pytest.mark.slow]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_training_is_right(name):
    row = run(name, training=True)
    assert row.partitions
    assert row.artifacts
    # It draws its masks from NumPy, for which Dynamo takes torch's random numbers: no variant is what eager is.
    differs = name == "wav2vec2"
    assert ("trace-differs" in row.diagnostics) is differs, row
    assert ("failed" in row.numerics) is differs, row
    assert "region-failed" not in row.diagnostics, row


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_inference_is_right(name):
    row = run(name, training=False)
    assert row.partitions
    assert row.artifacts
    assert "failed" not in row.numerics, row
    assert "region-failed" not in row.diagnostics, row


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_session_and_plan_are_read_as_they_were_written(name, training):
    row = round_trips.run(name, training=training)
    assert row.partitions
    assert row.differs == ()


@pytest.mark.parametrize("masked", [True, False])
def test_layers_that_a_speech_model_drops_otherwise_when_traced(masked):
    """HuBERT draws its masks from NumPy, and Dynamo from torch: other layers are dropped after them."""
    torch.manual_seed(0)
    sizes = {"conv_dim": (32, 32), "conv_stride": (4, 4), "conv_kernel": (8, 8), "num_feat_extract_layers": 2}
    config = transformers.HubertConfig(
        hidden_size=32,
        num_hidden_layers=6,
        num_attention_heads=2,
        intermediate_size=37,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        layerdrop=0.5,
        apply_spec_augment=masked,
        mask_time_prob=0.5,
        mask_time_length=3,
        **sizes,
    )
    ex = rx.explore(transformers.HubertModel(config).train(), (torch.randn(2, 1000),), grad=True)
    assert ex.session.breaks
    found = find_reference(ex.live.call, ex.live.program).diagnostics
    if not masked:
        assert found == ()
        return
    (told,) = found
    assert told.code == "trace-differs"
    assert "where the random states differ: the state of NumPy's generator" in told.message
    assert "The same under torch.compile(backend='eager')" in told.message
    assert [line.function for line in told.where] == ["_compute_mask_indices"]
