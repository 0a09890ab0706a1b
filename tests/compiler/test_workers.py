"""Processes that work for this one, and pieces that are compiled in other processes."""

import dataclasses
import operator
import os
import time
from concurrent.futures import CancelledError

import pytest
import torch
from torch._inductor import config as inductor_config
from torch.fx.experimental.proxy_tensor import make_fx

import regional_explorer as rx
from regional_explorer.compiler import shipment
from regional_explorer.compiler.artifact import ArtifactStore
from regional_explorer.compiler.run import never_cancelled
from regional_explorer.compiler.workers import LostWorkerError, Workers, run_alone
from regional_explorer.errors import CompileEnvironmentError, NoCompilerError
from regional_explorer.torch_api.graphs import fake_mode_with_symbols
from regional_explorer.torch_api.shipping import ShipmentError, dump_piece
from regional_explorer.torch_api.torch_config import Settings
from tests.shared.processes import is_running, wait_until
from tests.shared.work import torch_threads

posix = pytest.mark.skipif(os.name != "posix", reason="processes as POSIX has them")


@posix
def test_a_process_returns_a_result_raises_or_is_lost():
    assert run_alone(str, [1, 2], never_cancelled) == "[1, 2]"
    with pytest.raises(TypeError, match="no len"):
        run_alone(len, 3, never_cancelled)
    with pytest.raises(LostWorkerError, match="ended by status 3") as lost:
        run_alone(os._exit, 3, never_cancelled)
    assert not lost.value.crashed


@posix
def test_a_cancelled_task_leaves_no_process(monkeypatch):
    started = []
    submit = Workers.submit
    monkeypatch.setattr(Workers, "submit", lambda self, *task: started.append(self) or submit(self, *task))

    with pytest.raises(CancelledError):
        run_alone(time.sleep, 100, lambda: bool(started[-1].pids))
    assert started[-1].pids == []


@posix
def test_a_crash_loses_only_the_task_of_its_process():
    with Workers(2) as workers:
        sleeping, crash = workers.submit(time.sleep, 1000), workers.submit(os.abort)
        with pytest.raises(LostWorkerError, match="SIGABRT") as lost:
            crash.result(60)
        assert lost.value.crashed
        assert workers.submit(operator.add, 1, 2).result(60) == 3
        assert sleeping.running()
        workers.end(sleeping)
        with pytest.raises(LostWorkerError, match="SIGTERM"):
            sleeping.result(60)
        last, pids = workers.submit(time.sleep, 1000), []
        assert wait_until(lambda: last.running() and workers.pids)
        pids = workers.pids
    with pytest.raises(LostWorkerError):
        last.result(60)
    assert not any(map(is_running, pids))
    with pytest.raises(RuntimeError, match="were ended"):
        workers.submit(os.getpid)


@posix
def test_a_process_gets_no_more_memory_than_its_limit():
    with Workers(1, memory=1 << 28) as workers:
        assert workers.submit(bytes, 1 << 24).result(60) == bytes(1 << 24)
        with pytest.raises(MemoryError):
            workers.submit(bytes, 1 << 29).result(60)


@torch.library.custom_op("regional_explorer_tests::ours", mutates_args=())
def ours(a: torch.Tensor) -> torch.Tensor:
    return a + 1


ours.register_fake(torch.empty_like)


def dump(fn, *shapes, device="cpu"):
    with fake_mode_with_symbols():
        inputs = [torch.empty(shape, device=device) for shape in shapes]
    return dump_piece(make_fx(fn, tracing_mode="fake")(*inputs), inputs)


def test_unportable_pieces_cannot_be_sent():
    assert dump(lambda a, b: torch.max(a @ b, 0)[0] + torch.zeros(4, dtype=torch.bfloat16), (4, 4), (4, 4))
    constant = torch.ones(4)
    with pytest.raises(ShipmentError, match="runs on meta"):
        dump(torch.sin, (4,), device="meta")
    with pytest.raises(ShipmentError, match=r"calls regional_explorer_tests\.ours\.default, an operator of a library"):
        dump(ours, (4,))
    gm = make_fx(lambda a: a + constant)(torch.ones(4))
    with fake_mode_with_symbols():
        inputs = [torch.empty(4)]
    with pytest.raises(ShipmentError, match="has constants"):
        dump_piece(gm, inputs)
    with pytest.raises(ShipmentError, match="other than plain tensors"):
        dump_piece(make_fx(operator.add)(torch.ones(4), 2), [inputs[0], 2])


def test_settings_are_in_force_in_a_block():
    before = Settings.now()
    with (
        inductor_config.patch({"max_fusion_size": 7, "cpp.simdlen": 256}),
        torch_threads(torch.get_num_threads() + 1),
    ):
        try:
            torch.set_default_dtype(torch.float64)
            torch.use_deterministic_algorithms(True, warn_only=True)
            wanted = Settings.now()
        finally:
            torch.set_default_dtype(torch.float32)
            torch.use_deterministic_algorithms(False)
    assert Settings.now() == before
    with inductor_config.patch({"max_fusion_size": 1, "realize_opcount_threshold": 3}):
        around = Settings.now()
        with wanted.in_force():
            assert Settings.now() == wanted
        assert Settings.now() == around
    assert Settings.now() == before


# --------------------------------------------------------------------------------------------------- pieces that travel


def step(x, places):
    with rx.region("a"):
        return torch.nn.functional.gelu(x[places]) * (12 // places)[:, None]


@pytest.fixture
def shipped_piece():
    """Return a piece whose code would crash on other integers, its inputs, and the shipment of both."""
    x, places = torch.randn(8, 6), torch.tensor([1, 7, 3, 2])
    ex = rx.explore(step, (x, places))
    program = ex.live.program
    program.record_layouts()
    ((switch, key),) = program.keys().items()
    wanted = program.wanted(key, switch)
    args = [{torch.float32: x, torch.int64: places}[node.meta["val"].dtype] for node in switch.piece.input_nodes]
    values = shipment.values_to_send(wanted.workpiece.inputs, args)
    assert [value.tolist() for value in values.values()] == [places.tolist()]
    yield wanted, args, shipment.shipment_of(wanted, Settings.now(), lambda _wanted: values)
    ex.close()


@pytest.mark.compiles
def test_a_piece_compiled_elsewhere_is_the_one_compiled_here(shipped_piece):
    wanted, args, content = shipped_piece
    here, store = ArtifactStore(), ArtifactStore()
    compiled = here.compile(wanted)
    delivery = shipment.receive(shipment.compile_shipment(content))
    shipment.unload(delivery, wanted, store)
    artifact = store.artifacts[wanted.key]
    assert store.code_hash(wanted.key) == here.code_hash(wanted.key)
    assert artifact.config == compiled.config
    assert artifact.pack() == delivery.packed
    (result,), (expected,) = artifact.call(list(args)), compiled.call(list(args))
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


def test_shipments_of_another_version_or_machine_are_refused(shipped_piece, monkeypatch):
    wanted, _, content = shipped_piece
    refused = shipment.receive(shipment.compile_shipment(content.replace(b"pieces 1", b"pieces 2")))
    assert "pieces 2" in refused.refusal
    monkeypatch.setattr(shipment, "_compile", lambda _shipment: shipment.Delivery(machine=elsewhere))
    elsewhere = dataclasses.replace(shipment.Machine.here(), cpu=("avx1024",))
    delivered = shipment.compile_shipment(content)
    assert "a processor with avx1024" in shipment.receive(delivered).refusal
    assert "pieces 2" in shipment.receive(delivered.replace(b"pieces 1", b"pieces 2")).refusal
    with pytest.raises(ShipmentError, match="avx1024"):
        shipment.unload(shipment.receive(delivered), wanted, ArtifactStore())


@pytest.mark.parametrize(
    ("error", "of_worker"),
    [
        (NoCompilerError("no g++"), True),
        (CompileEnvironmentError("OSError: [Errno 28] No space left on device"), True),
        (CompileEnvironmentError("OSError: [Errno 12] Cannot allocate memory"), False),
        (MemoryError("MemoryError"), False),
        (ZeroDivisionError("of Inductor's"), False),
    ],
)
def test_running_out_of_memory_fails_the_piece_not_the_worker(shipped_piece, monkeypatch, error, of_worker):
    def fail(_shipment):
        raise error

    monkeypatch.setattr(shipment, "_compile", fail)
    delivery = shipment.receive(shipment.compile_shipment(shipped_piece[2]))
    assert (bool(delivery.refusal), bool(delivery.failure)) == (of_worker, not of_worker)


@pytest.mark.compiles
def test_compiled_code_that_raises_unlike_eager_is_a_failure(shipped_piece, monkeypatch):
    _, _, content = shipped_piece
    compile_piece = shipment.compile_piece

    def raising(*args):
        def call(_inputs):
            raise RuntimeError("it cannot be run")

        return dataclasses.replace(compile_piece(*args), call=call)

    monkeypatch.setattr(shipment, "compile_piece", raising)
    assert shipment.receive(shipment.compile_shipment(content)).failure == "RuntimeError: it cannot be run"
    monkeypatch.setattr(shipment, "_made_up_input", lambda _layout, _value: torch.zeros(2, dtype=torch.int64))
    assert not shipment.receive(shipment.compile_shipment(content)).failure  # neither runs on such inputs
    monkeypatch.setattr(shipment, "_made_up_input", lambda _layout, _value: bytes(1 << 60))
    assert not shipment.receive(shipment.compile_shipment(content)).failure  # there is no memory for such inputs
