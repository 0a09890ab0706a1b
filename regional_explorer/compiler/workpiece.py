"""A workpiece: a piece that is compiled, checked and timed apart from any program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from regional_explorer.capture.restore import RestoreLog, TorchRandomState
from regional_explorer.compiler.artifact_folder import Label, Machine
from regional_explorer.compiler.fingerprint import Layout, artifact_key, fingerprint
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.graphs import bodies, resolve
from regional_explorer.torch_api.torch_config import Settings


@dataclass(frozen=True, eq=False)
class Workpiece:
    """A piece with the layouts of its inputs and outputs; those of one fingerprint have the same code.

    It is compiled under any config and called on any inputs of these layouts, whatever plan calls run meanwhile.
    """

    piece: Piece
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    fingerprint: str

    @classmethod
    def of(cls, piece: Piece, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> Workpiece:
        """Return the workpiece of a piece with these layouts."""
        return cls(piece, inputs, outputs, fingerprint(piece, inputs))

    def wanted(self, config: Mapping[str, Any], settings: str) -> Wanted:
        """Return what its artifact is made of under ``config`` and the global ``settings``."""
        return Wanted(artifact_key(self.fingerprint, config, settings), self, config)

    def putting_back(self, args: Sequence[Any]) -> Callable[[], None]:
        """Return a function to call before each call on ``args``: it restores writes and the random state."""
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
    """What an artifact is made of: a workpiece, under ``config``. It is kept by ``key``."""

    key: str
    workpiece: Workpiece
    config: Mapping[str, Any]

    def label(self) -> Label:
        """Return the label by which the artifact is found in a folder, as compiled here under the current settings."""
        piece, inputs = self.workpiece.piece, self.workpiece.inputs
        devices = {layout.device for layout in inputs if layout.device} | set(_devices_in(piece.gm))
        return Label(
            key=self.key,
            region=piece.claim.region,
            graph=piece.graph_id,
            fingerprint=self.workpiece.fingerprint,
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
