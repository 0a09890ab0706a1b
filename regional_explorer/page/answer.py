"""The answer of a session as text, Markdown, JSON and elements, with its chart."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from msgspec import structs

from regional_explorer.errors import count, listing
from regional_explorer.record.action import ALONE, EffectBasis
from regional_explorer.record.answer import (
    FAILED,
    LEAST_SHARE,
    NOT_MEASURED,
    WORDS,
    Answer,
    AnswerFinding,
    AnswerState,
    Speed,
    answer_of,
    interval_ends,
)
from regional_explorer.record.bars import Bar
from regional_explorer.record.benchmark import NumericsVerdict, Phase, VariantName, Verdict
from regional_explorer.record.diagnostic import Advice, Severity
from regional_explorer.record.figure import Figure
from regional_explorer.record.files import to_json
from regional_explorer.record.grouping import grouped
from regional_explorer.record.session import Session
from regional_explorer.record.statistics import CONFIDENCE
from regional_explorer.record.tuning import EAGER
from regional_explorer.style.css import PAGE, TONES, TRENDS, page_css, toned
from regional_explorer.style.element import SHORT, Node, clean, node, style_sheet, to_html
from regional_explorer.style.formats import NONE, duration, interval, significant, times, with_interval
from regional_explorer.tables.table import TEXT_WIDTH

FINE_RATIO = 0.1
"""A smaller ratio is written with three significant digits."""
MOST_NAMED = 3
"""The maximum number of regions that a sentence names."""
MOST_LINES = 7
"""The maximum number of lines of all sentences together."""
LARGEST_MARKDOWN = 2000
"""The maximum number of bytes of an answer in Markdown."""

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


def gain_text(finding: AnswerFinding, call: str) -> str:
    """Return what a finding's action saves of a call, and how that is known: ``: saves …``; empty for no edit."""
    how = f"{finding.action.basis} alone" if finding.action.assumes == ALONE else str(finding.action.basis)
    if finding.share is not None:
        return f": saves {share_text(finding.share)} of a {call}, {how}"
    if finding.gain_s is not None:
        return f": saves {with_interval(finding.gain_s, duration)} in each call, {how}"
    if not finding.action.is_edit:
        return ""
    return ": a guess, not measured" if finding.action.basis is EffectBasis.GUESSED else f": {how}"


def gain_of(finding: AnswerFinding, answer: Answer) -> str:
    """Return ``gain_text`` for a finding of an answer, without the colon."""
    return gain_text(finding, _call(answer)).removeprefix(": ")


# ----------------------------------------------------------------------------------------------------------- sentences


def sentences(answer: Answer) -> Iterator[str]:
    """Yield the results in sentences: speed, correctness, costs, regions."""
    if answer.of_earlier_plan:
        yield "The plan was changed since it was measured; these figures are of the earlier plan."
    speed, found = (_speed(answer), _no_verdict(answer)), (_search_result(answer),)
    first = (*speed, *found) if answer.regions or not (answer.found and answer.found.is_plan) else (*found, *speed)
    yield from filter(None, (*first, _results(answer), _cost(answer), _regions(answer)))


def _call(answer: Answer) -> str:
    if answer.phase is Phase.STEP:
        return "step"
    return "forward pass" if answer.training else "call"


def _calls(answer: Answer) -> str:
    call = _call(answer)
    return f"{call}{'es' if call.endswith('s') else 's'}"


def _variant_word(answer: Answer, variant: VariantName) -> str:
    """Return the name of a variant, with a note if its figures are of another plan."""
    return EARLIER_PLAN if variant is PLAN and answer.of_earlier_plan else WORDS[variant]


def _speed(answer: Answer) -> str:
    match answer.state:
        case AnswerState.WRONG:
            return ""
        case AnswerState.FAILED:
            return "Your plan raised an error when it was measured: see the finding plan-failed."
        case AnswerState.TRACED if not answer.speeds:
            return "" if answer.found and not answer.regions else "Traced; no plan is measured yet."
        case AnswerState.TRACED:
            of_compile = _ratio(answer.speed(COMPILED, VariantName.EAGER))
            subject = _time(answer, COMPILED) if WORDS[COMPILED] in answer.times else WORDS[COMPILED]
            missing = "Your plan was not measured" if answer.regions else "No region is marked"
            return f"{missing}. {subject}: {of_compile}."
    ratios = [_ratio(answer.speed(PLAN, against)) for against in (VariantName.EAGER, COMPILED)]
    verdict = "No verdict yet. " if answer.state is AnswerState.NO_VERDICT else ""
    return f"{verdict}{_time(answer, PLAN)}: {'; '.join(ratios)}."


def _no_verdict(answer: Answer) -> str:
    """Return why there is no verdict against eager or ``torch.compile``; empty where both are there."""
    if answer.state not in {AnswerState.ANSWERED, AnswerState.NO_VERDICT}:
        return ""
    speeds = [answer.speed(PLAN, against) for against in (VariantName.EAGER, COMPILED)]
    by_why = grouped((_no_verdict_reason(speed), speed.against) for speed in speeds if speed is not None)
    clauses = [f"against {' and '.join(others)}: {why}" for why, others in by_why.items() if why]
    return f"No verdict {'; '.join(clauses)}." if clauses else ""


def _no_verdict_reason(speed: Speed) -> str:
    """Return why a comparison has no verdict; empty if it has one, or if its ratio is all that is known."""
    return speed.why or (speed.verdict if speed.speedup is None and speed.verdict in set(Verdict) else "")


def _search_result(answer: Answer) -> str:
    """Return the result of a search as a sentence; empty if it found the current plan."""
    found = answer.found
    if found is None:
        return ""
    if not found.compared:
        return (
            ""
            if answer.state is not AnswerState.TRACED
            else "The search had no time to try a plan: a longer search may find one."
        )
    if not found.is_plan:
        plans = count(found.compared, "plan")
        return f"A search has tried {plans} and found none that is faster than {found.title} beyond doubt."
    seconds = "" if found.time_s is None else f"takes {with_interval(found.time_s, duration)}, "
    ratios = "; ".join(_ratio(speed) for speed in found.speeds if speed.verdict != NOT_MEASURED)
    subject = "The best plan found" if found.final else "A search was stopped; the best plan so far"
    return f"{subject} {seconds}{ratios}: {clean(found.title)}."


def _time(answer: Answer, variant: VariantName) -> str:
    seconds = answer.times.get(WORDS[variant])
    takes = "has no reliable time" if seconds is None else f"takes {with_interval(seconds, duration)}"
    return f"A {_call(answer)} {takes} under {_variant_word(answer, variant)}"


def _ratio(speed: Speed | None) -> str:
    """Return a comparison as ``1.16× eager (1.14–1.18), faster``, or why there is none."""
    if speed is None:
        return ""
    if speed.verdict == NOT_MEASURED:
        return f"{speed.against} was not measured in this run"
    if speed.verdict == FAILED:
        return f"{speed.against} fails on this call"
    if speed.verdict.startswith(str(Verdict.WITHHELD)):
        whose = " and ".join(word for name, word in WORDS.items() if f"numerics of {name} " in speed.verdict)
        results = "its results" if whose == speed.against else f"the results of {whose}"
        wrong = "wrong" if str(NumericsVerdict.FAILED) in speed.verdict else "not known to be right"
        return f"not compared with {speed.against}, as {results} are {wrong}"
    if speed.speedup is None and speed.is_certain:
        return f"{speed.verdict} than {speed.against}, by an unknown factor"
    if speed.speedup is None:
        return f"no ratio to {speed.against}, {speed.verdict}"
    low, value, high = (f"{end:.2f}" if end >= FINE_RATIO else significant(end) for end in interval_ends(speed.speedup))
    is_in_results = (speed.of, speed.against) == (WORDS[PLAN], WORDS[VariantName.EAGER])
    note = "" if speed.comparable or is_in_results else f", results {NumericsVerdict.NOT_COMPARABLE}"
    return f"{value}× {speed.against} ({low}–{high}), {speed.verdict}{note}"


_RESULTS: Mapping[NumericsVerdict, str] = {
    NumericsVerdict.OK: "The results are those of eager, within rounding.",
    NumericsVerdict.FAILED: "The results of {plan} are wrong: no speed is given",
    NumericsVerdict.CHAOTIC: "It is unknown whether the results of {plan} are right, since rounding is amplified "
    "without limit: no speed is given",
    NumericsVerdict.NOT_COMPARABLE: "The results cannot be compared with those of eager; ex.numerics says why.",
    NumericsVerdict.NOT_CHECKED: "The results were not checked.",
    NumericsVerdict.NOT_COMPARED: "The results were not compared.",
}


def _results(answer: Answer) -> str:
    if answer.results is None:
        return "The results were not checked." if answer.times.get(WORDS[PLAN]) else ""
    if answer.results is NumericsVerdict.OK and answer.bitwise:
        return "The results are those of eager, bit for bit."
    if answer.results is NumericsVerdict.OK and answer.errors:
        return f"The results are those of eager, within rounding ({answer.errors})."
    text = _RESULTS.get(answer.results, "").format(plan=_variant_word(answer, PLAN))
    return text if text.endswith(".") or not text else f"{text}{f': {answer.errors}' if answer.errors else ''}."


def _cost(answer: Answer) -> str:
    if answer.waited_s is None or answer.state is AnswerState.TRACED:
        return ""
    if not answer.waited_s:
        return "Nothing had to be compiled for this plan."
    warm = ", from warm caches" if answer.warm else ""
    repaid = f", repaid after {steps_text(answer.repaid_after)} {_calls(answer)}" if answer.repaid_after else ""
    full = f"; with torch.compile it took {duration(answer.full_waited_s)}" if answer.full_waited_s else ""
    return f"Compiling took {duration(answer.waited_s)}{warm}{repaid}{full}."


def _regions(answer: Answer) -> str:
    named = {word: regions for word in ("faster", "slower") if (regions := getattr(answer, word))}
    alone = [
        f"the {'region' if len(regions) == 1 else 'regions'} {_region_list(regions)} {_is_or_are(len(regions))} {word}"
        for word, regions in named.items()
    ]
    over = ", against traced ops that are slower than the program's own" if answer.over_trace else ""
    clauses = [f"Measured alone, {' and '.join(alone)} compiled{over}."] if alone else []
    if answer.failed:
        clauses.append(f"{_region_list(answer.failed)} cannot be compiled and {_runs(len(answer.failed))} eagerly.")
    if answer.not_compiled:
        yet = " yet" if answer.state is AnswerState.TRACED else ""
        clauses.append(f"{count(answer.not_compiled, 'piece')} {_is_or_are(answer.not_compiled)} not compiled{yet}.")
    return " ".join(clauses)


def _runs(number: int) -> str:
    return "runs" if number == 1 else "run"


def _is_or_are(number: int) -> str:
    return "is" if number == 1 else "are"


def _region_list(regions: tuple[str, ...]) -> str:
    names = [clean(name, SHORT) for name in regions]
    return listing(names, MOST_NAMED) if len(names) > MOST_NAMED else listing(names, joint=" and ")


def others_text(answer: Answer) -> str:
    """Return the number of findings that are not shown, as text; empty if all are shown."""
    small = f"{LEAST_SHARE:.1%}".replace("%", " %")
    smaller = f" ({answer.smaller} below {small})" if answer.smaller else ""
    counts = [f"{count(answer.more, 'more finding')}{smaller}"] if answer.more else []
    counts += [count(number, "remark" if name == Severity.INFO else name) for name, number in answer.remarks.items()]
    return f"{listing(counts)}: ex.diagnostics." if counts else ""


def words_of(advice: Advice) -> str:
    """Return advice as one sentence."""
    return "".join(map(str, advice))


# ---------------------------------------------------------------------------------------------------------------- text


def answer_lines(answer: Answer, width: int = TEXT_WIDTH) -> list[str]:
    """Return an answer as about ten lines of about ``width`` columns."""
    text = " ".join(map(clean, (*sentences(answer), answer.noise)))
    lines = textwrap.wrap(text, width, max_lines=MOST_LINES, placeholder=" …")
    for number, finding in enumerate(answer.findings, 1):
        known, action = gain_text(finding, _call(answer)), clean(str(finding.action))
        if len(action) > width // 2:  # on a line of its own, so that it is copied whole
            action = f"ex.apply(ex.answer.findings[{number - 1}].action)"
        lines.append(textwrap.shorten(f"{number}. {clean(finding.title)}:", width, placeholder=" …"))
        lines += textwrap.wrap(f"{action}{known}.", width, initial_indent="   ", subsequent_indent="   ")
    lines += filter(None, (others_text(answer),))
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
    first, *others = [*sentences(answer), ""]
    nodes = [
        node(
            "p",
            *_headline(answer, first),
            node("span", " ".join(others), class_="rx-more"),
            class_="rx-headline",
            role="status",
        ),
        *([node("p", answer.noise, class_="rx-note rx-warn")] if answer.noise else []),
        *_finding_table(answer, button),
        *([node("p", f"{'. '.join(answer.context)}.", class_="rx-note")] if answer.context else []),
    ]
    rest = [others_text(answer), f"Next: {words_of(answer.next)}" if answer.next else ""]
    if after is None:
        after = [node("p", " ".join(filter(None, rest)), class_="rx-quiet")]
    return [node("div", node("div", *nodes, *after), *chart, class_="rx-answered")]


def _headline(answer: Answer, first: str) -> list[Node | str]:
    """Return the first sentence, its ratios in the tone of their verdict."""
    speeds = [answer.speed(PLAN, against) for against in (VariantName.EAGER, COMPILED)]
    if answer.state not in {AnswerState.ANSWERED, AnswerState.NO_VERDICT} or answer.of_earlier_plan:
        return [node("b", first, " ")]
    if answer.state is AnswerState.NO_VERDICT and not any(speed.speedup for speed in speeds if speed is not None):
        return [node("b", "No verdict yet. ")]
    # The tone shows these verdicts; the line below says whether the machine was busy.
    unsaid = (Verdict.FASTER, Verdict.SLOWER, *((Verdict.BUSY,) if answer.noise else ()))
    ratios = [
        toned(_ratio(speed).removesuffix(f", {speed.verdict}" if speed.verdict in unsaid else ""), tone, TRENDS)
        for speed in speeds
        if speed is not None
        for tone in [TONES.get(speed.verdict, "")]
    ]
    ratio_nodes = [part for ratio in ratios for part in (", ", ratio)][1:]
    verdict = "No verdict yet. " if answer.state is AnswerState.NO_VERDICT else ""
    seconds = answer.times.get(WORDS[PLAN])
    takes = "has no reliable time" if seconds is None else f"takes {duration(seconds.value)}"
    about = None if seconds is None else f"{interval(seconds, duration)} under your plan"
    return [node("b", verdict, node("span", f"A {_call(answer)} {takes}: ", title=about), *ratio_nodes, ". ")]


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
                node("td", gain, class_=_BASIS_CLASSES[finding.action.basis], title=_assumption(finding)),
                node("td", press) if press else None,
            )
        )
    return (
        [node("table", node("tbody", *rows), aria_label="What could be better", class_="rx-findings")] if rows else []
    )


def _assumption(finding: AnswerFinding) -> str | None:
    return f"if {finding.action.assumes}" if finding.action.assumes else None


# ---------------------------------------------------------------------------------------------------------------- chart


Press = Callable[[Bar], Node | None]
"""Returns the button of a bar, which takes the bar's plan, or measures a plan that has no bar yet."""


def chart_nodes(bars: Sequence[Bar], press: Press = lambda _: None) -> list[Node]:
    """Return the chart of ``bars``; empty without bars."""
    if not bars:
        return []
    longest_s = max((max(interval_ends(bar.drawn_s)) for bar in bars if bar.drawn_s is not None), default=0.0)
    rows = [_bar_row(bar, longest_s, press(bar)) for bar in bars]
    apart = [bar.word for bar in bars if bar.apart]
    note = f"×: eager ÷ this, of the same rounds. Bars and whiskers draw it with its {100 * CONFIDENCE:.0f} % interval."
    about = f" {apart[0].capitalize()}: of the search's own rounds." if apart else ""
    table = node("table", node("tbody", *rows), aria_label="Time of a call", class_="rx-times")
    return [node("div", table, node("p", f"{note}{about}", class_="rx-quiet"))]


def _bar_row(bar: Bar, longest_s: float, button: Node | None) -> Node:
    seconds = bar.seconds
    return node(
        "tr",
        node("td", bar.word),
        node("td", _bar_with_whiskers(bar, seconds, longest_s), aria_hidden="true") if seconds else node("td", button),
        node("td", duration(seconds.value), title=interval(seconds, duration), class_="rx-figure")
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
        return ["1.00×"]
    if bar.speed.speedup is None:
        return [node("span", bar.verdict, class_="rx-quiet")]
    title = f"{bar.verdict}{f': {bar.speed.why}' if bar.speed.why else ''}"
    ratio = toned(times(bar.speed.speedup.value), TONES.get(bar.verdict, "quiet"), TRENDS, title=title)
    against = "" if bar.speed.against == EAGER else f" of {bar.speed.against}"
    return [ratio, " ", node("small", f"{interval(bar.speed.speedup).removesuffix('×')}{against}")]


# ------------------------------------------------------------------------------------------------------- for programs


def answer_values(answer: Answer) -> dict[str, Any]:
    """Return an answer as plain values for JSON, always with the same keys; actions are Python to run."""
    values: dict[str, Any] = to_json(answer)
    for values_of, finding in zip(values["findings"], answer.findings, strict=True):
        known = {"basis": str(finding.action.basis), "assumes": finding.action.assumes}
        values_of |= {**known, "action": str(finding.action)}
    return {**values, "next": words_of(answer.next)}


def answer_markdown(answer: Answer) -> str:
    """Return an answer as Markdown of less than 2 kB, always with the same keys."""
    for limit in (200, 140, 100, 70, 45, 20):
        text = "\n".join(_markdown_lines(answer, limit)) + "\n"
        if len(text.encode()) <= LARGEST_MARKDOWN:
            break
    return text


def _markdown_lines(answer: Answer, limit: int) -> Iterator[str]:
    words = {WORDS[variant]: _variant_word(answer, variant) for variant in (VariantName.EAGER, COMPILED, PLAN)}
    taken = (f"{words[word]} {with_interval(seconds, duration)}" for word, seconds in answer.times.items())
    facts = {
        "state": answer.state,
        "figures": "of an earlier plan" if answer.of_earlier_plan else "of this plan" if answer.speeds else "",
        "time": f"of a {_call(answer)}: {', '.join(taken)}" if answer.times else "",
        "against_eager": _ratio(answer.speed(PLAN, VariantName.EAGER)),
        "against_torch_compile": _ratio(answer.speed(PLAN, COMPILED)),
        "no_verdict": _no_verdict(answer),
        "results": _results(answer),
        "compiling": _cost(answer),
        "regions": _regions(answer),
        "noise": answer.noise,
        "not_told": others_text(answer),
        "next": words_of(answer.next),
    }
    yield f"# {clean(answer.call, limit)} ({_mode(answer)})"
    yield ""
    yield from (f"- {key}: {clean(value, limit) or NONE}" for key, value in facts.items())
    for number, finding in enumerate(answer.findings, 1):
        known = gain_text(finding, _call(answer))
        assumes = f" (if {finding.action.assumes})" if finding.action.assumes else ""
        action = clean(str(finding.action), limit)
        yield f"- finding_{number}: {clean(finding.title, limit)}: `{action}`{known}{assumes}"


class ShownAnswer(Answer, frozen=True):
    """An answer that displays as text, in a notebook as elements; ``markdown`` and ``json`` are for programs."""

    @classmethod
    def of(cls, session: Session) -> Self:
        """Return the answer of a session."""
        return cls(**structs.asdict(answer_of(session)))

    @property
    def markdown(self) -> str:
        """The answer as Markdown of less than 2 kB, always with the same keys."""
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
