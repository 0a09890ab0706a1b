"""Architectures of other libraries, with regions by module and by op: ``python -m benchmarks.libraries [LIBRARY …]``.

Each is explored once for inference and once for a training step. Then regions are drawn among its modules, and after
them among its ops; each time the call is compiled and compared with eager and float64. With a fixed seed all draws are
the same each time. ``pip install -e '.[campaign]'`` brings the libraries.
"""

from __future__ import annotations

import argparse
import random
import re
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import regional_explorer as rx
from regional_explorer.record.graph import GraphKind
from tests.campaign.checks import assert_eager_pieces_are_bitwise
from tests.campaign.libraries import DRAWN, SEED, cases, installed
from tests.campaign.library_case import Case, quiet

if TYPE_CHECKING:
    from torch import nn

BUDGET_S = 0.05
"""Seconds spent on timing: the figures are not shown, the comparison before them is."""

REGIONS = 2
MOST_PARTITIONS = 40
MOST_DISTINCT = 5
MOST_OPS = 400
"""Regions are drawn anew where they would take more to compile."""


@dataclass(frozen=True)
class Row:
    """What came of one architecture, in one mode, with regions of one kind.

    ``result`` is the verdict over all outputs and gradients, a refusal, or the error where something crashed.
    ``artifacts`` counts runs of Inductor: partitions that are equal share one.
    """

    library: str
    name: str
    mode: str
    regions: str
    result: str
    breaks: int = 0
    partitions: int = 0
    artifacts: int = 0
    diagnostics: str = ""
    seconds: float = 0.0
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the row in words, for reading beside the table."""
        return (
            f"{self.mode}, by {self.regions}: {self.breaks} graph breaks, {self.partitions} → {self.artifacts}, "
            f"{self.result}; {self.diagnostics or 'no diagnostics'}; {self.seconds:.0f} s"
        )

    @property
    def cell(self) -> str:
        """Return what the table shows: partitions → artifacts where all is well, else how it ended."""
        word = self.result.partition(":")[0].partition(" (")[0]
        if not self.partitions:
            return word
        count = f"{self.partitions} → {self.artifacts}" if self.artifacts else f"{self.partitions}"
        return count if word == "ok" and self.sound else f"{count}, {word}" if self.sound else f"**{count}, {word}**"

    @property
    def sound(self) -> bool:
        """Tell whether nothing crashed, nothing is wrong, and everything that was cut was compiled."""
        return self.result.startswith(("ok", "refused", "not comparable")) and "region-failed" not in self.diagnostics


HEADER = (
    "| library | architecture | inference by module | by op | training by module | by op | graph breaks |\n"
    "|---|---|---|---|---|---|---|"
)


def table_row(case: Case, inference: list[Row], training: list[Row]) -> str:
    """Return the row of an architecture: regions by module and by op, for inference and for training."""
    cells = [row.cell for rows in (inference, training) for row in (rows if len(rows) > 1 else rows * 2)]
    breaks = f"{max(row.breaks for row in inference)} / {max(row.breaks for row in training)}"
    return f"| {case.library} | {case.name} | {' | '.join(cells)} | {breaks} |"


def run(case: Case, *, training: bool, compiled: bool = True) -> list[Row]:
    """Explore an architecture in one mode, compile and compare it with regions of both kinds.

    Where it is not compiled, the cut graphs run with eager pieces and must compute bitwise what the uncut ones do.
    """
    mode, started = "training" if training else "inference", time.perf_counter()
    try:
        with quiet():
            built = case.make(training=training)
            ex = rx.explore(built.model, built.args, built.kwargs, grad=training)
    except rx.CaptureError as error:
        return [Row(case.library, case.name, mode, "-", f"refused: {error}".splitlines()[0], details=(str(error),))]
    except Exception as error:  # noqa: BLE001 - a crash is what is looked for
        return [Row(case.library, case.name, mode, "-", f"crash: {_first_line(error)}", details=_trace())]
    rows = []
    plain, draw = ex.plan, random.Random(f"{SEED} {case.name} {mode}")  # noqa: S311 - no secret
    for kind in ("module", "op"):
        ex.plan = plain
        try:
            with quiet():
                mark(ex, built.model, kind, draw)
                if compiled:
                    ex.benchmark(("aot_eager", "regional"), BUDGET_S, regions=False)
                else:
                    assert_eager_pieces_are_bitwise(ex)
                result = _verdict(ex) if compiled else "ok"
                rows.append(_row(ex, case, mode, kind, result, time.perf_counter() - started))
        except Exception as error:  # noqa: BLE001 - a crash is what is looked for
            seconds = time.perf_counter() - started
            result = f"crash: {_first_line(error)}"
            rows.append(Row(case.library, case.name, mode, kind, result, seconds=seconds, details=_trace()))
        started = time.perf_counter()
    ex.close()
    return rows


def mark(ex: rx.Exploration, model: nn.Module, kind: str, draw: random.Random) -> None:
    """Mark regions drawn among the modules of the model, or among the ops of its graphs."""
    plain = ex.plan
    choices = module_globs(model) if kind == "module" else ops(ex)
    draw.shuffle(choices)
    for choice in choices:
        if len(ex.plan.regions) == REGIONS:
            return
        before = ex.plan
        try:
            if kind == "module":
                ex.mark(choice, modules=choice)
            else:
                ex.mark(choice, ops=choice)
        except rx.SelectorError:
            continue  # a module without ops of its own
        if _too_much(ex):
            ex.plan = before
    if ex.plan == plain:
        raise ValueError(f"nothing to mark by {kind}")


def module_globs(model: nn.Module) -> list[str]:
    """Return the paths of the modules, with ``*`` in place of every number."""
    paths = (name for name, module in model.named_modules() if name and any(True for _ in module.parameters()))
    return sorted({re.sub(r"(?<![^.])\d+(?![^.])", "*", path) for path in paths})


def ops(ex: rx.Exploration) -> list[str]:
    """Return the operators of the graphs that compute something, as globs."""
    kinds = (GraphKind.FORWARD, GraphKind.INFERENCE)
    targets = {node.target for graph in ex.session.graphs if graph.kind in kinds for node in graph.ops}
    return sorted(f"{target.rpartition('.')[0]}.*" for target in targets if target.startswith("aten."))


def _too_much(ex: rx.Exploration) -> bool:
    session = ex.session
    graphs = {graph.id: graph.by_name() for graph in session.graphs}
    parts = [[graphs[part.graph][name] for name in part.nodes] for part in session.partitions]
    distinct = {tuple((node.target, node.values) for node in part) for part in parts}
    return len(parts) > MOST_PARTITIONS or len(distinct) > MOST_DISTINCT or sum(map(len, parts)) > MOST_OPS


def _verdict(ex: rx.Exploration) -> str:
    verdicts = Counter(ex.numerics[ex.numerics.variant == "regional"].verdict)
    shown = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    word = next((word for word in ("failed", "not comparable", "ok") if word in verdicts), "nothing compared")
    return f"{word} ({shown})"


def _row(ex: rx.Exploration, case: Case, mode: str, kind: str, result: str, seconds: float) -> Row:
    session, numerics = ex.session, ex.numerics
    off = numerics[(numerics.variant == "regional") & (numerics.verdict != "ok")]
    told = Counter(diagnostic.code for diagnostic in session.diagnostics)
    return Row(
        case.library,
        case.name,
        mode,
        f"{kind}: {', '.join(f'`{region.name}`' for region in ex.plan.regions)}",
        result=result,
        breaks=len(session.breaks),
        partitions=len(session.partitions),
        artifacts=len({part.artifact for part in session.partitions if part.artifact}),
        diagnostics=", ".join(f"{count} {code}" if count > 1 else code for code, count in sorted(told.items())),
        seconds=seconds,
        details=(
            *(d.message for d in session.diagnostics if d.severity.value == "error"),
            *([off.to_string()] if len(off) else []),
        ),
    )


def _first_line(error: BaseException) -> str:
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text}".replace("|", "/")


def _trace() -> tuple[str, ...]:
    return (traceback.format_exc(limit=-12),)


def main() -> None:
    """Print the table, a row as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.libraries", description=__doc__)
    parser.add_argument(
        "libraries", nargs="*", metavar="LIBRARY", help=f"some of {', '.join(DRAWN)}; all when left out"
    )
    parser.add_argument("--only", help="architectures whose name holds this text")
    parser.add_argument("--details", action="store_true", help="errors and what is wrong, in full, below each row")
    parser.add_argument("--cut", action="store_true", help="compile nothing: run the cut graphs with eager pieces")
    given = parser.parse_args()
    chosen = given.libraries or list(DRAWN)
    if unknown := [name for name in chosen if name not in DRAWN]:
        parser.error(f"{unknown[0]!r} is no library of the campaign; there are {', '.join(DRAWN)}")
    print(HEADER, flush=True)
    for library in chosen:
        if not installed(library):
            print(f"{library} is not installed: pip install -e '.[campaign]'")
            continue
        for case in cases(library):
            if given.only and given.only not in case.name:
                continue
            inference, training = (run(case, training=training, compiled=not given.cut) for training in (False, True))
            print(table_row(case, inference, training), flush=True)
            for row in (*inference, *training) if given.details else ():
                print(row, *row.details, sep="\n", flush=True)


if __name__ == "__main__":
    main()
