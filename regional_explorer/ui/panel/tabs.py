"""The tabs beside the graph, and the head of the code tab."""

from __future__ import annotations

from regional_explorer.record.gpu_targets import GPU_TARGETS
from regional_explorer.record.session import Session
from regional_explorer.render.style.element import Node, node
from regional_explorer.render.style.tones import SIGNS, TONES
from regional_explorer.render.style.untrusted import clean
from regional_explorer.ui.panel.controls import button, choice
from regional_explorer.ui.state import DIAGNOSTICS, PANES


def tabs(pane: str, session: Session) -> list[Node]:
    """Return the tabs; the diagnostics tab has the number of diagnostics and the sign of the worst."""
    tones = [TONES[diagnostic.severity] for diagnostic in session.diagnostics]
    sign = next((SIGNS[tone] for tone in ("bad", "warn") if tone in tones), "")
    suffixes = {DIAGNOSTICS: f" {sign}{len(tones)}" if tones else ""}
    return [
        button(
            f"{name.capitalize()}{suffixes.get(name, '')}",
            "pane",
            name,
            role="tab",
            class_="rx-tab",
            aria_selected=str(name == pane).lower(),
            tabindex="0" if name == pane else "-1",
        )
        for name in PANES
    ]


def code_head(name: str | None, *, compiled: bool, unread: int, note: str, target: str, busy: bool) -> list[Node]:
    """Return the head of the code tab: the region, the target, and a button if code is missing.

    Args:
        name: the region, or None.
        compiled: whether any of it was compiled.
        unread: how many of its partitions have code that was not read yet.
        note: a remark on where the code comes from.
        target: the GPU that the code is for; empty for the code that was compiled.
        busy: whether a job is running.
    """
    if name is None:
        return [node("p", "Select a region: its generated code is shown here.", class_="rx-quiet")]
    targets = [
        ("", "what was compiled"),
        *((gpu.name, f"{gpu.title} (generated, not run)") for gpu in GPU_TARGETS.values()),
    ]
    head = [node("h4", f"Code of {clean(name)}"), choice("for", "target", targets, target, disabled=busy)]
    if unread:
        head.append(button("Read the code", "code", title="Find out what its kernels are", disabled=busy))
    elif not target and not compiled:
        head += [
            node("p", "Not compiled yet.", class_="rx-quiet"),
            button("Compile", "compile code", title="Compile stale partitions, then read the code", disabled=busy),
        ]
    return [node("div", *head, class_="rx-line"), *([node("p", note, class_="rx-quiet")] if note else [])]
