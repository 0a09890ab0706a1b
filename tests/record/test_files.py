"""Files that were damaged, cut short, written by hand or by earlier versions: each is read, or refused in one line."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from regional_explorer.command.cli import EXIT_DONE, EXIT_FAILED, main
from regional_explorer.compiler import artifact_folder
from regional_explorer.errors import PlanError, RegionalExplorerError, SessionError
from regional_explorer.exploration.results import SavedSession, compare, load
from regional_explorer.export.to_source import plan_source
from regional_explorer.record.benchmark import MemoryPeak, Phase, ReconciliationRow
from regional_explorer.record.figure import Figure
from regional_explorer.record.files import dump_plan, dump_session, json_safe, load_plan
from regional_explorer.record.plan import CutRule, Plan, Region, Selector, SelectorKind
from regional_explorer.record.plan_file import PLAN_FORMAT, ExplorationRecord
from regional_explorer.record.profile import OpTime, ProfileKind, ProfileRow
from regional_explorer.record.session import FORMAT, Session
from tests.shared import sessions
from tests.shared.mutations import PLAN, run_mutations, value_at

T = TypeVar("T")

SOME = 30
"""Mutations of each kind of file in a normal run; 3,000 in a slow one."""
ALL = 3000
LONGEST = 400
"""The most characters of an error, because the content of a file may be long."""


def session_with_every_field() -> Session:
    """Return a session in which no field is empty."""
    base = sessions.measured(sessions.training_session(2))
    troubled, profile = sessions.session_with_diagnostics(), sessions.profiled(base).profile
    assert profile is not None
    return replace(
        base,
        breaks=troubled.breaks,
        diagnostics=(replace(troubled.diagnostics[0], graph="0/forward", nodes=("mm0",)), troubled.diagnostics[1]),
        partition_timings=sessions.measured_alone(bitwise=False, warnings=("noisy: 3 %",)).partition_timings,
        partition_numerics=tuple(replace(row, partition=base.partitions[0].id) for row in base.numerics),
        reconciliation=(ReconciliationRow(Phase.STEP, "mlp", Figure(-1e-4, -2e-4, 1e-5), region="mlp", note="alone"),),
        memory=(MemoryPeak("eager", Figure(1 << 21, 1 << 20, 1 << 22), "resident set", 4096),),
        profile=replace(
            profile,
            ops=(*profile.ops, OpTime("0/forward", "t0", Figure(1e-6, why="too few rounds (3)"), True)),
            rows=(ProfileRow(ProfileKind.MODULE, "layers.0", Figure(2e-4, 1e-4, 3e-4), 2e-4, 0.0, 0.9, 2, 4096, 1e-6),),
        ),
    )


SESSION_JSON = json.loads(dump_session(session_with_every_field()))
PLAN_JSON = json.loads(dump_plan(PLAN, ExplorationRecord.of(session_with_every_field()), ("0" * 64, "1" * 64)))


def use_all_of(view: SavedSession, tmp_path: Path) -> None:
    """Do whatever can be done with a loaded session."""
    assert all(getattr(view, name) is not None for name in sessions.FRAMES)
    assert set(view._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert view.graph() is not None
    assert len(compare(view)) == 1
    for ending in ("html", "svg", "csv"):
        view.save(tmp_path / f"again.{ending}")
    assert dump_session(load(view.save(tmp_path / "again.json")).session) == dump_session(view.session)


def show(path: Path) -> tuple[int, str]:
    """Return the exit code of ``regional-explorer show`` and what it writes to stderr."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as message:
        return main(["show", str(path)]), message.getvalue()


def check_session_file(path: Path) -> None:
    view, refusal = load_or_refusal(load, path, SessionError)
    if view is None:
        assert show(path) == (EXIT_FAILED, f"regional-explorer: {refusal}\n")
    else:
        assert show(path) == (EXIT_DONE, "")
        use_all_of(view, path.parent)


def check_plan_file(path: Path) -> None:
    plan, _ = load_or_refusal(load_plan, path, PlanError)
    if plan is not None:
        assert plan_source(plan)
        path.write_text(dump_plan(plan), encoding="utf-8")
        assert dump_plan(load_plan(path)) == dump_plan(plan)


def load_or_refusal(read: Callable[[Path], T], path: Path, error: type[Exception]) -> tuple[T | None, str]:
    """Return what the file holds, or None and why it is refused: one line that names the file."""
    try:
        return read(path), ""
    except error as problem:
        refusal = str(problem)
    assert str(path) in refusal
    assert len(refusal) < LONGEST
    assert len(refusal.splitlines()) == 1
    return None, refusal


COUNTS = [SOME, pytest.param(ALL, marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("document", "check"), [(SESSION_JSON, check_session_file), (PLAN_JSON, check_plan_file)], ids=["session", "plan"]
)
def test_a_mutated_file_is_loaded_or_refused(
    document: dict[str, Any], check: Callable[[Path], None], tmp_path: Path, count: int
) -> None:
    run_mutations(document, check, tmp_path / "x.json", count)


def changed(document: dict[str, Any], path: str, value: Any) -> str:
    """Return the text of ``document`` with another value at ``path``, such as ``plan.regions.0.config``."""
    found = copy.deepcopy(document)
    *above, key = (int(step) if step.isdigit() else step for step in path.split("."))
    holder: Any = value_at(found, tuple(above))
    holder[key] = value
    return json.dumps(found)


def test_a_file_whose_call_takes_no_time_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(changed(SESSION_JSON, "timings.0.median_s.0", 0.0), encoding="utf-8")
    check_session_file(path)
    assert load(path).session.timings[0].median_s.value == 0.0


DEEP = '{"kind": "%s", "title": ' + 100_000 * "[" + 100_000 * "]" + "}"
ENOUGH = {"name": "a", "selectors": [{"kind": "modules", "patterns": ["*"]}]}
NODE, CUT = (SESSION_JSON["graphs"][0]["nodes"][5]["name"], SESSION_JSON["partitions"][0]["id"])
UNKNOWN_NODE = "graphs[0].nodes[5].inputs: there is no node before it called "

CHANGED_SESSIONS: tuple[tuple[str, Any, str], ...] = (
    ("plan.regions.0.config", None, "plan.regions[0].config: Expected 'object', got 'null'"),
    ("members", [], "members: Expected 'object', got 'array'"),
    ("environment.threads", 10**400, "environment.threads: Expected 'int' <= 9223372036854775807"),
    ("timings.0.median_s.0", 10**400, "timings[0].median_s[0]: Number out of range"),
    ("timings.0.median_s.0", -1.5, "timings[0]: a time is negative"),
    ("timings.0.speedup.0", {"float": "nan"}, "timings[0].speedup[0]: Expected 'float' >= -1e+18"),
    ("timings.2.speedup.1", 0.0, "timings[2]: a speedup is not positive"),
    ("partition_timings.1.partition", "nobody", "partition_timings: there is no partition called 'nobody'"),
    ("partitions.0.graph", "7/forward", "partitions[0]: there is no graph called '7/forward'"),
    ("members.mlp", {"7/forward": []}, "members['mlp']: there is no graph called '7/forward'"),
    ("graphs.0.nodes.5.inputs", ["nobody"], f"{UNKNOWN_NODE}'nobody'"),
    ("graphs.0.nodes.5.inputs", [NODE], f"{UNKNOWN_NODE}'{NODE}'"),
    ("partitions.0.region", "nobody", "partitions[0].region: there is no region called 'nobody'"),
    ("graphs.1.id", "0/forward", "graphs[1]: a second graph is called '0/forward'"),
    ("partitions.1.id", CUT, "partitions[1]: a second partition is called"),
    ("format", True, "its format is True, which is no positive integer"),
    ("format", FORMAT + 1, f"a newer version (format {FORMAT + 1}, this one reads {FORMAT})"),
    (
        "format",
        FORMAT - 1,
        f"an older version (format {FORMAT - 1}, this one reads {FORMAT}). Explore the call again, and save it.",
    ),
)
CHANGED_PLANS: tuple[tuple[str, Any, str], ...] = (
    ("regions.0.selectors.0.patterns", "aten", "regions[0].selectors[0].patterns: Expected 'array', got 'str'"),
    ("regions.0.selectors.0.patterns", [], "needs at least one pattern"),
    ("regions.0.selectors.0.kind", "module", "regions[0].selectors[0].kind: Invalid enum value 'module'"),
    ("regions.0.config", None, "regions[0].config: Expected 'object'"),
    ("regions", [ENOUGH, ENOUGH], "Two regions are called 'a'"),
    ("regions.0.name", "a\nb", "regions[0]: A region's name must be a non-blank string without line breaks"),
    ("regions.0.name", " ", "regions[0]: A region's name must be"),
    ("format", True, "its format is True, which is no positive integer"),
    ("format", PLAN_FORMAT - 1, "an older version"),
    ("format", PLAN_FORMAT + 1, f"newer version (format {PLAN_FORMAT + 1}, this one reads {PLAN_FORMAT})"),
    ("regions.0.colour", "red", "contains unknown field 'colour'"),
    ("regions.0", {"name": "a"}, "required field 'selectors'"),
)
BAD_SESSIONS = (
    *((changed(SESSION_JSON, path, value), message) for path, value, message in CHANGED_SESSIONS),
    (DEEP % "session", "nested too deeply"),
    ('{"kind": "session", "grad": 1' + 5000 * "0" + "}", "is not JSON"),
    ('{"kind": "session", "grad": NaN}', "is not JSON"),
    (json.dumps(PLAN_JSON), "is not a saved session"),
    ("", "is not JSON"),
    ("[]", "is not a saved session"),
)
BAD_PLANS = (
    *((changed(PLAN_JSON, path, value), message) for path, value, message in CHANGED_PLANS),
    (DEEP % "plan", "nested too deeply"),
    (json.dumps(SESSION_JSON), "is not a saved plan"),
)


def assert_refused(read: Callable[[Path], object], path: Path, text: str, error: type[Exception], message: str) -> str:
    path.write_text(text, encoding="utf-8")
    _, refusal = load_or_refusal(read, path, error)
    assert message in refusal
    return refusal


@pytest.mark.parametrize(("text", "message"), BAD_SESSIONS, ids=[message for _, message in BAD_SESSIONS])
def test_a_malformed_session_is_refused_with_one_line(tmp_path: Path, text: str, message: str) -> None:
    refusal = assert_refused(load, tmp_path / "x.json", text, SessionError, message)
    assert show(tmp_path / "x.json") == (EXIT_FAILED, f"regional-explorer: {refusal}\n")


@pytest.mark.parametrize(("text", "message"), BAD_PLANS, ids=[message for _, message in BAD_PLANS])
def test_a_malformed_plan_is_refused_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    refusal = assert_refused(load_plan, path := tmp_path / "x.json", text, PlanError, message)
    (tmp_path / "empty.py").write_text("", encoding="utf-8")
    assert main(["run", str(tmp_path / "empty.py"), "f(x)", "--plan", str(path)]) == EXIT_FAILED
    assert capsys.readouterr().err == f"regional-explorer: {refusal}\n"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\xef\xbb\xbf{}"])
def test_undecodable_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(SessionError, match="is not JSON"):
        load(tmp_path / "x.json")


@pytest.mark.parametrize("path", [3, None, b"x.json", ["x.json"], "", "\0", ".", "nowhere/x.json"])
def test_missing_file_is_reported(path: Any) -> None:
    for read, error in ((load, SessionError), (load_plan, PlanError)):
        with pytest.raises(error, match=r"Give the path|Cannot read"):
            read(path)


def test_the_error_names_the_kind_of_a_wrong_file() -> None:
    for read, error, kind, what in ((load, SessionError, "plan", "session"), (load_plan, PlanError, "session", "plan")):
        with pytest.raises(error, match=f"^The text is not a saved {what}"):
            read(f'{{"kind":"{kind}"}}')


def test_any_annotation_survives_saving(tmp_path: Path) -> None:
    deep: Any = []
    deep.append(deep)
    for value in (10**400, deep, {"a": {1, 2}}, {"float": "x"}, float("nan"), b"x", {3: [None, True, -1.5]}):
        node = replace(sessions.layers_graph(1).nodes[0], annotation=json_safe(value))
        graph = replace(sessions.layers_graph(1), nodes=(node, *sessions.layers_graph(1).nodes[1:]))
        path = SavedSession(sessions.session([graph])).save(tmp_path / "x.json")
        assert repr(load(path).session.graphs[0].nodes[0].annotation) == repr(node.annotation)


def test_records_refuse_impossible_values() -> None:
    region = PLAN.regions[0]
    for make, message in (
        (lambda: Plan((region, region)), "Two regions are called"),
        (lambda: Plan("ab"), "The regions of a plan are a tuple of rx.Region"),  # type: ignore[arg-type]
        (lambda: Plan((region, 3)), "The regions of a plan are a tuple of rx.Region"),  # type: ignore[arg-type]
        (lambda: Plan((region,), "none"), "cut='none': give"),  # type: ignore[arg-type]
        (lambda: Region("", region.selectors), "A region's name must be"),
        (lambda: Region("a", "modules"), "The selectors of region 'a' are a tuple of rx.Selector"),  # type: ignore[arg-type]
        (lambda: Region("a", region.selectors, None), "The config of region 'a' is a dict"),  # type: ignore[arg-type]
        (lambda: Region("a", region.selectors, {3: 4}), "The config of region 'a' is a dict"),  # type: ignore[dict-item]
        (lambda: Selector("module", ("*",)), "No selector is of the kind 'module'"),  # type: ignore[arg-type]
        (lambda: Selector(SelectorKind.OPS, "aten.*"), "give a tuple of strings"),  # type: ignore[arg-type]
        (lambda: Selector(SelectorKind.OPS, ()), "needs at least one pattern"),
        (lambda: Selector(SelectorKind.OPS, ("",)), "give a tuple of strings"),
    ):
        with pytest.raises(RegionalExplorerError, match=message):
            make()
    assert Selector("ops", ["*"]) == Selector(SelectorKind.OPS, ("*",))  # type: ignore[arg-type]
    assert Plan([region], "upstream").cut is CutRule.UPSTREAM  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------- formats of files

TABLE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "files.md"
NEWEST = {"session": FORMAT, "plan": PLAN_FORMAT, "artifacts": artifact_folder.ARTIFACT_FORMAT}


def test_the_table_of_formats_is_complete() -> None:
    rows = re.findall(r"^\| (\w+) \| .*? \| (\d+) \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(kind, int(number)) for kind, number in rows] == [*NEWEST.items()]
