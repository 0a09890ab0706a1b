"""The tables of a search for the best plan and of suggested regions, and the list that ``ex.suggest()`` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from regional_explorer.errors import count, listing
from regional_explorer.record.figure import measured_once
from regional_explorer.record.plan import AS_TORCH_COMPILE
from regional_explorer.record.session import Session
from regional_explorer.record.speeds import ratio_text, speed_text, speeds_of_try
from regional_explorer.record.tuning import (
    EAGER,
    TOGETHER,
    TORCH_COMPILE,
    GainPart,
    Outcome,
    SearchStage,
    Suggestion,
    SuggestionKind,
    Try,
    Tuning,
)
from regional_explorer.style.element import clean
from regional_explorer.style.formats import NONE, duration, interval, percent, signed, size, times, with_interval
from regional_explorer.tables.table import Column, Number, Table, bound_columns


def tuning_table(session: Session) -> Table[Try]:
    """One row per plan that ``ex.tune`` tried or meant to try, the fastest first.

    Rows with ``final`` have the figures of the final comparison, in which all plans took turns. The figures of other
    rows guided the search; each is of a race of its own. ``promised`` is ``torch.compile`` ÷ plan on the shorter call.
    """
    tuning = session.tuning or Tuning(())
    table = tries_table(tuning)
    return replace(table, notes=lambda: [search_sentences(tuning), *table.notes()])


def tries_table(tuning: Tuning) -> Table[Try]:
    """Return the table of the tries of a search; texts show only the measured tries."""
    rows = sorted(tuning.tries, key=lambda row: (not row.final, -(row.score or 0.0)))
    return Table(
        "Plans tried",
        (
            Column("plan", lambda row: row.title),
            Column("stage", lambda row: row.stage),
            Column(
                "outcome",
                lambda row: row.outcome,
                tone=lambda row: "bad" if row.outcome in (Outcome.WRONG, Outcome.FAILED) else "quiet",
            ),
            Column("final", lambda row: row.final, "timed", text=_when_timed, tone="quiet"),
            Number("time_us", lambda row: row.time_s if row.final else None),
            Number("speedup", lambda row: row.speedup, "eager ÷", write=times),
            *bound_columns("speedup_low", "speedup_high", lambda row: row.speedup)[:2],
            Number("over_full", lambda row: row.over_full, "torch.compile ÷", write=times),
            *bound_columns("over_full_low", "over_full_high", lambda row: row.over_full, _interval_text),
            Number("promised", lambda row: row.promised, "shorter call", write=times),
            *bound_columns("promised_low", "promised_high", lambda row: row.promised)[:2],
            Number("compile_s", lambda row: measured_once(row.compile_s), "compile"),
            Number("peak_bytes", lambda row: row.peak_bytes, "peak"),
            Number("kept_bytes", lambda row: row.kept_bytes, "kept", dtype="Int64"),
            Column("why", lambda row: row.why, "note", text=_note),
            Column("same_as", lambda row: row.same_as),
        ),
        rows,
        "",
        lambda: [" ".join(search_notes(tuning))],
        heads=(
            *("plan", "timed", "time", "eager ÷", "torch.compile ÷", "CI"),
            *(["shorter call"] if tuning.shorter else []),
            *("compile", "peak", "kept", "note"),
        ),
        shown=[row for row in rows if row.outcome is Outcome.MEASURED or row.final or row.plan is None],
        fold="closed",
    )


def _when_timed(row: Try) -> str:
    return "final" if row.final else "while searching" if row.score is not None else NONE


def _note(row: Try) -> str:
    return ": ".join(filter(None, (row.outcome if row.outcome in _WHAT_IT_DOES else "", row.why)))


def _interval_text(row: Try) -> str:
    return (row.over_full and interval(row.over_full)) or NONE


def search_sentences(tuning: Tuning) -> str:
    """Return the result of a search in a few sentences."""
    plan, rival, best = tuning.by_title.get(tuning.answer), tuning.by_title.get(tuning.rival), tuning.best_so_far
    tried = _tried(tuning)
    if plan is None:
        found = [f"The search ended before its final comparison: {tuning.stopped}.", f"It tried {tried}."]
        found += [f"Best so far, while searching: {_speed_text(tuning, best)}."] if best is not None else []
    elif tuning.gain is None or rival is None:
        found = [f"The search tried {tried}.", *_no_faster_plan(tuning, plan)]
    else:
        over_eager = None if rival.title == EAGER else plan.speedup
        ratios = {rival.title: tuning.gain, **({EAGER: over_eager} if over_eager else {})}
        speeds = "; ".join(ratio_text(ratio, other) for other, ratio in ratios.items())
        found = [f"{plan.title}: {speeds}.", f"It is the best of {tried}.", *_differences(tuning, plan)]
    return " ".join([*found, *_left_out(tuning)])


def _tried(tuning: Tuning) -> str:
    """Return how many plans were tried, and how many of them on the call itself."""
    tried = count(tuning.tried, "plan") if tuning.tried else "no plan"
    if not tuning.shorter or not tuning.tried:
        return tried
    timed = sum(row.plan is not None and row.score is not None for row in tuning.tries)
    return f"{tried}, {timed} of them on the whole call, the others on a shorter one ({tuning.shorter})"


def _no_faster_plan(tuning: Tuning, answer: Try) -> Iterator[str]:
    """Yield that no plan is faster than the answer, and how close the best one comes."""
    best = tuning.best_so_far
    if best is None:
        failed = [f"{row.title}: {row.outcome}: {row.why}" for row in tuning.tries if row.plan is not None and row.why]
        yield from [f"None was compared with {answer.title}; {failed[0]}."] if failed and tuning.tried else []
        return
    yield f"None is clearly faster than {answer.title}."
    if best is not answer:
        yield f"The best of them: {_speed_text(tuning, best)}."


_WHAT_IT_DOES = {
    Outcome.WRONG: "gives wrong results on this call",
    Outcome.CHAOTIC: "was left out, as rounding decides its results",
    Outcome.NOT_BITWISE: "was left out",
    Outcome.FAILED: "fails on this call",
}


def _left_out(tuning: Tuning) -> Iterator[str]:
    """Yield why ``torch.compile`` was no rival, and how many plans were not tried."""
    full = tuning.by_title.get(TORCH_COMPILE)
    if full is not None and full.outcome in _WHAT_IT_DOES:
        yield f"{TORCH_COMPILE} {_WHAT_IT_DOES[full.outcome]}: {full.why}."
    for why, number in tuning.not_tried.items():
        yield f"{count(number, 'plan')} {'was' if number == 1 else 'were'} not tried: {why}."


def _differences(tuning: Tuning, answer: Try) -> Iterator[str]:
    """Yield the counted or measured differences of a plan from ``torch.compile``.

    A plan of the whole graph, traced as ``torch.compile`` traces it, stands for ``torch.compile``: it has the same code
    and keeps the same tensors.
    """
    full, ways = tuning.by_title.get(TORCH_COMPILE), [row for row in tuning.tries if row.stage is SearchStage.TRACING]
    if answer.plan is None or full is None:
        return
    twin = next((row for row in ways if row.plan is not None and row.plan.tracing == AS_TORCH_COMPILE), full)
    twin = tuning.by_title.get(twin.same_as, twin)
    own_peak, full_peak = (None if row.peak_bytes is None else int(row.peak_bytes.value) for row in (answer, full))
    facts: Sequence[tuple[int | None, int | None, Callable[[int], str], str]] = (
        (answer.launches, twin.launches, str, "launches of its kernels"),
        (answer.kept_bytes, twin.kept_bytes, size, "kept for the backward"),
        (own_peak, full_peak, size, "at the peak"),
    )
    counted = [
        f"{text(own)} instead of {text(other)} {what}"
        for own, other, text, what in facts
        if own is not None and other is not None and text(own) != text(other)
    ]
    if answer.constant_bytes:
        counted.append(f"{size(answer.constant_bytes)} of frozen weights besides those of the model")
    if counted:
        yield f"Compared with torch.compile it has {listing(counted)}."
    if not answer.plan.tracing.decompositions:
        yield "Each partition decomposes its ops, after autograd."


def _speed_text(tuning: Tuning, row: Try) -> str:
    """Return a plan with its speed, and why that is not enough if the samples name no winner."""
    over_eager, over_full = speeds_of_try(tuning, row, row.title)
    speed = over_full if over_full.speedup is not None else over_eager
    known = "not timed" if speed.speedup is None else speed_text(speed)
    return f"{row.title}, {known}{f'; {speed.why}' if speed.why else ''}"


def search_notes(tuning: Tuning) -> Iterator[str]:
    """Yield the number of plans by outcome, where the time went, and disturbances."""
    outcomes = [f"{number} {outcome}" for outcome, number in sorted(tuning.counts.items())]
    if outcomes:
        yield f"{count(sum(tuning.counts.values()), 'plan')}: {listing(outcomes)}."
    finds = list(_finds(tuning))
    if finds:
        yield f"Compared with {TORCH_COMPILE}, while searching: {listing(finds, 6)}."
    raced = [piece for piece in tuning.pieces if not piece.why_not]
    if raced:
        faster = [
            f"{piece.partition} {with_interval(piece.gain)} under {piece.best}"
            for piece in raced
            if piece.gain is not None
        ]
        result = f"faster beyond doubt: {listing(faster, 3)}" if faster else "none was faster under another config"
        yield f"{count(len(raced), 'kind')} of pieces of the best plan raced alone: {result}."
    if tuning.remarks:
        whys = [f"{why} ({number})" for why, number in tuning.remarks.items()]
        number = count(sum(tuning.remarks.values()), "piece")
        yield f"The executor could not compile {number}: {listing(whys, 3, joint='; ')}."
    remembered = sum(row.remembered for row in tuning.tries)
    if remembered:
        yield f"{count(remembered, 'result')} {'is' if remembered == 1 else 'are'} of an earlier search."
    most_first = sorted(tuning.spent_on.items(), key=lambda item: -item[1])
    spent = ", ".join(f"{task} {duration(seconds)}" for task, seconds in most_first)
    if spent:
        yield f"{duration(tuning.spent_s)} of {duration(tuning.budget_s)} spent: {spent}."
    if tuning.conditions is not None:
        yield tuning.conditions.noise.sentence


def gain_parts_table(session: Session) -> Table[GainPart]:
    """One row per bar of the waterfall from ``torch.compile`` to the plan found; those with ``change`` are savings."""
    parts = session.tuning.parts if session.tuning else ()

    def write(row: GainPart) -> Callable[[float], str]:
        return (lambda seconds: signed(-seconds)) if row.is_change else duration

    return Table(
        "Where the gain comes from",
        (
            Column("part", lambda row: row.title),
            Column("change", lambda row: row.is_change),
            Number("time_us", lambda row: row.seconds, text=lambda row: write(row)(row.seconds.value)),
            *bound_columns("low_us", "high_us", lambda row: row.seconds)[:2],
            Column("note", lambda row: row.note or _verdict_on(row)),
        ),
        parts,
        "",
        heads=("part", "time", "note"),
    )


def _verdict_on(row: GainPart) -> str:
    """Return whether a change saves time, by its interval."""
    bounds = row.seconds.bounds
    if not row.is_change or row.title == TOGETHER or bounds is None:
        return row.seconds.why if bounds is None else ""
    saves = f"{duration(max(0.0, bounds[0]))} to {duration(bounds[1])}"
    return f"saves {saves}" if bounds[0] > 0.0 else "costs time" if bounds[1] < 0.0 else "may save nothing"


def _finds(tuning: Tuning) -> Iterator[str]:
    """Yield each try that was faster than all before it on the same call, and when that was known."""
    best = {"": 0.0, " on the shorter call": 0.0}
    for row in sorted(tuning.tries, key=lambda row: row.after_s or 0.0):
        where = "" if row.over_full is not None else " on the shorter call"
        figure = row.over_full or row.promised
        if row.plan is not None and row.after_s is not None and figure and figure.bounds and figure.value > best[where]:
            best[where] = figure.value
            yield f"{with_interval(figure)}{where} after {duration(row.after_s)}"


# ---------------------------------------------------------------------------------------------------- suggested regions


MOST_SUGGESTED = 6
"""The maximum number of suggestions shown; the list has all."""


def suggestions_table(suggestions: Sequence[Suggestion]) -> Table[Suggestion]:
    """One row per suggested region, in a guessed order: by the share of the time that could be fused.

    ``distinct`` counts the instances that differ: each of them has to be compiled. ``fusable`` counts the ops that are
    neither matrix products nor views. ``share`` and ``fusable_share`` are parts of the profiled time, NaN without a
    profile. ``gain_us`` is the time that each call saves, if it was measured. ``relation`` names the other suggestions
    that contain or overlap the region.
    """
    gain = ("gain", "CI", "paid for after") if any(row.gain_s or row.why_not for row in suggestions) else ()
    return Table(
        "Suggested regions",
        (
            Column("name", lambda row: row.name),
            Column("kind", lambda row: row.kind),
            Column("selector", lambda row: row.selection),
            Number(
                "instances",
                lambda row: row.instances,
                text=lambda row: str(row.instances) + (f" ({row.distinct})" if row.distinct < row.instances else ""),
            ),
            Number("distinct", lambda row: row.distinct),
            Number("ops", lambda row: row.ops),
            Number("fusable", lambda row: row.fusable),
            Number("share", lambda row: row.share, write=percent, dtype="float64"),
            Number("fusable_share", lambda row: row.fusable_share, "of it fusable", write=percent, dtype="float64"),
            Number("gain_us", lambda row: row.gain_s, "gain"),
            *bound_columns("gain_us_low", "gain_us_high", lambda row: row.gain_s),
            Number("compile_s", lambda row: measured_once(row.compile_s), "compile"),
            Number("pays_off_after_calls", lambda row: row.calls_to_pay_off, "paid for after", dtype="float64"),
            Column("relation", lambda row: row.relation, write=lambda relation: clean(relation) or NONE),
            Column("why", lambda row: row.why_not or row.why),
        ),
        suggestions,
        heads=("name", "selector", "instances", "ops", "fusable", "share", "of it fusable", *gain, "relation", "why"),
        empty="Nothing to suggest: no op was traced.",
    )


class SuggestionList(list[Suggestion]):
    """Suggested regions, a list like any other: ``ex.mark(one.name, *one.selectors)`` marks one of them."""

    def __repr__(self) -> str:
        """Return a line for each of the first suggestions, how they were ordered, and how to go on."""
        if not self:
            return "Nothing to suggest: no op was traced."
        lines = [f"  {clean(row.name)} = {clean(row.selection)}: {_in_words(row)}" for row in self[:MOST_SUGGESTED]]
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
        if any(row.gain_s for row in self):
            return "The order is measured: by what each suggestion, compiled alone, saves in the whole call."
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


def _measured_gain(suggestion: Suggestion) -> str:
    """Return the gain of a suggestion, and the number of calls after which its compile pays off."""
    assert suggestion.gain_s is not None  # noqa: S101 - it was measured
    if suggestion.brings_nothing:
        return "brings nothing"
    bounds = suggestion.gain_s.bounds
    between = f" ({duration(bounds[0])}–{duration(bounds[1])})" if bounds else ""
    pays_off = suggestion.calls_to_pay_off
    return f"saves {duration(suggestion.gain_s.value)} a call{between}, pays off after {pays_off:,.0f} calls"


def _in_words(suggestion: Suggestion) -> str:
    if suggestion.gain_s is not None:
        return "; ".join(filter(None, (_measured_gain(suggestion), clean(suggestion.why), suggestion.relation)))
    instances = count(suggestion.instances, "instance") if suggestion.kind is not SuggestionKind.WHOLE else ""
    share, fusable = suggestion.share, suggestion.fusable_share
    time = f"{percent(share)} of the time, {percent(fusable)} in ops to fuse" if share and fusable is not None else ""
    facts = ", ".join(filter(None, (time, f"{instances}, {suggestion.distinct} distinct" if instances else "")))
    return "; ".join(filter(None, (facts, clean(suggestion.why), suggestion.relation)))
