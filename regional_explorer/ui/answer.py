"""The answer in the panel: its chart and findings with their buttons, the next step, suggested regions."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.errors import SessionError, listing
from regional_explorer.page.answer import answer_nodes, chart_nodes, others_text, words_of
from regional_explorer.record.action import Action, ActionKind, EffectBasis
from regional_explorer.record.answer import TAKE_FOUND, Answer, AnswerFinding, AnswerState, answer_of
from regional_explorer.record.bars import Bar, bars_of
from regional_explorer.record.benchmark import Phase, VariantName
from regional_explorer.record.changes import speed_change
from regional_explorer.record.expected import expected_compile_s
from regional_explorer.record.figure import Figure
from regional_explorer.record.session import Session, derived
from regional_explorer.record.tuning import Suggestion, SuggestionKind
from regional_explorer.regions.suggest import suggestions_of
from regional_explorer.style.element import SHORT, Node, clean, node
from regional_explorer.style.formats import duration, with_interval, word
from regional_explorer.tuning.forecast import forecast
from regional_explorer.ui.parts import button
from regional_explorer.ui.state import Shown

FIND_BEST = "Find the best plan"
SEARCHES = {"tune": 120.0, "tune 10 min": 600.0, "tune 30 min": 1800.0}
"""The time budget in seconds of each event that starts a search, or goes on with it."""
WATERFALL, WATERFALL_S = "take gain apart", 60.0
"""The event that measures what each change of the plan found saves, and its time budget in seconds."""
WITH_COMPILE = "Compile the whole call with plain torch.compile, and measure your plan beside it"
MEASURE_SUGGESTED = "measure suggested"
"""The event that measures what the suggested regions gain."""
SUGGEST_S = 30.0
"""The time budget of that measurement, in seconds."""
QUIET, QUIET_SEARCH = "when quiet", "tune when quiet"
"""The events that measure, or search, once no other process disturbs the machine."""


def answer_part(shown: Shown) -> list[Node]:
    """Return the answer, with its buttons."""
    answer, bars, busy = answer_of(shown.session), bars_of(shown.session), shown.state.busy

    def finding_button(finding: AnswerFinding) -> Node | None:
        return action_button(finding.action, str(answer.findings.index(finding)), busy=busy)

    def bar_button(bar: Bar) -> Node | None:
        if bar.seconds is None and shown.state.job is not None and shown.state.job.name == bar.word:
            return node("span", "being compiled", class_="rx-quiet")
        if bar.seconds is None:
            label, full = f"Measure {bar.word}", VariantName.FULL
            seconds = expected_compile_s(shown.session)
            title = WITH_COMPILE if seconds is None else f"{WITH_COMPILE}: about {seconds:.0f} s to compile"
            return button("Measure", "measure with", full, title=title, disabled=busy, aria_label=label)
        if bar.plan is None:
            return None if answer.of_earlier_plan else node("span", "in use", class_="rx-quiet")
        title = "Make this the plan; Undo switches back"
        return button("Use", "use", str(bars.index(bar)), title=title, disabled=busy, aria_label=f"Use the {bar.word}")

    all_findings = button("all findings", "findings", class_="rx-flat rx-link")
    after = [
        *_applied_gain(shown),
        *([node("p", f"{others}: ", all_findings, class_="rx-quiet")] if (others := others_text(answer)) else []),
        *_next_step(answer, shown),
    ]
    return answer_nodes(answer, chart_nodes(bars, bar_button), button=finding_button, after=after)


# ------------------------------------------------------------------------------------------------------------ findings

_STARTED_WORDS = {
    ActionKind.COMPILE: "Compile",
    ActionKind.BENCHMARK: "Measure",
    ActionKind.PROFILE: "Profile",
    ActionKind.KERNEL_TIMES: "Time its kernels",
    ActionKind.DIAGNOSE: "Find out why",
    ActionKind.TUNE: FIND_BEST,
}
"""The button texts of actions that run as a job."""


def action_button(action: Action, of: str, *, busy: bool) -> Node | None:
    """Return the button of an action: *Apply* if its gain was measured, *Try* if it was not.

    None for an action that only shows a result, or that the user has to complete.
    """
    if action.needs or not (action.is_edit or action.kind in _STARTED_WORDS):
        return None
    text = _STARTED_WORDS.get(action.kind) or ("Apply" if action.basis is EffectBasis.MEASURED else "Try")
    return button(
        text, "apply", of, title=f"{action}; Undo takes it back" if action.is_edit else str(action), disabled=busy
    )


def _applied_gain(shown: Shown) -> Iterator[Node]:
    """Yield the predicted gain of the last applied finding, and the gain measured since."""
    applied, session = shown.state.applied, shown.session
    if applied is None or session.plan != applied.plan:
        return
    measured = "not measured yet."
    before = next((run for run in shown.runs if run.plan == applied.before), None)
    if before is not None and session.whole_timings and not session.is_outdated:
        measured = f"measured: {_change(before, session)}."
    yield node("p", f"{applied.title}: predicted: {applied.gain}; {measured}", class_="rx-note")


def _change(before: Session, after: Session) -> str:
    try:
        slowdown = speed_change(before, after).slowdown
    except SessionError:
        slowdown = None
    if slowdown is None or slowdown.bounds is None:
        return "no verdict against the previous plan"
    return f"{with_interval(1.0 / slowdown)} as fast as the previous plan"


# ----------------------------------------------------------------------------------------------------------- what next


def _next_step(answer: Answer, shown: Shown) -> Iterator[Node]:
    """Yield the buttons of the next step, or its words if there are none."""
    busy = shown.state.busy
    actions = {part.kind: part for part in answer.next if isinstance(part, Action)}
    unsure = answer.state is AnswerState.NO_VERDICT
    first = None if answer.times or unsure else "rx-primary"
    search = _search_buttons(shown, first)
    benchmark = actions.get(ActionKind.BENCHMARK)
    seconds = benchmark.options.get("budget_s") if benchmark else None
    if benchmark and (unsure or answer.outdated_by or seconds):
        adds = "more" in benchmark.options
        text = f"Measure {seconds} s" if seconds else f"Measure {'this plan' if answer.of_earlier_plan else 'again'}"
        text, about = f"{text}{' more' if adds else ''}", words_of(answer.next[1:])
        do = "measure more" if adds else "measure for"
        again = button(text, do, str(seconds or ""), title=f"{text}{about}", class_="rx-primary", disabled=busy)
        yield node("div", again, *_again_button(answer, QUIET, busy=busy), *search, class_="rx-line")
        if not answer.outdated_by:
            yield node("p", node("b", text), about, _left_out_note(shown) if adds else "", class_="rx-quiet")
    elif unsure or answer.state is AnswerState.TRACED or ActionKind.TUNE in actions:
        again = _again_button(answer, QUIET_SEARCH, busy=busy) if answer.found else []
        about = f"2 min: {forecast(shown.session, SEARCHES['tune'])}; keeps what is faster and right"
        yield node("div", *search, *again, node("span", about, class_="rx-quiet"), class_="rx-line")
        if not answer.regions:
            where = button("Where does the time go?", "profile", title="Time every op of the eager call", disabled=busy)
            note = node("span", "or mark regions yourself: click a module below", class_="rx-quiet")
            yield node("div", *([] if shown.session.profile else [where]), note, class_="rx-line")
    else:
        if ActionKind.BENCHMARK not in actions and answer.next not in ((), (TAKE_FOUND,)):
            yield node("p", f"Next: {words_of(answer.next)}", class_="rx-quiet")
        if shown.session.tuning is not None:
            yield node("div", *search, class_="rx-line")


def _search_buttons(shown: Shown, first: str | None) -> list[Node]:
    """Return the button that starts a search, or those that go on with it."""
    session, busy = shown.session, shown.state.busy
    if session.tuning is None:
        about = "Tries ways of tracing and configs, and compares the best with eager and torch.compile"
        return [button(FIND_BEST, "tune", title=about, class_=first, disabled=busy)]
    buttons = (
        button(
            f"{seconds / 60:.0f} min",
            do,
            title=f"{forecast(session, seconds)}; what was tried is not tried again",
            aria_label=f"Go on searching for {seconds / 60:.0f} minutes",
            disabled=busy,
        )
        for do, seconds in SEARCHES.items()
    )
    title = f"Leave out each change of the plan found in turn, and time them together: {WATERFALL_S:.0f} s"
    apart = button("Where does the gain come from?", WATERFALL, title=title, disabled=busy)
    again = [node("span", "Go on searching: ", class_="rx-quiet"), *buttons]
    return [*([apart] if session.tuning.plan is not None else []), *again]


def _left_out_note(shown: Shown) -> str:
    """Return which of the ticked variants get no more rounds, as the last benchmark had none; empty without any."""
    measured = {timing.variant for timing in shown.session.timings}
    new = [word(name) for name in shown.state.variants if name not in measured]
    are = "is" if len(new) == 1 else "are"
    return f" {listing(new)} {are} left out: Compile & measure measures all ticked variants again." if new else ""


def _again_button(answer: Answer, do: str, *, busy: bool) -> list[Node]:
    """Return the button that waits for a quiet machine; empty if the machine was quiet."""
    title = "Wait until no other process disturbs the machine, then measure"
    return [button("Again when it is quiet", do, title=title, disabled=busy)] if answer.noise else []


# --------------------------------------------------------------------------------------------------------- suggestions

MOST_SUGGESTED = 3


@derived
def first_suggestions(session: Session) -> tuple[Suggestion, ...]:
    """Return the first suggestions of ``ex.suggest()``."""
    return tuple(suggestions_of(session)[:MOST_SUGGESTED])


def suggestion_row(shown: Shown) -> list[Node]:
    """Return the suggested regions in words, each with a button that marks it, and the button that measures them."""
    session, busy = shown.session, shown.state.busy
    suggestions = first_suggestions(session)
    if not suggestions:
        return []
    mark = "Mark", "mark suggested"
    rows = (
        node(
            "tr",
            node("td", node("code", name := _name_of(suggestion)), title=_reason(suggestion)),
            node("td", _facts(suggestion, session), class_="rx-quiet"),
            node("td", button(*mark, suggestion.name, disabled=busy, aria_label=f"Mark {name}"), class_="rxt-last"),
        )
        for suggestion in suggestions
    )
    measured = [suggestion.gain_s is not None for suggestion in suggestions]
    unmeasured = "again" if all(measured) else "the others" if any(measured) else "these"
    measure = button(
        f"Measure {unmeasured}, {SUGGEST_S:.0f} s",
        MEASURE_SUGGESTED,
        title="Compile each region alone, without marking it, and measure what it saves",
        disabled=busy,
    )
    table = node("table", node("tbody", *rows), aria_label="Suggested regions", class_="rx-findings")
    label = node("span", "No region yet. Parts that may gain from a compile: ", class_="rx-quiet")
    return [node("div", label, measure, class_="rx-line"), table]


def _reason(suggestion: Suggestion) -> str:
    unmeasured = f"; not measured: {suggestion.why_not}" if suggestion.why_not else ""
    return f"{suggestion.selection}: {suggestion.why}{unmeasured}"


def _facts(suggestion: Suggestion, session: Session) -> str:
    """Return what is known of a suggestion: its share of the time, or what it saves, and the seconds of its compile."""
    call, seconds = "step" if session.whole_phase is Phase.STEP else "call", suggestion.compile_s
    facts = [f"{100.0 * suggestion.share:.0f} % of the {call}"] if suggestion.share else []
    if suggestion.gain_s is not None:
        facts = ["no gain" if suggestion.brings_nothing else f"saves {_bounded(suggestion.gain_s)} a {call}, measured"]
    if seconds is not None:
        facts.append(f"compiled in {duration(seconds)}")
    elif suggestion.expected_s is not None:
        facts.append(f"about {max(1.0, suggestion.expected_s):.0f} s to compile")
    return ", ".join(facts)


def _bounded(gain_s: Figure) -> str:
    bounds = gain_s.bounds
    return f"{duration(gain_s.value)}{f' ({duration(bounds[0])}–{duration(bounds[1])})' if bounds else ''}"


_PLAIN_NAMES = {
    SuggestionKind.WHOLE: "the whole call",
    SuggestionKind.CHAINS: "all but the matrix products",
}


def _name_of(suggestion: Suggestion) -> str:
    """Return the glob of the modules, or what the suggestion is in words."""
    (first, *others) = suggestion.selectors
    modules = suggestion.kind is SuggestionKind.MODULES and not others and not first.is_combined
    times = f" × {suggestion.instances}" if suggestion.instances > 1 else ""
    name = first.patterns[0] if modules else _PLAIN_NAMES.get(suggestion.kind, suggestion.name)
    return f"{clean(name, SHORT)}{times}"
