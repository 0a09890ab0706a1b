"""Sessions measured in processes of their own, compared pair by pair: how often do equal ones differ?

``python -m benchmarks.compare_apart --sessions 20`` measures one function in 20 processes, which gives 190 pairs. Of
equal pairs hardly any may fail at 3 %; of the same pairs with the later regional time made 8 % longer nearly all must.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from regional_explorer.record.changes import speed_change
from regional_explorer.record.json_file import load_session
from regional_explorer.record.session import Session

LIMIT, PLANTED = 0.03, 1.08

PROGRAM = """
import sys
import torch
import torch.nn.functional as F
import regional_explorer as rx

torch.manual_seed(0)
up, down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

def block(x):
    with rx.region("mlp"):
        y = down(F.gelu(up(x)))
    return torch.softmax(x + y, -1)

ex = rx.explore(block, (torch.randn(256, 256),))
ex.benchmark(variants=("eager", "regional"), budget_s=float(sys.argv[2]))
ex.save(sys.argv[1])
"""


def measure(path: Path, budget_s: float) -> Session:
    """Return a session measured in a process of its own."""
    subprocess.run([sys.executable, "-c", PROGRAM, str(path), str(budget_s)], check=True)
    return load_session(path)


def slowed(session: Session) -> Session:
    """Return ``session`` with its regional samples made longer."""
    timings = (
        replace(one, samples_s=tuple(PLANTED * sample for sample in one.samples_s))
        if one.variant == "regional"
        else one
        for one in session.timings
    )
    return replace(session, timings=tuple(timings))


def main() -> None:
    """Measure, compare, and print how many pairs fail."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--budget", type=float, default=15.0, help="seconds to measure in each process")
    parser.add_argument("--keep", type=Path, help="a folder to keep the sessions in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        found = []
        for number in range(options.sessions):
            found.append(measure(folder / f"{number}.json", options.budget))
            rounds = len(found[-1].timings[0].samples_s)
            print(f"session {number + 1} of {options.sessions}: {rounds} rounds", flush=True)
    pairs = list(combinations(found, 2))
    equal = [speed_change(before, after) for before, after in pairs]
    planted = [speed_change(before, slowed(after)) for before, after in pairs]
    wrong, seen = (sum(change.is_slower(LIMIT) for change in changes) for changes in (equal, planted))
    slowdowns = sorted(change.slowdown or 1.0 for change in equal)
    print(f"{len(pairs)} equal pairs: {wrong} fail at {LIMIT:.0%}; slowdowns {slowdowns[0]:.3f} to {slowdowns[-1]:.3f}")
    print(f"{len(pairs)} pairs slowed by {PLANTED - 1:.0%}: {seen} fail at {LIMIT:.0%}")


if __name__ == "__main__":
    main()
