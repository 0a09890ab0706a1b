"""What a cut graph calls at a partition, and the op behind a failed assert."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import fx

from regional_explorer.capture.undo import TorchRandomState
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.fingerprint import (
    Layout,
    as_recorded,
    fingerprint,
    fitting,
    laid_out,
    layouts_of,
    misread,
    traced_layouts,
)
from regional_explorer.errors import RegionAssertionError
from regional_explorer.record.configs import ASSERTS
from regional_explorer.record.graph import Node
from regional_explorer.regions.cut import PartitionId, Piece
from regional_explorer.torch_api.asserts import in_one_line, is_about_an_input, op_of_assert
from regional_explorer.torch_api.graphs import BoxedCall, is_effect_token, only_computes, runs_random


def failed_assert(
    error: AssertionError, piece: Piece, args: Sequence[Any], inputs: Sequence[Layout], nodes: Mapping[str, Node]
) -> RegionAssertionError:
    """Return the error to raise instead of ``error``; ``args`` are the partition's inputs, ``nodes`` its graph."""
    location = f"Region {piece.claim.region!r}, graph {piece.graph_id}"
    placeholders = [node.name for node in piece.gm.graph.find_nodes(op="placeholder")]
    if str(error).strip():
        described = zip(placeholders, args, inputs, strict=False)
        misfits = [name for name, value, layout in described if not _fits_layout(value, layout)]
        where = f" It is about {_node_text(misfits[0], nodes)}." if misfits else ""
        return RegionAssertionError(f"{location}: a size assert failed: {in_one_line(error)}.{where}")
    for name, value in zip(placeholders, args, strict=False):
        if what := _not_finite(value):
            return RegionAssertionError(f"{location}: its input {_node_text(name, nodes)} holds {what} already.")
    for node, value in _op_results(piece.gm, args):
        if what := _not_finite(value):
            return RegionAssertionError(f"{location}: {_node_text(node.name, nodes)} gives {what}.")
    return RegionAssertionError(
        f"{location}: an assert failed in the compiled code, which gives NaN or infinity where eager code does not."
    )


def _fits_layout(value: Any, layout: Layout) -> bool:
    return (not isinstance(value, torch.Tensor) or tuple(value.shape) == layout.size) and as_recorded(value, layout)


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
    """Return in one line why compiled code raised: an assert about an input or about what a kernel returned, or else.

    The kernels of library ops, of which compiled code knows nothing but the fake one, are called as in eager mode.
    """
    if is_about_an_input(error):
        return f"{REFUSED_INPUTS}: {in_one_line(error)}"
    if op := op_of_assert(str(error)):
        return f"{op} returns other sizes or strides than its fake kernel promises: {in_one_line(error)}"
    return f"the compiled code raised {type(error).__name__}: {in_one_line(error)}"


class PieceFacts(NamedTuple):
    """What a switch has learned about its piece; switches of equal pieces in later cuts adopt it."""

    inputs: tuple[Layout, ...] | None
    outputs: tuple[Layout, ...]
    fingerprint: str | None
    failure: str | None
    refused: Artifact | None
    refusal: str | None


class Switch:
    """One partition in the live callable; ``partition`` is its id, ``piece`` its graph.

    ``inputs`` and ``outputs`` are the layouts seen in the last recorded eager run, or those of the trace if that run
    did not reach the partition; None before. ``artifact`` is what calls run now, None for the eager piece. ``refused``
    is an artifact that rejected the inputs of a call or raised, ``refusal`` the reason; the partition stays eager.
    ``failure`` says why the layouts could not be recorded; such a partition cannot be compiled.
    ``on_eager`` is called with the reason when calls run eagerly although there is an artifact.
    Implementations take one argument list, which they empty. ``nodes`` are the records of the graph it was cut out of.
    """

    def __init__(self, piece: Piece, partition: PartitionId, nodes: Mapping[str, Node] | None = None) -> None:
        self.piece = piece
        self.partition = partition
        self._nodes = nodes or {}
        self.eager = piece.eager
        self.implementation: BoxedCall = self.eager
        self.inputs: tuple[Layout, ...] | None = None
        self.outputs: tuple[Layout, ...] = ()
        self.artifact: Artifact | None = None
        self.refused: Artifact | None = None
        self.refusal: str | None = None
        self.failure: str | None = None
        self.on_eager: Callable[[str], None] = lambda _why: None
        self._artifact_for_layouts: Callable[[], Artifact | None] = lambda: None
        graph = piece.gm.graph
        self._input_tokens = _effect_tokens(graph.find_nodes(op="placeholder"))
        self.output_tokens = _effect_tokens(graph.output_node().all_input_nodes)
        self._fingerprint: str | None = None

    @property
    def facts(self) -> PieceFacts | None:
        """The facts learned about the piece, None before the first recorded run."""
        if self.inputs is None and self.failure is None:
            return None
        return PieceFacts(self.inputs, self.outputs, self._fingerprint, self.failure, self.refused, self.refusal)

    def adopt(self, facts: PieceFacts) -> None:
        """Copy what another switch learned about an equal piece."""
        self.inputs, self.outputs, self._fingerprint, self.failure, self.refused, self.refusal = facts

    @property
    def draws(self) -> bool:
        """Whether the piece draws random numbers."""
        return any(map(runs_random, self.piece.gm.graph.nodes))

    def as_function(self) -> BoxedCall:
        """Return the function to put into the cut graph."""

        def piece(args: list[Any]) -> Any:
            return self.implementation(args)

        return piece

    def use_eager(self) -> None:
        """Send calls to the eager piece."""
        self.artifact = None
        self.implementation = self.eager

    def record(self) -> None:
        """Run the next call eagerly and record the layouts of its inputs and outputs."""
        self.artifact = self.failure = None
        self.implementation = self._run_recording

    def choose(self, artifact_for_layouts: Callable[[], Artifact | None]) -> None:
        """Record the layouts of the next call, and run it already by the artifact that is returned for them, if any."""
        self.artifact = self.failure = None
        self._artifact_for_layouts = artifact_for_layouts
        self.implementation = self._run_first

    @property
    def chooses(self) -> bool:
        """Whether the next call chooses what it and later ones run."""
        return self.implementation == self._run_first

    def use(self, artifact: Artifact) -> None:
        """Send calls to ``artifact``; the first call checks what it returns."""
        self.artifact = artifact
        self.implementation = functools.partial(self._run_checked, artifact)

    def _run_recording(self, args: list[Any]) -> Any:
        inputs = self._try_describe(lambda: layouts_of(args, self._input_tokens))
        results = self.eager(args)
        outputs = self._try_describe(lambda: layouts_of(results, self.output_tokens))
        self._set_layouts(inputs, outputs)
        self.implementation = self.eager
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
            inputs = self._try_describe(lambda: layouts_of(args, self._input_tokens))
            self._set_layouts(inputs, traced_layouts(self.piece.gm.graph.output_node().all_input_nodes) or ())
        self.implementation = self._run_first  # until it is chosen: choosing may raise
        artifact = self._artifact_for_layouts()
        if artifact is None:
            self.use_eager()
            return self.eager(args) if results is None else results
        results = None  # not needed in memory beside the same ones of the artifact
        random_state.restore()
        self.use(artifact)
        return self._run_checked(artifact, args)

    def _set_layouts(self, inputs: tuple[Layout, ...] | None, outputs: tuple[Layout, ...] | None) -> None:
        are_known = inputs is not None and outputs is not None
        self._fingerprint = self._try_describe(lambda: fingerprint(self.piece, inputs or ())) if are_known else None
        self.inputs = inputs if self._fingerprint is not None else None
        self.outputs = outputs or ()

    def _try_describe(self, describe: Callable[[], _T]) -> _T | None:
        """Return what ``describe`` returns; if it raises, this partition has failed, and no other."""
        try:
            return describe()
        except Exception as error:  # noqa: BLE001 - tensors of any subclass, constants of any kind
            self.failure = f"its inputs or constants cannot be described: {type(error).__name__}: {error}"
            return None

    @contextlib.contextmanager
    def watched(self, on_call: Callable[[tuple[Any, ...]], None]) -> Iterator[None]:
        """A block in which calls run eagerly, after ``on_call`` has been called with their inputs."""

        def call_eager(args: list[Any]) -> Any:
            on_call(tuple(args))
            return self.eager(args)

        previous, self.implementation = self.implementation, call_eager
        try:
            yield
        finally:
            self.implementation = previous

    def assume_if_unreached(self) -> None:
        """Take the layouts from the trace if no recorded run reached this piece, as in a branch not taken."""
        if self.inputs is not None or self.failure is not None:
            return
        graph = self.piece.gm.graph
        inputs = traced_layouts(graph.find_nodes(op="placeholder"))
        self._set_layouts(inputs, traced_layouts(graph.output_node().all_input_nodes) or ())

    def fingerprint(self) -> str:
        """Return the hash that equal pieces share. Layouts must be known."""
        assert self._fingerprint is not None  # noqa: S101 - it is known if ``inputs`` are
        return self._fingerprint

    def _run_checked(self, artifact: Artifact, args: list[Any]) -> Any:
        """Run the artifact for the first time, and choose the cheapest implementation for later calls."""
        if why := misread(args, self.inputs or ()):
            return self._refuse_artifact(artifact, f"{REFUSED_INPUTS}: {why}", args)
        results, is_compiled = self._run_or_eager(artifact, args)
        if not is_compiled:
            return results
        wrong_outputs = [index for index, layout in enumerate(self.outputs) if not as_recorded(results[index], layout)]
        self.implementation = self._settled_call(artifact, wrong_outputs, args)
        return self._relaid_results(results, wrong_outputs)

    def _settled_call(self, artifact: Artifact, wrong_outputs: list[int], args: Sequence[Any]) -> BoxedCall:
        keeps_checking = artifact.dynamic or _enables_asserts(artifact)
        call, fits = artifact.call, None if keeps_checking else fitting(self.inputs or (), args)

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
        return tuple(
            laid_out(value, self.outputs[index]) if index in wrong_outputs else value
            for index, value in enumerate(results)
        )

    def _run_or_eager(self, artifact: Artifact, args: list[Any]) -> tuple[Any, bool]:
        """Return the results, and whether the artifact computed them.

        If it raises and eager code does not, stay eager from then on and report why; only this call is eager where an
        input is empty that was not. Generated code rejects inputs of other sizes or strides with an AssertionError. If
        the config enables asserts, the error says which node failed.

        Raises:
            RegionAssertionError: an assert that the region's config enables failed.
        """
        try:
            if artifact.guard is None or artifact.guard(args):
                return artifact.call(list(args)), True
            why = ""
        except Exception as error:
            if isinstance(error, AssertionError) and _enables_asserts(artifact):
                raise failed_assert(error, self.piece, args, self.inputs or (), self._nodes) from error
            why = why_raised(error)
        # Outside the except block: the error keeps alive what the compiled code had allocated.
        is_empty = why and _is_newly_empty(args, self.inputs or ())
        if why and not is_empty:
            return self._refuse_artifact(artifact, why, args), False
        self.on_eager("an input is empty" if is_empty else "these sizes are outside the guards of the compiled code")
        return self.eager(args), False

    def _refuse_artifact(self, artifact: Artifact, why: str, args: list[Any]) -> Any:
        results = self.eager(args)
        self.use_eager()
        self.refused = artifact
        self.refusal = why
        self.on_eager(why)
        return results


def _is_newly_empty(args: Sequence[Any], inputs: Sequence[Layout]) -> bool:
    """Return whether a tensor is empty where the recorded one was not."""
    return any(
        isinstance(value, torch.Tensor) and value.numel() == 0 and layout.size and 0 not in layout.size
        for value, layout in zip(args, inputs, strict=False)
    )


def _enables_asserts(artifact: Artifact) -> bool:
    """Return whether the config enables asserts; by default code only asserts what keeps it from misreading inputs."""
    return any(artifact.config.get(key) for key in ASSERTS) if artifact.config else False


def _effect_tokens(nodes: Sequence[fx.Node]) -> frozenset[int]:
    return frozenset(index for index, node in enumerate(nodes) if is_effect_token(node))
