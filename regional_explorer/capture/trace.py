"""Traces a call once: the graphs of Dynamo and AOTAutograd, frame by frame, with origins stamped."""

from __future__ import annotations

import contextlib
import linecache
import operator
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from torch import fx, nn

from regional_explorer.capture.call import Call, Modes, raise_closed
from regional_explorer.capture.convert import GraphRecorder, marked_blocks, record_breaks
from regional_explorer.capture.live_graph import Frame, GraphProgram, GraphState, LiveGraph, is_size_guard, repair_alike
from regional_explorer.capture.reachable import module_names
from regional_explorer.capture.untraced_ops import trace_error, untraced_ops, with_untraced
from regional_explorer.capture.user_lines import outdated_lines
from regional_explorer.errors import CaptureError, InvalidArgumentError, RefusalCode
from regional_explorer.record.graph import FailedOp, Graph, GraphBreak, GraphKind, MarkedBlock, Role, SourceLine
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import AS_UPSTREAM, Tracing
from regional_explorer.record.plan_file import CallModes
from regional_explorer.torch_api.compile_lock import compile_lock, compile_lock_for_user_code
from regional_explorer.torch_api.dynamo import (
    Break,
    aot_backend,
    as_first_call,
    compile_isolated,
    frame_module,
    graph_breaks,
    recompile_reason,
    recording_marks,
    traced_code,
)
from regional_explorer.torch_api.graphs import MARKS, ORIGIN, BoxedCall, SizeGuards, bodies, boxed, dispatch_mode
from regional_explorer.torch_api.hidden_state import hooks_of
from regional_explorer.torch_api.releasing import GeneratedCode, release_compiled
from regional_explorer.torch_api.torch_config import guarded_settings


class TracedGraphs:
    """The graphs that Dynamo traced, and those that AOTAutograd made of them.

    ``program`` decides what the graphs run; without one, they run as captured. ``complete`` is False during a capture,
    whose call may have to run again, and ``all_late`` is True after it; without a capture, a frame is late if a guard
    failed once ``first_call_ended``: a call enters a function behind a graph break several times, and traces it for
    each guard.
    ``names`` are the module paths by ``id(module)``. ``instead`` replaces the graphs after ``close``: it raises.
    ``outdated`` are the lines whose text is not known: their file was edited after it was loaded.
    ``tracing`` is how AOTAutograd makes the graphs. ``graphs``, ``pending``, ``late_graphs`` and ``live`` are those of
    ``current_frames``.
    ``reassigned`` names the Python values that each call assigns if a guard reads them; ``failed_guard`` is that guard.
    """

    def __init__(self, tracing: Tracing) -> None:
        self.frames: list[Frame] = []
        self.breaks: tuple[GraphBreak, ...] = ()
        self.blocks: dict[int, tuple[MarkedBlock, ...]] = {}
        self.not_restored: Sequence[str] = ()
        self.reassigned: Sequence[str] = ()
        self.failed_guard = ""
        self.outdated: dict[tuple[str, str, int], SourceLine] = {}
        self.program: GraphProgram | None = None
        self._replacement: Callable[[LiveGraph], BoxedCall] | None = None
        self.tracing = tracing
        self.names: Mapping[int, tuple[str, ...]] = {}
        self.complete, self.all_late, self.first_call_ended = True, False, False
        self.instead: Callable[..., NoReturn] = raise_closed
        self.generated = GeneratedCode()
        self._next_origin = 0
        self._traced_code: weakref.WeakSet[types.CodeType] = weakref.WeakSet()

    @property
    def failed_targets(self) -> set[Any]:
        """The operators that failed in captured graphs."""
        return {target for frame in self.frames for live in frame.live for target in live.failed_targets}

    @property
    def failed_ops(self) -> list[FailedOp]:
        """The ops of captured graphs that raised when the graphs first ran, and were repaired."""
        return [op for live in self.live for op in live.failed_ops]

    def current_frames(self, new: Frame | None = None) -> list[Frame]:
        """Return the frames that calls may run now, and ``new``, which is being traced."""
        return [*self.frames, *([] if new is None or any(frame is new for frame in self.frames) else [new])]

    @property
    def state(self) -> tuple[Any, ...]:
        """The settings and the modes of the modules that Dynamo guards on; a trace is of one state."""
        return ()

    @property
    def graphs(self) -> list[Graph]:
        """The record of the graphs, frame by frame: Dynamo's, then AOTAutograd's, each followed by its bodies."""
        return [graph for frame in self.current_frames() for graph in frame.graphs]

    @property
    def pending(self) -> list[Graph]:
        """The records of backward graphs that have not run: AOTAutograd hands over a backward when it first runs."""
        return [graph for frame in self.current_frames() for graph in frame.pending]

    @property
    def late_graphs(self) -> frozenset[str]:
        """The ids of the graphs of late frames: a later call, on other shapes, traces the same ops again."""
        return frozenset(graph.id for frame in self.current_frames() if frame.late for graph in frame.records)

    @property
    def live(self) -> list[LiveGraph]:
        """The graphs that AOTAutograd runs."""
        return [live for frame in self.current_frames() for live in frame.live]

    def modes_of_calls(self, frames: Sequence[Frame] | None = None) -> list[CallModes]:
        """Return the modes of the first call, and then of each later call that was traced again.

        ``frames`` limits this to the calls that traced them.
        """
        frames = self.current_frames() if frames is None else frames
        calls = [[frame for frame in frames if not frame.late], *([frame] for frame in frames if frame.late)]
        return [
            CallModes(
                dtypes=tuple(sorted({str(v.dtype) for frame in frames for node in frame.inputs for v in node.values})),
                autocast=frames[0].autocast,
                grad=any(graph.kind is not GraphKind.INFERENCE for frame in frames for graph in frame.records),
            )
            for frames in calls
            if frames
        ]

    @contextlib.contextmanager
    def running(self, implementation: Callable[[LiveGraph], BoxedCall]) -> Iterator[None]:
        """Context manager: let each graph, even one traced in the block, run the result of ``implementation`` on it."""
        self._replacement = implementation
        try:
            for live in self.live:
                live.enter(GraphState.REPLACED, implementation(live))
            yield
        finally:
            self._replacement = None
            self.unsettle()

    def unsettle(self, program: GraphProgram | None = None) -> None:
        """Let the next call of each graph ask the program what to run."""
        for frame in self.frames:
            for live in frame.live:
                live.unsettle(program)

    def run_repaired(self, live: LiveGraph, args: list[Any]) -> Any:
        """Run a graph that failed in its first run op by op; its ops are repaired, and it is recorded again.

        Raises:
            CaptureError: an op fails for another reason than strides; nothing is repaired.
        """
        frame = next(frame for frame in self.frames if live in frame.live)
        live.start_repairing(next(record for record in frame.records if record.id == live.id))
        try:
            results = live.call(args)
        except CaptureError:
            live.failed_ops = []
            live.unsettle()
            raise
        live.stop_repairing(live.failed_targets)
        frame.record(self.names)
        return results

    def close(self) -> None:
        """Free the live graphs; the record stays."""
        for frame in self.frames:
            for live in frame.live:
                live.close(self.instead)
            frame.live = []
        self.program = None
        self.generated.release()

    def add_frame(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Record a graph that Dynamo gives to its backend; return the callable that runs it."""
        index = len(self.frames)
        code = traced_code()
        self.outdated |= outdated_lines(code)
        module = frame_module()  # for a module below the root: after a graph break, its ops do not record it
        self._set_origins(gm, None if "" in self.names.get(id(module), ("",)) else module)
        recorder = GraphRecorder(GraphKind.DYNAMO, index, self.names, outdated=self.outdated)
        dynamo = recorder.record(gm, f"{index}/dynamo")
        reason = recompile_reason() if self.complete else ""
        modes = Modes.current()
        forgotten = self.complete and not reason and any(root in self._traced_code for root in code[:1])
        late = self.all_late or bool(self.first_call_ended and (reason or forgotten) and self.frames)
        frame = Frame(
            index,
            dynamo,
            late=late,
            reason=reason,
            forgotten=forgotten,
            autocast=modes.autocast_text,
            state=self.state,
            outdated=self.outdated,
        )
        inputs_text = tuple(str(value) for node in frame.inputs if node.role is Role.INPUT for value in node.values)
        frame.call = (*map(id, code[:1]), modes.grad, modes.inference, frame.autocast, inputs_text)
        # Traced again under other settings or modes, the explored call is the same.
        same_call = (earlier for earlier in self.frames if earlier.call == frame.call and earlier.state != frame.state)
        frame.late = late and all(earlier.late for earlier in same_call)
        self_ref = weakref.ref(self)

        def compile_graph(kind: str, aot_gm: fx.GraphModule) -> BoxedCall:
            capture = self_ref()
            if capture is None:  # a backward is compiled when it first runs: the capture may be gone by then
                return boxed(aot_gm)
            # A backward may be compiled when it first runs, and then nothing holds the lock yet.
            with compile_lock():
                return capture.add_graph(frame, GraphKind(kind), aot_gm)

        def before_forward(backward_gm: fx.GraphModule) -> None:
            # A region may be picked by its backward alone. A capture runs both before anything is cut.
            capture = self_ref()
            if capture is not None and capture.complete:
                frame.pending = frame.record_of(GraphKind.BACKWARD, backward_gm, capture.names)

        with self.generated.collecting():
            compiled = aot_backend(
                compile_graph,
                self.tracing,
                on_fold=frame.folded.extend,
                on_patterns=frame.add_patterns,
                before_forward=before_forward,
            )(gm, inputs)
        frame.size_guards = SizeGuards.of(gm, next(iter(code), None))
        # Dynamo may call a backend and discard its result (TensorifyScalarRestartAnalysis): count only what succeeded.
        self.frames.append(frame)
        self._traced_code.update(code[:1])
        return compiled

    def add_graph(self, frame: Frame, kind: GraphKind, gm: fx.GraphModule) -> BoxedCall:
        """Add a graph that AOTAutograd made of the frame's; return the callable to run for it."""
        if self.complete and self.failed_ops:
            repair_alike(gm, self.failed_targets)
        live = LiveGraph(frame.id_of(kind), kind, gm)
        frame.live.append(live)
        records = frame.record_of(kind, gm, self.names)
        frame.records += records
        if kind is GraphKind.BACKWARD:
            frame.pending = []
        if not self.complete:
            live.start_repairing(records[0])
        if self.program is not None:
            self.program.add_graph(frame, live)
        if self._replacement is not None:
            live.enter(GraphState.REPLACED, self._replacement(live))
        return live.call

    def _set_origins(self, gm: fx.GraphModule, module: nn.Module | None) -> None:
        """Give every op, bodies included, its origin; add ``module`` to ops that do not record it."""
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
            self._set_origins(body, module)


_CAPTURE_LOCK = threading.RLock()
"""Held while a call is captured: all threads share the hooks that listen to Dynamo meanwhile."""


class Capture(TracedGraphs):
    """The trace of one call.

    ``run`` is the traced callable; calling it on other shapes or in another grad mode makes Dynamo trace again, which
    adds a frame, whose graphs the program takes in.

    Args:
        call: the call to trace; it is run once, and its gradients taken once if it has any.
        dynamic: as in ``torch.compile``.
        tracing: how AOTAutograd makes the graphs.

    Raises:
        InvalidArgumentError: weights are to be constants, and the call takes gradients.
        CaptureError: nothing could be captured; the text lists the graph breaks.
    """

    def __init__(self, call: Call, tracing: Tracing = AS_UPSTREAM, *, dynamic: bool | None = None) -> None:
        if tracing.frozen and call.grad:
            raise InvalidArgumentError(
                "frozen=True is for inference, and this call takes gradients: explore it with grad=False."
            )
        super().__init__(tracing)
        self.call = call
        self.dynamic = dynamic
        self.names = module_names(call.modules)
        self.not_restored = call.not_restored
        self.closed = self.complete = self._looks_ahead = False
        self.run = compile_isolated(traceable(call.fn), _backend_of(self), dynamic=dynamic)
        vars(self.run)[_CAPTURE_ATTRIBUTE] = self
        _check_source_lines()
        state = self.state
        with (
            _CAPTURE_LOCK,
            compile_lock_for_user_code(),
            self.generated.collecting(),
            call.restoring(),
            as_first_call(call.fn),
            recording_marks(),
            graph_breaks() as all_breaks,
        ):
            self._run_traced()
            for live in self.live:
                live.stop_repairing(self.failed_targets)
            breaks = [*all_breaks]
            self._look_ahead()  # it may break again
            if breaks:
                call.restore()
                self.breaks = self._record_breaks(breaks)
        for frame in self.frames:
            frame.state = state  # the call may have set others while it ran
        self.complete = self.all_late = True
        for frame in self.frames if self.failed_ops else ():
            frame.record(self.names)
        if not self.frames:
            raise CaptureError(RefusalCode.NOTHING_CAPTURED, _nothing_captured(self.breaks))

    @property
    def state(self) -> tuple[Any, ...]:
        """The settings and the modes of the modules that Dynamo guards on."""
        call = getattr(self, "call", None)  # see ``drop_call``
        return guarded_settings(), call.training if call is not None else ()

    def current_frames(self, new: Frame | None = None) -> list[Frame]:
        """Return the frames that calls may run now, and ``new``, which is being traced.

        Of frames of the same call, calls run those that were traced in the present state. If there are none yet, those
        of the most similar state stand for them, the newest of several.
        """
        frames = super().current_frames(new)
        if len({frame.state for frame in frames}) <= 1:
            return frames
        now, states = self.state, grouped((frame.call, frame.state) for frame in frames)
        chosen = {
            call: max(reversed(of_call), key=lambda state: sum(map(operator.eq, state, now)))
            for call, of_call in states.items()
        }
        return [frame for frame in frames if frame.state == chosen[frame.call]]

    def _record_breaks(self, breaks: Sequence[Break]) -> tuple[GraphBreak, ...]:
        """Return the record of the breaks, with what runs eagerly because of each."""
        hooks = [*hooks_of(module for _, root in self.call.modules for module in root.modules())]
        records = record_breaks(breaks, self.names, self.outdated, hooks)
        if not self.frames:
            return records
        self._looks_ahead = True  # a frame that is traced again says nothing of the first call
        untraced = untraced_ops(self.call, self.run, self.names, self.outdated)
        self._looks_ahead = False
        return with_untraced(records, untraced)

    def _run_traced(self) -> None:
        try:
            _, gradients = self.call.run(self.run)
            if self.call.grad and all(gradient is None for gradient in gradients):
                self.call.restore()
                self.call.run()  # raises if the call itself has no gradients either
        except CaptureError:
            raise
        except Exception as error:
            nodes = (node for live in self.live for node in live.gm.graph.nodes)
            raise trace_error(self.call, error, nodes, self.tracing, dynamic=self.dynamic) from error

    def _look_ahead(self) -> None:
        """Call again from the Python state that the call left, as a program does: a guard may fail there.

        All other repetitions begin with restored state. The new trace is not completed.
        """
        if not (names := self.call.assigned_names()):
            return
        self._looks_ahead = True
        with contextlib.suppress(Exception):  # of the trace, or of the user's code in a second call
            self.call.forward(self.run)
        self._looks_ahead = False
        if self.failed_guard and not is_size_guard(self.failed_guard):
            read = set(re.findall(r"\w+", self.failed_guard.partition(" #")[0]))
            self.reassigned = [name for name in names if re.findall(r"\w+", name)[-1] in read] or names

    def add_frame(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Record a graph that Dynamo gives to its backend; if a second call needs it, only why."""
        if self._looks_ahead:
            self.failed_guard = self.failed_guard or recompile_reason()
            raise CaptureError(RefusalCode.NOTHING_CAPTURED, "A guard failed in a second call.")
        return super().add_frame(gm, inputs)

    def drop_call(self) -> None:
        """Free the arguments: from now on, only compiled functions that the user has kept run the trace."""
        del self.call

    def close(self) -> None:
        """Free the live graphs, the traced callable and torch's data for it; the records stay."""
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
    """Drop cached lines of files that have changed since: torch takes the lines of its stack traces from the cache.

    Each file is checked by itself: until Python 3.13, one call for all raises KeyError if another thread or the garbage
    collector forgets generated code meanwhile.
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
    listed = "".join(f"\n  - {item.place_and_caller}: {item.reason} {item.torch_hint}".rstrip() for item in breaks[:5])
    if listed:
        do = "Change the lines below, or explore the part of the call that does not need them."
        if breaks[0].is_elsewhere:
            do = f"{breaks[0].advice} Or explore the part of the call that does not need it."
        if lost := dict.fromkeys(repr(block.region) for item in breaks for block in item.blocks):
            advice = next(item.advice_in_block for item in breaks if item.blocks)
            do = (
                f"Lost with them: region {', '.join(lost)} (region-lost). A graph break inside a marked block makes "
                f"the whole function run as plain Python. {advice}"
            )
        return f"Nothing was captured: every frame of the call fell back to plain Python. {do}{listed}"
    if (mode := dispatch_mode()) is not None:
        return (
            f"Nothing was captured: Dynamo does not trace under {mode}. Explore the call outside of this mode's block."
        )
    return "Nothing was captured: the call runs no torch operation that Dynamo could trace."
