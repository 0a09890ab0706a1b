"""A workpiece: a piece that is compiled, checked and timed apart from any program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from regional_explorer.capture.restore import RestoreLog, TorchRandomState
from regional_explorer.compiler.artifact_folder import Label, Machine
from regional_explorer.compiler.fingerprint import Layout, Symbols, artifact_key, canonical, fingerprint
from regional_explorer.compiler.weights import Weights
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.graphs import bodies, resolve
from regional_explorer.torch_api.torch_config import Settings


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

    def wanted(self, config: Mapping[str, Any], settings: str) -> Wanted:
        """Return the ingredients of its artifact under ``config`` and the global ``settings``."""
        return Wanted(artifact_key(f"{self.fingerprint}{self.constants}", config, settings), self, config)

    def canonical(self, mode: Any) -> tuple[fx.GraphModule, list[Any], Symbols]:
        """Return the canonical form of its piece, its inputs and its symbols; see ``fingerprint.canonical``."""
        weights = {} if self.weights is None else self.weights.by_place
        return canonical(self.piece, self.inputs, mode, {place: weight.tensor for place, weight in weights.items()})

    def putting_back(self, args: Sequence[Any]) -> Callable[[], None]:
        """Return a function that restores ``args`` and the random state; call it before each call on ``args``."""
        random_state, log = TorchRandomState() if self.piece.draws else None, RestoreLog()
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


class Wanted(NamedTuple):
    """The ingredients of an artifact: a workpiece and a config; ``key`` identifies it in the store."""

    key: str
    workpiece: Workpiece
    config: Mapping[str, Any]

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
            config={name: repr(value) for name, value in sorted(self.config.items())},
            settings=Settings.now().as_texts(),
            machine=Machine.here(devices),
        )


def _devices_in(gm: fx.GraphModule) -> Iterator[str]:
    """Yield the devices of all values of a graph, and those that its ops are given."""
    found: list[Any] = []
    for node in gm.graph.nodes:
        constant = resolve(gm, node) if node.op == "get_attr" else None
        fx.node.map_aggregate((node.args, node.kwargs, node.meta.get("val"), constant), found.append)
    for value in found:
        if isinstance(value, (torch.Tensor, torch.device)):
            yield str(value.device if isinstance(value, torch.Tensor) else value)
    for _, body in bodies(gm):
        yield from _devices_in(body)
