from __future__ import annotations

import json
import linecache
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regional_explorer.page.source_pane import source_listing
from regional_explorer.record.graph import Graph, GraphKind, Node, Role, SourceLine
from tests.shared import sessions

TEXT = """\
def helper(x):
    return x + 1


class Model:
    def forward(self, x):
        y = helper(x)
        # nothing here
        return [y * n for n in range(2)]
"""


def session_of(path: Path, text: str = TEXT) -> Any:
    path.write_text(text, encoding="utf-8")
    linecache.checkcache(str(path))

    def at(line: int, function: str) -> SourceLine:
        return SourceLine(str(path), line, function, TEXT.splitlines()[line - 1].strip())

    nodes = (
        Node("x", Role.INPUT, "x"),
        Node("add", Role.OP, "aten.add.Tensor", ("x",), stack=(at(7, "forward"), at(2, "helper"))),
        Node("mul", Role.OP, "aten.mul.Tensor", ("add",), stack=(at(9, "forward"), at(9, "<listcomp>"))),
    )
    members = {"mlp": {"0/forward": ("mul",)}}
    return sessions.session((Graph("0/forward", GraphKind.FORWARD, 0, nodes),), (sessions.region("mlp"),), members)


def test_functions_with_their_lines(tmp_path: Path) -> None:
    found = source_listing(session_of(tmp_path / "model.py"))
    assert [(one.name, one.lines[0].number) for one in found] == [("Model.forward", 6), ("helper", 1)]
    assert [line.text for line in found[0].lines] == [
        "def forward(self, x):",
        "    y = helper(x)",
        "    # nothing here",
        "    return [y * n for n in range(2)]",
    ]
    add, mul = "0/forward:add", "0/forward:mul"
    assert [(line.own, line.passing) for line in found[0].lines] == [((), ()), ((), (add,)), ((), ()), ((mul,), (mul,))]
    assert [(line.own, line.passing) for line in found[1].lines] == [((), ()), ((add,), (add,))]


def test_a_file_that_changed_is_told_by_what_the_trace_saw(tmp_path: Path) -> None:
    found = source_listing(session_of(tmp_path / "changed.py", "# another line\n" + TEXT))
    assert [(one.name, one.lines[0].number, len(one.lines)) for one in found] == [
        ("forward", 7, 3),
        ("helper", 2, 1),
        ("<listcomp>", 9, 1),
    ]
    assert [line.text for line in found[0].lines[:2]] == ["y = helper(x)", "…"]


def test_a_file_that_is_gone_and_one_that_is_no_python(tmp_path: Path) -> None:
    gone = session_of(tmp_path / "gone.py")
    (tmp_path / "gone.py").unlink()
    linecache.clearcache()
    assert source_listing(gone)[0].lines[0].text == "y = helper(x)"
    broken = source_listing(session_of(tmp_path / "broken.py", TEXT + "def (:\n"))
    assert broken[0].name == "forward"


def test_methods_of_a_file_that_is_gone_stay_apart() -> None:
    lines = [
        SourceLine("gone.py", number, "forward", "x", scope=f"{name}.forward")
        for name, number in (("First", 7), ("Second", 507))
    ]
    nodes = tuple(Node(f"op{line.line}", Role.OP, "aten.add.Tensor", stack=(line,)) for line in lines)
    found = source_listing(sessions.session((Graph("g", GraphKind.FORWARD, 0, nodes),)))
    assert [(one.name, len(one.lines)) for one in found] == [("First.forward", 1), ("Second.forward", 1)]


def test_a_cell_with_a_magic_is_read(tmp_path: Path) -> None:
    found = source_listing(session_of(tmp_path / "cell.py", TEXT + "%timeit f(x)\n"))
    assert found[0].name == "Model.forward"


def test_hostile_source_is_clean() -> None:
    for text in sessions.HOSTILE:
        found = source_listing(sessions.hostile(text))
        assert found
        json.dumps([asdict(one) for one in found], ensure_ascii=False).encode()
        assert all(line.text.isprintable() and len(line.text) <= 242 for one in found for line in one.lines)


def test_library_code_is_told_apart() -> None:
    line = SourceLine("/x/lib/python3.11/site-packages/timm/layers.py", 3, "forward", "x")
    nodes = (Node("a", Role.OP, "aten.add.Tensor", stack=(line,)),)
    session = sessions.session((Graph("g", GraphKind.FORWARD, 0, nodes),))
    assert source_listing(session)[0].library
