"""The widget of a session without its page: requested graphs, the source beside them, and links between rows."""

from __future__ import annotations

import json
import linecache
from collections.abc import Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from regional_explorer.page.code import code_pane
from regional_explorer.page.graph import graph_traits, overlay
from regional_explorer.page.panes import line_nodes, row_links, source_listing, source_pane
from regional_explorer.picture.page_records import Records
from regional_explorer.record.artifact import ArtifactCode, Kernel, KernelKind
from regional_explorer.record.diagnostic import DiagnosticCode
from regional_explorer.record.figure import exactly
from regional_explorer.record.graph import Graph, GraphKind, Node, Role, SourceLine
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Plan
from regional_explorer.record.region_code import region_code
from regional_explorer.record.session import Session
from regional_explorer.style.formats import duration
from regional_explorer.ui.widget import SessionView
from tests.shared import sessions
from tests.shared.panel import message


def session_view(count: int = 3) -> SessionView:
    return SessionView(sessions.training_session(count))


def trait(shown: SessionView, name: str) -> Any:
    return getattr(shown, name)


def session_with_nodes(*nodes: Node) -> Session:
    return sessions.session((Graph("0/forward", GraphKind.FORWARD, 0, nodes),))


def test_other_graphs_are_sent_on_request() -> None:
    shown = session_view()
    assert shown.first == "0/forward"
    assert [tab["id"] for tab in shown.tabs] == ["0/forward", "0/backward", "partitions"]
    assert trait(shown, "facts0")["title"].startswith("forward")
    assert trait(shown, "facts1") == trait(shown, "folds1") == {}
    shown.press("graph", "1")
    assert trait(shown, "facts1")["title"].startswith("backward")
    assert trait(shown, "folds1")["homes"]
    assert shown.problem == ""


def test_new_session_sends_only_the_open_tab() -> None:
    session = sessions.training_session(3)
    shown = SessionView(session)
    shown.press("graph", "1")
    names = ("facts0", "facts1", "folds0", "folds1")
    first = [trait(shown, name) for name in names]
    shown.set_session(replace(sessions.measured(sessions.training_session(3)), graphs=session.graphs))
    assert all(trait(shown, name) is one for name, one in zip(names, first, strict=True))
    stale = tuple(replace(one, state=State.STALE) for one in session.partitions)
    shown.set_session(replace(session, partitions=stale))
    assert trait(shown, "facts0") is first[0]
    assert trait(shown, "folds0") != first[2]
    assert trait(shown, "facts1") is first[1]
    assert trait(shown, "folds1") == {}
    shown.shown = {"tab": "partitions"}
    shown.set_session(session)
    assert trait(shown, "folds0")["homes"]
    assert trait(shown, "folds1")["homes"]


def test_session_without_regions_has_no_tab_of_partitions() -> None:
    shown = session_view()
    shown.shown = {"tab": "partitions"}
    shown.set_session(replace(sessions.training_session(2), plan=Plan(), partitions=(), members={}))
    assert [tab["id"] for tab in shown.tabs] == ["0/forward", "0/backward"]
    assert trait(shown, "folds0")["homes"]  # of the tab that is shown instead
    assert SessionView().tabs == []
    empty = SessionView(sessions.session())
    assert (empty.tabs, empty.first) == ([], "")


def test_a_selection_keeps_the_nodes_that_still_exist() -> None:
    shown = session_view()
    shown.select(["0/forward:gelu0", "0/backward:tanh2"])
    assert shown.selection == ["0/forward:gelu0", "0/backward:tanh2"]
    shown.set_session(sessions.training_session(1))
    assert shown.selection == ["0/forward:gelu0"]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"do": "fly"},
        {"do": "graph", "of": 3},
        None,
        "text",
        {"do": "graph", "of": "?"},
        {"do": "graph", "of": "7"},
        {"do": "graph", "of": "-1"},
        {"do": "fly", "of": ""},
        {"do": "select", "of": "", "value": [3]},
        {"do": "select", "of": "", "value": "nodes"},
        {"do": "shown", "of": "", "value": {"tab": ["0/forward"]}},
        {"do": "shown", "of": "", "value": None},
    ],
)
def test_invalid_messages_do_no_harm(content: Any) -> None:
    shown = session_view()
    before = shown.get_state()
    shown.receive(shown, content, [])
    if isinstance(content, dict):
        shown.receive(shown, {"page": "one", "number": 1, **content}, [])
    assert {**shown.get_state(), "answered": {}} == before
    assert shown.problem == ""


def test_undrawable_graph_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = session_view()
    broken = Mock(side_effect=RuntimeError("no\x00 luck"))
    monkeypatch.setattr("regional_explorer.picture.page_records.graph_facts", broken)
    shown.press("graph", "1")
    assert shown.problem == "RuntimeError: no luck"


def test_message_of_a_page_is_not_echoed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = session_view()
    sent: list[str] = []
    monkeypatch.setattr(shown, "send_state", lambda key: sent.extend([key] if isinstance(key, str) else key))
    shown.receive(shown, message(1, "select", value=["0/forward:gelu0"]), [])
    shown.receive(shown, message(2, "shown", value={"tab": "0/backward"}), [])
    assert shown.selection == ["0/forward:gelu0"]
    assert shown.shown == {"tab": "0/backward"}
    assert shown.answered == {"one": 2}
    assert set(sent) == {"answered"}
    shown.select([])
    assert set(sent) == {"answered", "selection"}


@pytest.mark.parametrize("text", sessions.HOSTILE)
def test_hostile_sessions_are_shown(text: str) -> None:
    session = sessions.hostile_session(text)
    shown = SessionView(session)
    assert len(trait(shown, "facts0")["ops"]) == 4
    assert shown.problem == ""
    assert len(shown.part_source[0][2:]) == 1  # a function
    (function,) = source_listing(session)
    json.dumps(asdict(function), ensure_ascii=False).encode()
    assert all(line.text.isprintable() and len(line.text) <= 242 for line in function.lines)


def texts_in(tree: Any) -> list[str]:
    return [tree] if isinstance(tree, str) else [text for part in tree[2:] for text in texts_in(part)]


def test_overlays_have_the_position_of_each_partition_on_the_scale() -> None:
    found = overlay("time", duration, {"a": exactly(1.2345e-6), "b": exactly(2e-3), "c": exactly(inf)})
    assert found["values"] == {"a": [0.0, "1.23 µs"], "b": [1.0, "2.00 ms"]}
    assert texts_in(found["scale"]) == ["time 1.23 µs", "2.00 ms"]
    assert overlay("slow", duration, {"x": exactly(1234.567)})["values"] == {"x": [0.5, "1,230 s"]}
    assert overlay("none", duration, {"x": exactly(inf)}) | {"title": ""} == {"title": "", "scale": None, "values": {}}


def test_ops_can_be_coloured_by_the_users_annotations() -> None:
    graph = sessions.layers_graph(1)
    staged = {"mm0": {"stage": "1"}, "gelu0": {"stage": "2"}, "add0": {"stage": "1"}}
    nodes = tuple(replace(one, annotations=staged.get(one.name, {})) for one in graph.nodes)
    session = sessions.session((replace(graph, nodes=nodes),))
    records = Records()
    by_title = {one["title"]: one for one in graph_traits(session, records)["overlays"]}
    assert by_title["annotation stage"]["groups"] == ["1", "2"]  # the largest first
    assert "dtype" not in by_title, "all dtypes are equal"
    facts = records.of(session, session.graphs[0]).facts
    column = dict(zip(records.of(session, session.graphs[0]).names, facts["groups"]["annotation stage"], strict=True))
    assert {name: facts["texts"][column[name]] for name in ("mm0", "gelu0", "item0")} == {
        "mm0": "1",
        "gelu0": "2",
        "item0": "",
    }


# ---------------------------------------------------------------------------------------------------------- the source

TEXT = """\
def helper(x):
    return x + 1


class Model:
    def forward(self, x):
        y = helper(x)
        # nothing here
        return [y * n for n in range(2)]
"""


def session_in_file(path: Path, text: str | None = TEXT) -> Session:
    """Return a session traced from ``TEXT``, whose file has ``text`` now, or is gone if that is None."""
    if text is not None:
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
    return replace(session_with_nodes(*nodes), plan=Plan((sessions.region("mlp"),)), members=members)


def test_the_source_pane_lists_functions_with_their_lines(tmp_path: Path) -> None:
    found = source_listing(session_in_file(tmp_path / "model.py"))
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


@pytest.mark.parametrize(
    ("text", "name", "first"),
    [
        (None, "forward", "y = helper(x)"),
        (TEXT + "def (:\n", "forward", "y = helper(x)"),
        (TEXT + "%timeit f(x)\n", "Model.forward", "def forward(self, x):"),
        (TEXT + "text = ('%s'\n    % 1)\n", "Model.forward", "def forward(self, x):"),
    ],
    ids=["it is gone", "it is no Python", "it is a cell with a magic", "a line looks like a magic"],
)
def test_broken_source_files_are_read_as_far_as_possible(
    tmp_path: Path, text: str | None, name: str, first: str
) -> None:
    function = source_listing(session_in_file(tmp_path / "model.py", text))[0]
    assert (function.name, function.lines[0].text) == (name, first)


def test_changed_file_is_recognized_by_the_traced_text(tmp_path: Path) -> None:
    found = source_listing(session_in_file(tmp_path / "changed.py", "# another line\n" + TEXT))
    assert [(one.name, one.lines[0].number, len(one.lines)) for one in found] == [
        ("forward", 7, 3),
        ("helper", 2, 1),
        ("<listcomp>", 9, 1),
    ]
    assert [line.text for line in found[0].lines[:2]] == ["y = helper(x)", "…"]


def test_methods_of_missing_files_stay_separate() -> None:
    lines = [
        SourceLine("gone.py", 7, "forward", "x", scope="First.forward"),
        SourceLine("gone.py", 507, "forward", "x", scope="Second.forward"),
        SourceLine("/x/lib/python3.11/site-packages/timm/layers.py", 3, "forward", "x"),
    ]
    nodes = (Node(f"op{line.line}", Role.OP, "aten.add.Tensor", stack=(line,)) for line in lines)
    found = source_listing(session_with_nodes(*nodes))
    assert [(one.name, len(one.lines), one.folded) for one in found] == [
        ("First.forward", 1, False),
        ("Second.forward", 1, False),
        ("forward", 1, True),
    ]


def test_wrappers_of_libraries_come_after_the_code_that_they_call(tmp_path: Path) -> None:
    library = "/x/lib/python3.11/site-packages/models"
    wrapper = SourceLine(f"{library}/generic.py", 3, "wrapper", "return func(*args)", scope="can_return_tuple.wrapper")
    forward = SourceLine(f"{library}/qwen.py", 9, "forward", "x = self.norm(x) + x", scope="Layer.forward")
    norm = SourceLine(f"{library}/qwen.py", 2, "forward", "return x * y", scope="Norm.forward")
    stacks = ((wrapper, forward), (wrapper, forward, wrapper, norm))
    nodes = [Node(f"op{n}", Role.OP, "aten.add.Tensor", stack=stack) for n, stack in enumerate(stacks)]
    found = source_listing(session_with_nodes(*nodes))
    assert [(one.name, one.folded) for one in found] == [
        ("Layer.forward", False),  # no code of the user: the model's own forward is open
        ("Norm.forward", True),
        ("can_return_tuple.wrapper", True),
    ]
    own = SourceLine(str(tmp_path / "own.py"), 5, "step", "return model(x)")
    nodes = [Node(f"op{n}", Role.OP, "aten.add.Tensor", stack=(*stack, own)) for n, stack in enumerate(stacks)]
    assert source_listing(session_with_nodes(*nodes))[0].name == "step"


def rows_of(shown: SessionView) -> list[Any]:
    (listed,) = shown.part_source
    return [row for function in listed[2:] for row in function[3][2:]]


def highlighted_rows(links: Any, names: Sequence[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Return, by node, the rows of what contains it, and its own rows."""
    return {name: tuple(links["chains"][chain]) for name, chain in zip(names, links["of"], strict=True) if chain >= 0}


def test_nodes_highlight_their_lines(tmp_path: Path) -> None:
    shown = SessionView(session_in_file(tmp_path / "model.py"))
    (graph,) = shown.graphs
    assert highlighted_rows(shown.links["source"], graph["names"]) == {"add": (["l0"], ["l2"]), "mul": ([], ["l1"])}
    assert [row[1]["data-of"] for row in rows_of(shown) if "data-do" in row[1]] == ["l0", "l1", "l2"]
    chips = {row[5][2]: row[3][2:] for row in rows_of(shown)}
    assert [chip[2] for chip in chips["    return [y * n for n in range(2)]"]] == ["A"]
    assert chips["    y = helper(x)"] == chips["    # nothing here"] == []


def test_nodes_of_the_same_lines_share_a_chain() -> None:
    links = row_links({"a": (["x", "y"], ["x", "y", "z"]), "b": ([], ["z"])}, ["w", "x", "y", "z"])
    assert links["of"] == [-1, 0, 0, 1]
    assert highlighted_rows(links, ["w", "x", "y", "z"]) == {"x": ([], ["a"]), "y": ([], ["a"]), "z": (["a", "b"], [])}


def test_a_session_without_lines_has_a_message() -> None:
    shown = SessionView(session_with_nodes(Node("a", Role.OP, "aten.add.Tensor")))
    assert texts_in(["", {}, *shown.part_source]) == ["The nodes of this session have no source lines."]


def test_nodes_highlight_their_kernels_in_partitions_of_equal_code() -> None:
    kernel = Kernel("kernel", KernelKind.POINTWISE, nodes=(1,), defined=(1, 1))
    session = sessions.with_code(sessions.training_session(12), ArtifactCode("code", kernels=(kernel,)))
    shown = SessionView(session)
    shown.set_code(region_code(session, "mlp"))
    names = [f"{graph['id']}:{name}" for graph in shown.graphs for name in graph["names"]]
    found = highlighted_rows(shown.links["listing"], names)
    ops = [f"0/forward:mm{n}" for n in range(12)]
    assert [name for name, (_, own) in found.items() if "c0.1" in own] == ops
    assert [name for name, (around, _) in found.items() if "k0.1" in around] == ops
    assert code_pane(())[0] == []


def test_lines_are_sent_again_only_when_they_change(tmp_path: Path) -> None:
    session = session_in_file(tmp_path / "model.py")
    shown = SessionView(session)
    source, links = shown.part_source, shown.links
    shown.set_session(replace(session, plan=session.plan.changed("mlp", config={"max_fusion_size": 2})))
    assert shown.part_source is source
    assert shown.links is links
    shown.set_session(replace(session, members={}))
    assert shown.part_source != source
    assert shown.links is links


def test_a_diagnostic_is_shown_below_its_line(tmp_path: Path) -> None:
    session = session_in_file(tmp_path / "model.py")
    (mul,) = (node for node in session.graphs[0].ops if node.name == "mul")
    found = DiagnosticCode.REGION_SLOWER.finding("It is slower", ": much.", where=[mul], remedy="Leave it to eager.")
    functions = source_listing(session)
    lines = line_nodes(functions, session)
    rows = texts_in(source_pane(functions, lines, replace(session, diagnostics=(found,)))[0])
    assert rows[rows.index("    return [y * n for n in range(2)]") + 1] == "↳ It is slower"
