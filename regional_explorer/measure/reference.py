"""The references that results are compared with, for the call and for a piece: eager, the trace, float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx

from regional_explorer.capture.call import Call
from regional_explorer.capture.live_graph import LiveGraph
from regional_explorer.capture.restore import TorchRandomState
from regional_explorer.capture.tensors import tensors_in
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import never_cancelled
from regional_explorer.compiler.switch import standalone_call
from regional_explorer.compiler.workpiece import Workpiece
from regional_explorer.errors import RegionCompileError
from regional_explorer.measure.numerics import (
    Reference,
    compare_results,
    error_in_words,
    named_outputs,
    not_comparable,
    run_once,
    verdict,
    with_confirmed_failures,
)
from regional_explorer.measure.tolerances import Moves, RoundingRun, Values, arithmetic_of, as_dense
from regional_explorer.measure.trace_difference import trace_differs_diagnostic
from regional_explorer.record.benchmark import TWIN_NOTE, Numerics, NumericsVerdict
from regional_explorer.record.configs import CURES, RANDOM_AS_EAGER
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.torch_api.graphs import (
    BoxedCall,
    boxed,
    is_random_op,
    keeps_random_order,
    resolve,
)
from regional_explorer.torch_api.releasing import has_given_up

LOW_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Float64:
    """Runs a capture in float64.

    Each graph is rewritten to compute in float64; between graphs, and for AOTAutograd and autograd, values keep the
    dtype that they were traced with. The exact value of each is kept and found again by its place in memory, so that
    the next graph continues from it, in the elements that nothing has written to since.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._exact_values: dict[tuple[Any, ...], torch.Tensor] = {}
        self._kept_alive: list[torch.Tensor] = []

    def run(self) -> Values:
        """Return outputs, gradients, and what the call wrote, in float64.

        Raises:
            Exception: whatever torch raises if an operator has no float64 kernel; RuntimeError if Dynamo has given up
                on the call.
        """
        call = self._capture.call
        with self._capture.running(self._float64_implementation), call.restoring():
            outputs, gradients = call.run(self._capture.run)
            if has_given_up(self._capture.run):
                raise RuntimeError("Dynamo reached its recompile limit: the call runs in plain Python now")
            tensors = (*tensors_in(outputs, "output"), *((name, tensor) for name, tensor, _ in call.written_tensors()))
            return Values(
                tuple((name, self._exact_result(tensor)) for name, tensor in tensors),
                tuple(
                    (name, None if gradient is None else self._exact_result(gradient))
                    for name, gradient in zip(call.gradient_names, gradients, strict=False)
                ),
            )

    def _float64_implementation(self, live: LiveGraph) -> Callable[[list[Any]], Any]:
        written_inputs = [
            index
            for index, node in enumerate(live.gm.graph.find_nodes(op="placeholder"))
            if any(user.target is torch.ops.aten.copy_.default and user.args[0] is node for user in node.users)
        ]
        dtypes = [_traced_dtype(value) for value in live.gm.graph.output_node().args[0]]  # type: ignore[union-attr]
        run_float64 = boxed(to_float64(live.gm))

        def implementation(args: list[Any]) -> list[Any]:
            exact_args = [self._exact_value(value) for value in args]
            written = [(args[index].detach(), exact_args[index]) for index in written_inputs]
            args.clear()
            results = run_float64(exact_args)
            for value, exact in written:
                value.copy_(exact)
            return [self._rounded_to(value, dtype) for value, dtype in zip(results, dtypes, strict=True)]

        return implementation

    def _exact_result(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the exact value of a result as a copy: writes to the user's own tensor are restored."""
        value = as_dense(tensor)
        exact: torch.Tensor = self._exact_value(value)
        return exact.clone() if exact is value else exact

    def _exact_value(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in LOW_DTYPES:
            return value
        exact = self._exact_values.get(_memory_place(value))
        if exact is None:
            return value.detach().double()
        written = exact.to(value.dtype) != value.detach()
        return torch.where(written, value.detach().double(), exact) if written.any() else exact

    def _rounded_to(self, value: Any, dtype: torch.dtype | None) -> Any:
        if not isinstance(value, torch.Tensor) or dtype not in LOW_DTYPES or value.dtype is not torch.float64:
            return value
        rounded = value.to(dtype)
        self._exact_values[_memory_place(rounded)] = value
        self._kept_alive.append(rounded)  # so that no other value takes its place in memory
        return rounded


def _memory_place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def _traced_dtype(node: Any) -> torch.dtype | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def to_float64(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of ``gm`` that computes in float64 wherever it computed in a lower precision.

    Ops that draw random numbers draw them as before, so that the draws are the same.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    attributes: dict[str, Any] = {}
    for node in gm.graph.nodes:
        copy = graph.node_copy(node, copies.__getitem__)
        if node.op == "get_attr":
            attr = resolve(gm, node)
            copy.target = f"float64_{len(attributes)}"
            attributes[copy.target] = to_float64(attr) if isinstance(attr, fx.GraphModule) else _in_float64(attr)
        elif node.op == "call_function":
            copy.args = fx.node.map_aggregate(copy.args, _float64_if_lower)
            copy.kwargs = fx.node.map_aggregate(copy.kwargs, _float64_if_lower)
            if is_random_op(node):
                copy.args = (node.target, [_traced_dtype(source) for source in node.args], *copy.args)
                copy.kwargs = dict(node.kwargs)
                copy.target = _run_random_op_as_traced
        copies[node] = copy
    return fx.GraphModule(attributes, graph)


def _float64_if_lower(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in LOW_DTYPES else value


def _run_random_op_as_traced(target: Any, dtypes: Sequence[torch.dtype | None], *args: Any, **kwargs: Any) -> Any:
    """Run a random op in the dtypes of the trace, and return its results in float64."""
    traced_args = [
        value.to(dtype) if isinstance(value, torch.Tensor) and dtype is not None else value
        for value, dtype in zip(args, dtypes, strict=True)
    ]
    results = target(*traced_args, **kwargs)
    if target is torch.ops.aten.native_dropout.default:
        keep_mask = results[1]
        return args[0] * keep_mask * (0.0 if args[1] == 1 else 1.0 / (1.0 - args[1])), keep_mask
    if isinstance(results, torch.Tensor):
        return results.double() if results.dtype in LOW_DTYPES else results
    return type(results)(value.double() if getattr(value, "dtype", None) in LOW_DTYPES else value for value in results)


TRACE_DIFFERS_NOTE = "the trace differs from eager (trace-differs): compared with eager directly"


def reference_of(
    graphs: Iterable[fx.GraphModule], run_eager: Callable[[], Values], float64: Callable[[], Values], moves: Moves
) -> Reference:
    """Run a call, or a piece of it, eagerly twice, then in float64; return the reference for other runs."""
    reference = recheck_eager(Reference(run_eager(), arithmetic=arithmetic_of(graphs)), run_eager)
    if reference.nondeterministic:
        return reference
    return dataclasses.replace(reference, exact=_results_if_possible(float64), moves=moves)


def find_reference(call: Call, program: Program, cancelled: Callable[[], bool] = never_cancelled) -> Reference:
    """Return the reference for the variants of a call.

    The float64 run follows the trace, so it is a reference for eager only if the trace agrees with eager. Comparing
    with the reference raises ``concurrent.futures.CancelledError`` once ``cancelled`` returns True.
    """
    capture = program.capture

    def run_trace(implementation: Callable[[LiveGraph], BoxedCall]) -> Values:
        with capture.running(implementation):
            return run_once(call, capture.run)

    run_eager = partial(run_once, call)
    moves = Moves(
        lambda number: run_trace(lambda live: RoundingRun(live.gm, number).boxed_run),
        cancelled,
        are_known=lambda: not has_given_up(capture.run),
    )
    reference = reference_of((live.gm for live in capture.live), run_eager, Float64(capture).run, moves)
    if reference.nondeterministic:
        return reference
    by_eager = dataclasses.replace(reference, exact=None, note=TRACE_DIFFERS_NOTE)
    run_captured = partial(run_trace, lambda live: live.eager)
    # None if the graphs cannot run: some kernels need other strides; the variants are still compared.
    traced = _results_if_possible(run_captured)
    rows = compare_results("captured", traced, by_eager) if traced is not None else ()
    wrong_rows = [row for row in rows if row.verdict == NumericsVerdict.FAILED]
    if traced is None or not wrong_rows:
        return reference
    by_eager = recheck_eager(by_eager, run_eager)
    if by_eager.nondeterministic:
        return by_eager
    by_trace = recheck_eager(dataclasses.replace(reference, eager=traced), run_captured)
    return dataclasses.replace(
        by_eager,
        diagnostics=(trace_differs_diagnostic(capture, by_eager, traced, wrong_rows),),
        trace=None if by_trace.nondeterministic else by_trace,
    )


def recheck_eager(reference: Reference, run_eager: Callable[[], Values]) -> Reference:
    """Return the reference, marked as nondeterministic if another eager run differs from its eager run."""
    eager = Reference(reference.eager, arithmetic=reference.arithmetic)
    rows = compare_results("eager", run_eager(), eager)
    if verdict(rows) is not NumericsVerdict.FAILED:
        return reference
    return dataclasses.replace(eager, nondeterministic=True, diagnostics=(_nondeterminism(rows),))


def _results_if_possible(run: Callable[[], Values]) -> Values | None:
    """Return the results of a run; None if an operator raises, perhaps because it has no float64 kernel."""
    try:
        return run()
    except Exception:  # noqa: BLE001 - any operator may raise anything; the check goes on without this run
        return None


def _nondeterminism(rows: Sequence[Numerics]) -> Diagnostic:
    worst = next(row for row in rows if row.verdict == NumericsVerdict.FAILED)
    return DiagnosticCode.CALL_NONDETERMINISTIC.finding(
        f"Two calls in eager mode differ by more than rounding ({error_in_words(worst)}), "
        "with the same arguments and random states",
        ": no variant can be checked, and every row is not comparable.",
        remedy="Draw the call's random numbers from torch, NumPy or Python's random, or pass them as arguments; do not "
        "read the time in the call.",
    )


RowsUnder = Callable[[Mapping[str, Any], str], tuple[Numerics, ...]]
"""Compares compiled code, or its twins under a config, with the reference; each row gets a note."""


def rows_with_eager_random_numbers(rows_under: RowsUnder, graphs: Iterable[fx.GraphModule]) -> tuple[Numerics, ...]:
    """Return the rows of code that draws random numbers, from twins of ``graphs`` that draw eager's numbers."""
    try:
        return comparable_if_in_order(rows_under(RANDOM_AS_EAGER, TWIN_NOTE), graphs)
    except RegionCompileError as error:
        why = f"draws random numbers, and no twin with fallback_random compiles: {error}"
        return not_comparable(rows_under({}, ""), why)


def comparable_if_in_order(rows: tuple[Numerics, ...], graphs: Iterable[fx.GraphModule]) -> tuple[Numerics, ...]:
    """Return the rows of a twin; not comparable if its outputs differ and it may draw in another order than eager.

    If only gradients are wrong, the order of draws is not the cause: they do not fit the outputs.
    """
    wrong = [row for row in rows if row.verdict is NumericsVerdict.FAILED]
    if all(row.tensor.startswith("grad ") for row in wrong) or all(map(keeps_random_order, graphs)):
        return rows
    return not_comparable(rows, "this torch may draw in another order than eager, even with fallback_random")


COMPILED = "compiled"


@dataclass(frozen=True)
class Check:
    """The result of checking one partition. ``cure`` is a config under which it passes; None if none was found."""

    rows: tuple[Numerics, ...]
    cure: Mapping[str, Any] | None = None

    @property
    def verdict(self) -> NumericsVerdict:
        """The verdict of all rows together."""
        return verdict(self.rows)

    @property
    def bitwise(self) -> bool:
        """Whether all outputs are bitwise equal to the eager piece's."""
        return all(row.bitwise for row in self.rows)

    @property
    def worst(self) -> Numerics | None:
        """The output that uses the largest share of its tolerance; outputs that failed come first."""
        return max(self.rows, key=lambda row: (row.verdict == NumericsVerdict.FAILED, row.share), default=None)


def check_partition(
    workpiece: Workpiece,
    args: Sequence[Any],
    artifact: Artifact,
    twin: Callable[[Mapping[str, Any]], Artifact],
    cancelled: Callable[[], bool] = never_cancelled,
    *,
    seek_cure: bool = True,
) -> Check:
    """Compare an artifact with the eager piece on ``args``; ``twin`` compiles it with a config on top of its own.

    A piece that draws random numbers is compared under ``fallback_random``, so that it draws what eager draws. If the
    check fails, it is repeated on twins compiled under configs that may cure it, unless ``seek_cure`` is False.

    Raises:
        RegionCompileError: the artifact refuses the inputs.
        concurrent.futures.CancelledError: ``cancelled`` returned True.
    """
    piece, gm = workpiece.piece, workpiece.piece.gm
    with TorchRandomState() as random_state:

        def run(function: Callable[[list[Any]], Any]) -> Values:
            random_state.restore()
            return named_outputs(piece, function(list(args)))

        reference = reference_of(
            [gm],
            lambda: run(piece.eager),
            lambda: run(lambda args: to_float64(gm)(*map(_in_float64, args))),
            Moves(lambda number: run(RoundingRun(gm, number).boxed_run), cancelled),
        )

        def rows_under(more: Mapping[str, Any], note: str) -> tuple[Numerics, ...]:
            compiled = standalone_call(workpiece, twin(more) if more else artifact, args)
            return with_confirmed_failures(lambda: compare_results(COMPILED, run(compiled), reference, note))

        rows = rows_with_eager_random_numbers(rows_under, [gm]) if piece.is_random else rows_under({}, "")
        may_be_cured = seek_cure and verdict(rows) == NumericsVerdict.FAILED
        return Check(rows, _find_cure(rows_under, is_random=piece.is_random) if may_be_cured else None)


def _find_cure(rows_under: RowsUnder, *, is_random: bool) -> Mapping[str, Any] | None:
    """Return the first config under which the check passes: each of ``CURES`` alone, then all together."""
    always = RANDOM_AS_EAGER if is_random else {}
    single_configs = [{key: value} for key, value in CURES.items() if key not in always]
    for config in (*single_configs, dict(CURES)):
        try:
            if verdict(rows_under({**always, **config}, "")) != NumericsVerdict.FAILED:
                return config
        except RegionCompileError:
            continue
    return None


def _in_float64(value: Any) -> Any:
    return value.detach().double() if isinstance(value, torch.Tensor) and value.dtype in LOW_DTYPES else value
