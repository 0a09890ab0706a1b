"""Records what partitions are called with: copies their inputs in a call, one group of equal partitions at a time."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regional_explorer.compiler.program import Program
from regional_explorer.compiler.switch import Switch


@dataclass(frozen=True)
class Recorded:
    """The inputs of one partition, and how often one call runs each of the partitions that were watched.

    ``switch`` is the first of them that the call ran, and ``args`` are its inputs; both are None if the call ran none:
    a branch not taken.
    """

    switch: Switch | None
    args: tuple[Any, ...] | None
    runs: Mapping[Switch, int]


def record_inputs(program: Program, switches: Sequence[Switch]) -> Recorded:
    """Run the call once, the ``switches`` eagerly, and return the inputs of the first of them.

    The tensors are those of the call, not copies, with their strides and aliasing; with several graphs,
    where Python code between them may write to the tensors, they are copied storage by storage: views still share one.
    """
    call, capture = program.capture.call, program.capture
    several_graphs = len(capture.frames) > 1
    runs = dict.fromkeys(switches, 0)
    first_run: list[tuple[Switch, tuple[Any, ...]]] = []

    def watcher(switch: Switch) -> Callable[[Sequence[Any]], None]:
        def record_args(args: Sequence[Any]) -> None:
            runs[switch] += 1
            if not first_run:
                first_run.append((switch, copied(args) if several_graphs else tuple(args)))

        return record_args

    program.select_regional(on=True)
    with contextlib.ExitStack() as stack:
        for switch in switches:
            stack.enter_context(switch.watched(watcher(switch)))
        stack.enter_context(call.restoring())
        call.run(capture.run)
    return Recorded(first_run[0][0], first_run[0][1], runs) if first_run else Recorded(None, None, runs)


def copied(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return copies of the tensors among ``values``: those that shared a storage still do, at the same offsets."""
    memo: dict[int, Any] = {}  # has each storage that is copied already
    return tuple(copy.deepcopy(value.detach(), memo) if isinstance(value, torch.Tensor) else value for value in values)
