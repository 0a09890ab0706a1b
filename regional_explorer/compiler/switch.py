"""The switch that a cut graph calls at a partition, and the op behind a failed assert."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import fx

from regional_explorer.capture.restore import TorchRandomState
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.fingerprint import (
    Layout,
    copy_in_layout,
    has_dtype_and_strides_of,
    layout_check,
    layout_problem,
    layouts_of,
    traced_layouts,
)
from regional_explorer.compiler.workpiece import Weights, Workpiece
from regional_explorer.errors import RegionAssertionError, RegionCompileError, listing
from regional_explorer.record.configs import ASSERTS
from regional_explorer.record.graph import Node
from regional_explorer.regions.cut import PartitionId, Piece
from regional_explorer.torch_api.cheap_calls import settled_call
from regional_explorer.torch_api.graphs import BoxedCall, is_kept_by_caller, only_computes
from regional_explorer.torch_api.torch_errors import is_about_an_input, op_of_assert, torch_error_line


def assertion_error(
    error: AssertionError, piece: Piece, args: Sequence[Any], inputs: Sequence[Layout], nodes: Mapping[str, Node]
) -> RegionAssertionError:
    """Return the error to raise instead of ``error``; ``args`` are the partition's inputs, ``nodes`` its graph."""
    location = f"Region {piece.claim.region!r}, graph {piece.graph_id}"
    placeholders = [node.name for node in piece.input_nodes]
    if str(error).strip():
        described = zip(placeholders, args, inputs, strict=False)
        misfits = [name for name, value, layout in described if not _fits_layout(value, layout)]
        where = f" It is about {_node_text(misfits[0], nodes)}." if misfits else ""
        return RegionAssertionError(f"{location}: a size assert failed: {torch_error_line(error)}.{where}")
    for name, value in zip(placeholders, args, strict=False):
        if not_finite := _not_finite(value):
            return RegionAssertionError(f"{location}: its input {_node_text(name, nodes)} holds {not_finite} already.")
    for node, value in _op_results(piece.gm, args):
        if not_finite := _not_finite(value):
            return RegionAssertionError(f"{location}: {_node_text(node.name, nodes)} gives {not_finite}.")
    return RegionAssertionError(
        f"{location}: an assert failed in the compiled code, which gives NaN or infinity where eager code does not."
    )


def _fits_layout(value: Any, layout: Layout) -> bool:
    has_size = not isinstance(value, torch.Tensor) or tuple(value.shape) == layout.size
    return has_size and has_dtype_and_strides_of(value, layout)


def _node_text(name: str, nodes: Mapping[str, Node]) -> str:
    node = nodes.get(name)
    if node is None:
        return repr(name)
    line = f", {node.source}" if node.source is not None else ""
    return f"{name!r} ({node.target}{line})"


def _not_finite(value: Any) -> str:
    """Return ``NaN`` or ``infinity`` if a tensor contains it, else an empty text."""
    if isinstance(value, (tuple, list)):
        return next(filter(None, map(_not_finite, value)), "")
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return ""
    if value.isnan().any():
        return "NaN"
    return "infinity" if value.isinf().any() else ""


def _op_results(gm: fx.GraphModule, args: Sequence[Any]) -> Iterator[tuple[fx.Node, Any]]:
    """Run the graph on copies of ``args`` and yield each op with its result; random generators are restored."""
    interpreter = fx.Interpreter(gm)
    inputs = iter([value.clone() if isinstance(value, torch.Tensor) else value for value in args])
    with torch.no_grad(), torch.random.fork_rng():
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                interpreter.env[node] = next(inputs)
            elif node.op != "output":
                interpreter.env[node] = interpreter.run_node(node)
                yield node, interpreter.env[node]


_T = TypeVar("_T")

REFUSED_INPUTS = "the compiled code refused its inputs"


def why_raised(error: Exception) -> str:
    """Return in one line why compiled code raised: an assert about an input or a kernel's result, or another error.

    Compiled code calls the kernels of library ops as eager code does, and knows only their fake kernels.
    """
    if is_about_an_input(error):
        return f"{REFUSED_INPUTS}: {torch_error_line(error)}"
    if op := op_of_assert(str(error)):
        return f"{op} returns other sizes or strides than its fake kernel promises: {torch_error_line(error)}"
    return f"the compiled code raised {type(error).__name__}: {torch_error_line(error)}"


class Learned(NamedTuple):
    """The facts that a switch has learned about its piece; switches of equal pieces in later cuts adopt them.

    ``layouts`` are the other fields of the workpiece: a piece lives no longer than its cut.
    """

    layouts: tuple[tuple[Layout, ...], tuple[Layout, ...], str, Weights | None] | None
    failure: str | None
    refused: Artifact | None
    refusal: str | None


class SwitchMode(Enum):
    """What the next call of a partition runs and checks."""

    EAGER = "run the eager piece"
    OBSERVED = "run the eager piece after an observer has seen the inputs"
    RECORDING = "run the eager piece and record the layouts; the calls after it run eagerly"
    CHOOSING = "record the layouts, and run the artifact that is chosen for them, if any"
    TRYING = "run the artifact and check all it takes and returns; the calls after it are settled, or eager"
    SETTLED = "run the artifact with the checks that every call needs; if it raises, the next call tries it again"


class Switch:
    """Chooses what runs a partition of the live callable; ``partition`` is its id, ``piece`` its graph.

    The cut graph calls ``call``, which does what ``mode`` says. ``workpiece`` has the layouts seen in the last recorded
    eager run, or those of the trace if that run did not reach the partition; None before. ``artifact`` is what calls
    run now, None for the eager piece. ``refused`` is an artifact that rejected the inputs of a call or raised,
    ``refusal`` the reason; the partition stays eager. ``failure`` says why the layouts could not be recorded; such a
    partition cannot be compiled. ``on_eager`` is called with the reason when calls run eagerly although there is an
    artifact, and ``on_stale`` when its weights have changed. ``nodes`` are the records of the graph that the partition
    was cut out of. ``are_inputs_guarded`` says that Dynamo has checked the inputs of that graph before it runs.
    """

    def __init__(
        self,
        piece: Piece,
        partition: PartitionId,
        nodes: Mapping[str, Node] | None = None,
        *,
        are_inputs_guarded: bool = False,
    ) -> None:
        self.piece = piece
        self.partition = partition
        self._nodes = nodes or {}
        self._unguarded = [
            place
            for place, node in enumerate(piece.input_nodes)
            if not (are_inputs_guarded and is_kept_by_caller(node))
        ]
        self.mode = SwitchMode.EAGER
        self.workpiece: Workpiece | None = None
        self.artifact: Artifact | None = None
        self.refused: Artifact | None = None
        self.refusal: str | None = None
        self.failure: str | None = None
        self.on_eager: Callable[[str], None] = lambda _why: None
        self.on_stale: Callable[[Switch, str], None] = lambda _switch, _why: None
        self._settled: BoxedCall = piece.eager
        self._are_weights_unchanged: Callable[[Sequence[Any]], bool] | None = None
        self._artifact_for_layouts: Callable[[], Artifact | None] = lambda: None
        self._observe: Callable[[Sequence[Any]], object] = lambda _args: None

    @property
    def learned(self) -> Learned | None:
        """The facts learned about the piece; None before the first recorded run."""
        work = self.workpiece
        if work is None and self.failure is None:
            return None
        layouts = None if work is None else (work.inputs, work.outputs, work.fingerprint, work.weights)
        return Learned(layouts, self.failure, self.refused, self.refusal)

    def revision(self) -> tuple[Any, ...]:
        """Return a value that changes whenever a new record of the partition would differ."""
        weights = self.workpiece and self.workpiece.weights
        known = weights and (weights.digest, weights.are_unchanged)
        return self.workpiece and self.workpiece.inputs, known, self.failure, id(self.refused)

    def adopt(self, learned: Learned) -> None:
        """Copy what another switch learned about an equal piece."""
        layouts, self.failure, self.refused, self.refusal = learned
        self.workpiece = layouts and Workpiece(self.piece, *layouts)

    @property
    def known_workpiece(self) -> Workpiece:
        """The workpiece of a partition whose layouts are known; every partition with an artifact or a key has one."""
        assert self.workpiece is not None  # noqa: S101 - see above
        return self.workpiece

    def call(self, args: list[Any]) -> Any:
        """Run the partition on one argument list, which is emptied; a settled call costs no other call of Python."""
        mode = self.mode
        if mode is SwitchMode.SETTLED or mode is SwitchMode.TRYING:
            if self._are_weights_unchanged is not None and not self._are_weights_unchanged(args):
                return self._run_stale(args)
            return self._settled(args) if mode is SwitchMode.SETTLED else self._run_checked(args)
        if mode is SwitchMode.RECORDING:
            return self._run_recording(args)
        if mode is SwitchMode.CHOOSING:
            return self._run_first(args)
        if mode is SwitchMode.OBSERVED:
            self._observe(args)
        return self.piece.eager(args)

    def _run_stale(self, args: list[Any]) -> Any:
        """Run the eager piece and record the new weights, for which there is no artifact yet."""
        weights = self.known_workpiece.weights
        changed = [] if weights is None else [self.piece.inputs[place] for place in weights.changed_places(args)]
        labels = [((node := self._nodes.get(name)) and node.label) or name for name in changed]
        self.artifact = None
        results = self._run_recording(args)
        self.on_stale(self, f"its frozen weights have changed: {listing(labels)}")
        return results

    @contextlib.contextmanager
    def running_eager(self, record: Callable[[Sequence[Any]], object]) -> Iterator[None]:
        """Context manager: let calls run the eager piece, after ``record`` was called with their inputs."""
        before = self.mode, self._observe
        self.mode, self._observe = SwitchMode.OBSERVED, record
        try:
            yield
        finally:
            self.mode, self._observe = before  # ``record`` holds the inputs

    def use_eager(self) -> None:
        """Send calls to the eager piece."""
        self.artifact, self.mode = None, SwitchMode.EAGER

    def record(self) -> None:
        """Run the next call eagerly and record the layouts of its inputs and outputs."""
        self.artifact = self.failure = None
        self.mode = SwitchMode.RECORDING

    def choose(self, artifact_for_layouts: Callable[[], Artifact | None]) -> None:
        """Record the layouts of the next call, and run the artifact that ``artifact_for_layouts`` returns, if any."""
        self.artifact = self.failure = None
        self._artifact_for_layouts = artifact_for_layouts
        self.mode = SwitchMode.CHOOSING

    def use(self, artifact: Artifact) -> None:
        """Send calls to ``artifact``; the first call checks what it returns."""
        weights = self.known_workpiece.weights
        self._are_weights_unchanged = None if weights is None else weights.are_among()
        self.artifact, self.mode = artifact, SwitchMode.TRYING

    def _run_recording(self, args: list[Any]) -> Any:
        inputs, weights = self._describe_inputs(args)
        results = self.piece.eager(args)
        outputs = self._try_describe(lambda: layouts_of(results, self.piece.output_nodes))
        self._learn(inputs, outputs, weights)
        self.mode = SwitchMode.EAGER
        return results

    def _run_first(self, args: list[Any]) -> Any:
        """Run the eager piece to learn the layouts of its outputs, then the artifact for the results.

        A piece that does more than compute, such as one with a collective or an op of a library, runs once: the layouts
        of its outputs are those of the trace.
        """
        results, random_state = None, TorchRandomState()
        if only_computes(self.piece.gm):
            results = self._run_recording(list(args))
        else:
            inputs, weights = self._describe_inputs(args)
            self._learn(inputs, traced_layouts(self.piece.output_nodes) or (), weights)
        self.mode = SwitchMode.CHOOSING  # until it is chosen: choosing may raise
        artifact = self._artifact_for_layouts()
        if artifact is None:
            self.use_eager()
            return self.piece.eager(args) if results is None else results
        results = None  # freed: the artifact computes them again
        random_state.restore()
        self.use(artifact)
        return self._run_checked(args)

    def _describe_inputs(self, args: Sequence[Any]) -> tuple[tuple[Layout, ...] | None, Weights | None]:
        inputs = self._try_describe(lambda: layouts_of(args, self.piece.input_nodes))
        values = dict(zip(self.piece.inputs, args, strict=True)) if self.piece.unwritten else {}
        return inputs, self._try_describe(lambda: Weights.of(self.piece, values))

    def _learn(
        self, inputs: tuple[Layout, ...] | None, outputs: tuple[Layout, ...] | None, weights: Weights | None
    ) -> None:
        self.workpiece = None
        if inputs is not None and outputs is not None:
            self.workpiece = self._try_describe(lambda: Workpiece.of(self.piece, inputs, outputs, weights))

    def _try_describe(self, describe: Callable[[], _T]) -> _T | None:
        """Return the result of ``describe``; if it raises, only this partition fails."""
        try:
            return describe()
        except Exception as error:  # noqa: BLE001 - tensors of any subclass, constants of any kind
            self.failure = f"its inputs or constants cannot be described: {type(error).__name__}: {error}"
            return None

    def assume_if_unreached(self, values: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Take the layouts from the trace if no recorded run reached this piece, as in a branch not taken.

        ``values`` are the known inputs of the graph, by name; its weights are among them.
        """
        if self.workpiece is None and self.failure is None:
            weights = self._try_describe(lambda: Weights.of(self.piece, values))
            self._learn(traced_layouts(self.piece.input_nodes), traced_layouts(self.piece.output_nodes) or (), weights)

    def _run_checked(self, args: list[Any]) -> Any:
        """Run the artifact for the first time, and choose the cheapest function for later calls."""
        artifact = self.artifact
        if artifact is None:  # another thread has refused it since
            return self.piece.eager(args)
        if why := layout_problem(args, self.known_workpiece.inputs):
            return self._refuse_artifact(artifact, f"{REFUSED_INPUTS}: {why}", args)
        results, is_compiled = self._run_or_eager(artifact, args)
        if not is_compiled:
            return results
        outputs = self.known_workpiece.outputs
        wrong_outputs = [
            index for index, layout in enumerate(outputs) if not has_dtype_and_strides_of(results[index], layout)
        ]
        self._settled = self._settled_call(artifact, wrong_outputs, args)
        self.mode = SwitchMode.SETTLED
        return self._relaid_results(results, wrong_outputs)

    def _settled_call(self, artifact: Artifact, wrong_outputs: list[int], args: Sequence[Any]) -> BoxedCall:
        keeps_checking = artifact.dynamic or _enables_asserts(artifact)
        fits = None if keeps_checking else layout_check(self.known_workpiece.inputs, args, self._unguarded)
        call = settled_call(artifact.call, self.piece.unseen)

        def settled(args: list[Any]) -> Any:
            # Code that might reject its inputs is called with a copy of the list: eager may need them afterwards.
            if not fits or not fits(args):
                return self._run_or_eager(artifact, args)[0]
            try:
                return call(args)
            except Exception as error:
                # The inputs are gone, so this call cannot be repeated. The next one is checked again, and running eager
                # code then shows whether the artifact or the inputs are the cause.
                if self.artifact is artifact:
                    self.use(artifact)
                region = self.piece.claim.region
                error.add_note(f"Raised in the compiled code of region {region!r}, graph {self.piece.graph_id}.")
                raise

        return (lambda args: self._relaid_results(settled(args), wrong_outputs)) if wrong_outputs else settled

    def _relaid_results(self, results: Any, wrong_outputs: list[int]) -> Any:
        if not wrong_outputs:
            return results
        outputs = self.known_workpiece.outputs
        return tuple(
            copy_in_layout(value, outputs[index]) if index in wrong_outputs else value
            for index, value in enumerate(results)
        )

    def _run_or_eager(self, artifact: Artifact, args: list[Any]) -> tuple[Any, bool]:
        """Return the results, and whether the artifact computed them.

        If it raises and eager code does not, stay eager from then on and report why. If an input is newly empty, only
        this call is eager. Generated code rejects inputs of other sizes or strides with an AssertionError. If the
        config enables asserts, the error says which node failed.

        Raises:
            RegionAssertionError: an assert that the region's config enables failed.
        """
        try:
            if artifact.guard is None or artifact.guard(args):
                return artifact.call(list(args)), True
            why = ""
        except Exception as error:
            if isinstance(error, AssertionError) and _enables_asserts(artifact):
                raise assertion_error(error, self.piece, args, self.known_workpiece.inputs, self._nodes) from error
            why = why_raised(error)
        # Outside the except block: the error keeps the compiled code's allocations alive.
        is_empty = why and _is_newly_empty(args, self.known_workpiece.inputs)
        if why and not is_empty:
            return self._refuse_artifact(artifact, why, args), False
        self.on_eager("an input is empty" if is_empty else "these sizes are outside the guards of the compiled code")
        return self.piece.eager(args), False

    def _refuse_artifact(self, artifact: Artifact, why: str, args: list[Any]) -> Any:
        results = self.piece.eager(args)
        self.refuse(artifact, why)
        return results

    def refuse(self, artifact: Artifact, why: str) -> None:
        """Send calls to the eager piece, since ``artifact`` cannot take their inputs."""
        self.use_eager()
        self.refused, self.refusal = artifact, why
        self.on_eager(why)


def _is_newly_empty(args: Sequence[Any], inputs: Sequence[Layout]) -> bool:
    """Return whether an input is empty that was not empty when it was recorded."""
    return any(
        isinstance(value, torch.Tensor) and value.numel() == 0 and layout.size and 0 not in layout.size
        for value, layout in zip(args, inputs, strict=False)
    )


def _enables_asserts(artifact: Artifact) -> bool:
    """Return whether the config enables asserts; by default, it only asserts that the code reads its inputs right."""
    return any(artifact.config.get(key) for key in ASSERTS) if artifact.config else False


def standalone_call(workpiece: Workpiece, artifact: Artifact, args: Sequence[Any]) -> BoxedCall:
    """Return the function that a cut graph would call for an artifact after a run on ``args``; no program changes.

    Raises:
        RegionCompileError: the artifact refuses ``args``.
    """
    switch = Switch(workpiece.piece, PartitionId("", 0))
    switch.workpiece = dataclasses.replace(workpiece, weights=None)  # recorded inputs may be copies of the weights
    switch.use(artifact)
    switch.call(list(args))
    if switch.refusal is not None:  # what ran was the eager piece
        raise RegionCompileError(switch.refusal)
    return switch.call
