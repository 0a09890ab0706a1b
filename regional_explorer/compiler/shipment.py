"""Sends a piece as bytes that any process of this torch can compile, and receives its artifact as bytes."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from regional_explorer import __version__
from regional_explorer.compiler.artifact import ArtifactStore, Sizes, failure_text
from regional_explorer.compiler.artifact_folder import Machine
from regional_explorer.compiler.fingerprint import TOKEN, Layout, copy_in_layout
from regional_explorer.compiler.workpiece import WantedArtifact
from regional_explorer.errors import CompileEnvironmentError, NoCompilerError
from regional_explorer.record.artifact import ArtifactCompile
from regional_explorer.record.plan import Preparation
from regional_explorer.torch_api.compile_lock import compile_lock
from regional_explorer.torch_api.graphs import BoxedCall, boxed, fake_mode_with_symbols
from regional_explorer.torch_api.inductor import compile_piece
from regional_explorer.torch_api.shipping import PackedCode, ShipmentError, dump, dump_piece, load_piece
from regional_explorer.torch_api.torch_config import Settings

_HEADER = f"regional_explorer {__version__}, pieces 1, torch {torch.__version__}\n".encode()
"""The first bytes of everything that is sent, in both directions."""

Values = Mapping[int, torch.Tensor]
"""Inputs by their places."""


@dataclass(frozen=True)
class SentPiece:
    """A piece in canonical form with the fakes for its inputs, as ``dump_piece`` writes them, and how to compile it."""

    content: bytes
    config: Mapping[str, Any]
    prepared: Preparation | None

    @classmethod
    def of(cls, wanted: WantedArtifact) -> tuple[SentPiece, fx.GraphModule]:
        """Return the piece of an artifact in the form that is sent, and its canonical graph before any pass.

        Raises:
            ShipmentError: another backend than Inductor compiles it, or it cannot be written.
        """
        piece, backend = wanted.workpiece.piece, wanted.treatment.backend
        if backend is not None:
            raise ShipmentError(f"it is compiled by the backend {backend.name!r}, which may be of this process alone")
        with compile_lock():
            gm, fakes, *_, before = wanted.treated(fake_mode_with_symbols())
            return cls(dump_piece(gm, fakes), wanted.config, piece.prepared), before


@dataclass(frozen=True)
class Shipment:
    """A piece that a worker compiles under ``settings`` and runs once on inputs of these ``layouts``.

    The worker draws floating-point inputs at random. Other inputs, such as indices, need their values, which are in
    ``values``; if that is None (unknown, or too large to send), the worker does not run the piece.
    """

    piece: SentPiece
    settings: Settings
    layouts: tuple[Layout, ...]
    values: Values | None


@dataclass(frozen=True)
class Delivery:
    """The result of a worker: compiled code, or why there is none.

    ``failure`` is the fault of the piece. ``refusal`` is the fault of the worker: the piece may compile elsewhere.
    """

    packed: PackedCode = PackedCode(b"", {})  # noqa: RUF009 - frozen
    code: str = ""
    build: str = ""
    config: Mapping[str, Any] | None = None
    made: ArtifactCompile | None = None
    machine: Machine | None = None
    failure: str = ""
    refusal: str = ""


def shipment_of(
    wanted: WantedArtifact, settings: Settings, values_of: Callable[[WantedArtifact], Values | None]
) -> bytes:
    """Return the bytes that ``compile_shipment`` takes; ``values_of`` is called only if the piece can be sent.

    Raises:
        ShipmentError: it cannot be sent; the text says why.
    """
    piece, _ = SentPiece.of(wanted)
    return _HEADER + dump(Shipment(piece, settings, wanted.workpiece.inputs, values_of(wanted)))


def compile_shipment(content: bytes) -> bytes:
    """Compile a piece in a worker of any executor, run it once, and return the delivery; raise nothing."""
    return _HEADER + pickle.dumps(_delivery(content))


def _delivery(content: bytes) -> Delivery:
    if not content.startswith(_HEADER):
        return Delivery(refusal=f"the worker has {_text_of(_HEADER)}, and this process {_text_of(content)}")
    try:
        shipment: Shipment = pickle.loads(content[len(_HEADER) :])  # noqa: S301 - who sends work may run code here
        with compile_lock(), shipment.settings.in_force():
            try:
                return _compile(shipment)
            except Exception as error:
                if _is_workers_fault(error):
                    raise
                return Delivery(failure=failure_text(error))
    except Exception as error:  # noqa: BLE001 - for example, the worker cannot have the settings
        return Delivery(refusal=failure_text(error))


def _is_workers_fault(error: Exception) -> bool:
    """Return whether the worker is at fault: it lacks a compiler or disk space. Lack of memory is the piece's fault."""
    lacks_memory = any(sign in str(error) for sign in ("MemoryError", os.strerror(errno.ENOMEM)))
    return isinstance(error, NoCompilerError | CompileEnvironmentError | ShipmentError) and not lacks_memory


def _text_of(content: bytes) -> str:
    return content.partition(b"\n")[0].decode(errors="replace")


def _compile(shipment: Shipment) -> Delivery:
    piece, mode = shipment.piece, fake_mode_with_symbols()
    gm, fakes = load_piece(piece.content, mode)
    compiled = compile_piece(gm, fakes, mode, piece.config, piece.prepared)
    packed = replace(compiled.pack(), sizes=Sizes().packed())
    if shipment.values is not None:
        _run_once(compiled.call, shipment, shipment.values)
    return Delivery(packed, compiled.code, compiled.build, compiled.config, compiled.made, Machine.here())


def _run_once(call: BoxedCall, shipment: Shipment, values: Values) -> None:
    """Run compiled code once, so that a crash or hang happens in the worker; the asking process checks the results.

    Raises:
        Exception: the code raises, and the piece run op by op does not.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        try:
            inputs = [_made_up_input(layout, values.get(place)) for place, layout in enumerate(shipment.layouts)]
        except Exception:  # noqa: BLE001 - no memory for the inputs says nothing about the code
            return
        try:
            call(list(inputs))
        except Exception:
            if _runs_eagerly(shipment.piece, inputs):
                raise


def _runs_eagerly(piece: SentPiece, inputs: list[torch.Tensor]) -> bool:
    gm, _ = load_piece(piece.content, fake_mode_with_symbols())
    try:
        boxed(gm)(inputs)
    except Exception:  # noqa: BLE001 - the made-up inputs or lack of memory are the cause
        return False
    return True


def _made_up_input(layout: Layout, value: torch.Tensor | None) -> torch.Tensor:
    """Return ``value`` in this layout, or random numbers if it is None."""
    if layout == TOKEN:
        return torch.empty(0)
    dtype = getattr(torch, layout.dtype.removeprefix("torch."))
    return copy_in_layout(torch.randn(layout.size).to(dtype) if value is None else value, layout)


def values_to_send(layouts: Sequence[Layout], args: Sequence[Any]) -> Values | None:
    """Return the inputs of a piece that random numbers cannot stand for; None if they are too large to send."""
    values = {
        place: args[place].detach().as_subclass(torch.Tensor).clone()
        for place, layout in enumerate(layouts)
        if needs_value(layout)
    }
    return values if sum(value.nbytes for value in values.values()) <= MOST_BYTES else None


MOST_BYTES = 1 << 24
"""The maximum number of bytes of input values that are sent."""


def needs_value(layout: Layout) -> bool:
    """Return whether an input may be an index, a divisor or a mask: random numbers could make code crash."""
    if not layout.dtype.startswith("torch."):
        return False
    dtype = getattr(torch, layout.dtype.removeprefix("torch."))
    return not (dtype.is_floating_point or dtype.is_complex)


def receive(content: bytes) -> Delivery:
    """Return the delivery that a worker sent back."""
    if not content.startswith(_HEADER):
        return Delivery(refusal=f"the worker has {_text_of(content)}, and this process {_text_of(_HEADER)}")
    delivery: Delivery = pickle.loads(content[len(_HEADER) :])  # noqa: S301 - a worker sends code
    if delivery.machine is not None and (why := delivery.machine.mismatch(Machine.here())):
        return Delivery(refusal=f"the worker is another machine: {why}")
    return delivery


def unload(delivery: Delivery, wanted: WantedArtifact, store: ArtifactStore) -> None:
    """Keep the delivered artifact, or its failure, in the store. This runs code of the worker.

    Raises:
        ShipmentError: the worker refused it.
        Exception: of any kind, if it cannot be loaded.
    """
    if delivery.refusal:
        raise ShipmentError(delivery.refusal)
    if delivery.failure:
        store.failures[wanted.key] = delivery.failure
        return
    assert delivery.made is not None  # noqa: S101 - else there is a failure or a refusal
    artifact = store.unpacked(wanted, delivery.packed)
    store.artifacts[wanted.key] = replace(
        artifact,
        code=delivery.code,
        build=delivery.build,
        config=delivery.config,
        made=delivery.made,
        pack=lambda: delivery.packed,
    )
