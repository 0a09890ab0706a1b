"""State that hooks keep is restored or reported, and never makes right results fail."""

import itertools
import sys
import types
from collections import defaultdict

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules import module as all_modules

import regional_explorer as rx
from regional_explorer.capture.call import Call
from regional_explorer.measure.numerics import Reference, compare_results
from regional_explorer.measure.tolerances import Arithmetic, Moves, Values
from regional_explorer.torch_api.hidden_state import current_saved_tensors_hooks
from tests.shared.checks import codes, only
from tests.shared.hooks import FORMS, HOLDERS, KINDS, Program, registered

X = torch.randn(2, 4)


def repeat(call):
    with call.restoring():
        for _ in range(3):
            call.restore()
            call.run()


def assert_hook_state_is_restored(kind, holder, form):
    program, (keep, read) = Program(), HOLDERS[holder]()
    with registered(kind, program, FORMS[form](keep)):
        unused = read()
        program(X).backward(retain_graph=True)
        before = read()
        assert before != unused, "the hook keeps something"
        program.model.zero_grad()
        program.weight.grad = None
        call = Call(program, (X,))
        assert read() == before
        repeat(call)
        assert (read(), call.not_restored) == (before, ())


@pytest.mark.parametrize("holder", ["list", "tensor"])
@pytest.mark.parametrize("kind", KINDS)
def test_state_of_every_hook_kind_is_restored(kind, holder):
    assert_hook_state_is_restored(kind, holder, "function")


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("kind", ["forward", "leaf"])
def test_hook_state_is_restored_in_every_place(kind, holder):
    assert_hook_state_is_restored(kind, holder, "function")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["forward", "leaf", "load state dict pre", "full backward of all"])
def test_state_of_every_hook_form_is_restored(kind, form):
    assert_hook_state_is_restored(kind, "list", form)


def activation_collector():
    """Return a call, its input, and the list to which a hook appends; the result is a sum near zero: rounding shows."""
    torch.manual_seed(20)
    model, kept = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)), []
    model[1].register_forward_hook(lambda module, inputs, output: kept.append(output.detach()))
    return (lambda x: model(x).sum()), torch.randn(4, 16), kept


@pytest.mark.compiles
def test_a_list_of_activations_is_restored_after_every_step():
    fn, x, kept = activation_collector()
    fn(x)
    before = [*kept]
    ex = rx.explore(fn, (x,)).mark("all", ops="*")
    ex.benchmark(("eager", "full"), budget_s=0.05, regions=False)
    assert kept == before
    assert set(ex.numerics.verdict) == {"ok"}
    assert len(ex.live.capture.frames) == 1
    assert not any("traced the call again" in warning for warning in ex.timings.warnings)
    ex.profile(0.05)
    ex.retrace(dynamic=True)
    assert kept == before
    assert codes(ex) == ["state-guarded"], "Dynamo guards on the length of the list"


@pytest.mark.parametrize("kind", ["forward", "parameter", "forward pre of all", "packed"])
def test_guards_on_hook_state_hold_in_every_call(kind):
    program, (keep, read) = Program(), HOLDERS["list"]()
    with registered(kind, program, FORMS["function"](keep)):
        ex = rx.explore(program, (X,))
        count = len(ex.live.capture.frames)
        ex.benchmark(("eager", "aot_eager"), budget_s=0.02)
        assert (len(ex.live.capture.frames), read()) == (count, 0)
        assert set(ex.numerics.verdict) == {"ok"}


def test_activations_collected_by_name_are_restored_or_reported():
    model, by_name, by_module, lists = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), {}, {}, defaultdict(list)

    def hook(module, inputs, output):
        by_name["relu"], by_module[module] = output.detach(), [inputs, output]

    model[1].register_forward_hook(hook)
    call = Call(model, (X,))
    repeat(call)
    assert (by_name, by_module, call.not_restored) == ({}, {}, ())
    model[1].register_forward_hook(lambda module, inputs, output: lists["relu"].append(output))
    call = Call(model, (X,))
    repeat(call)
    assert call.not_restored == ("lists['relu']",)
    assert len(lists["relu"]) == 1


def test_a_running_mean_created_by_a_hook_is_reported():
    model, means = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), {}

    def hook(module, _inputs, output):
        means[module] = output.detach() if module not in means else 0.9 * means[module] + 0.2 * output.detach()

    model[1].register_forward_hook(hook)
    ex = rx.explore(model, (X,))
    assert "means[<ReLU>]" in only(ex, "state-kept").message
    first = means[model[1]]
    ex.benchmark(("eager", "aot_eager"), budget_s=0.02)
    assert means[model[1]] is first


def test_a_counter_that_a_hook_advances_is_reported():
    model, numbers = nn.Linear(4, 4), itertools.count()
    model.register_forward_hook(lambda *_: print(next(numbers)))
    call = Call(model, (X,))
    assert call.not_restored == ("numbers",)
    repeat(call)


def fake_package(name, source):
    """Return a module of an installed package, with the functions of ``source``."""
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"/site-packages/{name}.py", "exec"), vars(module))  # noqa: S102 - what is tested
    return module


def test_state_of_library_hook_is_restored():
    calls, log = [], fake_package("logs", "def make(log):\n    return lambda *args: log.append(args)\n")
    model = nn.Linear(4, 4)
    model.register_forward_hook(log.make(calls))
    call = Call(model, (X,))
    repeat(call)
    assert (calls, call.not_restored) == ([], ())


def test_hook_only_modules_change_no_names():
    model, probe = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 1)
    scale = torch.ones(4, requires_grad=True)
    holder = types.SimpleNamespace(inner=types.SimpleNamespace(model=model))
    all_modules_hook = all_modules.register_module_forward_hook(lambda *_: None if model[0].training else model)
    model[1].register_forward_hook(lambda module, inputs, output: output * probe(output) * scale)
    try:
        call = Call(lambda x: holder.inner.model(x) + 1, (X,))
    finally:
        all_modules_hook.remove()
    assert [root for _, root in call.modules] == [model, probe]
    assert "grad scale" in call.gradient_names


@pytest.mark.parametrize("is_around_first", [True, False])
def test_every_run_has_the_saved_tensor_hooks_of_the_first(is_around_first):
    program, packed = Program(), []

    def pack(value):
        packed.append(value.shape)
        return value.detach()

    def explored(x):
        counts.append(len(packed))
        return program(x)

    counts, hooks = [], saved_tensors_hooks(pack, lambda value: value)
    other = saved_tensors_hooks(lambda value: value.detach(), lambda value: value)
    with other:
        if is_around_first:
            with hooks:
                call = Call(program, (X,))
            pair = current_saved_tensors_hooks()
            with call.restoring():
                call.run()
                assert len(packed) > 0
        else:
            call = Call(program, (X,))
            with hooks:
                pair = current_saved_tensors_hooks()
                with call.restoring():
                    call.run()
                assert current_saved_tensors_hooks() == pair
            pair = other.pack_hook, other.unpack_hook
        assert current_saved_tensors_hooks() == pair
    assert packed == []
    assert current_saved_tensors_hooks() is None


def test_global_hooks_of_the_call_are_removed_or_reported():
    model, before = nn.Linear(4, 4), len(all_modules._global_backward_hooks)

    def step(x):
        all_modules.register_module_full_backward_hook(lambda *_: None)
        return model(x)

    call = Call(step, (X,))
    kept = len(all_modules._global_backward_hooks)
    try:
        repeat(call)
        assert len(all_modules._global_backward_hooks) == kept <= before + 1
        assert call.not_restored[0] == "hooks of all modules"
    finally:
        all_modules._global_backward_hooks.clear()
        all_modules._global_is_full_backward_hook = None


COUNTING = "calls = 0\ndef hook(*_):\n    global calls\n    calls += 1\n"


@pytest.mark.compiles
@pytest.mark.parametrize("calls_before", [0, 9])
def test_unrestorable_state_does_not_fail_the_numerics(calls_before):
    fn, x, _ = activation_collector()
    fn.__closure__[0].cell_contents[0].register_forward_hook(fake_package("counting", COUNTING).hook)
    ex = rx.explore(fn, (x,))
    for _ in range(calls_before):  # after eight, Dynamo runs the call in plain Python
        ex.live.capture.run(x)
    ex.benchmark(("eager", "full"), budget_s=0.05, regions=False)
    assert "failed" not in set(ex.numerics.verdict)


@pytest.mark.parametrize(
    ("units", "are_known", "expected"), [(800, False, "not comparable"), (800, True, "failed"), (2000, False, "failed")]
)
def test_unknown_moves_leave_the_verdict_open(units, are_known, expected):
    value = torch.tensor(1e-4)
    eager = Values((("output", value),), ())
    moves = Moves(lambda _: eager, are_known=lambda: are_known)
    reference = Reference(eager, arithmetic=Arithmetic(reduction=64), moves=moves)
    off = value * (1 + units * torch.finfo(torch.float32).eps)
    (row,) = compare_results("full", Values((("output", off),), ()), reference)
    assert row.verdict == expected
