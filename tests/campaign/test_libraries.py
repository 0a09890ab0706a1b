"""Architectures of other libraries, drawn and listed: nothing crashes, and what was compiled is right.

The libraries come with ``pip install -e '.[campaign]'``; where one is missing, its architectures are skipped.
"""

import pytest
import torch
from torch import nn

from benchmarks import libraries as campaign
from tests.campaign.libraries import DRAWN, drawn, installed
from tests.campaign.libraries_listed import LISTED
from tests.campaign.libraries_vision import load_torchvision
from tests.campaign.library_case import Built, Case

pytestmark = pytest.mark.slow

ARCHITECTURES = [(library, index) for library, count in DRAWN.items() for index in range(count)]


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).sin()
        return x


class Dropping(Small):
    def forward(self, x):
        raise RuntimeError("no such call")


def case_of(model):
    return Case("none", model.__name__, lambda _training: Built(model(), (torch.randn(2, 4),)))


def test_forty_architectures_are_drawn_and_forty_are_listed():
    assert (len(ARCHITECTURES), len(LISTED)) == (40, 40)


def test_globs_of_modules():
    assert campaign.module_globs(nn.ModuleDict({"block2": Small()})) == ["block2", "block2.layers", "block2.layers.*"]


def test_what_does_not_run_in_eager_mode_is_not_drawn():
    assert case_of(Small).runs()
    assert not case_of(Dropping).runs()


@pytest.mark.compiles
def test_rows_of_a_small_model():
    by_module, by_op = campaign.run(case_of(Small), training=True)
    assert by_module.sound
    assert by_op.sound
    assert by_module.partitions
    assert by_module.artifacts
    assert "layers.*" in by_module.regions
    assert "aten." in by_op.regions


def test_what_cannot_be_explored_is_refused_with_its_reason():
    (row,) = campaign.run(case_of(Dropping), training=False)
    assert row.result.startswith("refused: [call-raises] The call itself raises RuntimeError")


def test_a_crash_is_no_sound_result(replace_benchmark):
    def crash(*_args, **_options):
        raise KeyError("lost")

    replace_benchmark(crash)
    rows = campaign.run(case_of(Small), training=False)
    assert [row.result for row in rows] == ["crash: KeyError: 'lost'"] * 2
    assert not any(row.sound for row in rows)


@pytest.mark.compiles
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(("library", "index"), ARCHITECTURES)
def test_architecture(library, index, training):
    if not installed(library):
        pytest.skip(f"{library} is not installed")
    for row in campaign.run(drawn(library)[index], training=training):
        assert row.sound, "\n".join([str(row), *row.details])


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("case", LISTED, ids=lambda case: f"{case.library}-{case.name}")
def test_listed_architecture(case, training):
    if not installed(case.library):
        pytest.skip(f"{case.library} is not installed")
    load_torchvision()  # where it is installed, other libraries import it too
    for row in campaign.run(case, training=training):
        print(case.library, case.name, row)
        assert row.sound, "\n".join([str(row), *row.details])
        assert row.artifacts, row
