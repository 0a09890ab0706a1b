"""Suggested regions: what an engineer would try first, without a compile."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx
from regional_explorer.record.expected import expected_compile_s
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Plan, Region
from regional_explorer.record.tuning import SuggestionKind
from regional_explorer.regions.select import assign, picked_origins
from tests.shared import models as architectures
from tests.shared import programs

MOST_LINES = 10


class Experts(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, width)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gates = self.gate(x).softmax(-1)
        total = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            total = total + gates[..., number, None] * expert(x)
        return total.tanh()


class Mixture(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Experts(width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + layer(norm(x))
        return F.cross_entropy(self.head(x), y)


class BasicBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = (nn.BatchNorm2d(width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(BasicBlock(3), BasicBlock(3))
        self.layer2 = nn.Sequential(BasicBlock(3), BasicBlock(3))
        self.fc = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.layer1(x), 2)
        return F.cross_entropy(self.fc(self.layer2(x).mean((2, 3))), y)


def ten_ops(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a = x.sin() * y
    b = a.exp() + x
    c = b.tanh() - a
    return ((c * c).mean(-1).sqrt() / 2).sum()


def one_op(x: torch.Tensor) -> torch.Tensor:
    return x.relu()


def one_product(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def labels(number: int) -> torch.Tensor:
    return torch.zeros(number, dtype=torch.int64)


Expected = dict[str, str]
STACK: Expected = {
    "whole": "ops:*",
    "chains": "-ops:linear",
    "layers": "modules:layers.*",
    "layers-chains": "modules:layers.* -ops:linear",
    "norms": "ops:layer_norm",
    "loss": "lines:Stack.forward:4",
}
MODELS: dict[str, tuple[Callable[[], rx.Exploration], Expected]] = {
    "stack": (lambda: rx.explore(programs.Stack(), (torch.randn(4, 16),)), STACK),
    "mixture": (
        lambda: rx.explore(Mixture(), (torch.randn(6, 16), labels(6))),
        {
            "whole": "ops:*",
            "chains": "-ops:linear",
            "layers": "modules:layers.*",
            "layers-chains": "modules:layers.* -ops:linear",
            "experts": "modules:layers.*.experts.*",
            "norms": "ops:layer_norm",
            "loss": "ops:cross_entropy",
        },
    ),
    "resnet": (
        lambda: rx.explore(ResNet(), (torch.randn(2, 3, 8, 8), labels(2))),
        {
            "whole": "ops:*",
            "chains": "-ops:conv2d,linear",
            "BasicBlock": "modules:layer1.*,layer2.*",
            "BasicBlock-chains": "modules:layer1.*,layer2.* -ops:conv2d",
            "norms": "ops:batch_norm",
            "loss": "ops:cross_entropy",
        },
    ),
    "ten ops": (lambda: rx.explore(ten_ops, programs.pair()), {"whole": "ops:*"}),
    "one op": (lambda: rx.explore(one_op, (torch.randn(4),)), {"whole": "ops:*"}),
    "one product": (lambda: rx.explore(one_product, (torch.randn(4, 4),)), {"whole": "ops:*"}),
}


def check(ex: rx.Exploration) -> None:
    """Check the figures and relations of suggestions against the regions that marking them gives."""
    graphs, found = ex.session.graphs, ex.suggest()
    running = {op.origin for graph in graphs if graph.kind != "dynamo" for op in graph.ops}
    origins = {}
    for one in found:
        plan = ex.draft().mark(one.name, *one.selectors).plan
        claims = assign(graphs, plan).owners
        origins[one.name] = {origin for origin in claims if origin in running}
        assert one.instances == len({claims[origin].instance for origin in origins[one.name]}), one
        assert 1 <= one.distinct <= one.instances
        assert one.ops == len(origins[one.name]) >= one.fusable
        parts = [part for part in ex.preview(plan).partitions if part.region == one.name]
        assert len(parts) >= one.instances, one
    for one, other in itertools.permutations(found, 2):
        mine, others = origins[one.name], origins[other.name]
        assert mine != others
        assert (other.name in one.inside) == (mine < others)
        assert (other.name in one.overlaps) == (bool(mine & others) and not mine <= others and not others <= mine)
    assert len(repr(found).splitlines()) <= MOST_LINES
    assert all(part.state is not State.COMPILED for part in ex.session.partitions)
    assert not ex.session.artifacts


@pytest.mark.parametrize("name", MODELS)
def test_suggestions_match_their_marks(name: str) -> None:
    make, expected = MODELS[name]
    with make() as ex:
        assert {one.name: one.selection for one in ex.suggest()} == expected
        check(ex)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert", {"layer", "attention", "intermediate", "output", "chains", "layer-chains", "norms", "whole"}),
        ("gpt2", {"h", "attn", "mlp", "chains", "h-chains", "norms", "loss", "whole"}),
        ("llama", {"layers", "self_attn", "mlp", "chains", "layers-chains", "norms", "loss", "whole"}),
        ("vit", {"layers", "mlp", "chains", "layers-chains", "norms", "whole"}),
        ("mixtral", {"layers", "self_attn", "mlp", "chains", "layers-chains", "norms", "loss", "whole"}),
    ],
)
def test_models_of_transformers_are_suggested_by_their_parts(name: str, expected: set[str]) -> None:
    pytest.importorskip("transformers")
    with architectures.explore_unmarked(name, training=True) as ex:
        assert {one.name for one in ex.suggest()} == expected
        check(ex)


def test_a_profile_gives_shares_and_the_order(tmp_path: Path) -> None:
    with rx.explore(
        programs.Stack(), (torch.randn(2048, 16),)
    ) as ex:  # large, because short ops may count as taking no time
        before = ex.suggest()
        assert all(one.share is one.fusable_share is None for one in before)
        assert "The order is a guess, by the number of ops" in repr(before)
        assert "ex.profile()" in repr(before)
        ex.profile(0.5)
        found = ex.suggest()
        assert "The order is a guess, by the profiled time of ops" in repr(found)
        assert {one.name for one in found} == {one.name for one in before}
        shares = {one.name: (one.share or 0.0, one.fusable_share or 0.0) for one in found}
        rounding = 1 + 1e-9
        assert all(0 < fusable <= share * rounding <= rounding**2 for share, fusable in shares.values())
        assert all(shares[one.name][0] <= shares[outer][0] * rounding for one in found for outer in one.inside)
        assert list(found) == sorted(found, key=lambda one: -shares[one.name][1])
        assert rx.load(ex.save(tmp_path / "profiled.json")).suggest() == found
        assert "share" in found._repr_html_()
    assert not ex.session.artifacts


def test_the_call_in_a_suggestions_text_marks_it() -> None:
    with rx.explore(programs.Stack(), (torch.randn(4, 16),)) as ex:
        text = repr(ex.suggest())
        call = text.split("To try one: ")[1].split(", then")[0]
        eval(call, {"ex": ex})  # noqa: S307 - what the text says
        assert [region.selection for region in ex.plan.regions] == ["-ops:linear"]


def test_suggestions_ignore_marked_regions() -> None:
    with rx.explore(programs.Stack(), (torch.randn(4, 16),)) as ex:
        before = ex.suggest()
        ex.mark("mlp", modules="layers.*.up")
        assert ex.suggest() == before
        loss = next(one for one in before if one.kind is SuggestionKind.LOSS)
        ex.plan = Plan((Region(loss.name, loss.selectors),))
        assert picked_origins(loss.selectors[0], ex.session.graphs)


def test_suggestions_of_equal_layers_are_expected_to_compile_faster_than_the_whole_call() -> None:
    ex = rx.explore(Mixture(), (torch.randn(4, 16), torch.randint(5, (4,))))
    by_name = {suggestion.name: suggestion for suggestion in ex.suggest()}
    layers, whole = (by_name[name].expected_s or 0.0 for name in ("layers", "whole"))
    assert 0.0 < layers < whole < (expected_compile_s(ex.session) or 0.0)
