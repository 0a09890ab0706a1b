"""The answer of a session as text, Markdown, JSON and elements, with its chart."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from msgspec import structs
from msgspec.structs import replace

from regional_explorer.errors import count, listing
from regional_explorer.record.action import ALONE, EffectBasis
from regional_explorer.record.answer import LEAST_SHARE, Answer, AnswerFinding, AnswerState, answer_of
from regional_explorer.record.bars import Bar
from regional_explorer.record.benchmark import AN_EARLIER_RUN, NumericsVerdict, Phase, VariantName, Verdict
from regional_explorer.record.diagnostic import Advice, Severity
from regional_explorer.record.figure import Figure
from regional_explorer.record.files import to_json
from regional_explorer.record.grouping import grouped
from regional_explorer.record.session import Session
from regional_explorer.record.speeds import BEST, WORDS, Speed, interval_ends, not_compared, speed_text
from regional_explorer.record.statistics import CONFIDENCE
from regional_explorer.record.tuning import EAGER
from regional_explorer.style.css import PAGE, TONES, TRENDS, page_css, toned
from regional_explorer.style.element import SHORT, Node, clean, node, style_sheet, to_html
from regional_explorer.style.formats import NONE, between, duration, interval, percent, times, with_interval
from regional_explorer.tables.table import TEXT_WIDTH

MOST_NAMED = 3
"""The maximum number of regions that a sentence names."""
MOST_FACT = 400
"""The maximum number of characters of a sentence in Markdown."""
MOST_LINES = 7
"""The maximum number of lines of all sentences together."""

EARLIER_PLAN = "the earlier plan"
PLAN, COMPILED = VariantName.REGIONAL, VariantName.FULL

# ------------------------------------------------------------------------------------------------------------- figures


def share_text(share: Figure) -> str:
    """Return a share and its interval in per cent, with no more digits than the interval has: ``2 % (1–3)``."""
    low, value, high = (100.0 * end for end in interval_ends(share))
    width = (high - low) / 2.0 or abs(value) * 1e-3
    digits = -math.floor(math.log10(width)) if width > 0.0 else 0
    shown, lowest, highest = (f"{round(number, digits) + 0.0:,g}" for number in (value, low, high))
    return f"{shown} %{'' if lowest == highest else f' ({lowest}–{highest})'}"


def steps_text(repaid_after: Figure) -> str:
    """Return the number of calls that repay a compile, with two digits: ``2,900 to 3,400``."""
    low, high = (f"{float(f'{math.ceil(end):.2g}'):,.0f}" for end in repaid_after.bounds or (repaid_after.value,) * 2)
    return low if low == high else f"{low} to {high}"


def gain_of(finding: AnswerFinding, answer: Answer) -> str:
    """Return what a finding's action saves of a call, and how that is known; empty for an action that edits nothing."""
    how = f"{finding.action.basis} alone" if finding.action.assumes == ALONE else str(finding.action.basis)
    if finding.share is not None:
        return f"saves {share_text(finding.share)} of a {_call(answer)}, {how}"
    if finding.gain_s is not None:
        return f"saves {with_interval(finding.gain_s, duration)} in each call, {how}"
    if not finding.action.is_edit:
        return ""
    return "a guess, not measured" if finding.action.basis is EffectBasis.GUESSED else how


# ----------------------------------------------------------------------------------------------------------- sentences


def headline(answer: Answer) -> list[tuple[str, str]]:
    """Return the first sentence, which says what to use, as parts: each with the tone of its verdict."""
    plan, eager = _name(answer, WORDS[PLAN]), WORDS[VariantName.EAGER]
    if _begins_with_results(answer):
        return [(_results(answer), "bad")]
    if answer.state is AnswerState.FAILED and not answer.use:
        return [("Your plan raised an error when it was measured: see the finding plan-failed.", "bad")]
    if answer.use == BEST and answer.found is not None:
        return _joined("Use the plan that the search found: ", reversed(answer.found.speeds))
    if answer.use:
        rivals = (word for word in (WORDS[PLAN], eager, WORDS[COMPILED]) if word != answer.use)
        speeds = (_named(answer, answer.speed(answer.use, word)) for word in rivals)
        return _joined(f"Use {_name(answer, answer.use)}: ", speeds, _compile_clause(answer))
    if answer.state is AnswerState.NO_VERDICT:
        speeds = (answer.speed(WORDS[PLAN], word) for word in (eager, WORDS[COMPILED]))
        known = [speed for speed in speeds if speed is not None and speed.speedup is not None]
        return _joined(f"No verdict yet: {plan} is ", known) if known else [("No verdict yet.", "")]
    unknown = "Your plan is not measured yet." if answer.times or answer.found else "Traced; nothing is compiled yet."
    return [(_profiled(answer) or unknown, "")]


def headline_text(answer: Answer) -> str:
    """Return the first sentence."""
    return "".join(text for text, _ in headline(answer))


def _begins_with_results(answer: Answer) -> bool:
    return answer.state is AnswerState.WRONG and answer.results is not None and not answer.use


def _named(answer: Answer, speed: Speed | None) -> Speed | None:
    """Return a comparison with the name of the plan that it was made with."""
    return None if speed is None else replace(speed, against=_name(answer, speed.against))


def _joined(begin: str, speeds: Iterable[Speed | None], end: str = "") -> list[tuple[str, str]]:
    """Return a sentence of comparisons, without those that could not be made."""
    made = [
        (speed_text(speed), TONES.get(speed.verdict, ""))
        for speed in speeds
        if speed is not None and not not_compared(speed)
    ]
    parts = [part for clause in made for part in ((", ", ""), clause)][1:]
    return [(begin, ""), *parts, (f"{end}.", "")]


def _compile_clause(answer: Answer) -> str:
    """Return how much less time the plan's compile took than that of ``torch.compile``, if the plan is to be used."""
    speed, own_s, full_s = answer.speed(WORDS[PLAN], WORDS[COMPILED]), answer.waited_s, answer.full_waited_s
    if answer.use != WORDS[PLAN] or speed is None or not own_s or full_s is None or full_s < 2.0 * own_s:
        return ""
    part = math.floor(full_s / own_s)
    fraction = _FRACTIONS[part - 2] if part - 2 < len(_FRACTIONS) else f"1/{part}"
    return f", compiled in {fraction} of its time"


_FRACTIONS = ("half", "a third", "a quarter", "a fifth", "a sixth", "a seventh", "an eighth", "a ninth", "a tenth")


def _profiled(answer: Answer) -> str:
    """Return what an eager call takes, and where, as far as a profile knows; empty without one."""
    time = "" if answer.eager_s is None else f"A {_call(answer)} takes {with_interval(answer.eager_s, duration)} eager"
    if not answer.where:
        return f"{time}." if time else ""
    whole, *parts = answer.where
    inside = ", ".join(f"{part.name} {100.0 * part.share:.0f} %" for part in parts)
    takes = f"{time}, {100.0 * whole.share:.0f} % of it in {whole.name}"
    spends = f"An eager {_call(answer)} spends {100.0 * whole.share:.0f} % of its time in {whole.name}"
    return f"{takes if time else spends}{f': {inside}' if inside else ''}."


def sentences(answer: Answer, *, first: bool = True, with_times: bool = True) -> Iterator[str]:
    """Yield the answer in sentences: what to use, then times, correctness, costs, regions.

    A view with a chart leaves the times out, and one with a headline of its own the ``first`` sentence.
    """
    others = [change for change in answer.outdated_by if change != "the plan"]
    now = f"Now there is {listing(others, joint=' and ')}." if others else ""
    plan = f"The figures are of {EARLIER_PLAN}." if answer.of_earlier_plan else ""
    yield from filter(
        None,
        (
            " ".join(filter(None, (plan, now))),
            headline_text(answer) if first else "",
            *_reasons(answer),
            _times(answer) if with_times else "",
            _search_result(answer),
            "" if _begins_with_results(answer) else _results(answer),
            _cost(answer),
            _left(answer),
            _regions(answer),
        ),
    )


def _call(answer: Answer) -> str:
    if answer.phase is Phase.STEP:
        return "step"
    return "forward pass" if answer.training else "call"


def _calls(answer: Answer) -> str:
    call = _call(answer)
    return f"{call}{'es' if call.endswith('s') else 's'}"


def _name(answer: Answer, word: str) -> str:
    """Return the name of a variant, with a note if its figures are of another plan."""
    return EARLIER_PLAN if word == WORDS[PLAN] and answer.of_earlier_plan else word


def _times(answer: Answer) -> str:
    """Return the time of a call under each variant; empty if none is known."""
    seconds = [
        f"{with_interval(taken, duration)} {'' if word == EAGER else 'under '}{_row_name(answer, word)}"
        for word, taken in answer.times.items()
    ]
    return f"A {_call(answer)} takes {', '.join(seconds)}." if seconds else ""


def _row_name(answer: Answer, word: str) -> str:
    """Return the name of a variant beside its time, with a note if an earlier run has measured that."""
    return f"{_name(answer, word)} (of {AN_EARLIER_RUN})" if word in answer.of_earlier_run else _name(answer, word)


def _reasons(answer: Answer) -> Iterator[str]:
    """Yield why comparisons of the plan have no verdict, and which were not made."""
    full = answer.speed(WORDS[COMPILED], WORDS[VariantName.EAGER])
    if answer.state is AnswerState.TRACED and full is not None:
        yield not_compared(full) if full.verdict is Verdict.WITHHELD else ""
    if answer.state in {AnswerState.ANSWERED, AnswerState.NO_VERDICT}:
        speeds = [answer.speed(WORDS[PLAN], against) for against in (WORDS[VariantName.EAGER], WORDS[COMPILED])]
        made = [speed for speed in speeds if speed is not None]
        by_why = grouped((speed.why, speed.against) for speed in made if speed.why)
        yield from (f"No verdict against {' and '.join(others)}: {why}." for why, others in by_why.items())
        yield from map(not_compared, made)


def _search_result(answer: Answer) -> str:
    """Return the result of a search as a sentence; empty if it found the current plan."""
    found = answer.found
    if found is None:
        return ""
    if not found.tried:
        untried = answer.state is AnswerState.TRACED
        return "The search had no time to try a plan: a longer search may find one." if untried else ""
    if not found.is_plan:
        return f"The search tried {count(found.tried, 'plan')}: none is clearly faster than {found.title}."
    seconds = "" if found.time_s is None else f" takes {with_interval(found.time_s, duration)}"
    speeds = [] if answer.use == BEST else [speed_text(one) for one in found.speeds if not not_compared(one)]
    subject = "The plan found" if found.final else "The search was stopped; the best plan so far"
    return f"{subject}{seconds}{''.join(f', {text}' for text in speeds)}: {clean(found.title)}."


_RESULTS: Mapping[NumericsVerdict, str] = {
    NumericsVerdict.NOT_COMPARABLE: "The results cannot be compared with those of eager; ex.numerics says why.",
    NumericsVerdict.NOT_CHECKED: "The results were not checked.",
    NumericsVerdict.NOT_COMPARED: "The results were not compared.",
}


def _results(answer: Answer) -> str:
    plan, errors = _name(answer, WORDS[PLAN]), answer.errors
    if answer.results is NumericsVerdict.OK:
        how = "bit for bit" if answer.bitwise else f"within rounding{f' ({errors})' if errors else ''}"
        return f"The results are those of eager, {how}."
    withheld = f"{f': {errors}' if errors else ''}; no speed is given."
    if answer.results is NumericsVerdict.FAILED:
        return f"The results of {plan} are wrong{withheld}"
    if answer.results is NumericsVerdict.CHAOTIC:
        return f"It is unknown whether the results of {plan} are right, as rounding decides them{withheld}"
    known = answer.results or (NumericsVerdict.NOT_CHECKED if answer.times.get(WORDS[PLAN]) else None)
    return _RESULTS.get(known, "") if known else ""


def _cost(answer: Answer) -> str:
    if answer.waited_s is None or answer.state is AnswerState.TRACED:
        return ""
    if not answer.waited_s:
        return "Nothing had to be compiled for this plan."
    warm = ", from warm caches" if answer.warm else ""
    repaid = f", repaid after {steps_text(answer.repaid_after)} {_calls(answer)}" if answer.repaid_after else ""
    full = f"; with torch.compile it took {duration(answer.full_waited_s)}" if answer.full_waited_s else ""
    return f"Compiling took {duration(answer.waited_s)}{warm}{repaid}{full}."


def _left(answer: Answer) -> str:
    """Return what a better plan could save at most; empty if the floor of the call is unknown."""
    if answer.left is None:
        return ""
    floor = f"the floor of a {_call(answer)} on this machine is {duration(answer.floor_s)}"
    return f"At most {percent(answer.left)} of the time under {answer.fastest} can be saved: {floor}."


def _regions(answer: Answer) -> str:
    named = {word: regions for word in ("faster", "slower") if (regions := getattr(answer, word))}
    alone = [
        f"the {'region' if len(regions) == 1 else 'regions'} {_region_list(regions)} {_is_or_are(len(regions))} {word}"
        for word, regions in named.items()
    ]
    over = ", against traced ops that are slower than the program's own" if answer.over_trace else ""
    clauses = [f"Measured alone, {' and '.join(alone)} compiled{over}."] if alone else []
    if answer.failed:
        clauses.append(
            f"{_region_list(answer.failed)} cannot be compiled and {'run' if answer.failed[1:] else 'runs'} eagerly."
        )
    if answer.not_compiled:
        yet = " yet" if answer.state is AnswerState.TRACED else ""
        clauses.append(f"{count(answer.not_compiled, 'piece')} {_is_or_are(answer.not_compiled)} not compiled{yet}.")
    return " ".join(clauses)


def _is_or_are(number: int) -> str:
    return "is" if number == 1 else "are"


def _region_list(regions: tuple[str, ...]) -> str:
    names = [clean(name, SHORT) for name in regions]
    return listing(names, MOST_NAMED) if len(names) > MOST_NAMED else listing(names, joint=" and ")


def others_text(answer: Answer) -> str:
    """Return how many findings and remarks are not shown; empty if all are shown."""
    small = f"{LEAST_SHARE:.1%}".replace("%", " %")
    smaller = f" ({answer.smaller} below {small})" if answer.smaller else ""
    counts = [f"{count(answer.more, 'more finding')}{smaller}"] if answer.more else []
    counts += [count(number, "remark" if name == Severity.INFO else name) for name, number in answer.remarks.items()]
    return listing(counts)


def _others_sentence(answer: Answer) -> str:
    counts = others_text(answer)
    return f"{counts}: ex.diagnostics." if counts else ""


def words_of(advice: Advice) -> str:
    """Return advice as one sentence."""
    return "".join(map(str, advice))


# ---------------------------------------------------------------------------------------------------------------- text


def answer_lines(answer: Answer, width: int = TEXT_WIDTH) -> list[str]:
    """Return an answer as about ten lines of about ``width`` columns."""
    text = " ".join(map(clean, (*sentences(answer), answer.noise)))
    lines = textwrap.wrap(text, width, max_lines=MOST_LINES, placeholder=" …")
    for number, finding in enumerate(answer.findings, 1):
        known, action = gain_of(finding, answer), clean(str(finding.action))
        if len(action) > width // 2:  # on a line of its own, so that it is copied whole
            action = f"ex.apply(ex.answer.findings[{number - 1}].action)"
        lines.append(textwrap.shorten(f"{number}. {clean(finding.title)}:", width, placeholder=" …"))
        lines += textwrap.wrap(
            f"{action}{f': {known}' if known else ''}.", width, initial_indent="   ", subsequent_indent="   "
        )
    lines += filter(None, (_others_sentence(answer),))
    if answer.next:
        lines += textwrap.wrap(clean(f"Next: {words_of(answer.next)}"), width, max_lines=2, placeholder=" …")
    return lines


def answer_text(answer: Answer, width: int = TEXT_WIDTH) -> str:
    """Return an answer as text."""
    call = textwrap.shorten(clean(answer.call), width - len(_mode(answer)) - 2, placeholder=" …")
    return "\n".join([f"{call}: {_mode(answer)}", *(f"  {line}" for line in answer_lines(answer, width - 2))])


def _mode(answer: Answer) -> str:
    graphs, breaks = count(answer.graphs, "graph"), count(answer.breaks, "graph break")
    mode = "training" if answer.training else "without gradients"
    return f"{mode}, {count(answer.ops, 'op')} in {graphs}{f', {breaks}' if answer.breaks else ''}"


Button = Callable[[AnswerFinding], Node | None]
"""Returns the button that makes the call of a finding's action; without a button the call is shown as Python."""


def answer_nodes(
    answer: Answer,
    chart: Sequence[Node] = (),
    *,
    button: Button = lambda _: None,
    after: Sequence[Node] | None = None,
) -> list[Node]:
    """Return an answer as elements: the sentences with their chart beside them, the findings, the next step.

    A panel has a ``button`` for each finding, and the elements ``after`` in place of the next step in words.
    """
    others = sentences(answer, first=False, with_times=not chart)
    nodes = [
        node(
            "p",
            node("b", *(toned(text, tone, TRENDS) if tone else text for text, tone in headline(answer)), " "),
            node("span", " ".join(others), class_="rx-more"),
            class_="rx-headline",
            role="status",
        ),
        *([node("p", answer.noise, class_="rx-note rx-warn")] if answer.noise else []),
        *_finding_table(answer, button),
        *([node("p", f"{'. '.join(answer.context)}.", class_="rx-note")] if answer.context else []),
    ]
    rest = [_others_sentence(answer), f"Next: {words_of(answer.next)}" if answer.next else ""]
    if after is None:
        after = [node("p", " ".join(filter(None, rest)), class_="rx-quiet")]
    return [node("div", node("div", *nodes, *after), *chart, class_="rx-answered")]


_BASIS_CLASSES = {
    EffectBasis.MEASURED: "rx-measured",
    EffectBasis.ESTIMATED: "rx-estimated",
    EffectBasis.GUESSED: "rx-guessed",
}


def _finding_table(answer: Answer, button: Button) -> list[Node]:
    rows = []
    for number, finding in enumerate(answer.findings, 1):
        gain = gain_of(finding, answer)
        press, action = button(finding), str(finding.action)
        text = node("span", finding.title, *([] if press else [": ", node("code", action)]), title=action)
        rows.append(
            node(
                "tr",
                node("td", str(number), class_="rx-quiet"),
                node("td", text),
                node(
                    "td",
                    gain,
                    class_=_BASIS_CLASSES[finding.action.basis],
                    title=f"if {finding.action.assumes}" if finding.action.assumes else None,
                ),
                node("td", press) if press else None,
            )
        )
    return (
        [node("table", node("tbody", *rows), aria_label="What could be better", class_="rx-findings")] if rows else []
    )


# ---------------------------------------------------------------------------------------------------------------- chart


Press = Callable[[Bar], Node | None]
"""Returns the button of a bar, which takes the bar's plan, or measures a plan that has no bar yet."""


def chart_nodes(bars: Sequence[Bar], press: Press = lambda _: None) -> list[Node]:
    """Return the chart of ``bars``; empty without bars."""
    if not bars:
        return []
    longest_s = max((max(interval_ends(bar.drawn_s)) for bar in bars if bar.drawn_s is not None), default=0.0)
    rows = [_bar_row(bar, longest_s, press(bar)) for bar in bars]
    apart = [f"{bar.word} (of {bar.apart})" for bar in bars if bar.apart]
    drawn = f"Bars and whiskers draw it with its {100 * CONFIDENCE:.0f} % interval."
    note = f"×: as fast as eager, in the same rounds. {drawn}"
    about = f" Of other rounds: {listing(apart)}." if apart else ""
    table = node("table", node("tbody", *rows), aria_label="Time of a call", class_="rx-times")
    return [node("div", table, node("p", f"{note}{about}", class_="rx-quiet"))]


def _bar_row(bar: Bar, longest_s: float, button: Node | None) -> Node:
    seconds = bar.seconds
    return node(
        "tr",
        node("td", bar.word, title=f"of {bar.apart}" if bar.apart else None, class_="rx-quiet" if bar.apart else None),
        node("td", _bar_with_whiskers(bar, seconds, longest_s), aria_hidden="true") if seconds else node("td", button),
        node("td", duration(seconds.value), title=between(seconds, duration), class_="rx-figure")
        if seconds
        else node("td"),
        node("td", *_speed_nodes(bar), class_="rx-figure"),
        node("td", button) if button and seconds else None,
    )


def _bar_with_whiskers(bar: Bar, seconds: Figure, longest_s: float) -> Node:
    low, value, high = (100.0 * end / longest_s for end in interval_ends(bar.drawn_s or seconds))
    tone = TONES.get(bar.verdict, "quiet")
    return node(
        "div",
        node("i", style=f"width:{value:.1f}%", class_=f"rx-{tone}"),
        node("span", style=f"left:{low:.1f}%;width:{max(0.0, high - low):.1f}%"),
        title=f"{bar.word}: {with_interval(seconds, duration)}",
    )


def _speed_nodes(bar: Bar) -> list[Node | str]:
    if bar.speed is None:
        return ["1.00×"] if bar.seconds else []
    if bar.speed.speedup is None:
        return [node("span", bar.verdict, class_="rx-quiet")]
    strict = bar.speed.verdict_speedup
    facts = [bar.speed.why, f"the verdict takes a stricter interval, {interval(strict)}" if strict else ""]
    title = ": ".join(filter(None, (bar.verdict, "; ".join(filter(None, facts)))))
    ratio = toned(times(bar.speed.speedup.value), TONES.get(bar.verdict, "quiet"), TRENDS, title=title)
    against = "" if bar.speed.against == EAGER else f" of {bar.speed.against}"
    return [ratio, " ", node("small", f"{'–'.join(f'{end:.2f}' for end in bar.speed.speedup.bounds or ())}{against}")]


# ------------------------------------------------------------------------------------------------------- for programs


def answer_values(answer: Answer) -> dict[str, Any]:
    """Return an answer as plain values for JSON, always with the same keys; actions are Python to run."""
    values: dict[str, Any] = to_json(answer)
    for values_of, finding in zip(values["findings"], answer.findings, strict=True):
        known = {"basis": str(finding.action.basis), "assumes": finding.action.assumes}
        values_of |= {**known, "action": str(finding.action)}
    return {**values, "next": words_of(answer.next)}


def answer_markdown(answer: Answer) -> str:
    """Return an answer as Markdown for a pull request: a sentence, a table of what was compared, and the conditions."""
    eager, full, plan = (WORDS[variant] for variant in (VariantName.EAGER, COMPILED, PLAN))
    compile_s = {full: answer.full_waited_s, plan: answer.waited_s}
    rows = [
        (_row_name(answer, word), answer.times.get(word), answer.speed(word, eager), compile_s.get(word))
        for word in (eager, full, plan)
    ]
    if answer.found is not None and answer.found.is_plan:
        rows.append((BEST, answer.found.time_s, answer.found.speeds[0], None))
    call = re.sub(r"[|`]", " ", clean(answer.call, SHORT))
    facts = [
        *_reasons(answer),
        "" if _begins_with_results(answer) else _results(answer),
        answer.noise,
        f"Measured with {answer.conditions}." if answer.conditions else "",
    ]
    lines = [
        f"**{clean(headline_text(answer), MOST_FACT)}**",
        "",
        f"| a {_call(answer)} of `{call}` | time | as fast as eager | compile |",
        "|---|---|---|---|",
        *(f"| {' | '.join(_markdown_row(*row))} |" for row in rows),
        "",
        " ".join(clean(fact, MOST_FACT) for fact in facts if fact),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_row(word: str, seconds: Figure | None, speed: Speed | None, compile_s: float | None) -> Iterator[str]:
    """Yield the cells of a row; a figure that is not known is a dash."""
    ratio = None if speed is None else speed.speedup
    yield word
    yield NONE if seconds is None else with_interval(seconds, duration)
    yield "1" if word == WORDS[VariantName.EAGER] else NONE if ratio is None else with_interval(ratio)
    yield duration(compile_s)


class ShownAnswer(Answer, frozen=True):
    """An answer that displays as text, in a notebook as elements; ``markdown`` and ``json`` are for programs."""

    @classmethod
    def of(cls, session: Session) -> Self:
        """Return the answer of a session."""
        return cls(**structs.asdict(answer_of(session)))

    @property
    def markdown(self) -> str:
        """The answer as Markdown for a pull request: a sentence, a table and the conditions."""
        return answer_markdown(self)

    @property
    def json(self) -> str:
        """The answer as JSON, always with the same keys; a figure is its value and the ends of its interval."""
        return json.dumps(answer_values(self))

    def __str__(self) -> str:
        """Return the answer as text of about ten lines."""
        return answer_text(self)

    def __repr__(self) -> str:
        """Return the answer as text of about ten lines."""
        return answer_text(self)

    def _repr_html_(self) -> str:
        """Return the answer for a notebook."""
        return f'<div class="{PAGE}">{to_html(style_sheet(page_css(0)), *answer_nodes(self))}</div>'
