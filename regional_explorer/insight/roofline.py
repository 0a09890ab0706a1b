"""Full Inductor's code of the whole call, for ``ex.roofline``: its fusions, gains and numerical differences."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import fx

from regional_explorer.capture.live_graph import LiveGraph
from regional_explorer.compiler.fingerprint import traced_layouts
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import PLAIN_RUN, Run
from regional_explorer.compiler.workpiece import WantedArtifact, Workpiece
from regional_explorer.errors import MeasureError
from regional_explorer.insight.code_store import code_under
from regional_explorer.measure.numerics import Reference, are_bitwise_equal, compare_results, run_once
from regional_explorer.measure.tolerances import gap
from regional_explorer.measure.variants import Variants
from regional_explorer.record.artifact import ArtifactCode
from regional_explorer.record.benchmark import NumericsVerdict, Phase, VariantName, Verdict
from regional_explorer.record.figure import Figure
from regional_explorer.record.regions import region_timings_of_whole_call
from regional_explorer.record.roofline import BitwiseTrial, FullGraph, OpDifference, PhaseReach, RegionReach
from regional_explorer.record.session import Session
from regional_explorer.record.speeds import WORDS
from regional_explorer.record.statistics import CONFIDENCE, Floats, confidence_interval, median_figure, paired_gaps
from regional_explorer.regions.cut import Piece
from regional_explorer.regions.instances import Claim
from regional_explorer.torch_api.dynamo import as_first_call, compile_isolated
from regional_explorer.torch_api.graphs import runs_random_op
from regional_explorer.torch_api.lowering import decomposition_of
from regional_explorer.torch_api.releasing import release_compiled
from regional_explorer.torch_api.torch_config import config_entries, under_config
from regional_explorer.torch_api.upstream_compilers import marks_ignored

TRIALS: tuple[Mapping[str, object], ...] = (
    {},
    {"emulate_precision_casts": True},
    {
        "fallback_by_default": True,
        "selective_decompose": True,
        "use_pre_grad_passes": False,
        "use_joint_graph_passes": False,
        "use_post_grad_passes": False,
    },
)
"""The configs under which full Inductor is compared with eager, bit by bit; the last one leaves every op to eager code.

It has the configs of lite mode that affect results, but leaves marked ops to eager code too.
"""

WHOLE_GRAPH = "the whole graph"


def full_graphs(program: Program, run: Run = PLAIN_RUN) -> dict[str, FullGraph]:
    """Return the code that Inductor generates for each captured graph as a whole, until cancelled.

    Graphs of later calls are left out: no call runs them together with the first call's. Nothing is compiled.
    """
    graphs = [live for live in program.capture.live if live.id not in program.capture.late_graphs]
    graphs_by_id: dict[str, FullGraph] = {}
    for live in graphs:
        if run.cancelled():
            break
        run.estimate(None)
        run.progress(f"writing the code of the whole graph {live.id}", len(graphs_by_id) / len(graphs))
        graphs_by_id[live.id] = _full_graph(program, live)
    return graphs_by_id


def _full_graph(program: Program, live: LiveGraph) -> FullGraph:
    gm = live.gm
    inputs = gm.graph.find_nodes(op="placeholder")
    names = tuple(node.name for node in gm.graph.nodes if node.op not in ("placeholder", "output"))
    outputs = tuple(node.name for node in gm.graph.output_node().all_input_nodes)
    prepared = program.capture.tracing.prepared(live.kind)
    piece = Piece(Claim(WHOLE_GRAPH), live.id, gm, names, tuple(node.name for node in inputs), outputs, (), prepared)
    layouts = traced_layouts(inputs)
    if layouts is None:
        return FullGraph(live.id, names, ArtifactCode("", problem="the sizes of its inputs are not all known"))
    try:
        code = code_under(WantedArtifact(live.id, Workpiece(piece, layouts, (), ""), {}), program.store.generated)
    except Exception as error:  # noqa: BLE001 - Inductor may raise anything: nothing compiles the whole graph
        code = ArtifactCode("", problem=f"{type(error).__name__}: {error}".splitlines()[0])
    return FullGraph(live.id, names, code)


def phase_reaches(session: Session) -> tuple[PhaseReach, ...]:
    """Return how much of full's gain the plan reaches, phase by phase.

    Raises:
        MeasureError: eager, regional or full was not measured under this plan.
    """
    reaches = []
    for phase in Phase:
        same_run = (timing for timing in session.timings if timing.phase is phase and not timing.earlier)
        timings = {timing.variant: timing for timing in same_run}
        if timings:
            missing = [str(name) for name in (VariantName.REGIONAL, VariantName.FULL) if name not in timings]
            if missing:
                were = "was" if len(missing) == 1 else "were"
                raise MeasureError(f"{' and '.join(missing)} {were} not measured in the same rounds. {MEASURE_FIRST}")
            compared = [timings[key] for key in (VariantName.EAGER, VariantName.REGIONAL, VariantName.FULL)]
            samples_s = [np.array(timing.samples_s) for timing in compared]
            gain_s, share = median_figure(paired_gaps(samples_s[0], samples_s[-1])), share_of_gain(*samples_s)
            verdict = compared[-1].verdict
            wrong = [WORDS[one.variant] for one in compared if one.numerics.withholds_speedup]
            withheld = f"{Verdict.WITHHELD}: {' and '.join(wrong)} not right" if wrong else ""
            sure = verdict is Verdict.FASTER, verdict is Verdict.SLOWER
            eager_s, regional_s, full_s = (timing.median_s for timing in compared)
            reaches.append(PhaseReach(phase, eager_s, regional_s, full_s, gain_s, share, *sure, withheld=withheld))
    if not reaches or session.is_outdated:
        raise MeasureError(f"This plan was not measured. {MEASURE_FIRST}")
    return tuple(reaches)


def share_of_gain(eager_s: Floats, regional_s: Floats, full_s: Floats) -> Figure:
    """Return the median over rounds of the plan's part of full's gain.

    In a round in which full gained nothing, the share is unknown: the interval allows any share there.
    """
    rounds = min(map(len, (eager_s, regional_s, full_s)))
    eager_s, gain_s = eager_s[:rounds], eager_s[:rounds] - full_s[:rounds]
    gained = gain_s > 0.0
    if not gained.any():
        return Figure(0.0, why="full gained nothing in any round")
    shares = (eager_s - regional_s[:rounds]) / np.where(gained, gain_s, 1.0)
    share = median_figure(shares[gained])
    ends = [confidence_interval(np.where(gained, shares, unknown), CONFIDENCE) for unknown in (-np.inf, np.inf)]
    low, high = (None if end is None else end[side] for side, end in enumerate(ends))
    if low is None or high is None or not np.isfinite([low, high]).all():
        return Figure(share.value, why=share.why or "full gained nothing in too many rounds")
    return Figure(share.value, min(low, share.value), max(high, share.value))


MEASURE_FIRST = "Call ex.benchmark() first; its variants must include 'regional' and 'full'."


def region_reaches(session: Session, reach: PhaseReach) -> tuple[RegionReach, ...]:
    """Return each region's gain alone, as a share of full's gain."""
    return tuple(
        RegionReach(
            name, timing.gain_s, timing.gain_s and reach.gain_s and _ratio_of_gains(timing.gain_s, reach.gain_s)
        )
        for name, timing in region_timings_of_whole_call(session).items()
    )


def _ratio_of_gains(gain_s: Figure, whole_s: Figure) -> Figure:
    """Return ``gain_s / whole_s``. The interval spans the quotients of their bounds, so it is wider than a CI."""
    value, why = gain_s.value / whole_s.value, gain_s.why or whole_s.why
    if gain_s.bounds is None or whole_s.bounds is None or whole_s.bounds[0] <= 0.0:
        return Figure(value, why=why or "full may gain nothing")
    ends = [part / whole for part in gain_s.bounds for whole in whole_s.bounds]
    return Figure(value, min(ends), max(ends), why)


# ------------------------------------------------------------------------------------------------------------ numerics


@dataclass
class _DifferenceSoFar:
    """The differences of one op so far: the number of nodes, how many were bitwise equal, and the largest gap."""

    nodes: int = 0
    bitwise: int = 0
    max_difference: float = 0.0
    eager: list[float] = field(default_factory=list)
    decomposed: list[float] = field(default_factory=list)


class _ComparingInterpreter(fx.Interpreter):
    """Runs a captured graph, and compares each op that Inductor would decompose with its decomposition."""

    def __init__(self, gm: fx.GraphModule, differences: dict[str, _DifferenceSoFar]) -> None:
        super().__init__(gm)
        self._differences = differences

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and, if it has one, its decomposition, and record how their results differ."""
        decomposition = decomposition_of(n)
        if decomposition is None or "empty" in str(n.target):  # it returns uninitialized memory
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        result = super().run_node(n)
        try:
            decomposed_result = decomposition(*args, **kwargs)
        except Exception:  # noqa: BLE001 - some run only inside a trace
            return result
        eager, decomposed = (list(_floating_tensors(value)) for value in (result, decomposed_result))
        if decomposed_result is NotImplemented or len(eager) != len(decomposed) or not eager:
            return result
        difference = self._differences.setdefault(str(n.target), _DifferenceSoFar())
        difference.nodes += 1
        difference.bitwise += all(map(are_bitwise_equal, eager, decomposed))
        difference.max_difference = max(difference.max_difference, _largest_gap(eager, decomposed))
        try:
            exact_args: Any = fx.node.map_aggregate(args, _in_float64)
            exact_kwargs: Any = fx.node.map_aggregate(kwargs, _in_float64)
            exact = list(_floating_tensors(n.target(*exact_args, **exact_kwargs)))  # type: ignore[operator]
        except Exception:  # noqa: BLE001 - some kernels have no float64
            return result
        if len(exact) == len(eager):
            difference.eager.append(_largest_gap(eager, exact))
            difference.decomposed.append(_largest_gap(decomposed, exact))
        return result


def _floating_tensors(value: Any) -> Iterator[torch.Tensor]:
    values = value if isinstance(value, (tuple, list)) else (value,)
    return (tensor for tensor in values if isinstance(tensor, torch.Tensor) and tensor.is_floating_point())


def _largest_gap(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> float:
    pairs = zip(tensors, others, strict=True)
    return max((gap(tensor, other).largest for tensor, other in pairs if tensor.shape == other.shape), default=0.0)


def _in_float64(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def op_differences(variants: Variants) -> tuple[OpDifference, ...]:
    """Run the captured graphs once, ops that Inductor decomposes in both forms, and return the differences per op."""
    program, differences = variants.program, dict[str, _DifferenceSoFar]()
    with program.capture.running(lambda live: _ComparingInterpreter(live.gm, differences).boxed_run):
        run_once(variants.call, program.capture.run)
    rows = (
        OpDifference(
            op,
            difference.nodes,
            difference.bitwise,
            difference.max_difference,
            max(difference.eager, default=None),
            max(difference.decomposed, default=None),
        )
        for op, difference in differences.items()
    )
    return tuple(sorted(rows, key=lambda row: (row.bitwise == row.nodes, -row.max_difference)))


def bitwise_trials(
    variants: Variants, configs: Sequence[Mapping[str, object]], run: Run, compile_s: float = 0.0
) -> tuple[BitwiseTrial, ...]:
    """Compile the whole call under each config, and return how many results are bitwise equal to eager's.

    A compile takes about ``compile_s``; zero if that is not known.
    """
    eager = run_once(variants.call)
    is_random = any(runs_random_op(node) for live in variants.program.capture.live for node in live.gm.graph.nodes)
    trials = []
    for number, trial_config in enumerate(configs):
        if run.cancelled():
            break
        if not trial_config.keys() <= config_entries().keys():
            continue
        config = {**trial_config, **({"fallback_random": True} if is_random else {})}
        run.estimate(compile_s * (len(configs) - number) or None)
        run.progress(f"full under {config or 'its own config'}", number / len(configs))
        trials.append(_run_trial(variants, config, Reference(eager)))
    return tuple(trials)


def _run_trial(variants: Variants, config: Mapping[str, object], reference: Reference) -> BitwiseTrial:
    call = variants.call
    function = compile_isolated(call.fn, "inductor", dynamic=variants.dynamic)
    try:
        with (
            variants.program.capture.generated.collecting(),
            under_config(config),
            marks_ignored() if "fallback_by_default" in config else contextlib.nullcontext(),
            as_first_call(call.fn),
        ):
            found = compare_results("full", run_once(call, function), reference)
    except Exception as error:  # noqa: BLE001 - whatever torch raises, the other trials go on
        return BitwiseTrial(config, problem=f"{type(error).__name__}: {error}".splitlines()[0])
    finally:
        release_compiled(function)
    rows = [row for row in found if row.verdict not in (NumericsVerdict.NOT_COMPARED, NumericsVerdict.NOT_CHECKED)]
    return BitwiseTrial(
        config, len(rows), sum(row.bitwise for row in rows), max((row.max_error for row in rows), default=0.0)
    )
