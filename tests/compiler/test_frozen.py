"""Frozen inference: weights are constants of the regions, and a change of one is never missed."""

import copy
import functools
import re
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regional_explorer as rx
from regional_explorer.compiler import artifact
from regional_explorer.compiler.workpiece import Weights
from regional_explorer.export.to_source import plan_source
from regional_explorer.insight.kernel_times import measure_kernel_times
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record.files import dump_plan, load_plan
from regional_explorer.record.plan import FROZEN, SelectorKind
from regional_explorer.torch_api.dynamo import ISOLATES
from regional_explorer.torch_api.prepared import Constants
from regional_explorer.tuning.space import tracings_to_try
from tests.shared import programs
from tests.shared.fakes import BudgetByStamps

pytestmark = [pytest.mark.compiles, pytest.mark.usefixtures("own_recompile_limit")]

LAYERS = programs.plan_of(layer="layers.*")
FROZEN_WEIGHTS = rx.Tracing(joint_passes=True, decompositions=True, frozen=True)
WHOLE = rx.Plan((rx.Region("whole", (rx.Selector(SelectorKind.OPS, ("*",)),)),))


def explore_frozen(module, *args, plan=WHOLE, **options):
    return rx.explore(module, args, plan=plan, tracing=FROZEN_WEIGHTS, grad=False, **options)


def states(ex):
    return [str(part.state) for part in ex.session.partitions]


def assert_as_eager(ex, module, *args):
    """Compare two calls, because the first call of an artifact is checked more than later calls."""
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(ex.compiled(*args), module(*args))


@pytest.fixture
def net():
    return programs.Stack(2)


@pytest.fixture
def x():
    return torch.randn(4, 16)


@pytest.fixture(scope="module" if ISOLATES else "function")  # before each test torch 2.11 forgets what it traced
def compiled_layers():
    """Return an exploration whose artifacts are compiled, its module and its input."""
    net, x = programs.Stack(2), torch.randn(4, 16)
    ex = explore_frozen(net, x, plan=LAYERS)
    ex.compile()
    return ex, net, x


def test_weights_are_constants_and_results_match_eagers(compiled_layers):
    ex, net, x = compiled_layers
    assert states(ex) == ["compiled"] * 2
    assert_as_eager(ex, net, x)
    assert [part.error for part in ex.session.partitions] == [None, None]
    for one in ex.live.program.store.artifacts.values():
        assert "_frozen_param" in one.code
        assert len(set(re.findall(r"\b(?:arg|in)_\d+\b", one.code))) == 1  # the input that is no weight


def test_the_memory_of_constants_is_counted(compiled_layers):
    ex, net, _ = compiled_layers
    found = [one.constants.size_bytes for one in ex.live.program.store.artifacts.values()]
    matrices = [sum(weight.nbytes for weight in layer.parameters() if weight.dim() > 1) for layer in net.layers]
    assert all(ours >= theirs for ours, theirs in zip(sorted(found), sorted(matrices), strict=True))
    one = torch.ones(8)
    kinds = {"whole": one, "part of it": one[2:], "packed": torch.ones(8, 8).to_mkldnn(), "number": 3}
    assert Constants(kinds, ()).size_bytes == one.nbytes + 8 * 8 * 4


def test_kernels_of_frozen_code_are_timed(compiled_layers, monkeypatch):
    ex, *_ = compiled_layers
    rounds_by_stamps = functools.partial(run_rounds, clock=BudgetByStamps())  # as many on every machine
    monkeypatch.setattr("regional_explorer.insight.kernel_times.run_rounds", rounds_by_stamps)
    assert "Here they are inputs." in ex.repro("layer")
    ex.code("layer")
    measure_kernel_times(ex.live.insights, "layer", 0.2, rx.Run())
    measured = list(ex.live.insights.kernel_times.values())
    assert [one.problem for one in measured] == [None] * 2


def test_equal_layers_have_equal_code():
    net, x = programs.Stack(3), torch.randn(4, 16)
    with torch.no_grad():
        for tensor in net.parameters():
            tensor.copy_(torch.randn_like(tensor))
    ex = explore_frozen(net, x, plan=LAYERS)
    ex.compile()
    # The first layer reads an input that the caller keeps.
    assert len({part.code_hash for part in ex.session.partitions[1:]}) == 1
    assert_as_eager(ex, net, x)


def test_equal_weights_that_change_become_separate_constants(x):
    net = programs.Stack(3)  # the norms of a new model are equal, and have one artifact
    ex = explore_frozen(net, x, plan=programs.plan_of(norm="layers.*.norm"))
    ex.compile()
    fn, second, third = ex.compiled, net.layers[1].norm, net.layers[2].norm
    assert len({part.artifact for part in ex.session.partitions[1:]}) == 1
    with torch.no_grad():
        torch.testing.assert_close(fn(x), net(x))
        second.weight.add_(1)
        for _ in range(2):
            torch.testing.assert_close(fn(x), net(x))
        assert states(ex)[1:] == ["stale", "compiled"]
        # The weight has the artifact's content again, in another tensor.
        second.load_state_dict({name: value.clone() for name, value in third.state_dict().items()}, assign=True)
        ex.compile()
        assert states(ex)[1:] == ["compiled"] * 2
        torch.testing.assert_close(fn(x), net(x))


def train_step(net, x):
    with torch.enable_grad():
        net(x).backward()
    torch.optim.AdamW(net.parameters(), lr=0.1).step()
    net.zero_grad()


def other_weights(net):
    return {name: value + 0.1 for name, value in net.state_dict().items()}


def load_other_weights(net, _x):
    net.load_state_dict(other_weights(net))


def assign_other_weights(net, _x):
    net.load_state_dict(other_weights(net), assign=True)


def write_behind_torch(net, _x):
    net.layers[1].up.weight.data.mul_(3)


def write_by_numpy(net, _x):
    net.layers[1].up.bias.detach().numpy()[:] = 7


def set_data(net, _x):
    net.layers[1].down.weight.data = torch.randn(16, 32)


def replace_a_module(net, _x):
    net.layers[1] = copy.deepcopy(net.layers[0])


@pytest.mark.parametrize(
    "change",
    [
        train_step,
        load_other_weights,
        assign_other_weights,
        write_behind_torch,
        write_by_numpy,
        set_data,
        replace_a_module,
    ],
)
def test_a_changed_weight_is_reported_and_its_old_value_never_used(compiled_layers, change):
    ex, net, x = compiled_layers
    before, layers = copy.deepcopy(net.state_dict()), list(net.layers)
    compiles = ex.live.program.store.compiles
    with torch.no_grad():
        fn = ex.compiled
        fn(x)
        change(net, x)
        with pytest.warns(UserWarning, match=r"Region 'layer' runs eagerly until the next ex.compile\(\): .*layers.1."):
            torch.testing.assert_close(fn(x), net(x))
        assert states(ex)[1] == "stale"
        torch.testing.assert_close(fn(x), net(x))
        net.layers = nn.ModuleList(layers)
        net.load_state_dict(before)
    ex.compile()  # the same weights again: artifacts are known by their content
    assert states(ex) == ["compiled"] * 2
    assert ex.live.program.store.compiles == compiles
    assert_as_eager(ex, net, x)


def test_a_weight_write_that_torch_counts_makes_the_partition_stale(compiled_layers):
    ex, net, x = compiled_layers
    with torch.no_grad():
        net.layers[0].up.bias.add_(1)
        assert states(ex) == ["stale", "compiled"]
        net.layers[0].up.bias.sub_(1)
    ex.compile()
    assert_as_eager(ex, net, x)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(4, 8),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(8, 4).t(),
        torch.randn(3).bfloat16(),
        torch.ones(()),
        torch.ones(0, 4),
        torch.randn(8, 8)[:, ::2],
    ],
    ids=lambda tensor: f"{list(tensor.shape)} {tensor.stride()}",
)
def test_a_call_detects_a_weight_write_that_torch_does_not_count(tensor):
    weight = nn.Parameter(tensor)
    weights = Weights.of(SimpleNamespace(inputs=("x", "w"), unwritten={"w"}), {"w": weight})
    check = weights.are_among()
    assert check([None, weight])
    assert not check([None, nn.Parameter(tensor)])
    weight.data.mul_(2)
    is_seen = tensor.numel() > 0 and tensor.stride() != (8, 2)  # tensors with gaps are not compared
    assert check([None, weight]) is not is_seen
    assert weights.changed_places([None, weight]) == [1] * is_seen


def test_next_compile_finds_a_frozen_weight_write_that_calls_miss():
    net, x = nn.Linear(64, 64), torch.randn(8, 64)
    ex = explore_frozen(net, x)
    ex.compile()
    net.weight.data[3, 7] = 100.0
    ex.compile()
    assert ex.live.program.store.compiles == 2
    assert_as_eager(ex, net, x)


class StatefulModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("calls", torch.zeros(8))
        self.register_buffer("place", torch.arange(8.0))

    def forward(self, x):
        self.calls.add_(1)
        return self.norm(x) + self.calls + self.place


def test_buffers_that_the_call_writes_stay_inputs():
    net, x = StatefulModel(), torch.randn(4, 8)
    ex, other = explore_frozen(net, x), copy.deepcopy(net)
    ex.compile()
    fn = ex.compiled
    with torch.no_grad(), warnings.catch_warnings(action="error"):
        for _ in range(3):
            torch.testing.assert_close(fn(x), other(x))
    torch.testing.assert_close(net.state_dict(), other.state_dict())
    (switch,) = ex.live.program.switches
    assert (
        len(switch.known_workpiece.weights.by_place) == 3
    )  # the weights of the norm, and the buffer that is only read


class WeightViewModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return x @ self.weight * self.scale, self.weight.t(), self.weight * 2


def test_a_returned_view_aliases_the_weight_not_the_constant():
    net, x = WeightViewModel(), torch.randn(4, 8)
    ex = explore_frozen(net, x)
    ex.compile()
    fn = ex.compiled
    with torch.no_grad():
        _, shown, doubled = fn(x)
        doubled.add_(1)
        torch.testing.assert_close(fn(x), net(x))
        shown.add_(1)
        torch.testing.assert_close(fn(x), net(x))


def test_a_number_in_the_code_comes_from_its_own_weights():
    """Inductor's cache confuses the code of two pieces that differ only in weights (docs/upstream.md)."""
    for scale in (2.0, 3.0):
        net = WeightViewModel()
        net.scale.data.fill_(scale)
        ex = explore_frozen(net, torch.randn(4, 8))
        ex.compile()
        assert_as_eager(ex, net, torch.randn(4, 8))


def test_frozen_code_serves_dynamic_sizes(net, x):
    ex = explore_frozen(net, x, plan=LAYERS, dynamic=True)
    ex.compile()
    assert_as_eager(ex, net, torch.randn(7, 16))
    assert {switch.mode.name for switch in ex.live.program.switches} == {"SETTLED"}


def test_weights_beside_a_random_op_stay_inputs_with_a_diagnostic(x):
    linear = nn.Linear(16, 16)
    ex = explore_frozen(lambda x: F.dropout(linear(x), 1.0), x)
    ex.compile()
    (found,) = ex.diagnostics
    assert found.code == "config-inert"
    assert "aten.native_dropout.default through AOTAutograd" in found.message
    assert_as_eager(ex, torch.zeros_like, x)
    linear.weight.data.mul_(2)
    assert states(ex) == ["compiled"]


def test_training_with_frozen_weights_is_refused_by_every_function(net, x):
    ex = rx.explore(net, (x,))
    for door in (
        lambda: rx.explore(net, (x,), tracing=FROZEN_WEIGHTS),
        lambda: ex.retrace(tracing=FROZEN_WEIGHTS),
        lambda: setattr(ex, "plan", rx.Plan(tracing=FROZEN)),
    ):
        with pytest.raises(rx.InvalidArgumentError, match="this call takes gradients: explore it with grad=False"):
            door()
    assert ex.plan.tracing == rx.Tracing()
    compiled = rx.compile(net, LAYERS, tracing=FROZEN_WEIGHTS)
    for _ in range(2):
        with pytest.raises(rx.PlanError, match=r"under torch\.no_grad"):
            compiled(x)


def test_frozen_belongs_to_the_plan(net, x):
    ex = explore_frozen(net, x, plan=LAYERS)
    assert ex.plan.tracing == FROZEN_WEIGHTS
    assert load_plan(dump_plan(ex.plan)) == ex.plan
    assert "decompositions, frozen" in ex.text
    other = rx.explore(net, (x,), grad=False)
    exec(plan_source(ex.plan), {"ex": other, "rx": rx})  # noqa: S102 - what the panel copies
    assert other.plan == ex.plan
    with pytest.raises(rx.InvalidArgumentError, match="frozen=True needs decompositions=True"):
        rx.Tracing(frozen=True)


def test_the_message_about_the_freezing_key_names_frozen(net, x):
    keys = {"freezing": True, "max_autotune": True}
    ex = rx.explore(net, (x,), plan=LAYERS, grad=False).configure("layer", keys)
    for tracing in (rx.Tracing(), FROZEN_WEIGHTS):
        ex.retrace(tracing=tracing)
        (found,) = [found for found in ex.diagnostics if found.code == "config-inert"]
        assert "freezing=True has no effect" in found.message
        assert "rx.Tracing(frozen=True, …)" in found.message


def test_a_search_tries_frozen_weights_only_for_inference():
    assert [way for way in tracings_to_try(grad=False) if way.frozen] == [FROZEN]
    assert not any(way.frozen for way in tracings_to_try(grad=True))


def test_production_loads_frozen_code_and_reports_other_weights(net, x, tmp_path, monkeypatch):
    ex = explore_frozen(net, x, plan=LAYERS)
    ex.compile()
    ex.save_artifacts(tmp_path / "artifacts")
    path = ex.save_plan(tmp_path / "plan.json")
    with monkeypatch.context() as patch, torch.no_grad(), warnings.catch_warnings(action="error"):
        patch.setattr(artifact, "start_compile", None)
        patch.setattr(artifact.ArtifactStore, "start", None)  # nothing is compiled
        fast = rx.compile(net, path, artifacts=tmp_path / "artifacts")
        for _ in range(2):
            torch.testing.assert_close(fast(x), net(x))
    with torch.no_grad():
        net.layers[1].up.weight.add_(1)
        with pytest.warns(UserWarning, match=r"region-failed.*its frozen weights have changed: .*layers.1.up.weight"):
            torch.testing.assert_close(fast(x), net(x))
        assert "1 compiled, 1 not compiled" in str(rx.status(fast))
        torch.testing.assert_close(fast(x), net(x))
        again = rx.compile(net, path, artifacts=tmp_path / "artifacts")
        with pytest.warns(UserWarning, match="artifact-differs.*other weights as constants"):
            torch.testing.assert_close(again(x), net(x))
