"""Traces a call once into Dynamo's and AOTAutograd's graphs, and repairs graphs that fail when they run."""

from __future__ import annotations

import contextlib
import linecache
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx, nn

from regional_explorer.capture.call import Call
from regional_explorer.capture.graph_breaks import record_breaks
from regional_explorer.capture.reachable_modules import module_names
from regional_explorer.capture.traced_graphs import TracedGraphs
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.record.graph import GraphBreak
from regional_explorer.torch_api import (
    as_first_call,
    compile_isolated,
    compile_lock_for_user_code,
    dispatch_mode,
    graph_breaks,
    noting_marks,
    release_compiled,
)

_CAPTURE_LOCK = threading.RLock()
"""Held while a call is captured: all threads share the hooks that listen to Dynamo meanwhile."""


class Capture(TracedGraphs):
    """The trace of one call.

    ``run`` is the traced callable; calling it on other shapes or in another grad mode makes Dynamo trace again, which
    adds a frame and calls ``on_graph``.

    Args:
        call: the call to trace; it is run once, and its gradients taken once if it has any.
        dynamic: as in ``torch.compile``.
        partitioner: ``"default"`` or ``"min_cut"``, how AOTAutograd splits forward from backward.

    Raises:
        CaptureError: nothing could be captured; the text lists the graph breaks.
    """

    def __init__(self, call: Call, *, dynamic: bool | None = None, partitioner: str = "default") -> None:
        super().__init__(partitioner)
        self.call = call
        self.dynamic = dynamic
        self.names = module_names(call.modules)
        self.not_restored = call.not_restored
        self.closed = self.complete = False
        self.run = compile_isolated(traceable(call.fn), _backend_of(self), dynamic=dynamic)
        vars(self.run)[_CAPTURE_ATTRIBUTE] = self
        _check_source_lines()
        with (
            _CAPTURE_LOCK,
            compile_lock_for_user_code(),
            self.generated.collected(),
            call.restoring(),
            as_first_call(call.fn),
            noting_marks(),
            graph_breaks() as breaks,
        ):
            while not self._try_traced_run():
                call.restore()
        self.complete = True
        for live in self.live:
            live.run_as_captured(self.failed_targets)
        for frame in self.frames if self.failed_ops else ():
            frame.record(self.names)
        self.breaks = record_breaks(breaks, self.names, self.outdated)
        if not self.frames:
            raise CaptureError(RefusalCode.NOTHING_CAPTURED, _nothing_captured(self.breaks))

    def _try_traced_run(self) -> bool:
        """Run the traced call; return False if a captured graph failed, to be repaired in the next run."""
        try:
            _, gradients = self.call.run(self.run)
            if self.call.grad and all(gradient is None for gradient in gradients):
                self.call.restore()
                self.call.run()  # raises if it is not only the trace that has no gradients
        except CaptureError:
            raise
        except Exception as error:
            for frame in self.frames:
                for live in frame.live:
                    if live.raised and live.failed_ops is None:
                        live.repair(next(record for record in frame.records if record.id == live.id))
                        return False
            raise CaptureError(RefusalCode.TRACE_FAILED, f"torch could not trace the call: {_trim(error)}") from error
        return True

    def is_late(self, reason: str) -> bool:
        """Return whether a frame that is traced now belongs to another call than the captured one."""
        del reason
        return self.complete

    def drop_call(self) -> None:
        """Let go of the arguments: the trace is only run from now on, by a function that the user has kept of it."""
        del self.call

    def close(self) -> None:
        """Free the live graphs, the traced callable, and what torch keeps for it; the records stay."""
        self.closed = True
        release_compiled(self.run)
        super().close()
        self.run = self.instead


_CAPTURE_ATTRIBUTE = "_regional_explorer_capture"


def _backend_of(capture: Capture) -> Callable[[fx.GraphModule, Sequence[Any]], Any]:
    """Return the backend that passes Dynamo's graphs to ``capture``, to which it holds a weak reference only.

    Dynamo keeps the backend and what it made until they are released, and would keep the arguments of the call with
    them. The traced callable itself keeps the capture alive, as its attribute ``_CAPTURE_ATTRIBUTE``.
    """
    capture_ref = weakref.ref(capture)

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        alive = capture_ref()
        if alive is None:
            return gm.forward
        return alive.instead if alive.closed else alive.add_frame(gm, inputs)

    return backend


def _check_source_lines() -> None:
    """Drop lines of files that have changed since they were read: torch takes the lines of its stack traces from there.

    Not by one call for all files: until Python 3.13 that raises KeyError if generated code is forgotten meanwhile, on
    another thread or by the garbage collector.
    """
    for name in list(linecache.cache):
        with contextlib.suppress(KeyError):
            linecache.checkcache(name)


def traceable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fn`` in a form that Dynamo traces from its first frame: partials and callable objects are wrapped."""
    if isinstance(fn, nn.Module) or hasattr(fn, "__code__"):
        return fn

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


def _nothing_captured(breaks: Sequence[GraphBreak]) -> str:
    listed = "".join(
        f"\n  - {item.source or 'the call itself'}: {item.reason}{f' {item.hint}.' if item.hint else ''}"
        for item in breaks[:5]
    )
    if listed:
        lost = dict.fromkeys(repr(block.region) for item in breaks for block in item.blocks)
        why = (
            f" Lost with them: region {', '.join(lost)} (region-lost). A graph break inside a marked block makes the "
            "whole function run as plain Python: move the line below out of the block."
        )
        do = " Change the lines below, or explore the part of the call that does not need them."
        return f"Nothing was captured: every frame of the call fell back to plain Python.{why if lost else do}{listed}"
    if (mode := dispatch_mode()) is not None:
        return (
            f"Nothing was captured: Dynamo does not trace under {mode}. Explore the call outside of this mode's block."
        )
    return "Nothing was captured: the call runs no torch operation that Dynamo could trace."


def _trim(error: Exception) -> str:
    lines = [line for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()]
    return "\n".join(lines[:15])
