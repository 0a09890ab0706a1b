"""Traces a call once: Dynamo's graphs and AOTAutograd's, with origins stamped."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx, nn

from regional_explorer.capture.call import Call, closed
from regional_explorer.capture.convert import marked_blocks, record_breaks, record_graphs
from regional_explorer.capture.live_graph import Frame, LiveGraph
from regional_explorer.capture.modules import module_names
from regional_explorer.capture.repair import repair_alike
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.record.graph import FailedOp, Graph, GraphBreak, GraphKind, MarkedBlock
from regional_explorer.torch_api import (
    MARKS,
    ORIGIN,
    BoxedCall,
    GeneratedCode,
    aot_backend,
    as_first_call,
    bodies,
    boxed,
    compile_isolated,
    compile_lock,
    frame_module,
    graph_breaks,
    noting_marks,
    recompile_reason,
    release_compiled,
)

_TRACING = threading.RLock()
"""Held while a call is captured: what listens to Dynamo meanwhile is the same for all threads."""


class Capture:
    """The trace of one call.

    ``run`` is the traced callable; calling it on other shapes or in another grad mode makes Dynamo trace again, which
    adds a frame and is told through ``on_frame``.

    Args:
        call: the call to trace; it is run once, and its gradients taken once if it has any.
        dynamic: as in ``torch.compile``.
        partitioner: ``"default"`` or ``"min_cut"``, how AOTAutograd splits forward from backward.

    Raises:
        CaptureError: nothing could be captured; the text lists the graph breaks.
    """

    def __init__(self, call: Call, *, dynamic: bool | None = None, partitioner: str = "default") -> None:
        self.call = call
        self.frames: list[Frame] = []
        self.breaks: tuple[GraphBreak, ...] = ()
        self.blocks: dict[int, tuple[MarkedBlock, ...]] = {}
        self.on_graph: Callable[[Frame, LiveGraph], None] = lambda _frame, _live: None
        self.partitioner = partitioner
        self._names = module_names(call.modules)
        self._next_origin = 0
        self._done = False
        self.closed = False
        self.run = compile_isolated(_traceable(call.fn), _backend_of(self), dynamic=dynamic)
        vars(self.run)[_KEPT] = self
        self.generated = GeneratedCode()
        with _TRACING, ExitStack() as locked:
            locked.enter_context(compile_lock())
            with (
                self.generated.collected(),
                call.kept(),
                as_first_call(call.fn),
                noting_marks(),
                graph_breaks() as breaks,
            ):
                while not self._ran(locked):
                    call.restore()
                    locked.enter_context(compile_lock())
        self._done = True
        for live in self.live:
            live.run_as_captured(self._failed_targets)
        for frame in self.frames if self.failed_ops else ():
            frame.record(self._names)
        self.breaks = record_breaks(breaks)
        if not self.frames:
            raise CaptureError(RefusalCode.NOTHING_CAPTURED, _nothing_captured(self.breaks))

    def _ran(self, locked: ExitStack) -> bool:
        """Run the traced call; return False where a captured graph failed and the next run is to repair it."""
        try:
            outputs = self.call.forward(self.run)
            if self.call.grad:
                if torch.accelerator.is_available():
                    # Autograd has threads of its own for those, which may have to compile.
                    locked.close()
                self.call.backward(outputs)
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

    @property
    def _failed_targets(self) -> set[Any]:
        return {target for live in self.live for target in live.failed_targets}

    @property
    def failed_ops(self) -> list[FailedOp]:
        """The ops of captured graphs that raised when the graphs first ran, and were repaired."""
        return [op for live in self.live for op in live.failed_ops or ()]

    @property
    def graphs(self) -> list[Graph]:
        """The record of all graphs, frame by frame: Dynamo's, then AOTAutograd's, each followed by its bodies."""
        return [graph for frame in self.frames for graph in (*frame.dynamo, *frame.records)]

    @property
    def live(self) -> list[LiveGraph]:
        """All graphs that AOTAutograd runs."""
        return [live for frame in self.frames for live in frame.live]

    def close(self) -> None:
        """Let go of the live graphs and the traced callable, and of what torch keeps for it; the record stays."""
        for live in self.live:
            live.close()
        for frame in self.frames:
            frame.live = []
        self.on_graph = lambda _frame, _live: None
        self.closed = True
        release_compiled(self.run)
        self.generated.release()
        self.run = self.call.fn

    def add_frame(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Take a graph of Dynamo's, as its backend, and return what to run for it."""
        index = len(self.frames)
        self._stamp(gm, self._module_of_frame())
        dynamo = record_graphs(gm, f"{index}/dynamo", GraphKind.DYNAMO, index, names=self._names)
        frame = Frame(index, dynamo, late=self._done, reason=recompile_reason() if self._done else "")
        owner = weakref.ref(self)

        def compile_graph(kind: str, aot_gm: fx.GraphModule) -> BoxedCall:
            capture = owner()
            if capture is None:  # a backward is compiled when it is first run: nobody may be left by then
                return boxed(aot_gm)
            # For a backward, which may be compiled when it is first run, nobody holds the lock yet.
            with compile_lock():
                return capture.add_graph(frame, GraphKind(kind), aot_gm)

        backend = aot_backend(compile_graph, partitioner=self.partitioner, on_fold=frame.folded.extend)
        with self.generated.collected():
            compiled = backend(gm, inputs)
        # Dynamo may call a backend and throw its result away (TensorifyScalarRestartAnalysis): count what came through.
        self.frames.append(frame)
        return compiled

    def add_graph(self, frame: Frame, kind: GraphKind, gm: fx.GraphModule) -> BoxedCall:
        """Take a graph that AOTAutograd made of the frame's, and return what to run for it."""
        if self._done and self.failed_ops:
            repair_alike(gm, self._failed_targets)
        live = LiveGraph(f"{frame.index}/{kind}", kind, gm)
        frame.live.append(live)
        frame.records += frame.record_of(live, self._names)
        if self._done:
            live.run_as_captured()
        self.on_graph(frame, live)
        return live.as_boxed()

    def _module_of_frame(self) -> nn.Module | None:
        """Return the module below the root that the frame runs in: behind a graph break its ops know of none."""
        module = frame_module()
        return None if "" in self._names.get(id(module), ("",)) else module

    def _stamp(self, gm: fx.GraphModule, module: nn.Module | None) -> None:
        """Give every op its origin, and ``module`` around those it is called by, inside bodies too."""
        for node in gm.graph.nodes:
            stack = node.meta.get("nn_module_stack") or {}
            if module is not None and str(id(module)) not in (str(key).partition("@")[0] for key in stack):
                node.meta["nn_module_stack"] = {str(id(module)): ("", type(module)), **stack}
            # Nodes of one annotated block share one dict: each gets its own before it is written to.
            custom = dict(node.meta.get("custom") or {})
            marks = custom.pop(MARKS, ())
            if node.op not in ("placeholder", "output"):
                custom[ORIGIN] = self._next_origin
                if marks:
                    self.blocks[self._next_origin] = marked_blocks(marks)
                self._next_origin += 1
            if custom:
                node.meta["custom"] = custom
        for _, body in bodies(gm):
            self._stamp(body, module)


_KEPT = "_regional_explorer_capture"


def _backend_of(capture: Capture) -> Callable[[fx.GraphModule, Sequence[Any]], Any]:
    """Return the backend that hands Dynamo's graphs to ``capture`` and does not keep it.

    Dynamo keeps the backend and what it made until they are released, and would keep with them the arguments of the
    call. Who can call the traced callable has the capture, too: ``_KEPT`` is an attribute of it.
    """
    owner = weakref.ref(capture)

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        kept = owner()
        if kept is None:
            return gm.forward
        return closed if kept.closed else kept.add_frame(gm, inputs)

    return backend


def _traceable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fn`` in a form that Dynamo starts on at once: partials and callable objects get a plain function."""
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
            f" Lost with them: region {', '.join(lost)} (region-lost). A graph break inside a marked block throws the "
            "whole function back to plain Python: move the line below out of the block."
        )
        do = " Change the lines below, or explore the part of the call that does without them."
        return f"Nothing was captured: every frame of the call fell back to plain Python.{why if lost else do}{listed}"
    return "Nothing was captured: the call runs no torch operation that Dynamo could trace."


def _trim(error: Exception) -> str:
    lines = [line for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()]
    return "\n".join(lines[:15])
