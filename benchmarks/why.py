"""Which diagnostics of the generated code fire on real models: ``python -m benchmarks.why [MODEL …]``.

Each model's training step is compiled by regions, and ``ex.diagnose`` looks at every region twice: a finding is listed
with what the second measurement says of it, its remedy included. With ``--batch`` inputs are repeated along their
first dimension, since the models are small.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Iterator

import regional_explorer as rx
from benchmarks.models import explore
from benchmarks.provenance import quickstart_gpt
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode

MODELS = ("quickstart", "gpt", "dit", "bert", "albert", "gpt2", "llama", "vit", "mamba", "convnext")
BUDGET_S = 4.0
REMEDIED = (DiagnosticCode.OP_RECOMPUTED, DiagnosticCode.FUSION_REFUSED)

HEADER = "| model | region | found | measured again |\n|---|---|---|---|"


def rows(name: str, batch: int, budget_s: float) -> Iterator[str]:
    """Yield a row of the Markdown table for each finding of a model, one for a model without any."""
    ex = quickstart_gpt() if name == "quickstart" else explore(name, training=True, repeats=batch)[0]
    ex.compile()
    found = [row for region in ex.plan.regions for row in _findings(ex, region.name, budget_s)]
    regions = len(ex.plan.regions)
    ex.close()
    yield from (f"| {name} | {row}" for row in found)
    if not found:
        yield f"| {name} | all {regions} | nothing | |"


def _findings(ex: rx.Exploration, region: str, budget_s: float) -> Iterator[str]:
    if all(part.artifact is None for part in ex.session.partitions if part.region == region):
        return
    first, again = ex.diagnose(region, budget_s), ex.diagnose(region, budget_s)
    for item in first:
        second = next((one for one in again if (one.code, one.graph) == (item.code, item.graph)), None)
        yield f"`{region}` | `{item.code}` {_figures(item)} | {'not found' if second is None else _figures(second)} |"
    for item in again:
        if all((one.code, one.graph) != (item.code, item.graph) for one in first):
            yield f"`{region}` | nothing | `{item.code}` {_figures(item)} |"


def _figures(item: Diagnostic) -> str:
    """Return what a diagnostic found, and of a remedy what it brings, in short."""
    if item.code in REMEDIED:
        what = re.search(r"computes (.+) per element|\((.+)\)", item.message)
        gain = re.search(r"measured (.+) as now", item.remedy)
        assert what is not None
        assert gain is not None
        return f"{what[1] or what[2]}; remedy {gain[1]}"
    share = re.search(r"\d+ ?%", item.message)
    return share[0] if share else ""


def main() -> None:
    """Print the table, a row as soon as it is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.why", description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="how often inputs are repeated")
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="S", help="seconds for each region, twice")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(HEADER, flush=True)
    for name in options.models:
        for text in rows(name, options.batch, options.budget):
            print(text, flush=True)


if __name__ == "__main__":
    main()
