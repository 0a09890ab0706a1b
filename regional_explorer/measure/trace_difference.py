"""Finds the first captured node whose value eager never has: a dispatch mode takes digests of both runs' values."""

from __future__ import annotations

import operator
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from regional_explorer.capture.live_graph import LiveGraph
from regional_explorer.capture.trace import Capture
from regional_explorer.measure.numerics import Reference, compare, in_words, run_once
from regional_explorer.measure.rounding import Arithmetic, far
from regional_explorer.record.benchmark import Numerics, NumericsVerdict
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.graph import GraphKind
from regional_explorer.torch_api.dynamo import as_first_call, compile_isolated
from regional_explorer.torch_api.graphs import BoxedCall, draws_random

_NUMPY = "NumPy's generator"
_GENERATORS = ("torch's generator", _NUMPY, "Python's generator")


def trace_differs(capture: Capture, reference: Reference, wrong: Sequence[Numerics]) -> Diagnostic:
    """Return the diagnostic of a trace that differs from eager; ``wrong`` are the tensors that differ."""
    in_gradients_alone = all(row.tensor.startswith("grad ") for row in wrong)
    difference = _first_difference(capture, reference, gradients_alone=in_gradients_alone)
    graph, node, why = difference or (None, None, "")
    same_under_dynamo = _same_under_dynamo(capture, reference)
    location = "" if difference is None else f" They part at {graph}:{node}{why}."
    blame = (
        " The same under torch.compile(backend='eager')."
        if same_under_dynamo
        else " torch.compile(backend='eager') agrees with eager: AOTAutograd makes the difference."
        if same_under_dynamo is False
        else ""
    )
    remedy = (
        "Every variant is compared with eager alone. Look for what does something else while it is traced: a branch on "
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
    return DiagnosticCode.TRACE_DIFFERS.found(
        f"The graphs as captured do not give what the call gives in eager mode ({in_words(wrong[0])}; "
        f"{len(wrong)} of {len(reference.eager.outputs) + len(reference.eager.gradients)} tensors).{location}{blame}",
        graph=graph,
        at=() if node is None else (node,),
        where=() if record is None or record.source is None else (record.source,),
        remedy=remedy,
    )


def _same_under_dynamo(capture: Capture, reference: Reference) -> bool | None:
    """Return whether Dynamo's graphs, run eagerly, differ from eager too; None if they cannot run."""
    call = capture.call
    try:
        with as_first_call(call.fn):
            values = run_once(call, compile_isolated(call.fn, "eager"))
    except Exception:  # noqa: BLE001 - torch may raise anything; the diagnostic then says less
        return None
    return any(row.verdict == NumericsVerdict.FAILED for row in compare("eager backend", values, reference))


# --------------------------------------------------------------------------------------------------- what was computed


class _Digest(NamedTuple):
    """A tensor in a few figures: shape, dtype, norm, and its product with fixed random numbers."""

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
        allowed = far(self.dtype, arithmetic, 0.0).relative * max(self.norm, other.norm) if floating else 0.0
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


class _EagerRecorder(TorchDispatchMode):
    """Records every value that eager computes, and the states of the random generators whenever it draws."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let functions the user compiled run as they are inside the call."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.values: dict[tuple[int, ...], list[_Digest]] = {}
        self.draws: list[tuple[int, ...]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run ``func`` and record its results."""
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            self.draws.append(_random_states())
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
        self.draws: list[tuple[fx.Node, tuple[int, ...]]] = []

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and record its results."""
        if n.op == "call_function" and draws_random(n):
            self.draws.append((n, _random_states()))
        result = super().run_node(n)
        if n.op == "call_function":
            self.values[n] = _digests(result)
        return result


# -------------------------------------------------------------------------------------------------- where the two part


def _first_difference(capture: Capture, reference: Reference, *, gradients_alone: bool) -> tuple[str, str, str] | None:
    """Return the graph and the name of the first node that differs from eager, and why if that is known."""
    call = capture.call
    try:
        eager = _EagerRecorder()
        with call.restoring():
            before = _random_states()
            with eager:
                call.run()
            drawn_generators = _differing_generators(before, _random_states())
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
    if (draw := _first_differing_draw(eager, runs, drawn_generators)) is not None:
        return draw
    backward = [run for run in runs if run.live.kind is GraphKind.BACKWARD]
    for run in [*backward, *runs] if gradients_alone else runs:
        if (node := _first_differing_value(run, eager, reference.arithmetic)) is not None:
            return run.live.id, node.name, ""
    return None


def _first_differing_draw(
    eager: _EagerRecorder, runs: Sequence[_GraphRun], drawn: Sequence[str]
) -> tuple[str, str, str] | None:
    """Return the first node that draws random numbers in a state of the generators in which eager never draws.

    ``drawn`` are the generators that eager draws from.
    """
    eager_states = dict.fromkeys(eager.draws)
    for run in runs:
        for node, states in run.draws:
            if states in eager_states:
                continue
            nearest = max(eager_states, key=lambda other: sum(map(operator.eq, states, other)), default=None)
            if nearest is not None:
                names = " and ".join(_differing_generators(nearest, states))
                reason = f"the state of {names} is not one in which eager draws"
            else:
                reason = f"eager draws only from {' and '.join(drawn)}" if drawn else "eager draws no random numbers"
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
