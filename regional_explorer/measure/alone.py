"""Runs pieces alone: records their inputs in one run of the call, then calls, checks and races them on these inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from regional_explorer.capture.live_graph import LiveGraph
from regional_explorer.capture.restore import TorchRandomState
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.switch import Switch, standalone_call
from regional_explorer.compiler.workpiece import Workpiece
from regional_explorer.errors import RegionCompileError
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.reference import check_partition
from regional_explorer.measure.rounds import Prune, RoundsResult, keep_all
from regional_explorer.measure.timings import MeasureContext, measure_rounds, timings_of
from regional_explorer.record.benchmark import NumericsVerdict, Phase, Timing
from regional_explorer.record.statistics import VERDICT_CONFIDENCE, confidence_interval
from regional_explorer.torch_api.graphs import BoxedCall, outside_autocast
from regional_explorer.torch_api.hidden_state import storage_key


@dataclass(frozen=True)
class RecordedInputs:
    """The inputs of ``switch``, the first partition of its kind that a call ran, and the number of runs of each.

    If the call ran none of the kind, ``why_not`` says why, and there are no inputs.
    """

    switch: Switch
    args: tuple[Any, ...]
    runs: Mapping[Switch, int]
    why_not: str = ""


def record_inputs(program: Program, kinds: Sequence[Sequence[Switch]]) -> list[RecordedInputs]:
    """Run the call once, all partitions of ``kinds`` eagerly, and return the inputs of the first of each kind.

    The tensors are the call's own, with their strides and aliasing. With several graphs, Python code between them may
    write to the tensors, so they are copied, storage by storage: views still share one.

    The inputs of all kinds are in memory together after the run: callers free the inputs of a kind when it has been
    measured. If they are copied, the originals stay in memory until the run ends.
    """
    call, capture = program.capture.call, program.capture
    several_graphs = len(capture.frames) > 1
    storages: _Storages = {}
    graphs_run: set[str] = set()
    runs = {switch: 0 for kind in kinds for switch in kind}
    first_runs: dict[int, tuple[Switch, tuple[Any, ...]]] = {}

    def record(kind: int, switch: Switch, args: Sequence[Any]) -> None:
        runs[switch] += 1
        if kind not in first_runs:
            first_runs[kind] = switch, copied_tensors(args, storages) if several_graphs else tuple(args)

    def recording_graph(live: LiveGraph) -> BoxedCall:
        run_settled = live.settled()

        def run(args: list[Any]) -> Any:
            graphs_run.add(live.id)
            return run_settled(args)

        return run

    with program.selected(), capture.running(recording_graph), call.restoring(), ExitStack() as recording:
        for number, kind in enumerate(kinds):
            for switch in kind:
                recording.enter_context(switch.running_eager(partial(record, number, switch)))
        call.run(capture.run)
    return [
        RecordedInputs(*first_runs[number], {switch: runs[switch] for switch in kind})
        if number in first_runs
        else RecordedInputs(
            kind[0], (), dict.fromkeys(kind, 0), _why_not_run(capture, kind[0].piece.graph_id, graphs_run)
        )
        for number, kind in enumerate(kinds)
    ]


def _why_not_run(capture: Capture, graph_id: str, graphs_run: set[str]) -> str:
    """Return why a call that ran ``graphs_run`` did not run a partition of the graph ``graph_id``."""
    frame = next(frame for frame in capture.frames if graph_id.startswith(f"{frame.index}/"))
    if any(map(graph_id.startswith, graphs_run)):
        return "the call does not reach it: a branch not taken"
    if any(later.forgotten for later in capture.frames[frame.index + 1 :]):
        return "the call runs another trace since torch._dynamo.reset(), which made Dynamo forget this one"
    return "the call runs another trace, which serves its sizes too"


_Storages = dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]]
"""Copied storages with their copies, by address; a listed storage stays alive, so its address stays its own."""


def copied_tensors(values: Sequence[Any], known: _Storages) -> tuple[Any, ...]:
    """Return copies of the tensors among ``values``; tensors that share a storage still do, at the same offsets.

    Copied storages are added to ``known``. A known storage is copied again only if it was written to since.
    """
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    for storage in [tensor.untyped_storage() for tensor in tensors if tensor.layout is torch.strided]:
        if storage_key(storage) not in known or not _is_equal(*known[storage_key(storage)]):
            known[storage_key(storage)] = (storage, storage.clone())
    copies = {key: storage_copy for key, (_, storage_copy) in known.items()}
    memo: dict[Any, Any] = {"torch": copies}  # where torch's storages look for their memo
    return tuple(copy.deepcopy(value.detach(), memo) if isinstance(value, torch.Tensor) else value for value in values)


def _is_equal(left: torch.UntypedStorage, right: torch.UntypedStorage) -> bool:
    as_bytes = [torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage) for storage in (left, right)]
    return torch.equal(*as_bytes)


# ----------------------------------------------------------------------------------------- calls, and races of configs


@contextmanager
def as_in_the_call() -> Iterator[None]:
    """Context manager for running pieces as autograd runs them; restores the random generators."""
    with TorchRandomState(), torch.no_grad(), outside_autocast():
        yield


def timed_call(name: str, function: BoxedCall, args: Sequence[Any], put_back: Callable[[], None]) -> TimedCall:
    """Return calls of ``function`` on ``args``; ``put_back`` runs before each, see ``Workpiece.restorer``."""
    return TimedCall(name, lambda: function(list(args)), before=put_back)


NOW = "now"


def surely_slower(
    result: RoundsResult, phase: Phase, names: Collection[str], may_lead: Callable[[str], bool] = lambda _: True
) -> list[str]:
    """Return the variants in ``names`` that are certainly slower than the fastest one that ``may_lead``."""
    ratios_of = {name: result.ratio(name, phase) for name in names if may_lead(name)}
    ratios_by_name = {name: ratio.value for name, ratio in ratios_of.items() if ratio is not None}
    if not ratios_by_name or result.noise.is_too_much:
        return []
    best, least = max(ratios_by_name, key=ratios_by_name.__getitem__), 1.0 - result.floor(phase)
    slower = []
    for name in names:
        ratios = result.ratios(name, phase, best)
        bounds = None if name == best or ratios is None else confidence_interval(ratios, VERDICT_CONFIDENCE)
        if bounds is not None and bounds[1] < least:
            slower.append(name)
    return slower


def race(
    workpiece: Workpiece,
    args: Sequence[Any],
    current: Artifact,
    candidates: Mapping[str, Mapping[str, Any]],
    artifact_under: Callable[[Mapping[str, Any]], Artifact],
    budget_s: float,
    context: MeasureContext,
    *,
    prune: Prune = keep_all,
) -> dict[str, Timing]:
    """Return the timings of the candidates against the ``current`` artifact, by name, measured in interleaved rounds.

    Candidates are configs. A candidate that does not compile, refuses ``args``, or whose results differ from eager's is
    left out before anything is timed. ``prune`` takes candidates out of the rounds that follow.

    Raises:
        RegionCompileError: ``current`` refuses ``args``.
        MeasureError: nothing could be measured.
        concurrent.futures.CancelledError, KeyboardInterrupt: it was cancelled or interrupted.
    """
    untimed, cancelled = context.run.threads.run_untimed, context.run.cancelled
    entries, verdicts = list[TimedCall](), dict[str, NumericsVerdict]()

    def add_entry(name: str, artifact: Artifact) -> None:
        entries.append(timed_call(name, standalone_call(workpiece, artifact, args), args, put_back))

    def check_and_add(name: str, config: Mapping[str, Any]) -> None:
        artifact = artifact_under(config)
        check = check_partition(
            workpiece, args, artifact, lambda more: artifact_under({**config, **more}), cancelled, seek_cure=False
        )
        if check.verdict is not NumericsVerdict.FAILED:
            add_entry(name, artifact)
            verdicts[name] = check.verdict

    with as_in_the_call():
        put_back = untimed(lambda: workpiece.restorer(args))
        for name, config in candidates.items():
            with suppress(RegionCompileError):
                untimed(partial(check_and_add, name, config))
        if not entries:
            return {}
        untimed(partial(add_entry, NOW, current))
        rounds = measure_rounds(entries, budget_s, context, baseline=NOW, prune=prune)
    rounds.stopped.raise_interrupt()
    return {timing.variant: timing for timing in timings_of(rounds, verdicts)}
