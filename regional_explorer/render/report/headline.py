"""The result of a benchmark in one line."""

from __future__ import annotations

from regional_explorer.record.region_summary import region_summaries
from regional_explorer.record.session import Session
from regional_explorer.record.timing import Phase, Timing, Verdict
from regional_explorer.render.style.figures import listing, ratio, speedup, wrong
from regional_explorer.render.style.untrusted import SHORT, clean

MOST_REGIONS = 3


def whole_phase(session: Session) -> Phase:
    """Return the phase of the whole call: the step if it was measured, else the forward."""
    return Phase.STEP if any(timing.phase is Phase.STEP for timing in session.timings) else Phase.FORWARD


def headline(session: Session) -> str:
    """Return which variants are faster than eager, by how much, and which regions pay; empty before a benchmark."""
    whole = {timing.variant: timing for timing in session.timings if timing.phase is whole_phase(session)}
    parts = [_variant(whole[name]) for name in ("regional", "full") if name in whole]
    if not parts:
        return ""
    outdated = session.conditions is not None and session.conditions.outdated
    text = f"{', '.join(parts)}{_regions(session)}"
    return f"Of a plan before: {text}" if outdated else text


def _variant(timing: Timing) -> str:
    if wrong(timing):
        return f"{timing.variant}: numerics failed"
    low, high, middle = timing.speedup_low, timing.speedup_high, timing.speedup
    if middle is None:
        return f"{timing.variant}: {timing.verdict}"
    bounds = f" ({low:.2f}–{high:.2f})" if low is not None and high is not None else ""
    if timing.verdict is Verdict.FASTER:
        return f"{timing.variant} {speedup(timing)} faster than eager{bounds}"
    if timing.verdict is Verdict.SLOWER and low and high:
        slower = ratio(1 / middle, timing.numerics)
        return f"{timing.variant} {slower} slower than eager ({1 / high:.2f}–{1 / low:.2f})"
    return f"{timing.variant} {speedup(timing)} against eager{bounds}: {timing.verdict}"


def _regions(session: Session) -> str:
    measured = [(clean(one.region.name, SHORT), one.timing.verdict) for one in region_summaries(session) if one.timing]
    pays = [name for name, verdict in measured if verdict is Verdict.FASTER]
    costs = [name for name, verdict in measured if verdict is Verdict.SLOWER]
    said = [
        f"{listing(names, MOST_REGIONS)} {word if len(names) == 1 else words}"
        for names, word, words in ((pays, "pays", "pay"), (costs, "does not", "do not"))
        if names
    ]
    return f"; {', '.join(said)}" if said else ""
