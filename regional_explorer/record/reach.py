"""How close plans come: to the floor of a call, and to the gain of ``torch.compile``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from regional_explorer.record import Record
from regional_explorer.record.benchmark import Phase, Timing, VariantName, Verdict
from regional_explorer.record.figure import Figure
from regional_explorer.record.floor import BY_ONEDNN, Floor, Product
from regional_explorer.record.session import Session
from regional_explorer.record.speeds import WORDS, numerics_of
from regional_explorer.record.statistics import CONFIDENCE, MIN_FLOOR, Floats, confidence_interval, median_figure
from regional_explorer.record.tuning import PLAN_FOUND


class FloorReach(Record, frozen=True):
    """The fastest right plan that was measured, and the floor below it."""

    title: str
    """The plan: ``your plan``, ``torch.compile``, ``eager`` or ``the plan found``."""
    seconds: Figure
    """Its time of a call."""
    floor: Floor
    by_onednn: bool = False
    """Whether it has the pass by which oneDNN computes products."""

    @property
    def left(self) -> float | None:
        """The largest share of the time that a better plan could save; None if the plan is below the floor."""
        left = 1.0 - self.floor.seconds / self.seconds.value
        return left if left >= 0.0 else None

    @property
    def slow_products(self) -> tuple[Product, ...]:
        """The products that a library which the plan does not use computes so much faster that a call would show it."""
        least_s = MIN_FLOOR * self.seconds.value
        slow = (product for product in self.floor.products if product.over_aten_s > least_s)
        return tuple(product for product in slow if not (self.by_onednn and product.has_pass))


def reach_of(session: Session) -> FloorReach | None:
    """Return the fastest measured plan of a session above its floor; None if either is unknown or of other settings."""
    floor = session.floor
    measured = {word: seconds for word, seconds in _measured(session) if seconds.value > 0.0}
    if floor is None or not measured or session.environment.changes_since(floor.environment):
        return None
    title = min(measured, key=lambda word: measured[word].value)
    plans = {PLAN_FOUND: session.tuning and session.tuning.plan, WORDS[VariantName.REGIONAL]: session.plan}
    regions = plan.regions if (plan := plans.get(title)) else ()
    passes = {one.name for region in regions for one in region.treatment.passes}
    return FloorReach(title, measured[title], floor, BY_ONEDNN in passes)


def _measured(session: Session) -> Iterator[tuple[str, Figure]]:
    """Yield the times of a call that were measured in the present environment, by word, if the results are right."""
    if not session.environment_changes:
        for name, timing in session.whole_timings.items():
            is_right = not numerics_of(session, name).withholds_speedup
            if name in WORDS and is_right and not (name == VariantName.REGIONAL and session.is_outdated):
                yield WORDS[name], timing.median_s
    tuning = session.tuning
    of_search = None if tuning is None or tuning.conditions is None else tuning.conditions.environment
    if tuning is not None and tuning.plan is not None and not session.environment.changes_since(of_search):
        yield from ((PLAN_FOUND, timing.median_s) for timing in tuning.timings if timing.variant == tuning.answer)


# ----------------------------------------------------------------------------------------- the gain of torch.compile


class PhaseReach(Record, frozen=True):
    """How much of the gain of ``torch.compile`` over eager a plan reaches in one phase."""

    phase: Phase
    """The part of the call."""
    eager_s: Figure
    regional_s: Figure
    """The time under the plan."""
    full_s: Figure
    """The time under ``torch.compile``."""
    share: Figure | None
    """The plan's part of that gain: 0.0 if it is as slow as eager, 1.0 if it is as fast as ``torch.compile``."""
    why_not: str = ""
    """Why there is no share."""


def phase_reaches(session: Session) -> tuple[PhaseReach, ...]:
    """Return how much of the gain of ``torch.compile`` the plan reaches; empty unless both were measured together."""
    compared = VariantName.EAGER, VariantName.REGIONAL, VariantName.FULL
    reaches = []
    for phase in () if session.is_outdated else Phase:
        timings = {one.variant: one for one in session.timings if one.phase is phase and not one.earlier}
        if timings.keys() >= set(compared):
            eager, regional, full = (timings[name] for name in compared)
            why = _why_no_share(eager, regional, full)
            samples = (np.array(one.samples_s) for one in (eager, regional, full))
            share = None if why else share_of_gain(*samples)
            reaches.append(PhaseReach(phase, eager.median_s, regional.median_s, full.median_s, share, why))
    return tuple(reaches)


def _why_no_share(eager: Timing, regional: Timing, full: Timing) -> str:
    if wrong := [WORDS[VariantName(one.variant)] for one in (regional, full) if one.numerics.withholds_speedup]:
        return f"{Verdict.WITHHELD}: {' and '.join(wrong)} not right"
    if full.verdict is Verdict.FASTER and full.median_s.value < eager.median_s.value:
        return ""
    return "torch.compile is not faster" if full.verdict is Verdict.SLOWER else "torch.compile may not be faster"


def share_of_gain(eager_s: Floats, regional_s: Floats, full_s: Floats) -> Figure:
    """Return the median over rounds of the plan's part of the gain of ``torch.compile``.

    In a round in which ``torch.compile`` gained nothing, the share is unknown: the interval allows any share there.
    """
    rounds = min(map(len, (eager_s, regional_s, full_s)))
    eager_s, gain_s = eager_s[:rounds], eager_s[:rounds] - full_s[:rounds]
    gained = gain_s > 0.0
    if not gained.any():
        return Figure(0.0, why="torch.compile gained nothing in any round")
    shares = (eager_s - regional_s[:rounds]) / np.where(gained, gain_s, 1.0)
    share = median_figure(shares[gained])
    ends = [confidence_interval(np.where(gained, shares, unknown), CONFIDENCE) for unknown in (-np.inf, np.inf)]
    low, high = (None if end is None else end[side] for side, end in enumerate(ends))
    if low is None or high is None or not np.isfinite([low, high]).all():
        return Figure(share.value, why=share.why or "torch.compile gained nothing in too many rounds")
    return Figure(share.value, min(low, share.value), max(high, share.value))
