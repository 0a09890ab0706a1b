from __future__ import annotations

import json
import linecache
from pathlib import Path
from typing import Any

from regional_explorer.record.graph import Graph, GraphKind, Node, Role, SourceLine
from regional_explorer.render.listing import listing
from tests.render import sessions
from tests.ui_graph.reading import unpack

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
    found = listing(session_of(tmp_path / "model.py"))
    assert [(one["name"], one["first"]) for one in found["functions"]] == [("Model.forward", 6), ("helper", 1)]
    assert found["functions"][0]["lines"] == [
        "def forward(self, x):",
        "    y = helper(x)",
        "    # nothing here",
        "    return [y * n for n in range(2)]",
    ]
    assert unpack("I", found["passes"], 4) == [(0, 1, 0, 0), (1, 1, 0, 1), (0, 3, 1, 1)]
    assert found["ids"] == ["0/forward:add", "0/forward:mul"]
    assert unpack("i", found["node_regions"], 1) == [(-1,), (0,)]


def test_a_file_that_changed_is_told_by_what_the_trace_saw(tmp_path: Path) -> None:
    found = listing(session_of(tmp_path / "changed.py", "# another line\n" + TEXT))
    assert [(one["name"], one["first"], len(one["lines"])) for one in found["functions"]] == [
        ("forward", 7, 3),
        ("helper", 2, 1),
        ("<listcomp>", 9, 1),
    ]
    assert found["functions"][0]["lines"][:2] == ["y = helper(x)", "…"]


def test_a_file_that_is_gone_and_one_that_is_no_python(tmp_path: Path) -> None:
    gone = session_of(tmp_path / "gone.py")
    (tmp_path / "gone.py").unlink()
    linecache.clearcache()
    assert listing(gone)["functions"][0]["lines"][0] == "y = helper(x)"
    broken = listing(session_of(tmp_path / "broken.py", TEXT + "def (:\n"))
    assert broken["functions"][0]["name"] == "forward"


def test_a_cell_with_a_magic_is_read(tmp_path: Path) -> None:
    found = listing(session_of(tmp_path / "cell.py", TEXT + "%timeit f(x)\n"))
    assert found["functions"][0]["name"] == "Model.forward"


def test_hostile_source_is_clean() -> None:
    for text in sessions.HOSTILE:
        found = listing(sessions.hostile(text))
        json.dumps({key: value for key, value in found.items() if not isinstance(value, bytes)}).encode()
        assert all(line.isprintable() and len(line) <= 242 for one in found["functions"] for line in one["lines"])


def test_library_code_is_told_apart() -> None:
    line = SourceLine("/x/lib/python3.11/site-packages/timm/layers.py", 3, "forward", "x")
    nodes = (Node("a", Role.OP, "aten.add.Tensor", stack=(line,)),)
    session = sessions.session((Graph("g", GraphKind.FORWARD, 0, nodes),))
    assert listing(session)["functions"][0]["library"]
