"""The tabs beside the graph, and the generated code of a region."""

from __future__ import annotations

from regional_explorer.insight.code import RegionCode
from regional_explorer.record.session import Session
from regional_explorer.render.style.element import Node, node, verbatim
from regional_explorer.render.style.tones import SIGNS, TONES
from regional_explorer.render.style.untrusted import clean_page
from regional_explorer.ui.panel.controls import button
from regional_explorer.ui.state import DIAGNOSTICS, PANES

MOST_TEXT = 200_000
"""So many characters of code are shown; ``ex.code`` has all."""


def tabs(pane: str, session: Session) -> list[Node]:
    """Return the tabs; that of the diagnostics has their number, and the sign of the worst."""
    found = [TONES[one.severity] for one in session.diagnostics]
    sign = next((SIGNS[tone] for tone in ("bad", "warn") if tone in found), "")
    more = {DIAGNOSTICS: f" {sign}{len(found)}" if found else ""}
    return [
        button(
            f"{name.capitalize()}{more.get(name, '')}",
            "pane",
            name,
            role="tab",
            class_="rx-tab",
            aria_selected=str(name == pane).lower(),
            tabindex="0" if name == pane else "-1",
        )
        for name in PANES
    ]


def code_of_region(name: str | None, session: Session | None) -> list[Node]:
    """Return the generated code of a region, or what to do where there is none."""
    if name is None or session is None:
        return [node("p", "Select a region: its generated code is shown here.", class_="rx-quiet")]
    text = clean_page(str(RegionCode.of(session, name)), MOST_TEXT)
    return [node("h4", f"Code of {name}"), verbatim("code", text, class_="rx-source-code", tabindex="0")]
