"""What the documents say of file formats is so: older ones are read, and what was saved and loaded looks the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from regional_explorer.compiler import artifact_folder
from regional_explorer.errors import PlanError, SessionError
from regional_explorer.page.report import session_html, session_text
from regional_explorer.page.saved import page_html
from regional_explorer.record.json_file import (
    dump_plan,
    dump_session,
    load_plan,
    load_plan_file,
    load_session,
    plan_line,
)
from regional_explorer.record.plan import Cut, Plan, Region, Selector, SelectorKind
from regional_explorer.record.plan_file import PLAN_FORMAT, Explored
from regional_explorer.record.session import FORMAT, Environment
from regional_explorer.record.timing import Verdict
from tests.shared import sessions

TABLE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "files.md"
NEWEST = {"session": FORMAT, "plan": PLAN_FORMAT, "artifacts": artifact_folder.ARTIFACT_FORMAT}
SESSION = sessions.measured(sessions.troubled())


def test_the_table_of_formats_has_every_one() -> None:
    rows = re.findall(r"^\| (\w+) \| .*? \| (\d+) \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = [(kind, number) for kind, newest in NEWEST.items() for number in range(1, newest + 1)]
    assert [(kind, int(number)) for kind, number in rows] == listed


def older(text: str, kind: str, *gone: str) -> str:
    values = {name: value for name, value in json.loads(text).items() if name not in gone}
    assert values["format"] == NEWEST[kind]
    return json.dumps({**values, "format": 1})


def test_a_saved_plan_of_an_earlier_version_is_read() -> None:
    found = load_plan_file(Path(__file__).with_name("plan_of_format_2.json"))
    assert found.plan == Plan(
        (
            Region(
                "a",
                (Selector(SelectorKind.MODULES, ("layers.*.mlp",)),),
                {"max_fusion_size": 8, "cpp.simdlen": None},
                backward_config={"max_fusion_size": 4},
            ),
            Region(
                "b",
                (
                    Selector(SelectorKind.LINES, ("f:3-4",), innermost=True),
                    Selector(SelectorKind.NODES, ("mul",), only=("0/dynamo:mul",)),
                ),
                enabled=False,
                joined=True,
                carved=(Selector(SelectorKind.OPS, ("aten.gelu*",)),),
            ),
        ),
        Cut.UPSTREAM,
    )
    assert found.explored == Explored(
        "model(x)",
        Environment("2.13.0", "3.11.9", "cpu", 2),
        grad=True,
        partitioner="min_cut",
        partitions={"mlp": {"backward": 2, "forward": 2}},
        speedup=1.24,
        speedup_low=1.21,
        speedup_high=1.27,
        verdict=Verdict.FASTER,
        numerics="ok",
    )
    assert found.artifacts == ()


def test_a_plan_of_the_first_format_is_read() -> None:
    for text in (dump_plan(SESSION.plan), plan_line(SESSION.plan)):
        assert load_plan(older(text, "plan", "explored")) == SESSION.plan


def test_a_plan_of_the_second_format_lists_no_artifacts() -> None:
    text = dump_plan(SESSION.plan, Explored.of(SESSION, "default"), ("0" * 64,))
    values = json.loads(text)
    assert load_plan_file(text).artifacts == tuple(values.pop("artifacts")) == ("0" * 64,)
    older_file = load_plan_file(json.dumps({**values, "format": 2}))
    assert older_file == replace(load_plan_file(text), artifacts=())


def test_a_newer_format_is_refused() -> None:
    newer = json.dumps({**json.loads(dump_session(SESSION)), "format": FORMAT + 1})
    with pytest.raises(SessionError, match="newer version"):
        load_session(newer)
    with pytest.raises(PlanError, match="newer version"):
        load_plan(json.dumps({**json.loads(dump_plan(SESSION.plan)), "format": PLAN_FORMAT + 1}))


def test_what_was_saved_and_loaded_looks_the_same() -> None:
    loaded = load_session(dump_session(SESSION))
    assert loaded == SESSION
    for shown in (page_html, session_html, session_text):
        assert shown(loaded) == shown(SESSION)
