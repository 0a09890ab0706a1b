"""Several threads of one process: nothing of ours traces, cuts or compiles while anything else does."""

import itertools
import linecache
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._dynamo import convert_frame

import regional_explorer as rx
from regional_explorer.capture.call import Call
from regional_explorer.capture.restore import silent
from regional_explorer.capture.tensors import random_cotangents
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler import program as program_module
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import PLAIN_RUN
from regional_explorer.errors import BusyError
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.compile_notes import CacheCounts
from regional_explorer.ui.control import control_of
from regional_explorer.ui.jobs import CANCELLED_NOTE
from tests.shared import programs
from tests.shared.checks import backwards_use_threads, owns_compile_lock, states
from tests.shared.locks import WAITING, held_by_another_thread, start_threads
from tests.shared.processes import python, wait_until


def explore():
    return rx.explore(programs.two_regions, (torch.randn(8, requires_grad=True),))


def run_together(*works):
    """Run each of ``works`` on a thread of its own, and wait for all."""
    for thread in start_threads(*works):
        thread.join()


def errors_on_another_thread(work):
    """Return a list with the error that ``work`` raises on another thread; empty if none."""
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(work).exception()
    return [] if error is None else [error]


# ----------------------------------------------------------------------------------------------------- many at once


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        (("--rounds", "1", "--threads", "2", "--quick"), 2),
        pytest.param(("--rounds", "20", "--threads", "4"), 80, marks=pytest.mark.slow),
    ],
)
def test_threads_explore_and_compile_beside_a_plain_compile(options, rounds):
    """Each thread has an exploration, or all share one; Inductor's caches are cold or warm."""
    builds_on_threads = {"TORCHINDUCTOR_COMPILE_THREADS": None}
    done = python(Path(__file__).with_name("threads.py"), *options, env=builds_on_threads, timeout=3600)
    assert done.out == f"ok {rounds}\n"


# ------------------------------------------------------------------------------------------------- waiting for others


@pytest.mark.compiles
@pytest.mark.parametrize("which", ["any compile", "a compile of this exploration"])
def test_waiting_is_reported_and_cancellable(which):
    ex, tasks = explore(), []
    assert set(ex.partitions.state) == {"stale"}  # the graphs are cut now: that waits for other compiles too

    def lock():
        return convert_frame.compile_lock if which == "any compile" else ex.exclusive_use.turn(PLAIN_RUN)

    run = rx.Run(cancelled=lambda: bool(tasks), progress=lambda doing, _fraction: tasks.append(doing))
    with held_by_another_thread(lock()):
        assert ex.compile(run=run).empty
    assert tasks == [WAITING]
    assert set(ex.partitions.state) == {"stale"}
    with held_by_another_thread(lock()) as release:
        threading.Timer(0.3, release).start()
        ex.compile()
    assert set(ex.partitions.state) == {"compiled"}


@pytest.mark.compiles
def test_ex_compile_waits_between_regions_for_another_compile():
    explore().compile()  # from here on no kernel has to be built, so what has begun completes
    ex, tasks, holds = explore(), [], []

    def progress(doing, fraction):
        tasks.append(doing)
        if fraction > 0 and not holds:
            holds.append(others.enter_context(held_by_another_thread(compile_lock())))

    with ExitStack() as others:
        ex.compile(run=rx.Run(cancelled=lambda: tasks[-1:] == [WAITING], progress=progress))
    assert tasks[-1] == WAITING
    assert sorted(set(ex.partitions.state)) == ["compiled", "stale"]


@pytest.mark.compiles
def test_a_panel_shows_that_it_waits_and_can_be_cancelled():
    ex = explore()
    control = control_of(ex)
    doing = []
    control.listeners.append(lambda control: control.state.job and doing.append(control.state.job.doing))
    with held_by_another_thread(convert_frame.compile_lock):
        control.jobs.start("compile", lambda ex, _, run: ex.compile(run=run))
        wait_until(lambda: any(text.startswith(WAITING) for text in doing))
        control.jobs.cancel()
        assert control.jobs.wait(60)
    assert control.state.note == CANCELLED_NOTE
    assert control.state.problem is None


def test_a_plain_compile_waits_for_ours():
    order = []
    compiled = torch.compile(lambda x: x.sin(), backend=lambda gm, _inputs: order.append("plain") or gm)
    with compile_lock():
        (thread,) = start_threads(lambda: compiled(torch.ones(2)))
        thread.join(0.5)
        order.append("ours")
    thread.join()
    assert order == ["ours", "plain"]


# ------------------------------------------------------------------------------------------ beside a measurement


USES = {
    "configure": lambda ex, _: ex.configure("a", max_fusion_size=4),
    "plan": lambda ex, _: setattr(ex, "plan", rx.Plan()),
    "compile": lambda ex, _: ex.compile(),
    "compiled": lambda ex, _: ex.compiled,
    "benchmark": lambda ex, _: ex.benchmark(("eager",), 0.05),
    "profile": lambda ex, _: ex.profile(0.05),
    "kernel_times": lambda ex, _: ex.kernel_times("a", 0.05),
    "diagnose": lambda ex, _: ex.diagnose("a", 0.05),
    "floor": lambda ex, _: ex.floor(),
    "retrace": lambda ex, _: ex.retrace(dynamic=True),
    "code": lambda ex, _: ex.code("a", config={"max_fusion_size": 4}),
    "repro": lambda ex, _: ex.repro("a"),
    "save_artifacts": lambda ex, path: ex.save_artifacts(path / "artifacts"),
    "close": lambda ex, _: ex.close(),
}


def test_a_measurement_keeps_other_threads_from_the_exploration(tmp_path):
    ex, raised = explore(), {}
    plan, live = ex.plan, ex.live

    def progress(_doing, _fraction):
        if not raised:
            raised.update(
                (name, errors_on_another_thread(lambda use=use: use(ex, tmp_path))) for name, use in USES.items()
            )

    ex.benchmark(("eager",), 0.05, run=rx.Run(progress=progress))
    for name in USES:
        (error,) = raised[name]
        assert isinstance(error, BusyError), name
        assert "ex.benchmark() is measuring" in str(error), name
    assert (ex.plan, ex.live) == (plan, live)
    assert set(ex.timings.variant) == {"eager"}
    assert ex.runs == (ex.session,)
    assert not list(tmp_path.iterdir())
    assert ex.configure("a", max_fusion_size=4).plan != plan


def test_progress_callback_cannot_edit_while_measuring():
    ex = explore()
    plan = ex.plan
    with pytest.raises(BusyError, match=r"ex\.profile\(\) is measuring"):
        ex.profile(0.05, run=rx.Run(progress=lambda _doing, _fraction: ex.disable("a")))
    assert ex.plan == plan
    assert not ex.profile(0.05).empty


@pytest.mark.compiles
@pytest.mark.parametrize("name", ["kernel_times", "diagnose", "floor"])
def test_edits_are_refused_while_measuring(name):
    """The error does not mention the panel, because none is shown."""
    ex, raised = explore(), []
    ex.benchmark(("regional", "full"), 0.1, regions=False)

    run = rx.Run(progress=lambda *_: raised.extend(errors_on_another_thread(lambda: ex.disable("a"))))
    getattr(ex, name)(**({} if name == "floor" else {"name": "a"}), budget_s=0.05, run=run)
    assert {type(error) for error in raised} == {BusyError}
    assert {str(error).partition(" is measuring.")[0] for error in raised} == {f"ex.{name}()"}
    assert not any("panel" in str(error) for error in raised)


def test_a_plan_can_be_edited_while_another_thread_compiles_or_traces():
    ex = explore()
    with held_by_another_thread(ex.exclusive_use.turn(PLAIN_RUN)):
        assert ex.disable("a").configure("b", max_fusion_size=4).plan["b"].config == {"max_fusion_size": 4}


@pytest.mark.compiles
def test_region_marked_while_recording_is_compiled():
    edits = []

    @torch._dynamo.disable
    def edit():
        while edits:
            run_together(edits.pop())

    def f(x):
        y = x.sin()
        edit()
        return y.cos()

    x = torch.randn(9)[1:]
    ex = rx.explore(f, (x,)).mark("after", ops="aten.cos*")
    edits.append(lambda: ex.mark("before", ops="aten.sin*"))
    ex.compile()
    assert states(ex) == {"before": "compiled", "after": "compiled"}
    before = next(switch for switch in ex.live.program.switches if switch.piece.claim.region == "before")
    assert [layout.aligned for layout in before.known_workpiece.inputs] == [False], (
        "the trace takes all tensors for aligned"
    )


def test_edits_of_several_threads_are_all_kept():
    ex = explore()
    names = [[f"r{thread}.{number}" for number in range(10)] for thread in range(4)]
    begin = threading.Barrier(len(names))

    def mark(own_names):
        begin.wait()
        for name in own_names:
            ex.mark(name, ops="aten.sin*")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        run_together(*(partial(mark, own_names) for own_names in names))
    finally:
        sys.setswitchinterval(interval)
    marked = {region.name for region in ex.plan.regions}
    assert marked == {"a", "b", *(name for own_names in names for name in own_names)}


def test_an_edit_while_the_call_is_traced_again_is_kept(monkeypatch):
    """An edit after the new trace has read the plan waits until the exploration has that trace."""
    ex, waiting, threads = explore(), threading.Event(), []
    apply = Program.apply

    def edit():
        waiting.set()
        ex.configure("b", max_fusion_size=4)

    def apply_and_edit(program, plan):
        apply(program, plan)
        if program is not ex.live.program:
            threads.extend(start_threads(edit))
            waiting.wait()
            threads[0].join(0.2)

    monkeypatch.setattr(Program, "apply", apply_and_edit)
    ex.retrace(dynamic=True)
    threads[0].join()
    assert ex.plan["b"].config == {"max_fusion_size": 4}


@pytest.mark.parametrize("measure", ["benchmark", "profile"])
def test_a_measurement_waits_for_a_compile_and_can_be_cancelled_meanwhile(measure):
    ex, tasks = explore(), []

    def run(cancelled):
        arguments = (("eager",), 0.05) if measure == "benchmark" else (0.05,)
        return getattr(ex, measure)(
            *arguments, run=rx.Run(cancelled=cancelled, progress=lambda doing, _fraction: tasks.append(doing))
        )

    with held_by_another_thread(ex.exclusive_use.turn(PLAIN_RUN)):
        assert run(lambda: bool(tasks)).empty
    assert tasks == [WAITING]
    with held_by_another_thread(ex.exclusive_use.turn(PLAIN_RUN)) as release:
        threading.Timer(0.3, release).start()
        assert not run(lambda: False).empty


def test_a_thread_that_waits_for_a_new_trace_continues_with_it():
    ex, profiles, waiting = explore(), [], threading.Event()

    def profile():
        assert not ex.profile(0.05, run=rx.Run(progress=lambda _doing, _fraction: waiting.set())).empty

    def progress(_doing, _fraction):
        profiles.append(pool.submit(profile))
        assert waiting.wait(60)

    with ThreadPoolExecutor(1) as pool:
        ex.retrace(dynamic=True, run=rx.Run(progress=progress))
    (profiled,) = profiles
    assert profiled.exception() is None
    assert ex.session.dynamic is True
    assert ex.session.profile is not None


def test_closing_waits_for_a_retrace_on_another_thread():
    norm = torch.nn.BatchNorm1d(4)
    threads, begun, go_on = [], threading.Event(), threading.Event()

    @torch._dynamo.disable
    def wait():
        if threads:
            begun.set()
            go_on.wait(60)

    def f(x):
        y = norm(x)
        wait()
        return y.sin()

    with torch.no_grad():
        ex = rx.explore(f, (torch.randn(8, 4),))
    mean = norm.running_mean.clone()
    threads.append(threading.Thread(target=ex.retrace))
    threads[0].start()
    assert begun.wait(60)
    threading.Timer(0.3, go_on.set).start()
    ex.close()
    threads[0].join()
    assert torch.equal(norm.running_mean, mean)
    assert not ex.live.is_open


# ----------------------------------------------------------------------------------------------- what the lock is for


@pytest.mark.compiles
def test_the_lock_is_held_around_every_trace_cut_and_compile(monkeypatch):
    found = {}

    def watch(owner, name):
        original = getattr(owner, name)

        def watched(*args, **kwargs):
            found.setdefault(name, set()).add(owns_compile_lock())
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    watch(Capture, "add_frame")
    watch(Capture, "add_graph")
    watch(Program, "_cut_live_graph")
    watch(torch._inductor, "standalone_compile")
    watch(CacheCounts, "now")  # where the time of a compile begins: waiting is no part of it
    ex = explore()
    ex.configure("a", {"max_fusion_size": 1})
    ex.compile()
    ex.live.program.twin(ex.live.program.switches[0], {"fallback_random": True})
    x = torch.randn(3, 3, requires_grad=True)
    with pytest.warns(UserWarning, match="traced again"):
        ex.live.capture.run(x).sum().backward()
    assert found == {
        name: {True} for name in ("add_frame", "add_graph", "_cut_live_graph", "standalone_compile", "now")
    }
    assert not owns_compile_lock()


def test_threads_that_need_a_new_cut_at_once_share_it(monkeypatch):
    program, both, found = explore().live.program, threading.Barrier(2), []
    program.cut(program.plan)

    def lock_of_both():
        both.wait(60)
        return compile_lock()

    monkeypatch.setattr(program_module, "compile_lock", lock_of_both)
    run_together(*[lambda: found.append(program.switches)] * 2)
    first, second = found
    assert first
    assert first == second == program.switches


# ---------------------------------------------------------------------------------------- what else is for all threads


def test_marked_code_runs_eagerly_while_no_other_thread_traces():
    def f(x):
        if not torch.compiler.is_compiling() and not owns_compile_lock():
            raise AssertionError
        with rx.region("r"):
            return x.sin()

    with pytest.raises(AssertionError):
        f(torch.ones(2))
    rx.explore(f, (torch.ones(2),))


def test_backwards_inside_the_call_run_on_the_thread_that_holds_the_lock():
    """On a device, autograd would run them on its own thread, where their compile would wait for the lock."""

    @torch._dynamo.disable
    def check():
        if backwards_use_threads() and owns_compile_lock():
            raise AssertionError

    def f(x):
        y = x.sin()
        check()
        return y.cos()

    with compile_lock(), pytest.raises(AssertionError):
        check()
    ex = rx.explore(f, (torch.ones(2, requires_grad=True),))
    assert len(ex.live.capture.frames) == 2, "it ran eagerly in the traced run, too"
    assert backwards_use_threads()


def test_linecache_may_lose_generated_code_while_it_is_checked(monkeypatch, tmp_path):
    """Another thread or the garbage collector drops it; Python 3.11 raises KeyError if all are checked at once."""
    source, generated = str(tmp_path / "file.py"), "<eval_with_key>.test"
    stat = os.stat

    def stat_and_forget(path, *args, **kwargs):
        if path == source:
            linecache.cache.pop(generated, None)
        return stat(path, *args, **kwargs)

    for name in (source, generated):
        linecache.cache[name] = (1, 1.0, ["1\n"], name)
    monkeypatch.setattr(os, "stat", stat_and_forget)
    rx.explore(torch.sin, (torch.ones(2),))
    assert source not in linecache.cache


def test_another_thread_may_train_while_a_call_is_explored():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    errors = []

    def train():
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    def f(x):
        if not torch.compiler.is_compiling() and weight.grad is None:
            errors.extend(errors_on_another_thread(train))
        return x.sin()

    rx.explore(f, (torch.ones(2),))
    assert not errors
    assert weight.tolist() == [0.5, 0.5]


def test_muted_blocks_of_threads_may_end_in_any_order(capsys):
    stdout = sys.stdout
    first, second = threading.Event(), threading.Event()

    def outlast():
        with silent():
            first.set()
            second.wait(60)
            print("muted")

    with silent():
        (thread,) = start_threads(outlast)
        first.wait()
        print("muted")
        sys.stdout.writelines(["muted"])
        assert (sys.stdout.encoding, sys.stdout.writable()) == (stdout.encoding, True)
    print("heard")
    second.set()
    thread.join()
    assert sys.stdout is stdout
    assert capsys.readouterr().out == "heard\n"


SHARED = """
import faulthandler, sys, threading, time, torch, torch._inductor.compile_fx
import regional_explorer as rx
from regional_explorer.torch_api.compile_lock import compile_lock

def run_together(*works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

def repeat(function, *args):
    for _ in range(20_000):
        function(*args)

linear = torch.nn.Linear(8, 8)
ex = rx.explore(linear, (torch.randn(2, 8),))
interval = sys.getswitchinterval()
sys.setswitchinterval(1e-5)
faulthandler.dump_traceback_later(60, exit=True)
run_together(lambda: repeat(linear, torch.randn(2, 8)), lambda: repeat(Same.apply, linear.weight))
faulthandler.cancel_dump_traceback_later()
sys.setswitchinterval(interval)
print("shared", sorted(ex.live.call.gradient_names), flush=True)
"""

CLOSED = """
def step(x):
    return x.sin() * 2

def explore():
    for _ in range(5):
        rx.explore(step, (torch.ones(4),)).close()
    finished.append(1)

finished = []
run_together(*[explore] * 4)
print("closed often", len(finished), flush=True)

def step(x):  # one that no thread has traced
    return x.sin() * 2

def backend(gm, _inputs):
    graphs.append(gm)
    return gm

graphs = []
ex = rx.explore(step, (torch.ones(4),))
compiled = torch.compile(step, backend=backend)
thread = threading.Thread(target=lambda: compiled(torch.ones(2)))
with compile_lock():
    thread.start()
    time.sleep(1)
    ex.close()
thread.join()
compiled(torch.ones(2))
print("closed meanwhile", len(graphs), flush=True)
"""


POOL = """
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(2)

def marked(x):
    with rx.region("exp"):
        return x.exp() * 2

def explore_with_pool(kind):
    mine = torch.compile(lambda x: x.cos() * 2, backend="aot_eager")
    own = rx.compile(marked) if kind == "rx" else mine

    def step(x):
        y = x.sin()
        first, second = pool.submit(mine, y), pool.submit(own, y)
        return first.result() + second.result()

    x = torch.ones(4, requires_grad=True)
    expected = mine(x.detach().sin()) + own(x.detach().sin()) if kind == "warm" else None
    ex = rx.explore(step, (x,))
    assert len(ex.live.capture.frames) >= 1
    y = ex.live.call.forward()
    assert expected is None or torch.equal(y, expected)
    torch._dynamo.reset()  # the next one has compiled nothing

for kind in ("torch", "rx", "warm"):
    explore_with_pool(kind)
    print(kind, torch._dynamo.convert_frame.compile_lock.__class__.__name__, flush=True)
"""


@pytest.fixture(scope="module")
def printed_lines():
    """Return the lines that the three programs print in one process: a failure there breaks torch for all of it."""
    overwritten = {"MALLOC_PERTURB_": "165"}  # the GNU C library then overwrites what is freed
    return python(SHARED + CLOSED + POOL, flags=("-X", "faulthandler"), env=overwritten).out.splitlines()


@pytest.mark.compiles
def test_explorations_block_and_crash_no_threads_of_the_users(printed_lines):
    """Both cases are faults of torch that an exploration avoids (docs/upstream.md).

    Two threads that use the parameters of an exploration deadlock if it keeps the nodes of their gradients. If Dynamo
    forgets a function that another thread traces or compiles, freeing what Dynamo keeps of it crashes.
    """
    assert printed_lines[:3] == ["shared ['grad bias', 'grad weight']", "closed often 4", "closed meanwhile 1"]


@pytest.mark.compiles
def test_a_pool_inside_the_call_may_compile(printed_lines):
    """The pool compiles by torch.compile, by ``rx.compile`` with a region, or runs code that is compiled already."""
    assert printed_lines[3:] == ["torch RLock", "rx RLock", "warm RLock"]


def call_on_argument(y):
    return lambda x: x * 2, y


def call_on_its_gradient(y):
    w = torch.ones(3, requires_grad=True)
    w.grad = y
    return lambda x: x.grad * 2, w


@pytest.mark.parametrize("call_with", [call_on_argument, call_on_its_gradient])
def test_a_backward_does_not_enter_values_computed_in_another_thread(call_with):
    """Autograd numbers the nodes of each thread from 0, so nodes of this thread have larger numbers than the call's."""
    w = torch.ones(3, requires_grad=True)
    y = w.exp()
    fn, x = call_with(y)
    calls = []
    assert not errors_on_another_thread(lambda: calls.append(Call(fn, (x,))))
    assert len(calls[0].gradient_names) == 1
    y.sum().backward()  # the backward of the call has not freed its buffers
    assert w.grad is not None


def make_many_nodes():
    y = torch.ones(3, requires_grad=True)
    for _ in range(100):
        y = y * 1.0


@pytest.mark.parametrize("tensor_of", [lambda x: x, torch.sin])
def test_gradients_pass_values_computed_on_the_calls_own_threads(tensor_of):
    """The nodes of such a value have smaller numbers than nodes that this thread made before the call."""
    make_many_nodes()
    runs = []

    def call(x):
        runs.append(len(runs))
        return pool.submit(torch.exp, tensor_of(x)).result()

    x = torch.ones(3, requires_grad=True)
    with ThreadPoolExecutor(1) as pool:
        repeated = Call(call, (x,))
        with repeated.restoring():
            _, gradients = repeated.run()
    assert not runs
    (expected,) = torch.autograd.grad(result := tensor_of(x).exp(), x, *random_cotangents(result).values())
    assert torch.equal(torch.stack(gradients), torch.stack([expected]))


def test_gradients_stop_at_unreachable_values():
    w = torch.ones(3, requires_grad=True)
    y = w.exp()
    make_many_nodes()
    endless = itertools.repeat(y)
    x = torch.ones(3, requires_grad=True)
    call = Call(lambda x: x * next(endless), (x,))
    assert len(call.gradient_names) == 2
    y.sum().backward()  # the backward of the call has not freed its buffers
    assert w.grad is not None
