"""Architectures of other libraries: nothing crashes, and compiled code is right.

Regions are chosen at random, first among the modules and then among the ops, for inference and for a training step;
the choice is the same each time. The libraries come with ``pip install -e '.[campaign]'``; where one is missing, its
architectures are skipped.
"""

import random
import re
from collections import Counter

import pytest

import regional_explorer as rx
from benchmarks.campaign.libraries import CASES, silence_libraries
from regional_explorer.record.graph import GraphKind

pytestmark = [pytest.mark.slow, pytest.mark.compiles]

SEED = 20_260_101

BUDGET_S = 0.05
"""The seconds of timing: its figures are not used, only the comparison of results before it."""

REGIONS = 2
MOST_PARTITIONS, MOST_DISTINCT, MOST_OPS = 40, 5, 400
"""A region that would take more to compile is not marked."""


def check(case, *, training):
    """Compile a call and compare it, with regions by module and by op; return a line about each."""
    mode = "training" if training else "inference"
    with silence_libraries():
        model, args, kwargs = case.make(training=training)
        ex = rx.explore(model, args, kwargs, grad=training)
        plain, chance = ex.plan, random.Random(f"{SEED} {case.name} {mode}")  # noqa: S311 - no secret
        lines = []
        for kind, globs in (("modules", modules(model)), ("ops", ops(ex))):
            ex.plan = plain
            mark(ex, kind, globs, chance)
            ex.benchmark(("aot_eager", "regional"), BUDGET_S, regions=False)
            lines.append(f"{mode}, {assert_nothing_failed(ex)}")
        ex.close()
    return lines


def modules(model):
    """Return globs of the modules: their paths with ``*`` in place of every number."""
    paths = (name for name, module in model.named_modules() if name and any(True for _ in module.parameters()))
    return sorted({re.sub(r"(?<![^.])\d+(?![^.])", "*", path) for path in paths})


def ops(ex):
    """Return globs of the operators that compute something."""
    kinds = (GraphKind.FORWARD, GraphKind.INFERENCE)
    targets = {node.target for graph in ex.session.graphs if graph.kind in kinds for node in graph.ops}
    return sorted(f"{target.rpartition('.')[0]}.*" for target in targets if target.startswith("aten."))


def mark(ex, kind, globs, chance):
    """Mark regions of randomly chosen globs."""
    plain = ex.plan
    chance.shuffle(globs)
    for choice in globs:
        if len(ex.plan.regions) == REGIONS:
            return
        before = ex.plan
        try:
            ex.mark(choice, **{kind: choice})
        except rx.SelectorError:
            continue  # a module without ops of its own
        if is_too_large(ex.session):
            ex.plan = before
    assert ex.plan != plain, f"nothing to mark among {kind}"


def is_too_large(session):
    graphs = {graph.id: graph.by_name for graph in session.graphs}
    parts = [[graphs[part.graph][name] for name in part.nodes] for part in session.partitions]
    distinct = {tuple((node.target, node.values) for node in part) for part in parts}
    return len(parts) > MOST_PARTITIONS or len(distinct) > MOST_DISTINCT or sum(map(len, parts)) > MOST_OPS


def assert_nothing_failed(ex):
    """Assert that no region and no variant failed; return a line of counts."""
    session, numerics = ex.session, ex.numerics[ex.numerics.variant == "regional"]
    codes = Counter(str(diagnostic.code) for diagnostic in session.diagnostics)
    errors = "\n".join(diagnostic.message for diagnostic in session.diagnostics if diagnostic.severity == "error")
    verdicts = Counter(map(str, numerics.verdict))
    artifacts = {part.artifact for part in session.partitions if part.artifact}
    words = (
        f"regions {', '.join(region.name for region in ex.plan.regions)}: {len(session.breaks)} graph breaks, "
        f"{len(session.partitions)} → {len(artifacts)}, {dict(verdicts)}, {dict(codes)}"
    )
    off = numerics[numerics.verdict != "ok"]
    assert "region-failed" not in codes, f"{words}\n{errors}"
    assert "failed" not in verdicts, f"{words}\n{errors}\n{off.to_string()}"
    assert {"ok", "not comparable"} & verdicts.keys(), f"{words}\n{errors}\n{off.to_string()}"
    assert artifacts, words
    return words


def test_eighty_architectures_have_different_names():
    assert len({(case.library, case.name) for case in CASES}) == 80


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.library}-{case.name}")
def test_an_architecture_is_explored_and_compiled(case, training):
    if not case.is_installed:
        pytest.skip(f"{case.library} is not installed")
    for line in check(case, training=training):
        print(case.library, case.name, line)
