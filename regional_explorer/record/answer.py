"""The answer of a session: speed, whether the results are right, cost, reasons, and the next step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from regional_explorer.errors import count
from regional_explorer.record import Count, Quantity, Record, Seconds
from regional_explorer.record.action import BENCHMARK, TUNE, Action, ActionKind, mark_action, show_table_action
from regional_explorer.record.benchmark import (
    BY_DEFAULT,
    DEFAULT_BUDGET_S,
    SAME_WITHIN,
    Conditions,
    NumericsVerdict,
    Phase,
    Timing,
    VariantName,
    Verdict,
)
from regional_explorer.record.diagnostic import Advice, Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.figure import Figure
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.partition import State
from regional_explorer.record.plan import Selector, SelectorKind
from regional_explorer.record.profile import OUTSIDE, ProfileKind
from regional_explorer.record.reach import reach_of
from regional_explorer.record.regions import region_timings_of_whole_call
from regional_explorer.record.session import Session, derived
from regional_explorer.record.speeds import (
    BEST,
    WORDS,
    Missing,
    Speed,
    comparison,
    has_failed,
    if_bounded,
    interval_ends,
    numerics_of,
    speed_of,
    speeds_of_try,
    variant_to_use,
)
from regional_explorer.record.statistics import MIN_FLOOR, VERDICT_CONFIDENCE, fewest_values
from regional_explorer.record.tuning import EAGER, TORCH_COMPILE

# ---------------------------------------------------------------------------------------------------------- thresholds

MOST_FINDINGS = 3
"""The maximum number of findings in an answer; further findings are only counted."""
MOST_CONTEXT = 2
"""The maximum number of warnings without an action that an answer shows beside the findings."""
LEAST_SHARE = MIN_FLOOR
"""Findings that gain a smaller share of the step are only counted: no benchmark would show the gain."""
LEAST_ROUNDS = math.ceil(1.5 * fewest_values(VERDICT_CONFIDENCE))
"""The rounds that give an interval, and a few more. A verdict may need more rounds, but no verdict needs fewer."""
MAX_BUDGET_FACTOR = 20
"""A longer budget is advised only up to this many times the last one."""
BUDGETS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
"""The budgets in seconds that an answer advises for a benchmark."""

# ------------------------------------------------------------------------------------------------------------- records


class AnswerState(StrEnum):
    """The state of a plan in a session: whether it was measured, has a verdict against eager, and right results."""

    TRACED = "traced"
    ANSWERED = "answered"
    NO_VERDICT = "no verdict"
    WRONG = "wrong results"
    FAILED = "failed"


class AnswerFinding(Record, frozen=True, omit_defaults=False):
    """One finding with what to do about it: ``ex.apply(finding.action)``."""

    code: DiagnosticCode
    """The code of the diagnostic."""
    title: str
    """The diagnostic in a few words."""
    action: Action
    """What to do."""
    region: str | None = None
    """The region that it is about; None without one."""
    gain_s: Figure | None = None
    """The seconds that the action saves in each call of the function; None if unknown."""
    share: Figure | None = None
    """``gain_s`` as a share of the step under the plan; None if unknown."""


class SearchBest(Record, frozen=True, omit_defaults=False):
    """The fastest plan that a search compared, unless it is the plan at hand."""

    title: str
    """The title of the try."""
    time_s: Figure | None = None
    """The time of a call."""
    speeds: tuple[Speed, ...] = ()
    """Its speeds against the other variants."""
    tried: Count = 0
    """How many plans were tried."""
    final: bool = True
    """False if the search ended before its final comparison, so that this is the best plan so far."""

    @property
    def is_plan(self) -> bool:
        """Whether it is a plan; if not, nothing was found that is faster than eager or ``torch.compile``."""
        return self.title not in {EAGER, TORCH_COMPILE}


class ModuleShare(Record, frozen=True, omit_defaults=False):
    """The share of an eager call that is spent in a module."""

    name: str
    """The path of the module, with a star for modules that are alike; for a part of it, the last name alone."""
    share: Quantity
    """The share."""


class Answer(Record, frozen=True, omit_defaults=False):
    """The summary of a session's plan: its speed, its results, its cost, and what to do next."""

    state: AnswerState
    """The state of the plan."""
    call: str
    """The name of the function."""
    phase: Phase
    """The phase that times and speeds are about."""
    training: bool
    """Whether the call takes gradients."""
    ops: Count
    """How many ops were traced."""
    graphs: Count
    """How many graphs were traced."""
    breaks: Count
    """How many graph breaks there were."""
    regions: Count
    """How many regions the plan has."""
    outdated_by: tuple[str, ...] = ()
    """What has changed since ``times``, ``speeds``, ``results`` and ``errors`` were measured: ``the plan``, threads."""
    of_search: bool = False
    """Whether times and speeds are from the final comparison of the last search."""
    found: SearchBest | None = None
    """The best plan that the search found."""
    times: Mapping[str, Figure] = {}
    """The time of a call by word of ``WORDS``, without variants whose results are wrong."""
    of_earlier_run: tuple[str, ...] = ()
    """The words of ``times`` whose time an earlier run has measured."""
    speeds: tuple[Speed, ...] = ()
    """The speeds of the plan against the other variants."""
    use: str = ""
    """What to use: a word of ``WORDS``, or ``BEST``; empty if no comparison is certain."""
    eager_s: Figure | None = None
    """The time of an eager call, by the profile; None without one."""
    where: tuple[ModuleShare, ...] = ()
    """The module in which most of an eager call is spent, then its parts, the longest first; by the profile."""
    conditions: str = ""
    """The torch, the device and the rounds of the figures; empty without a benchmark."""
    results: NumericsVerdict | None = None
    """Whether the results of the plan are right; None if they were not checked."""
    bitwise: bool = False
    """Whether the results equal eager's to the bit."""
    errors: str = ""
    """How far off wrong results are, in words."""
    waited_s: Seconds | None = None
    """The seconds waited for compiles that only the plan needed."""
    warm: bool = False
    """Whether all of these compiles came from caches."""
    repaid_after: Figure | None = None
    """The number of calls after which the plan has saved ``waited_s``."""
    full_waited_s: Seconds | None = None
    """The seconds that ``torch.compile`` took for the whole call."""
    faster: tuple[str, ...] = ()
    """Regions that are faster compiled, measured alone."""
    slower: tuple[str, ...] = ()
    """Regions that are slower compiled, measured alone."""
    over_trace: bool = False
    """Whether regions are compared with traced ops that are slower than the program's own."""
    failed: tuple[str, ...] = ()
    """Regions that cannot be compiled."""
    not_compiled: Count = 0
    """How many pieces are not compiled."""
    floor_s: Seconds | None = None
    """The floor of a call; None if it is unknown, or above a measured time."""
    fastest: str = ""
    """The word of the fastest plan that was measured, beside the floor."""
    left: Quantity | None = None
    """The largest share of that plan's time that another plan could save."""
    noise: str = ""
    """What else the machine did, in words."""
    findings: tuple[AnswerFinding, ...] = ()
    """The first few findings, by their gain."""
    more: Count = 0
    """How many findings follow."""
    smaller: Count = 0
    """How many of ``more`` gain less than ``LEAST_SHARE``."""
    remarks: Mapping[str, Count] = {}
    """How many other diagnostics there are, by severity."""
    context: tuple[str, ...] = ()
    """The titles of the first warnings and errors without an action."""
    next: Advice = ()
    """What to do next."""

    @property
    def of_earlier_plan(self) -> bool:
        """Whether the figures are of an earlier plan: the plan at hand is not measured."""
        return "the plan" in self.outdated_by

    def speed(self, of: str, against: str) -> Speed | None:
        """Return the comparison of two variants, given as words; None without one."""
        return comparison(self.speeds, of, against)


def _speeds(session: Session) -> tuple[Speed, ...]:
    pairs = (
        (VariantName.REGIONAL, VariantName.EAGER),
        (VariantName.REGIONAL, VariantName.FULL),
        (VariantName.FULL, VariantName.EAGER),
    )
    failed = any(has_failed(session, variant) for variant in (VariantName.REGIONAL, VariantName.FULL))
    return tuple(speed_of(session, *pair) for pair in pairs) if session.timings or failed else ()


def _repaid_after(timing: Timing | None, eager: Timing | None, waited_s: float) -> Figure | None:
    """Return after how many calls the compile is repaid; None unless the plan was measured to be faster."""
    if timing is None or eager is None or timing.verdict is not Verdict.FASTER or not waited_s:
        return None
    speedup, eager_s = if_bounded(timing.speedup), if_bounded(eager.median_s)
    if speedup is None or eager_s is None or min(speedup.bounds or (0.0,)) <= 1.0:
        return None
    gains = [
        seconds * (1.0 - 1.0 / ratio)
        for seconds, ratio in zip(interval_ends(eager_s), interval_ends(speedup), strict=True)
    ]
    if min(gains) <= 0.0:  # a damaged file can say that a call takes no time
        return None
    low, value, high = (waited_s / gain for gain in reversed(gains))
    return Figure(value, low, high)


# ------------------------------------------------------------------------------------------------------------- searches


def _is_of_search(session: Session) -> bool:
    """Return whether the figures are of the rounds of the final comparison of the last search."""
    ours = session.whole_timings.get(VariantName.EAGER)
    theirs = () if session.tuning is None else session.tuning.timings
    return any(ours is not None and ours.samples_s == timing.samples_s for timing in theirs)


def _found_by_search(session: Session) -> SearchBest | None:
    """Return the best plan of the last search, unless it is the plan at hand."""
    tuning = session.tuning
    best = None if tuning is None else tuning.best
    if tuning is None or best is None or best.plan == session.plan:
        return None
    speeds = speeds_of_try(tuning, best, BEST)
    return SearchBest(best.title, if_bounded(best.time_s), speeds, tuning.tried, bool(tuning.answer))


# ------------------------------------------------------------------------------------------------------------ findings


def _findings(session: Session, step_s: Figure | None, most_s: float) -> tuple[list[AnswerFinding], dict[str, int]]:
    """Return the findings with an action, the most important first, and the number of other diagnostics by severity.

    Errors come first, then findings by their gain, then by their severity.
    """
    pairs = [(diagnostic, _finding(diagnostic, step_s, most_s)) for diagnostic in session.diagnostics]
    findings = [(diagnostic, finding) for diagnostic, finding in pairs if finding is not None]

    def rank(pair: tuple[Diagnostic, AnswerFinding]) -> tuple[bool, float, int]:
        diagnostic, finding = pair
        gain = finding.gain_s.value if finding.gain_s is not None else 0.0
        severity = list(Severity).index(diagnostic.severity)
        return diagnostic.severity is not Severity.ERROR, -gain, -severity

    others = Counter(diagnostic.severity for diagnostic, finding in pairs if finding is None)
    counts = {str(severity): others[severity] for severity in reversed(Severity) if others[severity]}
    return [finding for _, finding in sorted(findings, key=rank)], counts


def _context(session: Session, step_s: Figure | None, most_s: float) -> tuple[str, ...]:
    """Return the titles of warnings and errors without an action."""
    severe = (diagnostic for diagnostic in session.diagnostics if diagnostic.severity is not Severity.INFO)
    titles = (diagnostic.title for diagnostic in severe if _finding(diagnostic, step_s, most_s) is None)
    return tuple(dict.fromkeys(titles))


def _finding(diagnostic: Diagnostic, step_s: Figure | None, most_s: float) -> AnswerFinding | None:
    """Return a finding with a diagnostic's first action that changes something; None without such an action or a gain.

    ``step_s`` is the time of the whole under the plan, and ``most_s`` the most that is known of it. A gain that was
    measured alone may exceed ``most_s``: then it says nothing about the whole.
    """
    edits = [action for action in diagnostic.actions if action.is_edit] or list(diagnostic.actions)
    if not edits or (edits[0].gain_s is None and diagnostic.severity is Severity.INFO):
        return None
    gain_s = if_bounded(edits[0].gain_s)
    if gain_s is not None and (min(interval_ends(gain_s)) <= 0.0 or gain_s.value > most_s):
        return None
    share = None if gain_s is None or step_s is None else _share(gain_s, step_s)
    return AnswerFinding(diagnostic.code, diagnostic.title, edits[0], diagnostic.region, gain_s, share)


def _share(gain_s: Figure, step_s: Figure) -> Figure:
    low, value, high = (
        min(1.0, seconds / whole)
        for seconds, whole in zip(interval_ends(gain_s), reversed(interval_ends(step_s)), strict=True)
    )
    return Figure(value, low, high)


# ---------------------------------------------------------------------------------------------------------- what next

TAKE_FOUND = "ex.plan = ex.session.tuning.plan takes the plan that was found."
PROFILE = Action(ActionKind.PROFILE)
EXAMPLE_MARK = mark_action("mlp", Selector(SelectorKind.MODULES, ("layers.*.mlp",)))
"""An example of a mark; the module name is a placeholder."""


def _next(session: Session, state: AnswerState, speeds: Sequence[Speed], use: str) -> Advice:
    """Return the next step with an exploration ``ex`` of this session."""
    if session.tuning is not None and session.tuning.plan not in (None, session.plan):
        return (TAKE_FOUND,)
    if not session.plan.regions:
        return _first_mark(session)
    if state is AnswerState.TRACED:
        return _first_benchmark(session)
    if session.is_outdated:
        return BENCHMARK, " measures the call as it is now."
    if state in {AnswerState.WRONG, AnswerState.FAILED}:
        return (
            show_table_action("diagnostics"),
            " says what helps, ",
            show_table_action("numerics"),
            " has every tensor.",
        )
    of_plan = comparison(speeds, WORDS[VariantName.REGIONAL], WORDS[VariantName.EAGER])
    undecided = use == WORDS[VariantName.EAGER] and of_plan is not None and not of_plan.is_certain
    return _measure_longer(session) if undecided or not use else _after_verdict(speeds, use)


def _after_verdict(speeds: Sequence[Speed], use: str) -> Advice:
    """Return the next step after a measurement of the plan, by what is to be used."""
    plan, full = WORDS[VariantName.REGIONAL], WORDS[VariantName.FULL]
    against_full = comparison(speeds, plan, full)
    if against_full is not None and against_full.verdict is Missing.NOT_MEASURED:
        return BENCHMARK, " measures torch.compile too."
    if use == plan:
        return Action(ActionKind.SAVE_PLAN, ("plan.json",)), " keeps the plan, for rx.compile(fn, 'plan.json')."
    return TUNE, " looks for a faster plan; or mark other regions."


def _first_mark(session: Session) -> Advice:
    """Return the advice for a plan without regions: a search, or a mark of the module in which most time goes."""
    if not (where := _where(session)):
        return TUNE, " finds the best plan; ", PROFILE, " shows where the time goes; ", EXAMPLE_MARK, " marks a region."
    module = where[0].name
    name = next((part for part in reversed(module.split(".")) if part.isidentifier()), "region")
    mark = mark_action(name, Selector(SelectorKind.MODULES, (module,)))
    return TUNE, " finds the best plan; ", mark, " makes a region of what takes much time."


def _first_benchmark(session: Session) -> Advice:
    """Return the advice for a plan's first benchmark, with a long enough budget if a profile has the time of a call."""
    advice = " compiles and measures your plan beside eager and torch.compile"
    step_s = 0.0 if session.profile is None else session.profile.step.value
    needed_s = LEAST_ROUNDS * len(BY_DEFAULT) * step_s
    if needed_s <= DEFAULT_BUDGET_S:
        return BENCHMARK, f"{advice}."
    budget_s = next((seconds for seconds in BUDGETS_S if seconds >= needed_s), BUDGETS_S[-1])
    benchmark = Action(ActionKind.BENCHMARK, options={"budget_s": budget_s})
    return benchmark, f"{advice}: a call takes {step_s:.2g} s, so that a verdict takes about {budget_s} s."


def _measure_longer(session: Session) -> Advice:
    """Return the benchmark that may give a verdict, by the rounds that the last one had in its budget.

    It adds to these rounds, unless some of them were disturbed.
    """
    conditions, timing = session.conditions, session.whole_timings.get(VariantName.REGIONAL)
    quiet = ", once nothing else runs," if session.noise.is_busy else ""
    if timing is not None and timing.verdict is Verdict.NONE:
        return BENCHMARK, " measures again; ex.diagnostics says why not all rounds ran the same code."
    if conditions is None or not conditions.rounds or timing is None:
        return BENCHMARK, f"{quiet} measures again."
    needed = float(LEAST_ROUNDS)
    speedup = if_bounded(timing.speedup)
    if speedup is not None:
        low, value, high = interval_ends(speedup)
        certain = max(abs(value - 1.0), SAME_WITHIN / 2.0)
        # Intervals, and with them the floor, are as much narrower as the square root of the rounds.
        width = max((high - low) / 2.0, conditions.floors.get(timing.phase, 0.0))
        needed = max(needed, conditions.rounds * max(2.0, (width / certain) ** 2))
    times, adds = needed / conditions.rounds, not conditions.noise.has_kept
    more_s = conditions.budget_s * max(1.0, times - 1.0 if adds else times)
    budget_s = next((seconds for seconds in BUDGETS_S if seconds >= more_s), None)
    if budget_s is None or (speedup is not None and times > MAX_BUDGET_FACTOR):
        return BENCHMARK, " on a quiet machine may tell: these figures vary too much for a longer run to help."
    benchmark = Action(ActionKind.BENCHMARK, options={"budget_s": budget_s, **({"more": True} if adds else {})})
    threads = (
        " With torch.set_num_threads(1) other work disturbs less." if quiet and session.environment.threads > 1 else ""
    )
    effect = f"adds rounds for about {budget_s} s" if adds else f"takes about {budget_s} s"
    return benchmark, f"{quiet} {effect} and may give a verdict.{threads}"


# ---------------------------------------------------------------------------------------------------------- the answer


def _state(session: Session) -> AnswerState:
    if numerics_of(session, VariantName.REGIONAL).withholds_speedup:
        return AnswerState.WRONG
    if VariantName.REGIONAL in session.whole_timings:
        return AnswerState.ANSWERED
    return AnswerState.FAILED if has_failed(session, VariantName.REGIONAL) else AnswerState.TRACED


def _times(session: Session) -> dict[str, Figure]:
    """Return the time of a call, by word, of the variants whose results are not wrong."""
    return {
        WORDS[name]: seconds
        for name in (VariantName.EAGER, VariantName.FULL, VariantName.REGIONAL)
        if (timing := session.whole_timings.get(name)) is not None
        and not numerics_of(session, name).withholds_speedup
        and (seconds := if_bounded(timing.median_s)) is not None
    }


def _use(speeds: Sequence[Speed], found: SearchBest | None, compile_s: Mapping[str, float], *, of_search: bool) -> str:
    """Return what to use; the plan that a search found only if it is faster than what was measured since."""
    use = variant_to_use(speeds, compile_s)
    if found is None or not (found.is_plan and found.final and any(speed.is_certain for speed in found.speeds)):
        return use
    eager = WORDS[VariantName.EAGER]
    measured, best = (comparison(of, word, eager) for of, word in ((speeds, use), (found.speeds, BEST)))
    if of_search or measured is None or measured.speedup is None or best is None or best.speedup is None:
        return BEST
    return BEST if interval_ends(best.speedup)[0] > interval_ends(measured.speedup)[2] else use


MOST_PARTS = 2
LEAST_PART = 0.05
"""How many parts of a module an answer names, and the smallest share of the call that it names."""


def _where(session: Session) -> tuple[ModuleShare, ...]:
    """Return the layers that take most of an eager call, or else its first module, and the longest parts of these."""
    shares = session.time_shares
    rows = [] if shares is None else [share.row for share in shares.by(ProfileKind.MODULE)]
    rows = [row for row in rows if row.name and row.name != OUTSIDE and row.share >= LEAST_PART]
    layers = [row for row in rows if row.name.endswith("*")]
    if not rows:
        return ()
    whole = layers[0] if layers else rows[0]
    inside = [row for row in rows if row.name.rpartition(".")[0] == whole.name]
    parts = (ModuleShare(row.name.rpartition(".")[2], row.share) for row in inside[:MOST_PARTS])
    return ModuleShare(whole.name, whole.share), *parts


def conditions_text(conditions: Conditions) -> str:
    """Return where the call was measured, and in how many rounds."""
    threads, rounds = count(conditions.threads, "thread"), count(conditions.rounds, "round")
    return f"torch {conditions.torch}, {conditions.device}, {threads}, {rounds} in turns"


@derived
def answer_of(session: Session) -> Answer:
    """Return the answer of a session."""
    state, found, of_search = _state(session), _found_by_search(session), _is_of_search(session)
    times, speeds, timings = _times(session), _speeds(session), session.whole_timings
    plan, eager = timings.get(VariantName.REGIONAL), timings.get(VariantName.EAGER)
    rows, current = session.numerics_of(VariantName.REGIONAL), not session.is_outdated
    step_s = times.get(WORDS[VariantName.REGIONAL]) if current else None
    whole_s = [seconds.value for seconds in ((step_s,) if step_s else times.values())]
    most_s = max(whole_s, default=math.inf)
    findings, remarks = _findings(session, step_s, most_s)
    large = [finding for finding in findings if finding.share is None or finding.share.value >= LEAST_SHARE]
    traced = [graph for graph in session.graphs if graph.parent is None and graph.kind is not GraphKind.DYNAMO]
    cost, full_cost = session.plan_cost if current else None, session.full_cost
    waited_s = None if cost is None else cost.seconds if session.compile_s else 0.0
    full_s = full_cost.seconds if cost is not None and full_cost is not None and cost.cache == full_cost.cache else None
    waits = {WORDS[VariantName.REGIONAL]: waited_s, WORDS[VariantName.FULL]: full_s}
    use = _use(speeds, found, {word: s for word, s in waits.items() if s is not None}, of_search=of_search)
    if state is AnswerState.ANSWERED and not use:
        state = AnswerState.NO_VERDICT
    reach = reach_of(session)
    left = None if reach is None else reach.left
    alone = () if state is AnswerState.WRONG else region_timings_of_whole_call(session).values()
    return Answer(
        state=state,
        call=session.title,
        phase=session.whole_phase,
        training=session.grad,
        ops=sum(len(graph.ops) for graph in traced),
        graphs=len(traced),
        breaks=len(session.breaks),
        regions=len(session.plan.regions),
        outdated_by=session.outdated_by,
        of_search=of_search,
        found=found,
        times=times,
        of_earlier_run=tuple(WORDS[VariantName(name)] for name, timing in timings.items() if timing.earlier),
        speeds=speeds,
        use=use,
        eager_s=None if session.profile is None else if_bounded(session.profile.eager),
        where=_where(session),
        conditions="" if session.conditions is None else conditions_text(session.conditions),
        results=numerics_of(session, VariantName.REGIONAL) if rows or plan else None,
        bitwise=bool(rows) and all(row.bitwise for row in rows),
        errors=session.plan_errors,
        waited_s=waited_s,
        warm=cost is not None and cost.cache == "warm",
        repaid_after=_repaid_after(plan, eager, waited_s) if waited_s and state is AnswerState.ANSWERED else None,
        full_waited_s=full_s,
        faster=tuple(timing.region for timing in alone if timing.verdict is Verdict.FASTER),
        slower=tuple(timing.region for timing in alone if timing.verdict is Verdict.SLOWER),
        over_trace=any(timing.over_trace for timing in alone),
        failed=tuple(dict.fromkeys(part.region for part in session.partitions if part.state is State.FAILED)),
        not_compiled=sum(part.state is State.STALE for part in session.partitions),
        floor_s=reach.floor.seconds if reach and left is not None else None,
        fastest=reach.title if reach else "",
        left=left,
        noise=session.noise.sentence,
        findings=tuple(large[:MOST_FINDINGS]),
        more=len(findings) - len(large[:MOST_FINDINGS]),
        smaller=len(findings) - len(large),
        remarks=remarks,
        context=_context(session, step_s, most_s)[:MOST_CONTEXT],
        next=_next(session, state, speeds, use),
    )
