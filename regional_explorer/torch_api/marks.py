"""Records on each node all marked blocks around it while Dynamo traces; ``annotate`` keeps only the innermost."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from torch._dynamo.variables import ctx_manager
from torch.fx.traceback import get_current_meta

from regional_explorer.torch_api.versions import ANNOTATION, MARKS


@dataclass(frozen=True)
class OpenMark:
    """One marked block that Dynamo entered: its unique number, its annotation, and ``(file, line, function)``."""

    block: int
    annotation: Any
    frame: tuple[str, int, str]


@contextlib.contextmanager
def noting_marks() -> Iterator[None]:
    """A block in which traced nodes get, under ``MARKS``, the marked blocks they are in, outermost first.

    ``annotate`` alone keeps only the innermost mark, and equal marks of two blocks cannot be distinguished.
    """
    variable = ctx_manager.FxTracebackAnnotateVariable
    original = variable.enter
    numbers = itertools.count()

    @functools.wraps(original)
    def enter(self: Any, tx: Any, *args: Any) -> Any:
        outer = open_marks()
        entered = original(self, tx, *args)
        # Until 2.14 the annotation was called target_values, as in any other context manager.
        annotation = getattr(self, "annotation", self.target_values)
        custom = get_current_meta().get("custom")
        if custom is not None and ANNOTATION in annotation:
            summary = tx.frame_summary()
            frame = (summary.filename, summary.lineno or 0, summary.name)
            custom[MARKS] = (*outer, OpenMark(next(numbers), annotation[ANNOTATION], frame))
        return entered

    with mock.patch.object(variable, "enter", enter):
        yield


def open_marks() -> tuple[OpenMark, ...]:
    """Return the marked blocks around the code that Dynamo is tracing now."""
    marks: tuple[OpenMark, ...] = (get_current_meta().get("custom") or {}).get(MARKS, ())
    return marks
