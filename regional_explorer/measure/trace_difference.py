"""Finds the first captured node whose value eager never has: a dispatch mode takes digests of both runs' values."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx

from regional_explorer.capture.live_graph import LiveGraph
from regional_explorer.capture.trace import Capture
from regional_explorer.capture.user_lines import at_line
from regional_explorer.errors import listing
from regional_explorer.measure.numerics import Reference, compare_results, error_in_words, run_once
from regional_explorer.measure.tolerances import Arithmetic, Values, rounding_limit
from regional_explorer.record.benchmark import Numerics, NumericsVerdict
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.graph import Graph, GraphKind, Node, Role
from regional_explorer.torch_api.dynamo import as_first_call, compile_isolated
from regional_explorer.torch_api.graphs import BoxedCall, WatchingMode, is_random_op

_NUMPY = "NumPy's generator"
_GENERATORS = ("torch's generator", _NUMPY, "Python's generator")


def trace_differs_diagnostic(
    capture: Capture, reference: Reference, traced: Values, wrong: Sequence[Numerics]
) -> Diagnostic:
    """Return the diagnostic of a trace whose results ``traced`` differ from eager's in the tensors ``wrong``."""
    if checkpoints := _writing_checkpoints(capture, traced, wrong):
        return _written_twice_diagnostic(checkpoints, reference, wrong)
    in_gradients_alone = all(row.tensor.startswith("grad ") for row in wrong)
    difference = _first_difference(capture, reference, gradients_alone=in_gradients_alone)
    graph, node, why = difference or (None, None, "")
    dynamo_differs_too = _dynamo_differs_too(capture, reference)
    location = "" if difference is None else f" The first difference is at {graph}:{node}{why}."
    cause = (
        " The same under torch.compile(backend='eager')."
        if dynamo_differs_too
        else " torch.compile(backend='eager') agrees with eager: AOTAutograd makes the difference."
        if dynamo_differs_too is False
        else ""
    )
    remedy = (
        f"{_COMPARED} Look for code that does something else while it is traced: a branch on "
        "torch.compiler.is_compiling(), a decomposition, random numbers that eager draws elsewhere."
    )
    if _NUMPY in why:
        remedy = (
            "Dynamo draws NumPy's random numbers from torch's generator. Set "
            "torch._dynamo.config.use_numpy_random_stream = True before rx.explore, which leaves them to NumPy in a "
            "graph break (so draw them outside of marked blocks), or draw them before the call and pass them to it."
        )
    records = {graph.id: graph.by_name for graph in capture.graphs}
    record = records.get(graph or "", {}).get(node or "")
    return DiagnosticCode.TRACE_DIFFERS.finding(
        _difference_text(reference, wrong),
        f".{location}{cause}",
        graph=graph,
        at=() if node is None else (node,),
        where=() if record is None or record.source is None else (record.source,),
        remedy=remedy,
    )


_COMPARED = (
    "Every variant is compared with eager; variants with the trace's results are also timed against the trace "
    "(aot_eager)."
)


def _difference_text(reference: Reference, wrong: Sequence[Numerics]) -> str:
    return (
        f"The captured graphs give other results than the call in eager mode ({error_in_words(wrong[0])}; "
        f"{len(wrong)} of {len(reference.eager.outputs) + len(reference.eager.gradients)} tensors)"
    )


# ------------------------------------------------------------------------------------- what a checkpoint writes twice

CHECKPOINT = "tag_activation_checkpoint"
"""The op that runs the body of a ``torch.utils.checkpoint.checkpoint`` in Dynamo's graph."""


class _Checkpoint(NamedTuple):
    """A checkpoint whose body writes: its op, the op's graph, and the ops that write, by the tensor they write."""

    graph: str
    op: Node
    writers: Mapping[str, Node]


def _writing_checkpoints(capture: Capture, traced: Values, wrong: Sequence[Numerics]) -> list[_Checkpoint]:
    """Return the checkpoints whose writes eager repeats in the backward, if these writes explain all differences.

    The traced graph repeats the body's computations, but not its writes: its results are those of eager's forward.
    """
    call, names = capture.call, {row.tensor for row in wrong}
    checkpoints = [checkpoint for checkpoint in _checkpoints(capture.graphs, names) if checkpoint.writers]
    if not call.grad or names != {name for checkpoint in checkpoints for name in checkpoint.writers}:
        return []
    with call.restoring():
        call.forward()
        after_forward = [(name, tensor.clone()) for name, tensor, _ in call.written_tensors() if name in names]
    of_trace = [(name, tensor) for name, tensor in traced.outputs if name in names]
    rows = compare_results("captured", Values(tuple(of_trace), ()), Reference(Values(tuple(after_forward), ())))
    return checkpoints if all(row.verdict is NumericsVerdict.OK for row in rows) else []


def _checkpoints(graphs: Sequence[Graph], names: AbstractSet[str]) -> Iterator[_Checkpoint]:
    """Yield each checkpoint of Dynamo's graphs with the ops in its body that take tensors called ``names``."""
    bodies = {graph.parent: graph for graph in graphs if graph.parent is not None}
    for graph in graphs:
        for op in graph.ops if graph.kind is GraphKind.DYNAMO else ():
            body = bodies.get((graph.id, op.inputs[0])) if op.target == CHECKPOINT else None
            if body is None:
                continue
            inputs = [node.name for node in body.nodes if node.role is Role.INPUT]
            pairs = zip(op.inputs[1:], inputs, strict=False)
            inside = {_name_of(graph.by_name[outer], names): name for outer, name in pairs}
            users = {
                name: [user for user in body.ops if inner in user.inputs] for name, inner in inside.items() if name
            }
            yield _Checkpoint(graph.id, op, {name: ops[0] for name, ops in users.items() if ops})


def _name_of(node: Node, names: AbstractSet[str]) -> str:
    """Return the one of ``names`` that an input of Dynamo's graph has; its label may begin with an owner's name."""
    return next((name for name in names if f".{node.label}".endswith(f".{name.removeprefix('written ')}")), "")


def _written_twice_diagnostic(
    checkpoints: Sequence[_Checkpoint], reference: Reference, wrong: Sequence[Numerics]
) -> Diagnostic:
    tensors = listing([row.tensor.removeprefix("written ") for row in wrong])
    writers = {id(node): node for checkpoint in checkpoints for node in checkpoint.writers.values()}.values()
    graph, op, _ = checkpoints[0]
    subject = "The checkpoint" if len(checkpoints) == 1 else f"Each of {len(checkpoints)} checkpoints, the first"
    ops = listing(list(dict.fromkeys(node.target for node in writers)))
    return DiagnosticCode.TRACE_DIFFERS.finding(
        _difference_text(reference, wrong),
        f". {subject}{at_line(op.source)}, runs {ops} again in eager's backward, "
        f"which writes {tensors} a second time; the traced graphs write once.",
        graph=graph,
        at=[checkpoint.op for checkpoint in checkpoints if checkpoint.graph == graph],
        where=(*(checkpoint.op for checkpoint in checkpoints), *writers),
        remedy=f"Leave what writes {tensors} out of the checkpoint, or accept that compiled code writes once, as eager "
        f"does without the checkpoint. {_COMPARED}",
    )


def _dynamo_differs_too(capture: Capture, reference: Reference) -> bool | None:
    """Return whether Dynamo's graphs, run eagerly, differ from eager too; None if they cannot run."""
    call = capture.call
    try:
        with as_first_call(call.fn):
            values = run_once(call, compile_isolated(call.fn, "eager"))
    except Exception:  # noqa: BLE001 - torch may raise anything; the diagnostic then says less
        return None
    return any(row.verdict == NumericsVerdict.FAILED for row in compare_results("eager backend", values, reference))


# ----------------------------------------------------------------------------------------------------- computed values


class _Digest(NamedTuple):
    """A digest of a tensor: its shape, dtype, norm, and its product with fixed random numbers."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    norm: float
    product: float

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Digest:
        real = tensor.detach()
        real = torch.view_as_real(real.resolve_conj()) if real.is_complex() else real
        flat = real.to(torch.float64).reshape(-1).cpu().nan_to_num(nan=1.0, posinf=2.0, neginf=3.0)
        generator = torch.Generator("cpu").manual_seed(flat.numel())
        weights = torch.randn(flat.shape, generator=generator, dtype=torch.float64, device="cpu")
        return cls(tuple(tensor.shape), tensor.dtype, float(flat.norm()), float(flat @ weights))

    def like(self, other: _Digest, arithmetic: Arithmetic) -> bool:
        """Return whether two tensors are equal up to rounding."""
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            return False
        floating = self.dtype.is_floating_point or self.dtype.is_complex
        allowed = rounding_limit(self.dtype, arithmetic, 0.0).relative * max(self.norm, other.norm) if floating else 0.0
        return abs(self.norm - other.norm) <= allowed and abs(self.product - other.product) <= allowed


def _digests(value: Any) -> list[_Digest]:
    values = value if isinstance(value, (list, tuple)) else (value,)
    dense_tensors = (tensor for tensor in values if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided)
    return [_Digest.of(tensor) for tensor in dense_tensors]


def _random_states() -> tuple[int, ...]:
    """Return hashes of the states of the random generators in ``_GENERATORS``."""
    states = (torch.get_rng_state().numpy().tobytes(), repr(np.random.get_state()), random.getstate())  # noqa: NPY002
    return tuple(map(hash, states))


def _differing_generators(left_states: Sequence[int], right_states: Sequence[int]) -> list[str]:
    """Return the names of the generators whose states differ."""
    return [name for name, left, right in zip(_GENERATORS, left_states, right_states, strict=True) if left != right]


class _EagerRecorder(WatchingMode):
    """Records every value that eager computes, and the states of the random generators whenever it draws."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[tuple[int, ...], list[_Digest]] = {}
        self.random_states: list[tuple[int, ...]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run ``func`` and record its results."""
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            self.random_states.append(_random_states())
        result = func(*args, **(kwargs or {}))
        for digest in _digests(result):
            self.values.setdefault(digest.shape, []).append(digest)
        return result

    def has(self, digest: _Digest, arithmetic: Arithmetic) -> bool:
        """Return whether eager computed an equal value anywhere, up to rounding."""
        return any(digest.like(other, arithmetic) for other in self.values.get(digest.shape, ()))


class _GraphRun(fx.Interpreter):
    """One run of a captured graph: the values by node, and the states of the generators at each draw."""

    def __init__(self, live: LiveGraph) -> None:
        super().__init__(live.gm)
        self.live = live
        self.values: dict[fx.Node, list[_Digest]] = {}
        self.random_states: list[tuple[fx.Node, tuple[int, ...]]] = []

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and record its results."""
        if n.op == "call_function" and is_random_op(n):
            self.random_states.append((n, _random_states()))
        result = super().run_node(n)
        if n.op == "call_function":
            self.values[n] = _digests(result)
        return result


# -------------------------------------------------------------------------------------------------- where the two part


def _first_difference(capture: Capture, reference: Reference, *, gradients_alone: bool) -> tuple[str, str, str] | None:
    """Return the graph and name of the first node that differs from eager, and why if it is known."""
    call = capture.call
    try:
        eager = _EagerRecorder()
        with call.restoring():
            before = _random_states()
            with eager:
                call.run()
            used_generators = _differing_generators(before, _random_states())
        runs: list[_GraphRun] = []

        def recording(live: LiveGraph) -> BoxedCall:
            def record_run(args: list[Any]) -> Any:
                runs.append(_GraphRun(live))
                return runs[-1].boxed_run(args)

            return record_run

        with capture.running(recording), call.restoring():
            call.run(capture.run)
    except Exception:  # noqa: BLE001 - a higher-order op may refuse a dispatch mode; the diagnostic then says less
        return None
    if (found := _first_differing_random_op(eager, runs, used_generators)) is not None:
        return found
    backward = [run for run in runs if run.live.kind is GraphKind.BACKWARD]
    for run in [*backward, *runs] if gradients_alone else runs:
        if (node := _first_differing_value(run, eager, reference.arithmetic)) is not None:
            return run.live.id, node.name, ""
    return None


def _first_differing_random_op(
    eager: _EagerRecorder, runs: Sequence[_GraphRun], generators: Sequence[str]
) -> tuple[str, str, str] | None:
    """Return the first node that draws random numbers in a state of the generators in which eager never draws.

    ``generators`` are the generators that eager draws from.
    """
    eager_states = dict.fromkeys(eager.random_states)
    for run in runs:
        for node, states in run.random_states:
            if states in eager_states:
                continue
            nearest = max(eager_states, key=lambda other: sum(map(operator.eq, states, other)), default=None)
            if nearest is not None:
                names = " and ".join(_differing_generators(nearest, states))
                reason = f"the state of {names} is not one in which eager draws"
            else:
                reason = (
                    f"eager draws only from {' and '.join(generators)}"
                    if generators
                    else "eager draws no random numbers"
                )
            return run.live.id, node.name, f", where the random states differ: {reason}"
    return None


def _first_differing_value(run: _GraphRun, eager: _EagerRecorder, arithmetic: Arithmetic) -> fx.Node | None:
    """Return the first node on the way to an output whose value eager never has, although eager has its inputs."""

    def differs(node: fx.Node) -> bool:
        return not all(eager.has(digest, arithmetic) for digest in run.values.get(node, ()))

    order = {node: index for index, node in enumerate(run.live.gm.graph.nodes)}
    pending = [node for node in run.live.gm.graph.output_node().all_input_nodes if differs(node)]
    visited, first = set(pending), None
    while pending:
        node = pending.pop()
        differing_sources = [source for source in node.all_input_nodes if differs(source)]
        if not differing_sources and (first is None or order[node] < order[first]):
            first = node
        pending += [source for source in differing_sources if source not in visited]
        visited.update(differing_sources)
    return first
