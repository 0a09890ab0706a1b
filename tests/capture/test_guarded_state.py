"""Python values that each call assigns and a guard reads are told before anything is measured; so is Dynamo's limit."""

from typing import Any

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.record.diagnostic import Severity
from tests.shared.checks import codes, diagnostics_of, only

X = torch.randn(4, 4)


class Warm(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.tanh(x) / self.calls


class CountsInADict(nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = {"calls": 0}

    def forward(self, x):
        self.counts["calls"] += 1
        return x.sin() * self.counts["calls"]


class CountsInAList(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.others = [], []

    def forward(self, x):
        self.seen.append(1)
        self.others.append(x)
        return x.sin() * len(self.seen)


STEPS = 0


def counts_in_a_global(x):
    global STEPS  # noqa: PLW0603 - the program under test
    STEPS += 1
    return x.sin() / STEPS


def counter():
    steps = 0

    def counts_in_a_closure(x):
        nonlocal steps
        steps += 1
        return x.sin() / steps

    return counts_in_a_closure


def grows(x, seen):
    seen.append(1)
    return x.sin() * len(seen)


def behind_a_break(x, counts):
    counts["calls"] += 1
    x = x.sin()
    torch._dynamo.graph_break()
    return x * counts["calls"]


PROGRAMS: dict[str, Any] = {
    "attribute": (Warm, (X,), "calls"),
    "dict entry": (CountsInADict, (X,), "calls"),
    "list": (CountsInAList, (X,), "seen"),
    "global": (lambda: counts_in_a_global, (X,), "STEPS"),
    "closure": (counter, (X,), "steps"),
    "list argument": (lambda: grows, (X, []), "args[1]"),
    "dict behind a graph break": (lambda: behind_a_break, (X, {"calls": 0}), "calls"),
}


@pytest.mark.parametrize(("make", "args", "name"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_counter_that_a_guard_reads_is_told_before_anything_is_measured(make, args, name):
    ex = rx.explore(make(), args)
    message = only(ex, "state-guarded").message
    assert message.startswith("Each call assigns ")
    assert name in message.partition(", and a guard reads it")[0]
    assert "test_guarded_state.py" in message
    assert not any(frame.late for frame in ex.live.capture.frames)
    ex.retrace()
    assert only(ex, "state-guarded").message == message


class CountsInABuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return x / self.calls


class CountsWithoutReading(nn.Module):
    last = None

    def forward(self, x):
        self.last = x * 2
        return self.last.sin()


class Switches(nn.Module):
    ready = False

    def forward(self, x):
        if not self.ready:
            self.ready = True
        return x.sin()


def concatenates(x, cache):
    cache["keys"] = torch.cat((cache["keys"], x))
    return cache["keys"].sum(0)


SILENT = {
    "buffer": (CountsInABuffer, (X,)),
    "assigned and not read": (CountsWithoutReading, (X,)),
    "set once": (Switches, (X,)),
    "a cache that grows": (lambda: concatenates, (X, {"keys": torch.randn(2, 4)})),
    "nothing assigned": (lambda: torch.sin, (X,)),
}


@pytest.mark.parametrize(("make", "args"), SILENT.values(), ids=SILENT)
def test_state_that_no_guard_of_the_next_call_reads_is_not_told(make, args):
    assert "state-guarded" not in codes(rx.explore(make(), args))


def test_looking_ahead_leaves_the_state_as_it_was():
    seen, model = [], Warm()
    rx.explore(grows, (X, seen))
    rx.explore(model, (X,))
    assert (seen, model.calls) == ([], 0)


@pytest.mark.usefixtures("own_recompile_limit")
@pytest.mark.filterwarnings("ignore:The call was traced again")
def test_dynamos_limit_is_told_of_the_compiled_call():
    model = Warm()
    ex = rx.explore(model, (X,))
    with torch._dynamo.config.patch(recompile_limit=3):
        ex.compiled(X)
        assert "recompile_limit allows" not in "".join(found.message for found in diagnostics_of(ex, "recompiled"))
        for _ in range(4):
            ex.compiled(X)
        (found,) = (found for found in diagnostics_of(ex, "recompiled") if "recompile_limit allows" in found.message)
    assert found.severity is Severity.WARNING
    assert model.calls == 5
