"""What a call writes into Python and into the data of tensors is put back, or named."""

import random
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.capture.call import Call
from regional_explorer.errors import CaptureError
from tests.engine.upstream import BEFORE_2_13

CALLS = 3
X = torch.randn(2, 4)


def repeated(fn, *args):
    """Explore a call, repeat it as measuring does, and return the exploration."""
    ex = rx.explore(fn, args)
    call = ex.live.call
    with call.kept():
        for _ in range(CALLS):
            if call.stateful:
                call.restore()
            call.forward(ex.live.capture.run)
    return ex


def codes(ex):
    return [item.code for item in ex.diagnostics]


def test_data_of_a_parameter_is_put_back():
    model = nn.Linear(4, 4)

    def decay(x):
        model.weight.data = model.weight.data * 0.5
        return model(x)

    data, version, before = model.weight.data_ptr(), model.weight._version, model.weight.detach().clone()
    ex = repeated(decay, X)
    assert torch.equal(model.weight, before)
    assert (model.weight.data_ptr(), model.weight._version) == (data, version)
    with ex.live.call.kept():
        torch.testing.assert_close(ex.live.call.forward(), torch.nn.functional.linear(X, before * 0.5, model.bias))


def test_a_pending_loss_can_still_be_backwarded():
    model = nn.Linear(4, 4)

    def decay(x):
        model.weight.data = model.weight.data * 0.5
        return model(x)

    pending = model(X).square().sum()
    repeated(decay, X)
    pending.backward()


@pytest.mark.parametrize("how", ["set_", "resize_", "data of another shape"])
def test_a_tensor_given_other_storage_is_put_back(how):
    buffer = torch.arange(4.0)

    def change(x):
        if how == "set_":
            buffer.set_(buffer * 2)
        elif how == "resize_":
            buffer.resize_(1 << 12).zero_()
        else:
            buffer.data = torch.zeros(2, 4)
        return x * 2

    data = buffer.data_ptr()
    repeated(change, X)
    assert torch.equal(buffer, torch.arange(4.0))
    assert how == "resize_" or buffer.data_ptr() == data


def own_generators():
    """Generators of the user's own: each with a function that draws from it, and one that reads its state."""
    torchs, numpys, older, pythons = (
        torch.Generator().manual_seed(7),
        np.random.default_rng(7),
        np.random.RandomState(7),
        random.Random(7),  # noqa: S311 - for nobody's secrets
    )
    return {
        "torch": (lambda: torch.rand(4, generator=torchs), torchs.get_state),
        "numpy": (numpys.random, lambda: numpys.bit_generator.state),
        "numpy, older": (older.rand, older.get_state),
        "python": (pythons.random, pythons.getstate),
    }


@pytest.mark.parametrize("kind", own_generators())
def test_a_generator_of_the_users_own_is_put_back(kind):
    draw, state = own_generators()[kind]

    def step(x):
        return x * draw()

    before = str(state())
    ex = repeated(step, X)
    assert str(state()) == before
    assert ex.live.call.draws
    with ex.live.call.kept():
        first = ex.live.call.forward()
        ex.live.call.restore()
        assert torch.equal(first, ex.live.call.forward())


class Counts(nn.Module):
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
        Counts.total += 1
        self.eval()
        return self.linear(x) * self.calls


def test_attributes_lists_dicts_and_modes_are_put_back():
    model = Counts()
    ex = repeated(model, X)
    assert (model.calls, model.log, model.stats, Counts.total, model.training) == (0, [], {"n": 0}, 0, True)
    breaks = {"graph-break"} if BEFORE_2_13 else set()
    assert set(codes(ex)) <= breaks, "self.eval() breaks the graph in torch 2.11"


COUNT = 0


def test_variables_of_closures_and_globals_are_put_back():
    count, seen, names = 0, deque(), set()

    class State:
        __slots__ = ("n",)

    state = State()
    state.n = 0

    def step(x):
        global COUNT  # noqa: PLW0603 - what is tested
        nonlocal count
        COUNT += 1
        count += 1
        state.n += 1
        seen.append(count)
        names.add(len(names))
        return x * count

    ex = repeated(step, X)
    assert (COUNT, count, state.n, len(seen), len(names)) == (0, 0, 0, 0, 0)
    assert codes(ex).count("recompiled") == 0


def test_a_decorated_function_is_looked_into():
    count = 0

    @torch.no_grad()
    def step(x):
        nonlocal count
        count += 1
        step.__wrapped__.calls += 1
        return x + 1

    step.__wrapped__.calls = 0
    repeated(step, X)
    assert (count, step.__wrapped__.calls) == (0, 0)


def test_a_counter_costs_no_new_trace():
    """Dynamo guards on the number: without putting it back, every call would trace anew."""
    model = Counts()
    assert len(repeated(model, X).live.capture.frames) == 1


class Lazy(nn.Module):
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


def test_what_the_first_call_makes_stays_and_is_named():
    model = Lazy()
    table = None

    def step(x):
        nonlocal table
        found = model(x)
        table = model.table if table is None else table
        return found

    ex = repeated(step, X)
    assert model.ready
    assert table is model.table is not None
    assert list(model.memo) == ["mask"]
    assert (model.log, model.calls) == ([0], 0), "the list is the first call's, what later ones append is put back"
    (found,) = (item for item in ex.diagnostics if item.code == "state-kept")
    for name in ("model.ready", "model.table", "model.memo['mask']", "model.log", " table"):
        assert name in found.message
    assert len(ex.live.capture.frames) == 1


def test_lazy_modules_are_made_once():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    repeated(model, X)
    assert model[0].weight.shape == (4, 4)
    assert type(model[0]) is nn.Linear


def test_a_call_that_cannot_be_repeated_is_refused_and_undone():
    tokens = [1.0]

    def step(x):
        return x * tokens.pop()

    with pytest.raises(CaptureError, match=r"run a second time, raises IndexError.*tokens\.pop"):
        rx.explore(step, (X,))
    assert tokens == [1.0]


@pytest.mark.compiles
@pytest.mark.parametrize("where", ["before", "inside"])
def test_a_tensor_that_the_call_lets_require_grad_does_not_afterwards(where):
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
    ex.benchmark(budget_s=0.2)
    assert not x.requires_grad
    assert "grad args[0]" in set(ex.numerics.tensor)
    assert set(ex.numerics.verdict) == {"ok"}


def test_what_the_user_assigns_meanwhile_stays():
    model = Counts()
    call = Call(model, (X,))
    model.calls, model.note = 10, "mine"
    with call.kept():
        call.forward()
        assert model.calls == 11
        call.restore()
        assert model.calls == 10
    assert (model.calls, model.note) == (10, "mine")


def test_output_made_under_no_grad_of_a_leaf_is_no_error():
    x = torch.randn(3, 4, requires_grad=True)
    assert rx.explore(lambda x: x.t(), (x,), grad=False).session.graphs

    def step(x):
        with torch.no_grad():
            view = x.t()
        return view, x * 2

    ex = rx.explore(step, (x,))
    assert ex.live.call.gradient_names == ["grad args[0]"]
    (gradient,) = ex.live.call.backward(ex.live.call.forward(ex.live.capture.run))
    assert torch.equal(gradient, 2 * ex.live.call._cotangents["[1]"])


def test_a_whole_benchmark_leaves_a_counter_alone_and_traces_once():
    model = Counts()
    ex = rx.explore(model, (X,))
    ex.benchmark(variants=("eager", "aot_eager"), budget_s=0.2)
    assert (model.calls, model.log) == (0, [])
    assert len(ex.live.capture.frames) == 1
    assert set(ex.numerics.verdict) == {"ok"}
