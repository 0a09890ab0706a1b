"""Pieces compiled by several processes at once: who does what, that results do not depend on it, and that all end."""

import contextlib
import operator
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import config as inductor_config
from torch.fx.experimental.proxy_tensor import make_fx

import regional_explorer as rx
from regional_explorer.compiler import compilation
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.child import Child
from regional_explorer.compiler.pool import CompilePool, HelperPolicy, WorkQueue
from regional_explorer.errors import RegionCompileError
from regional_explorer.record.artifact import ArtifactCompile, CacheAnswer
from regional_explorer.torch_api.config import Settings
from regional_explorer.torch_api.graphs import fake_mode_with_symbols
from regional_explorer.torch_api.inductor import compile_piece
from regional_explorer.torch_api.shipping import dump_piece
from tests.engine import programs
from tests.engine.processes import is_running, until

ROOT = Path(__file__).resolve().parents[2]
posix = pytest.mark.skipif(os.name != "posix", reason="processes as POSIX has them")


def never():
    return False


def made(cache="cold"):
    return Artifact("key", call=lambda: None, code="", config={}, made=took(1.0, cache))


def took(seconds, cache="cold"):
    return ArtifactCompile(seconds, CacheAnswer.HIT if cache == "warm" else CacheAnswer.MISS, artifact="key")


# ----------------------------------------------------------------------------------------------------- who does what


def test_this_process_takes_from_the_front_and_helpers_from_the_back():
    work = WorkQueue("abcde")
    assert work.take(1, never) == ("a", None)
    assert work.take_for_helper("abcd") == "d", "e cannot be sent"
    assert work.take_for_helper("abcd") == "c"
    work.finish_for_helper("d", 1.5)
    assert work.take(1, never) == ("d", 1.5), "what is made comes first"
    work.finish_for_helper("c", None)
    assert work.take(1, never) == ("c", None), "what failed is to be made here"
    assert [work.take(1, never), work.take(1, never)] == [("b", None), ("e", None)]
    assert work.take_for_helper("abcde") is None
    assert work.take(1, never) is None


def test_what_a_helper_is_busy_with_is_waited_for():
    work = WorkQueue("a")
    work.take_for_helper("a")
    threading.Timer(0.2, work.finish_for_helper, ("a", 2.0)).start()
    assert work.take(10, never) == ("a", 2.0)


def test_waiting_ends_when_cancelled_and_when_out_of_patience():
    work = WorkQueue("a")
    work.take_for_helper("a")
    asked = iter((False, False, True))
    assert work.take(600, lambda: next(asked)) is None
    with pytest.raises(TimeoutError):
        work.take(0.1, never)


@pytest.mark.parametrize(
    ("pieces", "seconds", "cores", "expected"),
    [
        (1, 100.0, 8, 0),  # the other half of an edit
        (6, 2.0, 8, 0),
        (23, 2.0, 1, 0),
        (23, 2.0, 2, 1),
        (23, 2.0, 64, 4),
        (4, 10.0, 8, 2),
        (300, 0.02, 8, 0),
    ],
)
def test_help_is_had_where_it_pays(pieces, seconds, cores, expected):
    assert HelperPolicy(start_s=lambda: 12.0, cores=cores).number_for(pieces, seconds) == expected


class FakeChild:
    """A helper that goes by ``script``: what it answers, "die" or "hang"; after that it makes all."""

    def __init__(self, script):
        self.ended = threading.Event()
        self.answers = iter(script)
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def receive(self):
        answer = next(self.answers, took(1.0))
        if answer == "hang":
            self.ended.wait(30)
        if answer in ("hang", "die"):
            raise EOFError
        return answer

    def end(self):
        self.ended.set()


class Fakes:
    """The helpers of a test, which all go by ``script``."""

    def __init__(self):
        self.script = ()
        self.made = []

    def start(self, _module, *, answers):
        self.made.append(FakeChild(self.script))
        return self.made[-1]

    def pool(self, keys="abcdefgh", sendable=str.encode):
        """Return a pool that may have two of them, at no cost."""
        policy = HelperPolicy(start_s=lambda: 0.0, cores=3, is_found=lambda: True, start=self.start)
        return CompilePool(keys, sendable, policy)


@pytest.fixture
def fakes():
    return Fakes()


@pytest.mark.parametrize("script", [(), ("die",), (None, "die"), (None, took(1.0), "die"), ("hang",), (None, "hang")])
def test_all_is_done_once_whatever_becomes_of_helpers(fakes, script):
    fakes.script = script
    with fakes.pool() as compile_pool:
        done = []
        for key, ahead in compile_pool.jobs(never):
            done.append(key)
            if ahead is None:
                time.sleep(0.02)
            compile_pool.with_cold_cost(made("cold" if ahead is None else "warm"), ahead)
    assert sorted(done) == list("abcdefgh")
    assert len(fakes.made) == 2
    assert all(child.ended.is_set() for child in fakes.made)
    assert threading.active_count() == len([t for t in threading.enumerate() if "helper" not in t.name])


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, ValueError])
def test_helpers_end_with_the_block(fakes, error):
    fakes.script = (None, "hang")
    with contextlib.suppress(error), fakes.pool() as compile_pool:
        next(compile_pool.jobs(never))
        compile_pool.with_cold_cost(made(), None)
        assert len(fakes.made) == 2
        raise error
    assert all(child.ended.is_set() for child in fakes.made)


def test_what_a_helper_compiled_is_cold_and_costs_what_it_took(fakes):
    with fakes.pool() as compile_pool:
        assert compile_pool.with_cold_cost(made("warm"), None).made.cache == "warm"
        assert not fakes.made
        found = compile_pool.with_cold_cost(made("warm"), took(7.0)).made
        assert (found.cache, found.seconds) == ("cold", 7.0)


def test_helpers_whose_keys_disagree_are_sent_home(fakes):
    fakes.script = (None, "hang")
    with fakes.pool() as compile_pool:
        compile_pool.with_cold_cost(made(), None)
        found = compile_pool.with_cold_cost(made(), took(7.0)).made
        assert (found.cache, found.seconds) == ("cold", 1.0)
        assert len(fakes.made) == 2
        assert all(child.ended.is_set() for child in fakes.made)


def test_no_help_without_a_cold_piece_or_for_what_cannot_be_sent(fakes):
    with fakes.pool(sendable=lambda key: None) as compile_pool:
        assert [key for key, _ in compile_pool.jobs(never)] == list("abcdefgh")
    with fakes.pool(sendable=lambda key: None) as compile_pool:
        for _ in compile_pool.jobs(never):
            compile_pool.with_cold_cost(made(), None)
    assert not fakes.made


def test_settings_that_cannot_be_sent_leave_this_process_alone(fakes):
    with (
        inductor_config.patch(post_grad_custom_pre_pass=lambda graph: None),
        fakes.pool("abcd") as compile_pool,
    ):
        for _ in compile_pool.jobs(never):
            compile_pool.with_cold_cost(made(), None)
    assert not fakes.made


def test_processes_that_cannot_be_had_leave_this_process_alone():
    def refused(*_args, **_kwargs):
        raise BlockingIOError

    policy = HelperPolicy(start_s=lambda: 0.0, cores=3, is_found=lambda: True, start=refused)
    with CompilePool("abcd", str.encode, policy) as compile_pool:
        for _ in compile_pool.jobs(never):
            compile_pool.with_cold_cost(made(), None)


# --------------------------------------------------------------------------------------------------------- what is sent


def dumped(fn, *shapes, mode=None, tracing="fake", device="cpu"):
    mode = mode or fake_mode_with_symbols()
    with mode:
        inputs = [torch.empty(shape, device=device) for shape in shapes]
    return dump_piece(make_fx(fn, tracing_mode=tracing)(*inputs), inputs)


def test_plain_pieces_can_be_sent():
    assert dumped(lambda a, b: torch.max(a @ b, 0)[0] + torch.zeros(4, dtype=torch.bfloat16), (4, 4), (4, 4))


@torch.library.custom_op("regional_explorer_tests::ours", mutates_args=())
def ours(a: torch.Tensor) -> torch.Tensor:
    return a + 1


@ours.register_fake
def _(a):
    return torch.empty_like(a)


def test_what_may_differ_elsewhere_cannot_be_sent():
    constant = torch.ones(4)
    assert dumped(torch.sin, (4,), device="meta") is None
    assert dumped(ours, (4,)) is None
    gm = make_fx(lambda a: a + constant)(torch.ones(4))
    with fake_mode_with_symbols():
        inputs = [torch.empty(4)]
    assert dump_piece(gm, inputs) is None
    assert dump_piece(make_fx(operator.add)(torch.ones(4), 2), [inputs[0], 2]) is None


def test_settings_are_taken_over():
    before = Settings.now()
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    with inductor_config.patch({"max_fusion_size": 7, "cpp.simdlen": 256}):
        try:
            torch.set_num_threads(threads + 1)
            torch.set_default_dtype(torch.float64)
            torch.use_deterministic_algorithms(True, warn_only=True)
            wanted = Settings.now()
        finally:
            torch.use_deterministic_algorithms(False)
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)
    assert Settings.now() == before
    with inductor_config.patch({"max_fusion_size": 1, "cpp.simdlen": 1}):
        try:
            wanted.apply()
            assert Settings.now() == wanted
        finally:
            before.apply()
    assert Settings.now() == before


# ------------------------------------------------------------------------------------------------------ real processes


def three(x, w):
    with rx.region("a"):
        y = (x @ w).sin() * x
    with rx.region("b"):
        z = torch.softmax(y, -1) + w.sum(0).exp()
        with torch.fx.traceback.annotate({"fallback_to_eager": True}):
            z = torch.sort(z)[0]
        z = z * y.cos()
    with rx.region("c"):
        v = torch.nn.functional.layer_norm(z + y, (8,)).tanh()
    return v.square().sum()


def explored():
    """Explore under configs that were never compiled before, whatever the cache directory."""
    ex = rx.explore(three, tuple(torch.randn(8, 8, generator=torch.manual_seed(i)).requires_grad_() for i in range(2)))
    for region in ("a", "b", "c"):
        ex.configure(region, {"max_fusion_size": random.SystemRandom().randrange(1000, 2**31)})
    return ex


def codes(ex):
    """Return the generated codes, without the running number of the compile."""
    return [re.sub(r"# AOT ID: .*", "", switch.artifact.code) for switch in ex.live.program.switches]


class OneHelper:
    """Gives each compile a pool that may have ``most`` helpers after its first cold piece; notes pools and processes.

    What compiles takes its pool from its module, as nothing but a test has another one.
    """

    def __init__(self):
        self.most = 1
        self.pids = []
        self.pools = []

    def start(self, module, *, answers):
        child = Child(module, answers=answers)
        self.pids.append(child.pid)
        return child

    def pool(self, keys, sendable):
        self.pools.append(CompilePool(keys, sendable, HelperPolicy(self.most, lambda: 0.0, 2, start=self.start)))
        return self.pools[-1]


@pytest.fixture
def helper(monkeypatch):
    # Inductor's keys name the first module that has imported torch, and so would name one of these tests: pytest enters
    # them into sys.modules before they run. An import puts a module behind what it has imported.
    for name in [name for name in sys.modules if name.startswith("tests")]:
        sys.modules[name] = sys.modules.pop(name)

    found = OneHelper()
    monkeypatch.setattr(compilation, "CompilePool", found.pool)
    return found


@pytest.mark.compiles
@pytest.mark.parametrize("helped", [True, False])
def test_a_failure_beside_helpers_is_believed_when_it_comes_again(helped, monkeypatch):
    ex = rx.explore(programs.textbook, programs.pair(grad=False))
    failures = []

    def failing_once(*args):
        if not failures:
            failures.append(args)
            raise RegionCompileError("half a file")
        return compile_piece(*args)

    def entered(compile_pool):
        compile_pool._helped = helped
        return compile_pool

    ex.live.program.store.run_inductor = failing_once
    monkeypatch.setattr(CompilePool, "__enter__", entered)
    ex.compile()
    assert set(ex.partitions.state) == {"compiled" if helped else "failed"}
    assert not ex.live.program.store.failures if helped else ex.live.program.store.failures


@posix
@pytest.mark.slow
@pytest.mark.compiles
def test_results_do_not_depend_on_helpers(helper):
    ex = explored()

    def leave_the_rest_to_the_helper(_doing, _fraction):
        if helper.pids:
            until(lambda: not helper.pools[0].work.left, 200)

    hits = counters["aot_autograd"]["autograd_cache_hit"]
    ex.compile(run=rx.Run(progress=leave_the_rest_to_the_helper))
    pieces = len(set(ex.partitions.artifact))
    assert pieces >= 6
    assert counters["aot_autograd"]["autograd_cache_hit"] - hits == pieces - 2, "all but those before it came"
    assert set(ex.partitions.cache) == {"cold"}
    assert (ex.partitions.compile_s > 0.1).all(), "what the compile took, wherever"
    assert ex.partitions.config_applied.tolist() == ex.partitions.config_requested.tolist()
    assert len(helper.pids) == 1
    assert not is_running(helper.pids[0])

    helper.most = 0
    alone = explored()
    alone.compile()
    assert len(helper.pids) == 1
    assert codes(alone) == codes(ex)
    for mine, theirs in zip(stepped(ex), stepped(alone), strict=True):
        assert torch.equal(mine, theirs)


def stepped(ex):
    leaves = [torch.randn(8, 8, generator=torch.manual_seed(9)).requires_grad_() for _ in range(2)]
    loss = ex.compiled(*leaves)
    return loss, *torch.autograd.grad(loss, leaves)


@posix
@pytest.mark.compiles
@pytest.mark.parametrize("way", ["cancel", "interrupt"])
def test_breaking_off_leaves_no_process_and_keeps_what_is_done(helper, way):
    ex = explored()

    def progress(_doing, _fraction):
        if helper.pids and way == "interrupt":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) if way == "interrupt" else contextlib.nullcontext():
        ex.compile(run=rx.Run(cancelled=lambda: way == "cancel" and bool(helper.pids), progress=progress))
    assert len(helper.pids) == 1
    assert not is_running(helper.pids[0])
    assert sorted(set(ex.partitions.state)) == ["compiled", "stale"]
    assert (ex.partitions.state == "compiled").sum() == len(ex.live.program.store.artifacts)


@posix
@pytest.mark.compiles
def test_a_helper_that_is_killed_does_no_harm(helper):
    ex = explored()

    def kill(_doing, _fraction):
        for pid in helper.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    ex.compile(run=rx.Run(progress=kill))
    assert len(helper.pids) == 1
    assert not is_running(helper.pids[0])
    assert set(ex.partitions.state) == {"compiled"}
    assert set(ex.partitions.cache) == {"cold"}


START = """
import time
from regional_explorer.compiler.child import Child
child = Child("regional_explorer.compiler.pool_worker", answers=True)
print(child.pid, flush=True)
time.sleep(100)
"""


@posix
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_helper_ends_with_the_kernel(end):
    parent = subprocess.Popen([sys.executable, "-c", START], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    assert is_running(child)
    parent.send_signal(end)
    parent.wait()
    parent.stdout.close()
    assert until(lambda: not is_running(child), 20)
