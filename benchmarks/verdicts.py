"""``python -m benchmarks.verdicts CHECKOUT …``: how soon the verdict on a slowdown stands, by checkout.

A pair is a function, and a second one that repeats some of the first one's work. The rounds of a run use the whole
budget; the verdict stands from the first round after which it is "slower" to the end. The checkouts take each pair one
after the other, in random order. Each has a process of its own, which is this command without a checkout: it reads
numbers of pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.trials import PIECES, repeated, works
from regional_explorer.measure import rounds
from regional_explorer.measure.clock import TimedCall

NEVER_S = 99.0
"""The seconds of a verdict that is not "slower" at the end."""
RESAMPLES = 2000


class RecordingRun(rounds._RoundsRun):
    """A run that records when each round was complete."""

    def go(self) -> rounds.StopReason:
        """Measure, and keep this run."""
        self.stamps_s: list[float] = []
        runs.append(self)
        self.ended_by = super().go()
        return self.ended_by

    def _run_round(self, order: random.Random) -> None:
        super()._run_round(order)
        self.stamps_s.append(self._spent_s())


runs: list[RecordingRun] = []


def print_times(slowdown: float, budget_s: float) -> None:
    """For each number of a pair that is read, print the seconds and the rounds after which its verdict stands."""
    setattr(rounds, "_RoundsRun", RecordingRun)  # noqa: B010 - mypy takes no other class
    setattr(rounds.RoundsResult, "is_precise", lambda _: False)  # noqa: B010 - the whole budget is used
    work: Any = works()
    pieces = list(work.values()) if isinstance(work, dict) else work  # older checkouts have names for them
    torch.set_num_threads(1)
    with torch.no_grad():
        for pair in map(int, iter(sys.stdin.readline, "")):
            piece = pieces[pair % len(pieces)]
            slower = repeated(piece, round(PIECES * (1.0 + slowdown)))
            calls = [TimedCall("eager", repeated(piece, PIECES)), TimedCall("slower", slower)]
            rounds.run_rounds(calls, budget_s, seed=pair)
            print(json.dumps(when_settled(runs.pop())), flush=True)


def when_settled(run: RecordingRun) -> tuple[float, int]:
    """Return after how many seconds and rounds the verdict is "slower" and stays so."""
    settled, history = (NEVER_S, 0), run.history
    phase = next(iter(history[0]["slower"]))
    for count in range(len(history), 1, -1):
        run.history = history[:count]
        if run.result(run.ended_by).verdict("slower", phase) != "slower":
            break
        settled = run.stamps_s[count - 1], count
    return settled


def main() -> None:
    """Print the median seconds and rounds of each checkout, and the ratio of its seconds to the first one's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, help="folders of the package, compared with the first")
    parser.add_argument("--slowdown", type=float, default=0.1, help="the slowdown (default: 0.1)")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for each pair (default: 1)")
    parser.add_argument("--pairs", type=int, default=45)
    arguments = parser.parse_args()
    if not arguments.checkouts:
        print_times(arguments.slowdown, arguments.budget)
        return
    options = [f"--slowdown={arguments.slowdown}", f"--budget={arguments.budget}"]
    command = [sys.executable, str(Path(__file__).resolve()), *options]
    children: dict[Path, Any] = {}
    for folder in arguments.checkouts:
        env = {**os.environ, "PYTHONPATH": str(folder.resolve()), "OMP_WAIT_POLICY": "PASSIVE"}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        children[folder] = subprocess.Popen(command, cwd=folder, env=env, **pipes)
    settled_by_checkout: dict[Path, list[tuple[float, int]]] = {folder: [] for folder in children}
    chance = random.Random(0)  # noqa: S311 - an order, not a secret
    for pair in range(arguments.pairs):
        for folder in chance.sample(list(children), len(children)):
            child = children[folder]
            print(pair, file=child.stdin, flush=True)
            settled_by_checkout[folder].append(json.loads(child.stdout.readline()))
    for child in children.values():
        child.communicate()
    first = settled_by_checkout[arguments.checkouts[0]]
    for folder, pairs in settled_by_checkout.items():
        ratios = []
        for _ in range(RESAMPLES):
            drawn = chance.choices(range(arguments.pairs), k=arguments.pairs)
            ratios.append(median_s(pairs[pair] for pair in drawn) / median_s(first[pair] for pair in drawn))
        low, high = statistics.quantiles(ratios, n=40)[::38]
        ratio = f"{median_s(pairs) / median_s(first):.2f} ({low:.2f}–{high:.2f})"
        print(f"{folder}: {median_s(pairs):.3f} s, {statistics.median(count for _, count in pairs)} rounds; {ratio}")


def median_s(pairs: Any) -> float:
    """Return the median of the seconds."""
    return statistics.median(seconds for seconds, _ in pairs)


if __name__ == "__main__":
    main()
