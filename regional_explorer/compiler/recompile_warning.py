"""The warning that a call with other inputs was traced again by Dynamo."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from pathlib import Path

import torch

from regional_explorer.capture.live_graph import Frame
from regional_explorer.record.graph import Role


def warn_of_trace(frame: Frame, partitions: str) -> None:
    """Warn, at the line that made the call, that the ``partitions`` of ``frame`` are not compiled yet."""
    why = f", since a guard failed: {frame.reason.strip().rstrip('.')}" if frame.reason else ""
    warnings.warn(
        f"The call was traced again ({', '.join(frame_inputs(frame))}){why}. Eager until the next ex.compile(): "
        f"{partitions}.",
        stacklevel=stacklevel_of_caller(),
    )


def frame_inputs(frame: Frame) -> list[str]:
    """Return the dtypes and shapes of the first few inputs of a frame."""
    nodes = [node for node in frame.dynamo[0].nodes if node.role is Role.INPUT]
    return [str(value) for node in nodes[:4] for value in node.values]


def stacklevel_of_caller() -> int:
    """Return the stacklevel of the user's line: the first outside torch, this package and the stdlib."""
    inner = tuple(
        f"{Path(file).parent}{os.sep}" for file in (torch.__file__, Path(__file__).parent, contextlib.__file__)
    )
    return next((level for level, frame in enumerate(inspect.stack(0)) if not frame.filename.startswith(inner)), 1)
