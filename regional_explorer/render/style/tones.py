"""Tones for states, verdicts and severities; each has a sign, so that colour is never the only sign."""

from __future__ import annotations

from regional_explorer.record.diagnostic import Severity
from regional_explorer.record.partition import State
from regional_explorer.record.timing import NumericsVerdict, Verdict
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.formats import STATE_GLYPHS

TONES: dict[str, str] = {
    State.FAILED: "bad",
    State.STALE: "warn",
    State.EMPTY: "warn",
    State.EAGER: "quiet",
    Verdict.FASTER: "good",
    Verdict.SLOWER: "bad",
    NumericsVerdict.FAILED: "bad",
    NumericsVerdict.NOT_COMPARABLE: "warn",
    NumericsVerdict.NOT_COMPARED: "warn",
    NumericsVerdict.OK: "good",
    Severity.ERROR: "bad",
    Severity.WARNING: "warn",
    Severity.INFO: "quiet",
}
"""The tone of states, verdicts and severities: good, bad, warn or quiet. Words say the same."""

SIGNS = {"good": "✓ ", "bad": "✗ ", "warn": "! "}
"""The sign before a word of each tone."""
TRENDS = {"good": "▲ ", "bad": "▼ "}
"""The sign before a speedup of each tone."""


def toned(text: object, tone: str, signs: dict[str, str] = SIGNS, **attributes: object) -> Node:
    """Return ``text`` in a tone, behind the sign of the state that it is, or else that of the tone."""
    sign = f"{STATE_GLYPHS[text]} " if isinstance(text, State) else signs.get(tone, "")
    return node("span", f"{sign}{text}", class_=f"rx-{tone}" if tone else None, **attributes)
