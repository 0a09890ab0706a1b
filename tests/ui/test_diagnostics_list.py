"""Diagnostics in the panel lead to their places."""

from __future__ import annotations

from msgspec.structs import replace

from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.region_code import nodes_of_diagnostic
from regional_explorer.style.element import words
from regional_explorer.ui.control import Control
from regional_explorer.ui.panel import Panel
from regional_explorer.ui.parts import diagnostics_list
from regional_explorer.ui.state import Shown
from tests.shared.panel import elements


def with_diagnostics(control: Control, *found: Diagnostic) -> Shown:
    """Return what a panel of ``control`` shows from now on: these diagnostics."""
    control.session = replace(control.session, diagnostics=found)
    return control.shown()


def test_a_place_is_its_nodes_or_its_lines_or_its_region(control: Control) -> None:
    session = control.session
    relu = next(node for node in session.graph("0/forward").ops if "relu" in node.name)
    assert nodes_of_diagnostic(
        Diagnostic(DiagnosticCode.REGION_WORTH, "b", graph="0/forward", nodes=(relu.name,)), session
    ) == [f"0/forward:{relu.name}"]
    assert relu.source is not None
    assert f"0/forward:{relu.name}" in nodes_of_diagnostic(
        Diagnostic(DiagnosticCode.REGION_WORTH, "b", where=(relu.source,)), session
    )
    assert f"0/forward:{relu.name}" in nodes_of_diagnostic(
        Diagnostic(DiagnosticCode.REGION_WORTH, "b", region="act"), session
    )
    assert nodes_of_diagnostic(Diagnostic(DiagnosticCode.REGION_WORTH, "b"), session) == []


def test_pressing_show_selects_the_place_in_its_graph(panel: Panel, control: Control) -> None:
    name = control.session.graph("0/backward").ops[0].name
    with_diagnostics(control, Diagnostic(DiagnosticCode.REGION_WORTH, "b", graph="0/backward", nodes=(name,)))
    panel.show(control)
    sent: list[object] = []
    panel.graph.send = sent.append
    for _ in range(2):  # a second press scrolls there again
        panel.press("show", "0")
    assert panel.graph.selection == [f"0/backward:{name}"]
    assert sent == [{"show": [f"0/backward:{name}"]}] * 2
    panel.press("clear")
    assert len(sent) == 2


def test_texts_are_told_in_full_and_what_is_merely_to_be_known_is_folded(control: Control) -> None:
    one = Diagnostic(
        DiagnosticCode.REGION_SPLIT, "<b>bad</b> " + "x" * 500, Severity.ERROR, upstream="nothing", remedy="do this"
    )
    heading, listed = diagnostics_list(with_diagnostics(control, one))
    assert (heading[0], heading[2]) == ("h4", "1 diagnostic")
    text = str(listed)
    assert "<b>bad</b> " + "x" * 500 in text  # a text, which the page makes a text node
    assert "✗ error" in text
    assert "What to do: do this" in text
    info = Diagnostic(DiagnosticCode.REGION_WORTH, "good to know", Severity.INFO)
    heading, listed, folded = diagnostics_list(with_diagnostics(control, info, *[one] * 9, info))
    assert words(heading) == "9 diagnostics"
    assert "good to know" not in words(listed)
    assert folded[0] == "details"
    assert "open" not in folded[1]
    assert words(folded).startswith("2 infos")
    assert [part[1]["data-of"] for part in elements([folded], data_do="show")] == []
