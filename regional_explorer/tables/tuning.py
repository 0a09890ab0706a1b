"""The tables of a search for the best plan and of suggested regions, and the list that ``ex.suggest()`` returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from regional_explorer.errors import count, listing
from regional_explorer.record.figure import measured_once
from regional_explorer.record.plan import AS_TORCH_COMPILE
from regional_explorer.record.session import Session
from regional_explorer.record.tuning import (
    EAGER,
    TORCH_COMPILE,
    Outcome,
    SearchStage,
    Suggestion,
    SuggestionKind,
    Try,
    Tuning,
)
from regional_explorer.style.element import clean
from regional_explorer.style.formats import NONE, duration, interval, percent, size, times, with_interval
from regional_explorer.tables.table import Column, Number, Table, bound_columns


def tuning_table(session: Session) -> Table[Try]:
    """One row per plan that ``ex.tune`` has tried or was to try, the fastest first.

    Figures with ``final`` are of the final comparison, in which all took turns. Others guided the search: each is of
    its own race.
    """
    tuning = session.tuning or Tuning(())
    table = tries_table(tuning)
    return replace(table, notes=lambda: [answer(tuning), *table.notes()])


def tries_table(tuning: Tuning) -> Table[Try]:
    """Return the table of the tries of a search; texts show only the measured tries."""
    rows = sorted(tuning.tries, key=lambda one: (not one.final, -(one.score or 0.0)))
    return Table(
        "Plans tried",
        (
            Column("plan", lambda one: one.title),
            Column("stage", lambda one: one.stage),
            Column(
                "outcome",
                lambda one: one.outcome,
                tone=lambda one: "bad" if one.outcome in (Outcome.WRONG, Outcome.FAILED) else "quiet",
            ),
            Column("final", lambda one: one.final, "timed", text=_when_timed, tone="quiet"),
            Number("time_us", lambda one: one.time_s),
            Number("speedup", lambda one: one.speedup, "eager ÷", write=times),
            *bound_columns("speedup_low", "speedup_high", lambda one: one.speedup)[:2],
            Number("over_full", lambda one: one.over_full, "torch.compile ÷", write=times),
            *bound_columns("over_full_low", "over_full_high", lambda one: one.over_full, _interval_text),
            Number("compile_s", lambda one: measured_once(one.compile_s), "compile"),
            Number("peak_bytes", lambda one: one.peak_bytes, "peak"),
            Number("kept_bytes", lambda one: one.kept_bytes, "kept", dtype="Int64"),
            Column("why", lambda one: one.why, "note"),
            Column("same_as", lambda one: one.same_as),
        ),
        rows,
        "",
        lambda: [" ".join(search_notes(tuning))],
        heads=("plan", "timed", "time", "eager ÷", "torch.compile ÷", "CI", "compile", "peak", "kept", "note"),
        shown=[one for one in rows if one.outcome is Outcome.MEASURED or one.final],
        fold="closed",
    )


def _when_timed(one: Try) -> str:
    return "final" if one.final else "while searching" if one.score is not None else NONE


def _interval_text(one: Try) -> str:
    return (one.over_full and interval(one.over_full)) or NONE


def answer(tuning: Tuning) -> str:
    """Return the result of a search in a few sentences."""
    plan, rival, best = tuning.by_title.get(tuning.answer), tuning.by_title.get(tuning.rival), tuning.best_so_far
    if plan is None:
        so_far = f" Best so far, while searching: {best.title}, {_beside(best)}." if best is not None else ""
        return f"The search ended before its final comparison: {tuning.stopped}.{so_far}"
    if tuning.gain is None or rival is None:
        tried = [one for one in tuning.tries if one.plan is not None]
        if not any(one.final for one in tried):
            tried.sort(key=lambda one: one.outcome is Outcome.NOT_TRIED)
            why = next((f": {one.title}: {one.why}" for one in tried if one.why), "")
            return f"No plan was compared with {plan.title}{why}."
        closest = f" The best of the others: {best.title}, {_beside(best)}." if best and best is not plan else ""
        doubt = f" Differences below {percent(tuning.floor)} counted as none." if best and _seems_faster(best) else ""
        return f"Nothing was found that is faster than {plan.title} beyond doubt.{closest}{doubt}"
    over_eager = f"; {with_interval(plan.speedup)} as fast as eager" if plan.speedup and rival.title != EAGER else ""
    found = f"{plan.title}: {with_interval(tuning.gain)} as fast as {rival.title}{over_eager}."
    return " ".join([found, *_differences(tuning, plan)])


def _differences(tuning: Tuning, answer: Try) -> Iterator[str]:
    """Yield the counted or measured differences of a plan from ``torch.compile``.

    The whole graph traced as ``torch.compile`` traces it has its code, and keeps what it keeps.
    """
    twin = next((one for one in tuning.tries if _is_twin(one)), None)
    twin = tuning.by_title.get(twin.same_as, twin) if twin is not None else None
    if answer.plan is None or TORCH_COMPILE not in tuning.by_title:
        return
    counted = []
    if twin is not None and None not in (answer.launches, twin.launches) and answer.launches != twin.launches:
        counted.append(f"{answer.launches} instead of {count(twin.launches or 0, 'launch', 'launches')} of its kernels")
    if twin is not None and None not in (answer.kept_bytes, twin.kept_bytes) and answer.kept_bytes != twin.kept_bytes:
        kept = f"{size(answer.kept_bytes or 0)} instead of {size(twin.kept_bytes or 0)}"
        counted.append(f"{kept} kept for the backward")
    peaks = [one.peak_bytes for one in (answer, tuning.by_title[TORCH_COMPILE])]
    ours, theirs = ("" if peak is None else size(int(peak.value)) for peak in peaks)
    if ours and theirs and ours != theirs:
        counted.append(f"a peak of {ours} instead of {theirs}")
    if answer.constant_bytes:
        counted.append(f"{size(answer.constant_bytes)} of frozen weights besides those of the model")
    if counted:
        yield f"Beside torch.compile it has {listing(counted)}."
    if not answer.plan.tracing.decompositions:
        yield "Ops are decomposed by each partition, not before autograd."


def _is_twin(one: Try) -> bool:
    return one.stage is SearchStage.TRACING and one.plan is not None and one.plan.tracing == AS_TORCH_COMPILE


def _seems_faster(one: Try) -> bool:
    """Return whether a plan took part in the final comparison, and is faster by its interval alone."""
    low = one.over_full.low if one.over_full is not None else one.speedup and one.speedup.low
    return one.final and low is not None and low > 1.0


def _beside(one: Try) -> str:
    figure, what = (one.over_full, TORCH_COMPILE) if one.over_full is not None else (one.speedup, EAGER)
    return f"{with_interval(figure)} as fast as {what}" if figure is not None else "not timed"


def search_notes(tuning: Tuning) -> Iterator[str]:
    """Yield the number of plans by outcome, the plans not tried, where the time went, and disturbances."""
    told = [f"{number} {outcome}" for outcome, number in sorted(tuning.counts.items())]
    if told:
        yield f"{count(sum(tuning.counts.values()), 'plan')}: {listing(told)}."
    left_out = [one for one in tuning.tries if one.outcome is Outcome.NOT_TRIED]
    if left_out:
        first = left_out[0]
        titles = listing([clean(one.title) for one in left_out], 3, joint="; ")
        yield f"Not tried: {titles}; ex.tuning has all. Of the first: {first.why}."
    raced = [one for one in tuning.pieces if not one.why_not]
    if raced:
        faster = [
            f"{one.partition} {with_interval(one.gain)} under {one.best}" for one in raced if one.gain is not None
        ]
        found = f"faster beyond doubt: {listing(faster, 3)}" if faster else "none was faster under another config"
        yield f"{count(len(raced), 'kind')} of pieces of the best plan raced alone: {found}."
    if tuning.remarks:
        whys = [f"{why} ({number})" for why, number in tuning.remarks.items()]
        number = count(sum(tuning.remarks.values()), "piece")
        yield f"{number} could not be compiled by the executor: {listing(whys, 3, joint='; ')}."
    remembered = sum(one.remembered for one in tuning.tries)
    if remembered:
        yield f"{count(remembered, 'result')} of an earlier search {'was' if remembered == 1 else 'were'} taken over."
    most_first = sorted(tuning.spent_on.items(), key=lambda item: -item[1])
    spent = ", ".join(f"{what} {duration(seconds)}" for what, seconds in most_first)
    if spent:
        yield f"{duration(tuning.spent_s)} of {duration(tuning.budget_s)} spent: {spent}."
    yield tuning.noise.sentence


# ---------------------------------------------------------------------------------------------------- suggested regions


MOST_SUGGESTED = 6
"""The maximum number of suggestions shown; the list has all."""


def suggestions_table(found: Sequence[Suggestion]) -> Table[Suggestion]:
    """One row per suggested region, in a guessed order: by the share of the time that could be fused.

    ``distinct`` counts the instances that differ, each of which is to be compiled; ``fusable`` the ops that are neither
    matrix products nor views. ``share`` and ``fusable_share`` are parts of the profiled time, NaN without a profile.
    ``gain_us`` is what each call would save if the region was measured; ``relation`` says which suggestions contain it
    or overlap it.
    """
    return Table(
        "Suggested regions",
        (
            Column("name", lambda one: one.name),
            Column("kind", lambda one: one.kind),
            Column("selector", lambda one: one.selection),
            Number(
                "instances",
                lambda one: one.instances,
                text=lambda one: str(one.instances) + (f" ({one.distinct})" if one.distinct < one.instances else ""),
            ),
            Number("distinct", lambda one: one.distinct),
            Number("ops", lambda one: one.ops),
            Number("fusable", lambda one: one.fusable),
            Number("share", lambda one: one.share, write=percent, dtype="float64"),
            Number("fusable_share", lambda one: one.fusable_share, "of it fusable", write=percent, dtype="float64"),
            Number("gain_us", lambda one: one.gain_s, "gain"),
            *bound_columns("gain_us_low", "gain_us_high", lambda one: one.gain_s),
            Number("compile_s", lambda one: measured_once(one.compile_s), "compile"),
            Number("pays_off_after_calls", lambda one: one.calls_to_pay_off, "paid for after", dtype="float64"),
            Column("relation", lambda one: one.relation, write=lambda relation: clean(relation) or NONE),
            Column("why", lambda one: one.why_not or one.why),
        ),
        found,
        heads=_heads(measured=any(one.gain_s or one.why_not for one in found)),
        empty="Nothing to suggest: no op was traced.",
    )


def _heads(*, measured: bool) -> tuple[str, ...]:
    gain = ("gain", "CI", "paid for after") if measured else ()
    return ("name", "selector", "instances", "ops", "fusable", "share", "of it fusable", *gain, "relation", "why")


class SuggestionList(list[Suggestion]):
    """Suggested regions, a list like any other: ``ex.mark(one.name, *one.selectors)`` marks one of them."""

    def __repr__(self) -> str:
        """Return a line for each of the first suggestions, how they were ordered, and how to go on."""
        if not self:
            return "Nothing to suggest: no op was traced."
        lines = [f"  {clean(one.name)} = {clean(one.selection)}: {_in_words(one)}" for one in self[:MOST_SUGGESTED]]
        more = len(self) - len(lines)
        return "\n".join(
            [
                "Suggested regions. " + self.order,
                *lines,
                *([f"  {more} more: ex.suggest()[{MOST_SUGGESTED}:]"] if more > 0 else []),
                f"To try one: {mark_call(self[:2][-1])}, then ex.benchmark() compiles and measures it.",
            ]
        )

    @property
    def order(self) -> str:
        """How the suggestions were ordered."""
        if any(one.gain_s for one in self):
            return "The order is measured: what each saves in the whole call, compiled alone."
        if self and self[0].share is None:
            return (
                "The order is a guess, by the number of ops that could be fused; ex.profile() says how long these take."
            )
        return "The order is a guess, by the profiled time of ops that could be fused."

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        return suggestions_table(self).dataframe()._repr_html_()


def mark_call(suggestion: Suggestion) -> str:
    """Return the call that marks a suggested region."""
    return f"ex.mark({', '.join(map(repr, (suggestion.name, *map(str, suggestion.selectors))))})"


def _measured_gain(one: Suggestion) -> str:
    """Return the gain of a suggestion, and the number of calls after which its compile pays off."""
    assert one.gain_s is not None  # noqa: S101 - it was measured
    if one.brings_nothing:
        return "brings nothing"
    bounds = one.gain_s.bounds
    between = f" ({duration(bounds[0])}–{duration(bounds[1])})" if bounds else ""
    pays_off = one.calls_to_pay_off
    return f"saves {duration(one.gain_s.value)} a call{between}, pays off after {pays_off:,.0f} calls"


def _in_words(one: Suggestion) -> str:
    if one.gain_s is not None:
        return "; ".join(filter(None, (_measured_gain(one), clean(one.why), one.relation)))
    instances = count(one.instances, "instance") if one.kind is not SuggestionKind.WHOLE else ""
    share, fusable = one.share, one.fusable_share
    time = f"{percent(share)} of the time, {percent(fusable)} in ops to fuse" if share and fusable is not None else ""
    facts = ", ".join(filter(None, (time, f"{instances}, {one.distinct} distinct" if instances else "")))
    return "; ".join(filter(None, (facts, clean(one.why), one.relation)))
