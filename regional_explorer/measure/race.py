"""A workpiece alone, on recorded inputs: its eager piece and artifacts as calls to time, and a race of configs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch

from regional_explorer.capture.undo import TorchRandomState
from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.switch import Switch
from regional_explorer.compiler.workpiece import Workpiece
from regional_explorer.errors import RegionCompileError
from regional_explorer.measure.clock import TimedCall
from regional_explorer.measure.reference import check_partition
from regional_explorer.measure.timings import MeasureContext, measure_rounds, timings_of
from regional_explorer.record.benchmark import NumericsVerdict, Timing
from regional_explorer.torch_api.graphs import BoxedCall, outside_autocast


@contextmanager
def as_in_the_call() -> Iterator[None]:
    """Context manager for running pieces as autograd runs them; restores the random generators."""
    with TorchRandomState(), torch.no_grad(), outside_autocast():
        yield


def timed_call(name: str, function: BoxedCall, args: Sequence[Any], put_back: Callable[[], None]) -> TimedCall:
    """Return calls of ``function`` on ``args``; ``put_back`` runs before each, see ``Workpiece.putting_back``."""
    return TimedCall(name, lambda: function(list(args)), before=put_back)


def tried(workpiece: Workpiece, artifact: Artifact, args: Sequence[Any]) -> BoxedCall:
    """Return what a cut graph calls for an artifact, once that has run on ``args``.

    Raises:
        RegionCompileError: it refuses them.
    """
    switch = Switch.alone(workpiece, artifact)
    switch.implementation(list(args))
    if switch.refusal is not None:  # what ran was the eager piece
        raise RegionCompileError(switch.refusal)
    return switch.as_function()


NOW = "now"


def race(
    workpiece: Workpiece,
    args: Sequence[Any],
    now: Artifact,
    candidates: Mapping[str, Mapping[str, Any]],
    artifact_under: Callable[[Mapping[str, Any]], Artifact],
    budget_s: float,
    context: MeasureContext,
) -> dict[str, Timing]:
    """Return the times of the candidates relative to ``now``, by name, measured in interleaved rounds.

    Candidates are configs. One that does not compile, refuses ``args``, or does not compute what eager does is left out
    before anything is timed.

    Raises:
        RegionCompileError: ``now`` refuses ``args``.
        MeasureError: nothing could be measured.
        concurrent.futures.CancelledError, KeyboardInterrupt: it was cancelled or interrupted.
    """
    run, verdicts = context.run, dict[str, NumericsVerdict]()

    def entry(name: str, artifact: Artifact) -> TimedCall:
        return timed_call(name, tried(workpiece, artifact, args), args, put_back)

    def checked(name: str) -> TimedCall | None:
        def twin(more: Mapping[str, Any]) -> Artifact:
            return artifact_under({**candidates[name], **more})

        artifact = twin({})
        check = check_partition(workpiece, args, artifact, twin, run.cancelled, seek_cure=False)
        verdicts[name] = check.verdict
        return None if check.verdict is NumericsVerdict.FAILED else entry(name, artifact)

    with as_in_the_call():
        put_back = run.threads.run_untimed(lambda: workpiece.putting_back(args))
        calls = []
        for name in candidates:
            with suppress(RegionCompileError):
                calls.append(run.threads.run_untimed(partial(checked, name)))
        entries = [call for call in calls if call is not None]
        if not entries:
            return {}
        entries.insert(0, run.threads.run_untimed(lambda: entry(NOW, now)))
        rounds = measure_rounds(entries, budget_s, context, baseline=NOW)
    rounds.stopped.raise_interrupt()
    return {timing.variant: timing for timing in timings_of(rounds, verdicts)}
