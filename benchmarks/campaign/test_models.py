"""Real models: none crashes, compiled code is right, and plans survive files and source."""

import gc
import importlib.util
import sys
from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from msgspec.structs import fields, replace

import regional_explorer as rx
from regional_explorer.export.to_source import source_patch
from regional_explorer.measure.reference import find_reference
from regional_explorer.page.report import page_html
from regional_explorer.record.files import dump_session, load_plan, load_session
from regional_explorer.record.plan import CutRule

transformers = pytest.importorskip("transformers")

from tests.shared import models  # noqa: E402 - it imports transformers
from tests.shared.models import ARCHITECTURES, explore, explore_unmarked  # noqa: E402

pytestmark = [pytest.mark.compiles, pytest.mark.slow]

CONFIG = {"max_fusion_size": 8}
"""The config of every region: a lost config is noticed."""


def compile_and_compare(name, *, training):
    """Compile a model and compare it; return the counts of verdicts and of diagnostics."""
    ex = explore(name, training=training)
    ex.benchmark(("aot_eager", "regional"), 0.2, regions=False)
    session = ex.session
    verdicts = Counter(map(str, ex.numerics[ex.numerics.variant == "regional"].verdict))
    codes = Counter(str(diagnostic.code) for diagnostic in session.diagnostics)
    artifacts = {part.artifact for part in session.partitions if part.artifact}
    marked = len(ex.preview(replace(ex.plan, cut=CutRule.MARKED)).partitions)
    print(
        f"{name}: {len(session.partitions)} → {len(artifacts)}, {marked} with sums of gradients eager, "
        f"{len(session.breaks)} graph breaks, {dict(verdicts)}, {dict(codes)}"
    )
    ex.close()
    assert session.partitions
    assert artifacts
    assert "region-failed" not in codes, [found.message for found in session.diagnostics]
    return verdicts, codes


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_training_is_right(name):
    verdicts, codes = compile_and_compare(name, training=True)
    # Its masks are random numbers of NumPy, for which Dynamo takes torch's: no variant has eager's results.
    differs = name == "wav2vec2"
    assert ("trace-differs" in codes) is differs
    assert ("failed" in verdicts) is differs


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_inference_is_right(name):
    verdicts, _ = compile_and_compare(name, training=False)
    assert "failed" not in verdicts


def explore_configured(name, *, training):
    ex = explore(name, training=training)
    for region in ex.plan.regions:
        ex.configure(region.name, CONFIG)
    return ex


def partitions(ex):
    """Return the partitions by content."""
    return {(part.region, part.graph, part.nodes, repr(part.config_requested)) for part in ex.session.partitions}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_session_and_plan_are_read_back_unchanged(name, training, tmp_path):
    with explore_configured(name, training=training) as ex:
        session, path = ex.session, tmp_path / "session.json"
        assert session.partitions
        path.write_text(dump_session(session))
        again = load_session(path)
        for field in fields(session):
            assert getattr(session, field.name) == getattr(again, field.name), field.name
        assert dump_session(again) == path.read_text()
        assert page_html(again) == page_html(session)

        plan, before, path = ex.plan, partitions(ex), ex.save_plan(tmp_path / "plan.json")
        again = load_plan(path)
        assert again == plan
        ex.plan = rx.Plan()
        ex.plan = again
        assert partitions(ex) == before
        assert ex.save_plan(tmp_path / "again.json").read_text() == path.read_text()


NOT_WRITTEN = {"t5", "clip", "swin", "segformer", "resnet", "convnext"}
"""Annotations cannot express their regions: other parts of the model run the same lines."""


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_plans_are_written_into_the_source(name, tmp_path):
    """A plan is written into a copy of the model's files, which has the same partitions under the same configs."""
    gc.unfreeze()  # functions are found among what the collector sees
    with explore_configured(name, training=True) as ex:
        patch = source_patch(ex.live.program)
        print(f"{name}: {len(patch.refused)} of {len(ex.plan.regions)} regions refused, {patch.refused}")
    assert bool(patch.refused) is (name in NOT_WRITTEN), patch.refused
    before = {}
    for training in (True, False):
        with explore_configured(name, training=training) as ex:
            for refused in patch.refused:
                ex.unmark(refused)
            before[training] = partitions(ex)
    with patched_copy(patch, tmp_path):
        for training, wanted in before.items():
            with explore_unmarked(name, training=training) as ex:
                # In inference wav2vec2 has no graph breaks between its layers, which a decorator then joins.
                assert (partitions(ex) == wanted) is (training or name != "wav2vec2")


@contextmanager
def patched_copy(patch, folder):
    """Context manager: run the modules of the patched files from a patched copy."""
    before, known = dict(sys.modules), dict(ARCHITECTURES)
    by_file = {getattr(module, "__file__", None): name for name, module in before.items() if name != "__main__"}
    taken = []
    try:
        for number, changed in enumerate(patch.changed):
            name = by_file[changed.file.path]
            path = folder / f"{number}_{changed.path.name}"
            path.write_bytes(changed.content()[1])
            old, new = before[name], load_module(name, path)
            for holder in list(sys.modules.values()):
                for key, value in list(getattr(holder, "__dict__", {}).items()):
                    if isinstance(value, type) and value.__module__ == name and vars(old).get(key) is value:
                        taken.append((holder, key, value))
                        setattr(holder, key, vars(new)[key])
        yield
    finally:
        for holder, key, value in taken:
            setattr(holder, key, value)
        sys.modules.update(before)
        ARCHITECTURES.update(known)


def load_module(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if name == models.__name__:
        ARCHITECTURES.update(module.ARCHITECTURES)
    return module


@pytest.mark.parametrize("masked", [True, False])
def test_layer_dropout_that_differs_in_the_trace_is_reported(masked):
    """HuBERT gets its masks from NumPy, and Dynamo from torch: other layers are dropped after them."""
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
    (item,) = found
    assert item.code == "trace-differs"
    assert "where the random states differ: the state of NumPy's generator" in item.message
    assert "The same under torch.compile(backend='eager')" in item.message
    assert [line.function for line in item.where] == ["_compute_mask_indices"]
