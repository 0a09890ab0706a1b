"""The table of suggested regions, and the list that ``ex.suggest()`` returns."""

from __future__ import annotations

from collections.abc import Sequence

from regional_explorer.errors import count
from regional_explorer.record.figure import measured_once
from regional_explorer.record.suggestion import Suggestion, SuggestionKind
from regional_explorer.style.element import clean
from regional_explorer.style.formats import NONE, duration, percent
from regional_explorer.tables.table import Column, Number, Table, bound_columns

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
