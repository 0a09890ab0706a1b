"""A workpiece: a piece that is compiled, checked and timed apart from any program."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, NamedTuple, Self

import torch
from torch import fx

from regional_explorer.capture.restore import RestoreLog, TorchRandomState
from regional_explorer.compiler.artifact_folder import Label, Machine
from regional_explorer.compiler.fingerprint import Layout, Symbols, artifact_key, canonical, fingerprint
from regional_explorer.compiler.treatment import function_of
from regional_explorer.record.artifact import PassRun
from regional_explorer.record.plan import INDUCTOR, Treatment
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.cheap_calls import picker
from regional_explorer.torch_api.graphs import bodies, resolve
from regional_explorer.torch_api.hidden_state import version_of
from regional_explorer.torch_api.passes import run_passes
from regional_explorer.torch_api.prepared import is_weight
from regional_explorer.torch_api.torch_config import Settings

WORDS = 4
"""The minimum number of 8-byte words, spread over each weight, that a call compares."""


class Weight(NamedTuple):
    """A weight with its state when frozen: torch's count of writes, its address, and some of its words."""

    tensor: torch.Tensor
    version: int
    address: int
    words: memoryview
    held: list[int]

    @property
    def is_unchanged(self) -> bool:
        """Whether the weight was not written to, as far as the compared words show."""
        tensor = self.tensor
        return (
            version_of(tensor) == self.version
            and tensor.data_ptr() == self.address
            and self.words.tolist() == self.held
        )


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights among the inputs of a piece, by place; ``digest`` is a hash of their content.

    Torch counts writes to a tensor, but not writes through ``weight.data`` or ``weight.numpy()``. So each call also
    compares a few words of every weight, and a compile or a measurement compares all words.
    """

    by_place: Mapping[int, Weight]
    digest: str

    @classmethod
    def of(cls, piece: Piece, values: Mapping[str, Any]) -> Self | None:
        """Return the weights among the inputs of a piece, whose ``values`` are by name; None if it has no weights."""
        tensors = {
            place: values[name]
            for place, name in enumerate(piece.inputs)
            if name in piece.unwritten and is_weight(values.get(name))
        }
        by_place, digest = {}, hashlib.sha256()
        for place, tensor in tensors.items():
            in_order = tensor.detach().permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
            content = in_order.contiguous().cpu().flatten().view(torch.uint8).numpy().data
            digest.update(f"{place}:".encode())
            digest.update(content)
            is_in_place = tensor.device.type == "cpu" and in_order.is_contiguous()
            words = _few_words(content if is_in_place else _NOTHING)
            by_place[place] = Weight(tensor, version_of(tensor), tensor.data_ptr(), words, words.tolist())
        return cls(by_place, digest.hexdigest()[:20]) if tensors else None

    @property
    def are_unchanged(self) -> bool:
        """Whether no weight was written to, as far as the compared words show."""
        return all(weight.is_unchanged for weight in self.by_place.values())

    def are_among(self) -> Callable[[Sequence[Any]], bool]:
        """Return a function that checks whether the inputs of a call include these weights, unchanged."""
        pick, tensors = picker(list(self.by_place)), [weight.tensor for weight in self.by_place.values()]
        return lambda args: all(map(is_, pick(args), tensors)) and self.are_unchanged

    def changed_places(self, args: Sequence[Any]) -> list[int]:
        """Return the places of weights that a call replaced by other tensors, or that were written to."""
        return [
            place
            for place, weight in self.by_place.items()
            if args[place] is not weight.tensor or not weight.is_unchanged
        ]


_NOTHING = memoryview(b"")


def _few_words(content: memoryview) -> memoryview:
    count = len(content) // 8
    if count < WORDS:
        return content
    return content[: count * 8].cast("Q")[:: max(1, (count - 1) // (WORDS - 1))]


@dataclass(frozen=True, eq=False)
class Workpiece:
    """A piece with the layouts of its inputs and outputs; workpieces of one fingerprint have the same code.

    It is compiled under any config and called on any inputs of these layouts, whatever plan calls run meanwhile.
    ``weights`` are the inputs that are constants: code of equal fingerprint may hold other weights.
    """

    piece: Piece
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    fingerprint: str
    weights: Weights | None = None

    @classmethod
    def of(
        cls, piece: Piece, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...], weights: Weights | None = None
    ) -> Workpiece:
        """Return the workpiece of a piece with these layouts."""
        return cls(piece, inputs, outputs, fingerprint(piece, inputs), weights)

    @property
    def constants(self) -> str:
        """A hash of its frozen weights; empty if it has none."""
        return "" if self.weights is None else self.weights.digest

    @property
    def is_current(self) -> bool:
        """Whether its frozen weights are unchanged."""
        return self.weights is None or self.weights.are_unchanged

    def wanted(self, config: Mapping[str, Any], settings: str, treatment: Treatment = INDUCTOR) -> WantedArtifact:
        """Return the ingredients of its artifact under ``config``, ``treatment`` and the global ``settings``."""
        treated = treatment.digests if treatment.functions else ""
        content = f"{self.fingerprint}{self.constants}{treated}"
        return WantedArtifact(artifact_key(content, config, settings), self, config, treatment)

    def canonical(self, mode: Any) -> tuple[fx.GraphModule, list[Any], Symbols]:
        """Return the canonical form of its piece, its inputs and its symbols; see ``fingerprint.canonical``."""
        weights = {} if self.weights is None else self.weights.by_place
        return canonical(self.piece, self.inputs, mode, {place: weight.tensor for place, weight in weights.items()})

    def restorer(self, args: Sequence[Any]) -> Callable[[], None]:
        """Return a function that restores ``args`` and the random state; call it before each call on ``args``."""
        random_state, log = TorchRandomState() if self.piece.is_random else None, RestoreLog()
        try:
            with log:
                self.piece.eager(list(args))
        except Exception:  # noqa: BLE001 - a higher-order op may refuse a dispatch mode; ops that write are not in pieces
            log.restore()
            log = RestoreLog()

        def put_back() -> None:
            log.restore()
            if random_state is not None:
                random_state.restore()

        return put_back


class TreatedPiece(NamedTuple):
    """A piece in canonical form after its passes, its inputs and symbols, what each pass did, and the form before."""

    gm: fx.GraphModule
    inputs: list[Any]
    symbols: Symbols
    passes: tuple[PassRun, ...]
    before: fx.GraphModule


class WantedArtifact(NamedTuple):
    """The ingredients of an artifact: a workpiece, a config and a treatment; ``key`` identifies it in the store."""

    key: str
    workpiece: Workpiece
    config: Mapping[str, Any]
    treatment: Treatment = INDUCTOR

    def treated(self, mode: Any) -> TreatedPiece:
        """Return the piece as it is to be compiled, with fakes of ``mode``."""
        before, inputs, symbols = self.workpiece.canonical(mode)
        if not self.treatment.passes:
            return TreatedPiece(before, inputs, symbols, (), before)
        passes = [(each.name, function_of(each)) for each in self.treatment.passes]
        gm, runs = run_passes(before, inputs, mode, passes)
        return TreatedPiece(gm, inputs, symbols, runs, before)

    def label(self) -> Label:
        """Return the artifact's label in a folder, for this machine and the current settings."""
        piece, inputs = self.workpiece.piece, self.workpiece.inputs
        devices = {layout.device for layout in inputs if layout.device} | set(_devices_in(piece.gm))
        return Label(
            key=self.key,
            region=piece.claim.region,
            graph=piece.graph_id,
            fingerprint=self.workpiece.fingerprint,
            weights=self.workpiece.constants,
            config={name: repr(value) for name, value in sorted(self.config.items())} | dict(self.treatment.digests),
            settings=Settings.now().as_texts(),
            machine=Machine.here(devices),
        )


def _devices_in(gm: fx.GraphModule) -> Iterator[str]:
    """Yield the devices of all values of a graph, and the devices among the arguments of its ops."""
    values: list[Any] = []
    for node in gm.graph.nodes:
        constant = resolve(gm, node) if node.op == "get_attr" else None
        fx.node.map_aggregate((node.args, node.kwargs, node.meta.get("val"), constant), values.append)
    for value in values:
        if isinstance(value, (torch.Tensor, torch.device)):
            yield str(value.device if isinstance(value, torch.Tensor) else value)
    for _, body in bodies(gm):
        yield from _devices_in(body)
