"""The graphs that Dynamo and AOTAutograd hand over, frame by frame, with origins stamped."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from regional_explorer.capture.call import closed
from regional_explorer.capture.convert import record_graphs
from regional_explorer.capture.graph_breaks import marked_blocks
from regional_explorer.capture.live_graph import Frame, LiveGraph
from regional_explorer.capture.modes import Modes
from regional_explorer.capture.repair import repair_alike
from regional_explorer.capture.source_lines import outdated_lines
from regional_explorer.record.graph import FailedOp, Graph, GraphBreak, GraphKind, MarkedBlock, SourceLine
from regional_explorer.record.plan_file import CallModes
from regional_explorer.torch_api import (
    MARKS,
    ORIGIN,
    BoxedCall,
    GeneratedCode,
    aot_backend,
    bodies,
    boxed,
    compile_lock,
    frame_module,
    recompile_reason,
    traced_code,
)

if TYPE_CHECKING:
    from torch import fx, nn


class TracedGraphs:
    """The graphs that Dynamo traced, and those that AOTAutograd made of them.

    ``on_graph`` is called with every graph that AOTAutograd runs. ``complete`` is False during a capture, whose call
    may have to run again. ``names`` are the module paths by ``id(module)``. ``instead`` is what calls run after
    ``close``; it raises. ``outdated`` are the lines whose text is not known: their file was edited after it was loaded.

    Args:
        partitioner: ``"default"`` or ``"min_cut"``, how AOTAutograd splits forward from backward.
    """

    def __init__(self, partitioner: str = "default") -> None:
        self.frames: list[Frame] = []
        self.breaks: tuple[GraphBreak, ...] = ()
        self.blocks: dict[int, tuple[MarkedBlock, ...]] = {}
        self.not_restored: Sequence[str] = ()
        self.outdated: dict[tuple[str, str, int], SourceLine] = {}
        self.on_graph: Callable[[Frame, LiveGraph], None] = lambda _frame, _live: None
        self.partitioner = partitioner
        self.names: Mapping[int, tuple[str, ...]] = {}
        self.complete = True
        self.instead: Callable[..., NoReturn] = closed
        self.generated = GeneratedCode()
        self._next_origin = 0

    @property
    def failed_targets(self) -> set[Any]:
        """The operators that failed in captured graphs."""
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
    def late_graphs(self) -> frozenset[str]:
        """The ids of the graphs of late frames: a later call, on other shapes, repeats what the first one has."""
        return frozenset(graph.id for frame in self.frames if frame.late for graph in frame.records)

    @property
    def live(self) -> list[LiveGraph]:
        """All graphs that AOTAutograd runs."""
        return [live for frame in self.frames for live in frame.live]

    def modes_of_calls(self) -> list[CallModes]:
        """Return what the first call computes with, and then that of each later one that was traced again."""
        calls = [[frame for frame in self.frames if not frame.late], *([frame] for frame in self.frames if frame.late)]
        return [
            CallModes(
                dtypes=tuple(sorted({str(v.dtype) for frame in frames for node in frame.inputs for v in node.values})),
                autocast=frames[0].autocast,
                grad=any(live.kind is not GraphKind.INFERENCE for frame in frames for live in frame.live),
            )
            for frames in calls
            if frames
        ]

    @contextlib.contextmanager
    def running(self, implementation: Callable[[LiveGraph], BoxedCall]) -> Iterator[None]:
        """A block in which each graph runs what ``implementation`` makes of it."""
        saved = [(live, live.implementation) for live in self.live]
        try:
            for live, _ in saved:
                live.implementation = implementation(live)
            yield
        finally:
            for live, previous in saved:
                live.implementation = previous

    def close(self) -> None:
        """Free the live graphs; the record stays."""
        for live in self.live:
            live.close(self.instead)
        for frame in self.frames:
            frame.live = []
        self.on_graph = lambda _frame, _live: None
        self.generated.release()

    def is_late(self, reason: str) -> bool:
        """Return whether a frame that is traced now is late; ``reason`` is the guard that failed, if any did."""
        return bool(reason and self.frames)

    def add_frame(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Add a graph of Dynamo's, as its backend; return the callable to run for it."""
        index = len(self.frames)
        self.outdated |= outdated_lines(traced_code())
        self._stamp_origins(gm, self._module_of_frame())
        dynamo = record_graphs(gm, f"{index}/dynamo", GraphKind.DYNAMO, index, names=self.names)
        reason = recompile_reason() if self.complete else ""
        autocast = Modes.current().autocast_text
        late = self.is_late(reason)
        frame = Frame(index, dynamo, late=late, reason=reason, autocast=autocast, outdated=self.outdated)
        frame.dynamo = frame.as_loaded(dynamo)
        self_ref = weakref.ref(self)

        def compile_graph(kind: str, aot_gm: fx.GraphModule) -> BoxedCall:
            capture = self_ref()
            if capture is None:  # a backward is compiled when it first runs: the capture may be gone by then
                return boxed(aot_gm)
            # A backward may be compiled when it first runs, and then nothing holds the lock yet.
            with compile_lock():
                return capture.add_graph(frame, GraphKind(kind), aot_gm)

        backend = aot_backend(compile_graph, partitioner=self.partitioner, on_fold=frame.folded.extend)
        with self.generated.collected():
            compiled = backend(gm, inputs)
        # Dynamo may call a backend and throw its result away (TensorifyScalarRestartAnalysis): count what succeeded.
        self.frames.append(frame)
        return compiled

    def add_graph(self, frame: Frame, kind: GraphKind, gm: fx.GraphModule) -> BoxedCall:
        """Add a graph that AOTAutograd made of the frame's; return the callable to run for it."""
        if self.complete and self.failed_ops:
            repair_alike(gm, self.failed_targets)
        live = LiveGraph(f"{frame.index}/{kind}", kind, gm)
        frame.live.append(live)
        frame.records += frame.record_of(live, self.names)
        if self.complete:
            live.run_as_captured()
        self.on_graph(frame, live)
        return live.as_boxed()

    def _module_of_frame(self) -> nn.Module | None:
        """Return the module below the root that the frame runs in: after a graph break its ops do not record it."""
        module = frame_module()
        return None if "" in self.names.get(id(module), ("",)) else module

    def _stamp_origins(self, gm: fx.GraphModule, module: nn.Module | None) -> None:
        """Give every op its origin, and put ``module`` around ops that do not record it; bodies included."""
        for node in gm.graph.nodes:
            stack = node.meta.get("nn_module_stack") or {}
            if module is not None and str(id(module)) not in (str(key).partition("@")[0] for key in stack):
                node.meta["nn_module_stack"] = {str(id(module)): ("", type(module)), **stack}
            # Nodes of one annotated block share one dict: each gets its own copy before it is changed.
            custom = dict(node.meta.get("custom") or {})
            marks = custom.pop(MARKS, ())
            if node.op not in ("placeholder", "output"):
                custom[ORIGIN] = self._next_origin
                if marks:
                    self.blocks[self._next_origin] = marked_blocks(marks, self.outdated)
                self._next_origin += 1
            if custom:
                node.meta["custom"] = custom
        for _, body in bodies(gm):
            self._stamp_origins(body, module)
