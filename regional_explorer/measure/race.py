"""A workpiece alone, on recorded inputs: its eager piece and artifacts as calls to time, and a race of configs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch

from regional_explorer.capture.restore import TorchRandomState
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.switch import alone
from regional_explorer.compiler.workpiece import Workpiece
from regional_explorer.errors import RegionCompileError
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.reference import check_partition
from regional_explorer.measure.rounds import Prune, RoundsResult, keep_all
from regional_explorer.measure.timings import MeasureContext, measure_rounds, timings_of
from regional_explorer.record.benchmark import NumericsVerdict, Phase, Timing
from regional_explorer.record.statistics import VERDICT_CONFIDENCE, confidence_interval
from regional_explorer.torch_api.graphs import BoxedCall, outside_autocast


@contextmanager
def as_in_the_call() -> Iterator[None]:
    """Context manager for running pieces as autograd runs them; restores the random generators."""
    with TorchRandomState(), torch.no_grad(), outside_autocast():
        yield


def timed_call(name: str, function: BoxedCall, args: Sequence[Any], put_back: Callable[[], None]) -> TimedCall:
    """Return calls of ``function`` on ``args``; ``put_back`` runs before each, see ``Workpiece.putting_back``."""
    return TimedCall(name, lambda: function(list(args)), before=put_back)


NOW = "now"


def surely_slower(
    result: RoundsResult, phase: Phase, names: Collection[str], may_lead: Callable[[str], bool] = lambda _: True
) -> list[str]:
    """Return which of ``names`` are slower than the best that ``may_lead``, by more than the least difference."""
    ratios_of = {name: result.ratio(name, phase) for name in names if may_lead(name)}
    known = {name: ratio.value for name, ratio in ratios_of.items() if ratio is not None}
    if not known or result.noise.is_too_much:
        return []
    best, least = max(known, key=known.__getitem__), 1.0 - result.floor(phase)
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
    now: Artifact,
    candidates: Mapping[str, Mapping[str, Any]],
    artifact_under: Callable[[Mapping[str, Any]], Artifact],
    budget_s: float,
    context: MeasureContext,
    *,
    prune: Prune = keep_all,
) -> dict[str, Timing]:
    """Return the timings of the candidates against ``now``, by name, measured in interleaved rounds.

    Candidates are configs. A candidate that does not compile, refuses ``args``, or whose results differ from eager's is
    left out before anything is timed. ``prune`` takes candidates out of the rounds that follow.

    Raises:
        RegionCompileError: ``now`` refuses ``args``.
        MeasureError: nothing could be measured.
        concurrent.futures.CancelledError, KeyboardInterrupt: it was cancelled or interrupted.
    """
    untimed, cancelled = context.run.threads.run_untimed, context.run.cancelled
    entries, verdicts = list[TimedCall](), dict[str, NumericsVerdict]()

    def enter(name: str, artifact: Artifact) -> None:
        entries.append(timed_call(name, alone(workpiece, artifact, args), args, put_back))

    def check_and_enter(name: str, config: Mapping[str, Any]) -> None:
        artifact = artifact_under(config)
        check = check_partition(
            workpiece, args, artifact, lambda more: artifact_under({**config, **more}), cancelled, seek_cure=False
        )
        if check.verdict is not NumericsVerdict.FAILED:
            enter(name, artifact)
            verdicts[name] = check.verdict

    with as_in_the_call():
        put_back = untimed(lambda: workpiece.putting_back(args))
        for name, config in candidates.items():
            with suppress(RegionCompileError):
                untimed(partial(check_and_enter, name, config))
        if not entries:
            return {}
        untimed(partial(enter, NOW, now))
        rounds = measure_rounds(entries, budget_s, context, baseline=NOW, prune=prune)
    rounds.stopped.raise_interrupt()
    return {timing.variant: timing for timing in timings_of(rounds, verdicts)}
