"""State that a call writes, in Python and in the data of tensors, is restored or reported."""

import argparse
import functools
import importlib
import itertools
import random
import threading
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.capture.call import Call
from regional_explorer.capture.tensors import random_cotangents
from regional_explorer.errors import CaptureError
from tests.shared.checks import BEFORE_2_13, codes, only, version_of

CALLS = 3
X = torch.randn(2, 4)


def explore_and_repeat(fn, *args):
    """Explore a call, repeat it as measuring does, and return the exploration."""
    ex = rx.explore(fn, args)
    call = ex.live.call
    with call.restoring():
        for _ in range(CALLS):
            if call.stateful:
                call.restore()
            call.forward(ex.live.capture.run)
    return ex


def test_the_users_own_generators_repeat_their_numbers():
    torchs, numpys = torch.Generator().manual_seed(7), np.random.default_rng(7)
    older, pythons = np.random.RandomState(7), random.Random(7)  # noqa: S311 - for nobody's secrets
    sources = lambda: torch.rand(4, generator=torchs), numpys.random, older.rand, pythons.random
    for number in sources:
        ex = explore_and_repeat(lambda x: x * number(), X)
        assert ex.live.call.is_random
        with ex.live.call.restoring():
            first = ex.live.call.forward()
            ex.live.call.restore()
            assert torch.equal(first, ex.live.call.forward())
    system = random.SystemRandom()
    Call(lambda x: x * system.random(), (X,))  # its numbers cannot be repeated


class CallCounter(nn.Module):
    total = 0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0
        self.log = []
        self.stats = {"n": 0}

    def forward(self, x):
        self.calls += 1
        self.log.append(self.calls)
        self.stats["n"] += 1
        CallCounter.total += 1
        self.eval()
        return self.linear(x) * self.calls


class LazyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.ready = False
        self.table = None
        self.memo = {}
        self.calls = 0

    def forward(self, x):
        if not self.ready:
            self.table, self.ready = torch.ones(4), True
        if "mask" not in self.memo:
            self.memo["mask"] = torch.ones(4)
        if not hasattr(self, "log"):
            self.log = []
        self.log.append(0)
        self.calls += 1
        return x + self.table + self.memo["mask"]


def test_state_made_by_the_first_call_stays_and_is_reported():
    model = LazyModel()
    table = None

    def step(x):
        nonlocal table
        found = model(x)
        table = model.table if table is None else table
        return found

    ex = explore_and_repeat(step, X)
    assert model.ready
    assert table is model.table is not None
    assert list(model.memo) == ["mask"]
    assert (model.log, model.calls) == ([0], 0), "the list is the first call's; what later calls append is removed"
    message = only(ex, "state-kept").message
    for name in ("model.ready", "model.table", "model.memo['mask']", "model.log", " table"):
        assert name in message
    assert len(ex.live.capture.frames) == 1


class FirstBatch(nn.Module):
    """Sets a value and a flag in its first call, and counts all calls in a buffer."""

    def __init__(self, first):
        super().__init__()
        self.first, self.ready = first, False
        self.loc, self.frozen = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.ones(4))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if not self.ready:
            self.first(self, x.detach())
            self.ready = True
        self.seen += 1
        return ((x - self.loc) * self.frozen).square().sum()


def write(model, x):
    with torch.no_grad():
        model.loc.copy_(x.mean(0))


def write_data(model, x):
    model.loc.data.mul_(0).add_(x.mean(0))


def assign_data(model, x):
    model.loc.data = x.mean(0)


def freeze(model, x):
    model.frozen.requires_grad_(False)


@pytest.mark.parametrize(
    ("first", "kept"), [(write, "loc"), (write_data, "loc"), (assign_data, "loc"), (freeze, "frozen")]
)
def test_writes_of_the_first_call_alone_are_not_restored(first, kept):
    x = torch.randn(8, 4) + 3
    reference, model = FirstBatch(first), FirstBatch(first)
    want = reference(x)
    with rx.explore(model, (x,)) as ex:
        assert set(ex.live.call.not_restored) == {"ready", kept}
    torch.testing.assert_close(model(x), want)
    assert [p.requires_grad for p in model.parameters()] == [p.requires_grad for p in reference.parameters()]
    assert model.seen.item() == 1, "what every call writes is restored"


def test_autograd_detects_a_kept_write_in_the_users_graphs():
    x = torch.randn(8, 4)
    model = FirstBatch(write)
    loss = model.loc.square().sum()
    rx.explore(model, (x,)).close()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("first", [write, write_data, assign_data, freeze])
def test_first_call_writes_are_restored_on_refusal(first):
    model = FirstBatch(first)
    model.forward = torch.compiler.disable(model.forward)
    with pytest.raises(CaptureError, match="nothing-captured"):
        rx.explore(nn.Sequential(model), (torch.randn(8, 4) + 3,))
    assert not model.ready
    assert not model.loc.any()
    assert model.frozen.requires_grad


def test_repeated_writes_are_restored():
    model = nn.BatchNorm1d(4)
    model.register_forward_hook(lambda module, _, output: setattr(module, "mask", getattr(module, "mask", output > 0)))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ex = rx.explore(model, (torch.randn(8, 4),))
    assert ex.live.call.not_restored == ("mask",)
    torch.testing.assert_close(dict(model.state_dict()), before)


@pytest.mark.compiles
def test_a_module_gets_no_attribute_from_torch():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = nn.Linear(4, 4)
    torch.compile(compiled, backend="eager")
    before = [set(vars(module)) for module in (*model.modules(), compiled)]
    with rx.explore(model, (torch.ones(2, 4),)) as ex:
        ex.mark("r", modules="1")
        ex.benchmark(("regional", "full"), budget_s=0.1)
        ex.compiled(torch.ones(3, 4))
    rx.compile(model, ex.plan)(torch.ones(2, 4))
    rx.explore(compiled, (torch.ones(2, 4),)).close()
    assert [set(vars(module)) for module in (*model.modules(), compiled)] == before


def test_lazy_modules_are_initialized_once():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    explore_and_repeat(model, X)
    assert model[0].weight.shape == (4, 4)
    assert type(model[0]) is nn.Linear


def training_call(model):
    return lambda x: model(x).sum().backward()


def untraceable_call(model):
    lock = threading.Lock()

    def step(x):
        with lock:  # which Dynamo does not enter
            return model(x)

    return step


@pytest.mark.parametrize("call_of", [training_call, untraceable_call])
def test_lazy_modules_work_after_a_refused_call(call_of):
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    with pytest.raises(CaptureError, match=r"call-trains|nothing-captured"):
        rx.explore(call_of(model), (X,))
    assert model(X).shape == (2, 4)
    assert model[0].in_features == 4


def test_a_call_that_cannot_be_repeated_is_refused_and_undone():
    tokens = [1.0]

    def step(x):
        return x * tokens.pop()

    with pytest.raises(CaptureError, match=r"run a second time, raises IndexError.*tokens\.pop"):
        rx.explore(step, (X,))
    assert tokens == [1.0]


@pytest.mark.compiles
@pytest.mark.parametrize("where", ["before", "inside"])
def test_requires_grad_is_restored(where):
    x, w = torch.randn(4, 4), torch.randn(4, 4)

    def step(x, w):
        x.requires_grad_()
        with rx.region("r"):
            y = (x @ w).sin()
        return y.sum()

    def outer(x, w):
        y = w.sin()
        return step(x, y)

    ex = rx.explore(step if where == "before" else outer, (x, w))
    assert not x.requires_grad
    ex.benchmark(budget_s=0.05)
    assert not x.requires_grad
    assert "grad args[0]" in set(ex.numerics.tensor)
    assert set(ex.numerics.verdict) == {"ok"}


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(2, 4))

    def forward(self, x):
        self.seen.mul_(0.5).add_(self.linear(x))
        return (self.seen * x).sum()


def writing_programs():
    """Return calls that write values that require grad, each with its arguments and the tensor that it writes."""
    linear, memory = nn.Linear(4, 4), Memory()
    x, cache, out = X.clone().requires_grad_(), torch.zeros(2, 2, 4), torch.zeros(2, 4)

    def write(x, out):
        out.add_(x)
        return (out * x).sum()

    def write_row(x, cache):
        cache[0] = linear(x)
        return (cache * cache).sum()

    def write_by_index(x, cache):
        cache.index_copy_(0, torch.tensor([1]), linear(x)[None])
        return (cache.exp() * x).sum()

    def write_without_grad(x, out):
        with torch.no_grad():
            out.add_(x)
        return (out * x).sum()

    return {
        "argument": (write, (x, out), out),
        "row": (write_row, (x, cache), cache),
        "index": (write_by_index, (x, cache), cache),
        "buffer": (memory, (X,), memory.seen),
        "detached view": (write, (x, cache[0].detach()), cache),
        "no_grad": (write_without_grad, (x, out), out),
    }


@pytest.mark.parametrize("name", writing_programs())
def test_a_tensor_attached_to_autograd_by_a_write_is_detached(name):
    fn, args, written = writing_programs()[name]
    ex = rx.explore(fn, args)
    call = ex.live.call
    assert (written.requires_grad, written.grad_fn, version_of(written)) == (False, None, 0)
    gradients = []
    for function in (call.fn, ex.live.capture.run):
        with call.restoring():
            for _ in range(CALLS):
                call.restore()
                gradients.append(call.run(function)[1])
        assert (written.requires_grad, written.grad_fn, version_of(written)) == (False, None, 0)
        assert not written.any()
    for again in gradients[1:]:
        torch.testing.assert_close(again, gradients[0])
    assert len(ex.live.capture.frames) == 1


@pytest.mark.compiles
@pytest.mark.parametrize("name", ["argument", "row"])
def test_tensors_attached_to_autograd_by_variants_are_detached(name):
    fn, args, written = writing_programs()[name]
    ex = rx.explore(fn, args).mark("all", ops="*")
    ex.benchmark(budget_s=0.05)
    assert set(ex.numerics.verdict) == {"ok"}
    assert "call-nondeterministic" not in codes(ex)
    assert (written.requires_grad, written.grad_fn, version_of(written)) == (False, None, 0)


def test_a_write_that_cannot_be_detached_is_refused_before_it_is_made():
    x, cache, result = X.clone().requires_grad_(), torch.zeros(2, 2, 4), X.clone().requires_grad_() * 1
    row = cache[1]

    def write(x, out):
        out.add_(x)
        return (out * x).sum()

    def write_beside_view(x, out):
        out.add_(x)
        return (out * row).sum()

    for fn, out in ((write, row), (write, result), (write_beside_view, cache)):
        before = out.clone(), out.grad_fn, version_of(out)
        with pytest.raises(CaptureError, match=r"call-attaches.*out\.add_.*detach"):
            rx.explore(fn, (x, out))
        assert torch.equal(out, before[0])
        assert (out.grad_fn, version_of(out)) == before[1:]
    with torch.no_grad():
        rx.explore(write, (x, row))
    assert not row.requires_grad


def test_a_tensor_attached_to_autograd_since_exploring_is_refused():
    fn, args, written = writing_programs()["argument"]
    ex = rx.explore(fn, args)
    fn(*args)
    with pytest.raises(CaptureError, match="has become part of an autograd graph"):
        ex.benchmark(budget_s=0.1)
    written.detach_()
    ex.benchmark(variants=("eager",), budget_s=0.05)


def test_leaf_views_made_under_no_grad_can_be_outputs():
    x = torch.randn(3, 4, requires_grad=True)
    assert rx.explore(lambda x: x.t(), (x,), grad=False).session.graphs

    def step(x):
        with torch.no_grad():
            view = x.t()
        return view, x * 2

    ex = rx.explore(step, (x,))
    assert ex.live.call.gradient_names == ["grad args[0]"]
    (gradient,) = ex.live.call.backward(ex.live.call.forward(ex.live.capture.run))
    assert torch.equal(gradient, 2 * random_cotangents(step(x))["[1]"])


def test_a_benchmark_restores_a_counter_and_traces_once():
    model = CallCounter()
    ex = rx.explore(model, (X,))
    ex.benchmark(variants=("eager", "aot_eager"), budget_s=0.05)
    assert (model.calls, model.log, model.stats, CallCounter.total, model.training) == (0, [], {"n": 0}, 0, True)
    assert len(ex.live.capture.frames) == 1, "Dynamo guards on the number, so it has to be restored"
    assert set(ex.numerics.verdict) == {"ok"}
    breaks = {"graph-break"} if BEFORE_2_13 else set()
    assert set(codes(ex)) - breaks == {"state-guarded"}, "self.eval() breaks the graph in torch 2.11"


def test_assignments_in_users_modules_are_restored(tmp_path, monkeypatch):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "state.py").write_text(
        "import torch\ncalls = bumps = 0\nnet = torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "def bump():\n    global bumps\n    bumps += 1\n"
    )
    (tmp_path / "stepping.py").write_text(
        "import kept.state\ndef step(x):\n    kept.state.calls += 1\n    kept.state.bump()\n"
        "    return kept.state.net(x) * kept.state.calls\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    step, state = importlib.import_module("stepping").step, importlib.import_module("kept.state")
    ex = explore_and_repeat(step, X).mark("net", modules="0")
    assert (state.calls, state.bumps) == (0, 0)
    assert "state-kept" not in codes(ex)


def test_writes_to_inputs_that_an_op_returns_are_restored():
    def step(a, b):
        c, d = torch.broadcast_tensors(a, b)
        a.add_(1)
        return c + d

    a = torch.zeros(2)
    with torch.inference_mode():  # where such ops are not taken apart
        explore_and_repeat(step, a, torch.zeros(2))
    assert not a.any()


CACHED = 0


@functools.lru_cache
def cached(n):
    global CACHED  # noqa: PLW0603 - what is tested
    CACHED += 1
    return n + CACHED


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
def test_an_lru_cache_that_the_call_fills_is_reported():
    cached.cache_clear()
    ex = explore_and_repeat(lambda x: x * cached(2), X)
    assert "cached.cache" in only(ex, "state-kept").message
    assert cached.cache_info().currsize == 1
    assert CACHED == 1
    cached.cache_clear()


def test_hooks_that_the_call_registers_are_removed_or_reported():
    model, weight = nn.Linear(4, 4), torch.ones(4, requires_grad=True)

    def each(x):
        weight.register_hook(lambda grad: grad * 2)
        model.register_forward_hook(lambda *_: None)
        return model(x) * weight

    Call(each, (X,)).close()
    call = Call(each, (X,))
    kept = len(model._forward_hooks), len(weight._backward_hooks or {})
    assert kept <= (2, 2)
    assert call.not_restored == ("hooks of model", "hooks of weight")
    with call.restoring():
        for _ in range(CALLS):
            call.forward()
            call.restore()
    assert (len(model._forward_hooks), len(weight._backward_hooks or {})) == kept


class Gone:
    pass


class Unreadable:
    @property  # type: ignore[misc]
    def __class__(self):
        raise RuntimeError


GONE, UNREADABLE = weakref.proxy(Gone()), Unreadable()


def test_unreadable_state_is_ignored():
    def step(x):
        return x * 2 if x.dim() else (GONE, UNREADABLE)

    assert rx.explore(step, (X,)).session.graphs
    Call(lambda x, given: (x, given), (X, GONE))


def test_all_changes_of_arguments_by_a_call_are_restored():
    def change(x, cache, one, other):
        cache["new"] = cache.pop("old")
        cache["seen"].append(x)
        one.n, other.n = one.n + 1, other.n + 1
        one.new = other.new = True
        one.inner.log.append(one.n)
        other.inner.log.append(other.n)
        x[0].mul_(0)
        return x + cache["new"] * one.n

    x, cache = torch.ones(2, 3), {"old": torch.ones(3), "seen": []}
    spaces = [kind(n=1, inner=kind(log=[])) for kind in (SimpleNamespace, argparse.Namespace)]
    explore_and_repeat(change, x, cache, *spaces)
    assert torch.equal(x, torch.ones(2, 3))
    assert list(cache) == ["old", "seen"]
    assert cache["seen"] == []
    assert [vars(space) for space in spaces] == [{"n": 1, "inner": type(space)(log=[])} for space in spaces]


FLAGS = {
    "default dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float64)),
    "default device": (torch.get_default_device, lambda: torch.set_default_device("meta")),
    "threads": (torch.get_num_threads, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    "deterministic": (
        torch.are_deterministic_algorithms_enabled,
        lambda: torch.use_deterministic_algorithms(mode=True),
    ),
    "precision": (torch.get_float32_matmul_precision, lambda: torch.set_float32_matmul_precision("medium")),
    "anomaly": (torch.is_anomaly_enabled, lambda: torch.autograd.set_detect_anomaly(mode=True)),
    "grad mode": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(mode=False)),
    "cudnn": (lambda: torch.backends.cudnn.benchmark, lambda: setattr(torch.backends.cudnn, "benchmark", True)),
}


def test_default_device_of_the_call_is_used():
    call = Call(lambda x: x * torch.rand(4), (X,))
    torch.set_default_device("meta")
    try:
        with call.restoring():
            for _ in range(CALLS):
                call.restore()
                assert call.forward().device == X.device
        assert torch.get_default_device() == torch.device("meta")
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("ends_in_run", [None, 1, 2])
def test_torch_flags_that_the_call_sets_are_restored(ends_in_run):
    before, runs = {name: read() for name, (read, _) in FLAGS.items()}, itertools.count(1)

    @torch._dynamo.disable
    def set_them():
        for name, (read, change) in FLAGS.items():
            change()
            assert read() != before[name]
        if next(runs) == ends_in_run:
            raise KeyboardInterrupt

    def step(x):
        y = x * 2
        set_them()
        return y + 1

    with nullcontext() if ends_in_run is None else pytest.raises(KeyboardInterrupt):
        explore_and_repeat(step, X)
    assert {name: read() for name, (read, _) in FLAGS.items()} == before
