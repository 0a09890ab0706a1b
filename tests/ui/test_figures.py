"""The state and figures of a region are the same in all views, and return with its compiled code."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pytest
import torch
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.exploration.live import with_measured_states
from regional_explorer.page.graph import graph_traits, overlays
from regional_explorer.page.report import session_html, session_text
from regional_explorer.picture.page_records import Records
from regional_explorer.record.artifact import ArtifactCompile, ArtifactRecord, CacheResult
from regional_explorer.record.benchmark import NumericsVerdict, Verdict
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.partition import PartitionContent, PlanContent, State, partition_content, plan_content
from regional_explorer.record.plan import Plan
from regional_explorer.record.regions import region_summaries, region_timings_of_whole_call
from regional_explorer.record.session import Session
from regional_explorer.style.element import Node, to_html, words
from regional_explorer.style.formats import NONE, STATE_GLYPHS, duration, speedup, times
from regional_explorer.style.formats import word as word_for
from regional_explorer.tables.regions import regions_table
from regional_explorer.ui.state import PanelState, Shown, Sort
from regional_explorer.ui.tables import region_table, sorted_regions
from tests.shared import programs, sessions
from tests.shared.panel import elements
from tests.shared.random_sessions import random_measurement

PARTITION_STATES = tuple(state for state in State if state is not State.EMPTY)


Row = tuple[object, ...]
"""The row of a region: name, state, ops forward and backward, partitions; figures, None where not shown."""


def session_with_states(states: list[State], *, matched: bool = True, measured: bool = False) -> Session:
    """Return a session with one region and partitions in these states, half of them in the backward."""
    base = sessions.measured_alone()
    made = ArtifactRecord(ArtifactCompile(6.0, CacheResult.MISS))
    partitions, timings = [], []
    for cut, timing, state in zip(base.partitions, base.partition_timings, states, strict=False):
        has_code = state in (State.COMPILED, State.MEASURED)
        partitions.append(replace(cut, state=state, artifact=cut.artifact if has_code else None))
        timings.append(replace(timing, compiled=timing.compiled if has_code else None))
    return replace(
        base,
        plan=base.plan.changed("mlp", enabled=State.EAGER not in states),
        members=base.members if matched else {},
        partitions=with_measured_states(partitions, timings if measured else ()),
        artifacts=dict.fromkeys(base.artifacts, made),
        partition_timings=tuple(timings) if measured else (),
    )


def frame_rows(session: Session) -> list[Row]:
    """Return the rows of ``ex.regions``, with figures as the panel writes them."""

    def row_of(row: Any) -> Row:
        counts = (row[name] for name in ("ops_forward", "ops_backward", "partitions"))
        writes: dict[str, Callable[[Any], object]] = {
            "eager_us": lambda us: duration(us * 1e-6),
            "compiled_us": lambda us: duration(us * 1e-6),
            "speedup": times,
            "numerics": lambda verdict: verdict or None,
            "compile_s": duration,
        }
        figures = (None if pd.isna(row[name]) else write(row[name]) for name, write in writes.items())
        return row["region"], row["state"], *counts, *figures

    return [row_of(row) for _, row in regions_table(session).dataframe().iterrows()]


def panel_table(session: Session) -> list[Node]:
    """Return the region table of the panel."""
    return region_table(Shown("", "ex", PanelState(session.plan), session, (), {}, None))


def panel_rows(session: Session) -> list[Row]:
    def row_of(row: Node) -> Row:
        cells = {cell[1]["data-head"]: cell for cell in row[2:] if "data-head" in cell[1]}
        parts = [(words(part).strip(), part[1].get("title", "")) for part in cells["eager → compiled"][2:]]
        state = next((text.split(" ", 1) for text, _ in parts if text[0] in STATE_GLYPHS.values()), ["✓", "measured"])
        (name,) = (one for one in State if word_for(one) == state[1])
        assert state[0] == STATE_GLYPHS[name]
        pieces = cells["selector"][-1]
        forward, backward = re.findall(r"(\d+)(?: ops?)? in", pieces[1]["title"])
        counts = int(forward), int(backward), int(words(pieces).split()[0])
        about = " ".join(title for _, title in parts if "÷" not in title)
        times = dict(re.findall(r"(eager|compiled|compiled in) ([\d.]+ \w+)", about))
        speedups = [text for text, _ in parts if "×" in text and "→" not in text]
        figures = (
            *(times.get(head) for head in ("eager", "compiled")),
            re.sub("^[▲▼] ", "", speedups[0]) if speedups else None,
            None if words(cells["numerics"]) == NONE else words(cells["numerics"]).strip("✓✗! "),
            times.get("compiled in"),
        )
        return row[1]["data-of"], str(name), *counts, *figures

    return [row_of(row) for table in panel_table(session) if table[1].get("role") == "grid" for row in table[3][2:]]


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize(
    ("states", "matched", "word"),
    [
        *(([state] * 4, True, state.value) for state in PARTITION_STATES),
        ([State.COMPILED, State.EAGER, State.STALE, State.FAILED], True, "failed"),
        ([State.FAILED, State.COMPILED, State.COMPILED, State.COMPILED], True, "failed"),
        ([State.COMPILED, State.EAGER, State.STALE], True, "stale"),
        ([State.COMPILED, State.EAGER], True, "eager"),
        ([], True, "eager"),
        ([], False, "empty"),
    ],
)
def test_a_region_has_the_state_of_its_worst_partition_everywhere(
    states: list[State], word: str, *, matched: bool, measured: bool
) -> None:
    session = session_with_states(states, matched=matched, measured=measured)
    word = "measured" if measured and word == "compiled" else word
    (shown,) = frame_rows(session)
    assert panel_rows(session) == [shown]
    assert shown[1] == word
    look = graph_traits(session, Records())["look"]
    _, entry = look["legend"][0]
    assert entry[-1][-1] == word_for(word)
    assert entry[1]["title"].endswith(word_for(word))
    (legend,) = [entry[-1] for when, entry in look["legend"] if when == word]
    assert legend.startswith(f"{STATE_GLYPHS[State(word)]} {word_for(word)}")
    if states and len(set(states)) == 1:
        assert {piece["state"] for piece in look["pieces"][0]} == {word}
        assert {piece["words"][1].split()[0] for piece in look["pieces"][0]} == {STATE_GLYPHS[State(word)]}


def test_compile_times_add_up() -> None:
    (one,) = region_summaries(session_with_states([State.COMPILED] * 4))
    assert (one.compile_s, one.artifacts) == (12.0, 2)
    (one,) = region_summaries(session_with_states([State.STALE]))
    assert one.compile_s is None


# ------------------------------------------------------------------------------------ in the graph, and in sorted rows


@pytest.fixture
def measured() -> Session:
    return replace(sessions.measured_alone(), grad=False)


def test_rows_without_a_figure_come_last(measured: Session) -> None:
    regions = (sessions.region("other"), *measured.plan.regions)
    session = replace(measured, plan=replace(measured.plan, regions=regions))

    def order(sort: Sort | None) -> list[str]:
        return [row.region.name for row in sorted_regions(session, sort).shown_rows]

    assert order(None) == ["other", "mlp"]
    for descending in (False, True):
        assert order(Sort("of the call", descending)) == ["mlp", "other"]
    assert order(Sort("region")) == ["mlp", "other"]
    assert order(Sort("selector", descending=True)) == ["mlp", "other"]


def pieces_of(session: Session) -> list[Any]:
    found: list[Any] = graph_traits(session, Records())["look"]["pieces"][0]
    return found


def test_figures_of_partitions_are_overlays_of_the_graph(measured: Session) -> None:
    found = {one["title"]: one["values"] for one in overlays(measured)}
    assert list(found) == ["compiled time", "eager time", "speedup"]
    assert set(found["speedup"]) == {cut.id for cut in measured.partitions}
    assert {text for _, text in found["speedup"].values()} == {"2.00×"}
    assert {text for _, text in found["compiled time"].values()} == {"50.0 µs", "100 µs"}
    assert overlays(sessions.training_session(2)) == []
    unsure = sessions.partition_timing(
        measured.partitions[0].id, 1e-4, 5e-5, speedup=Figure(2.0, why="too few rounds (5)")
    )
    *painted, speedups = overlays(replace(measured, partition_timings=(unsure,)))
    assert [one["title"] for one in painted] == ["compiled time", "eager time"]
    assert speedups["values"] == {}
    assert words(speedups["scale"]) == "speedup not painted: too few rounds (5)"
    in_part = overlays(replace(measured, partition_timings=(unsure, *measured.partition_timings[1:])))[-1]
    assert set(in_part["values"]) == {one.partition for one in measured.partition_timings[1:]}
    assert words(in_part["scale"]).endswith("2.00×; others not painted: too few rounds (5)")


def test_a_hull_shows_the_speedup_of_its_region_unless_stale(measured: Session) -> None:
    pieces = pieces_of(measured)
    assert {piece["speedup"] for piece in pieces} == {"2.00×"}
    assert ["time", "100 µs eager, 50.0 µs compiled, 2.00× (1.80–2.20)"] in pieces[0]["facts"]
    other = sessions.partition_timing(measured.partitions[0].id, 100e-6, 80e-6, speedup=Figure(1.25, 1.2, 1.3))
    unequal = replace(measured, partition_timings=(other, *measured.partition_timings[1:]))
    (row,) = region_summaries(unequal)
    assert row.timing is not None
    assert {piece["speedup"] for piece in pieces_of(unequal)} == {speedup(row.timing)} == {"1.54×"}
    stale = replace(measured, partition_timings=())
    assert {piece["speedup"] for piece in pieces_of(stale)} == {""}
    assert overlays(stale) == []


def test_a_speedup_that_contradicts_its_medians_is_shown_as_noisy(measured: Session) -> None:
    thrice = tuple(
        replace(one, eager=sessions.timing("eager", 3 * one.eager.median_s.value, None))
        for one in measured.partition_timings
    )
    for session, noisy in ((measured, False), (replace(measured, partition_timings=thrice), True)):
        row = to_html(*panel_table(session))
        assert ("noisy" in row, "the medians say 6.00×, the rounds 2.00×" in row) == (noisy, noisy)


@pytest.mark.parametrize(("call_s", "shown"), [(4e-4, "−100 µs"), (8e-5, NONE)])
def test_a_saving_larger_than_the_call_is_not_shown(call_s: float, shown: str) -> None:
    session = sessions.measured(sessions.measured_alone())
    eager = sessions.timing("eager", call_s, None, speedup=exactly(1.0), verdict=Verdict.BASELINE)
    (cell,) = elements(panel_table(replace(session, timings=(eager, *session.timings[1:]))), data_head="of the call")
    assert words(cell) == shown


def test_a_time_longer_than_the_call_is_shown_as_noisy() -> None:
    why = "the machine was too busy"
    for call_s, noisy in ((4e-4, False), (8e-5, True)):
        session = sessions.measured(sessions.measured_alone(speedup=Figure(2.0, why=why), verdict=Verdict.BUSY))
        alone = tuple(
            replace(one, eager=replace(one.eager, median_s=Figure(1e-4, why=why))) for one in session.partition_timings
        )
        eager = sessions.timing("eager", call_s, None, speedup=exactly(1.0), verdict=Verdict.BASELINE)
        shown = replace(session, partition_timings=alone, timings=(eager, *session.timings[1:]))
        (cell,) = elements(panel_table(shown), data_head="eager → compiled")
        assert ("noisy" in words(cell), "200 → 100 µs" in words(cell)) == (noisy, not noisy)


def test_no_gain_exceeds_the_time_of_the_call() -> None:
    left_out = 0
    for session in (random_measurement(seed)[1] for seed in (0, 1, 2, 47, 51, 63)):
        call_s = session.whole_timings["eager"].median_s.value
        for timing in region_timings_of_whole_call(session).values():
            gain = timing.gain_of_call_s
            left_out += timing.gain_s is not None and gain is None
            assert gain is None or gain.value <= call_s
    assert left_out


@pytest.mark.compiles
def test_regions_of_equal_code_say_so_before_anything_is_measured() -> None:
    ex = rx.explore(torch.nn.Sequential(torch.nn.GELU(), torch.nn.GELU(), torch.nn.Tanh()), (torch.randn(64, 32),))
    ex.mark("first", "modules:0").mark("second", "modules:1").mark("other", "modules:2")
    ex.configure("second", {"max_fusion_size": 63})
    assert "same code" not in to_html(*panel_table(ex.session))
    ex.compile()
    rows = [words(row) for row in panel_table(ex.session)[0][3][2:]]
    assert ["same code as first" in row for row in rows] == [False, True, False]
    assert "compiled" in rows[1]


def test_a_config_key_unknown_to_this_torch_is_shown(measured: Session) -> None:
    (region,) = measured.plan.regions
    unknown = replace(measured, plan=replace(measured.plan, regions=(replace(region, config={"of_later": 3}),)))
    row = to_html(*panel_table(unknown))
    assert '<span class="rx-key">of_later=3</span>' in row


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.FASTER])
def test_a_speedup_without_interval_is_grey_with_a_reason(verdict: Verdict) -> None:
    why = "the machine was too busy"
    session = sessions.measured_alone(speedup=Figure(2.0, why=why), verdict=verdict)
    row = to_html(*panel_table(session))
    assert f'title="eager ÷ compiled of the same rounds, without CI ({why}): {verdict}"' in row
    assert '">2.00×</span>' in row


def test_a_wrong_region_has_a_verdict_and_no_speedup() -> None:
    session = sessions.measured_alone(numerics=NumericsVerdict.FAILED, speedup=None)
    row = to_html(*panel_table(session))
    assert '<span class="rx-bad" title="numerics failed">✗ withheld</span>' in row


def test_every_speedup_that_is_not_comparable_says_so() -> None:
    verdict = NumericsVerdict.NOT_COMPARABLE
    base = sessions.measured(sessions.measured_alone(numerics=verdict))
    found = tuple(replace(timing, numerics=verdict) for timing in base.timings if timing.variant != "eager")
    session = replace(base, timings=found)
    panel = " ".join(map(words, panel_table(session)))
    for shown, least in ((session_html(session), 5), (session_text(session), 5), (panel, 1)):
        text = " ".join(re.sub(r"\d\.\d\d–\d\.\d\d×", "an interval", shown).split())
        speedups = re.split(r"\d\.\d\d×", text)[1:]
        assert len(speedups) >= least
        in_the_answer = r" as fast as (eager|torch\.compile)( \([\d.–]+\))?, results"
        assert all(re.match(f"({in_the_answer})? {verdict}", behind) for behind in speedups)


# --------------------------------------------------------------------------------------------------------- after edits

MEASURED_AT = (20, 45, 80, 120, 160)
CONFIGS: tuple[dict[str, Any], ...] = ({"max_fusion_size": 3}, {"max_fusion_size": rx.DEFAULT})
FIGURES = ["eager_us", "compiled_us", "speedup", "speedup_low", "speedup_high", "verdict", "runs", "samples"]


def figures_of(frame: pd.DataFrame, partition: str) -> tuple[Any, ...]:
    """Return the figures of a partition, None where there is none."""
    row: Any = frame.loc[partition, FIGURES]
    return tuple(None if pd.isna(value) else value for value in row)


@dataclass
class Editor:
    """Makes random edits of an exploration, as the panel does, and remembers what was compiled and measured."""

    ex: rx.Exploration
    random: random.Random
    state: PanelState = field(init=False)
    compiled: set[tuple[Any, ...]] = field(default_factory=set)
    alone: dict[PartitionContent, tuple[Any, ...]] = field(default_factory=dict)
    own: dict[PlanContent, dict[PartitionContent, tuple[Any, ...]]] = field(default_factory=dict)
    whole: dict[PlanContent, pd.DataFrame] = field(default_factory=dict)
    named: int = 0

    def __post_init__(self) -> None:
        self.state = PanelState(self.ex.plan)

    def new_name(self) -> str:
        self.named += 1
        return f"r{self.named}"

    def edit(self) -> str:
        """Make a random edit; return its kind. A refused edit changes nothing."""
        kind = self.random.choice(
            ["mark", "unmark", "rename", "split", "merge", "carve", "uncarve", "configure", "disable", "undo", "redo",
             "take", "undo", "redo", "take"]
        )  # fmt: skip
        if kind in ("undo", "redo"):
            self.set_state(self.state.undone() if kind == "undo" else self.state.redone())
        elif kind == "take" and self.ex.runs:
            self.set_state(self.state.edited(self.random.choice(self.ex.runs).plan))
        else:
            draft = self.ex.draft()
            try:
                self.draft_edit(draft, kind)
            except RegionalExplorerError:
                return f"{kind} refused"
            self.set_state(self.state.edited(draft.plan))
        return kind

    def draft_edit(self, draft: Any, kind: str) -> None:
        names = [region.name for region in draft.plan.regions]
        if kind == "mark" or not names:
            pattern = self.random.choice(["layers.0", "layers.1", "layers.*.up", "layers.*.norm", "layers.*"])
            draft.mark(self.new_name(), modules=pattern)
        elif kind in ("unmark", "split", "uncarve"):
            getattr(draft, kind)(self.random.choice(names))
        elif kind == "rename":
            draft.rename(self.random.choice(names), self.new_name())
        elif kind == "merge":
            draft.merge(*self.random.sample(names, min(2, len(names))))
        elif kind == "carve":
            draft.carve(self.random.choice(names), ops="aten.gelu*")
        elif kind == "configure":
            draft.configure(self.random.choice(names), self.random.choice(CONFIGS))
        elif kind == "disable":
            name = self.random.choice(names)
            (draft.disable if draft.plan[name].enabled else draft.enable)(name)

    def set_state(self, state: PanelState) -> None:
        self.ex.plan = state.plan
        self.state = state

    def measure(self) -> None:
        """Compile and measure the plan; nothing that was compiled before is compiled again."""
        known = {self.compile_request(part) for part in self.ex.session.partitions if part.artifact is not None}
        made = self.ex.compile()
        assert not known & {
            self.compile_request(part) for part in self.ex.session.partitions if part.id in set(made.partition)
        }
        self.ex.benchmark(variants=("regional",), budget_s=0.05)
        session = self.ex.session
        self.compiled |= {self.compile_request(part) for part in session.partitions if part.artifact is not None}
        frame = self.ex.partitions.dropna(subset="eager_us").set_index("partition")
        mine = {partition_content(part): figures_of(frame, part.id) for part in session.partitions}
        self.alone |= mine
        self.own[plan_content(session.partitions)] = mine
        self.whole[plan_content(session.partitions)] = self.ex.timings

    @staticmethod
    def compile_request(part: Any) -> tuple[Any, ...]:
        return part.graph, part.nodes, tuple(sorted(part.config_requested.items()))

    def check(self) -> None:
        """Assert that shown figures are the measured ones, and that all views have the same rows."""
        session = self.ex.session
        frame = self.ex.partitions.dropna(subset="eager_us").set_index("partition")
        known = {**self.alone, **self.own.get(plan_content(session.partitions), {})}
        for part in session.partitions:
            if self.compile_request(part) in self.compiled and self.ex.plan[part.region].enabled:
                assert part.state in (State.COMPILED, State.MEASURED), "stale, though nothing has to be compiled"
            figures = known.get(partition_content(part))
            assert (part.id in frame.index) == (figures is not None)
            if figures is not None:
                assert figures_of(frame, part.id) == figures
            assert (part.state is State.MEASURED) == (part.artifact is not None and part.id in frame.index)
        measured = self.whole.get(plan_content(session.partitions))
        if self.whole:
            assert set(self.ex.timings.plan) == {"another plan" if measured is None else "current"}
        if measured is not None:
            pd.testing.assert_frame_equal(self.ex.timings, measured)
        assert panel_rows(session) == frame_rows(session)


@pytest.mark.parametrize("edits", [100, pytest.param(200, marks=pytest.mark.slow)])
def test_shown_figures_are_those_of_the_plan_after_any_edits(edits: int) -> None:
    ex = rx.explore(programs.Stack(2, 8), (torch.randn(2, 8),), plan=Plan())
    editor = Editor(ex, random.Random(0))  # noqa: S311 - edits, no secret
    kinds = set()
    for number in range(edits):
        kinds.add(editor.edit())
        if number in MEASURED_AT:
            editor.measure()
        editor.check()
    assert {"mark", "unmark", "rename", "split", "merge", "carve", "configure", "undo", "redo", "take"} <= kinds


def test_edits_that_compile_nothing_keep_figures_and_undo_restores_them() -> None:
    def titles() -> set[str]:
        """Return the titles of the table of run times, in the text and in the page."""
        page = re.findall("<h4>(Run time.*?)</h4>", session_html(ex.session))
        return {*page, *(line for line in session_text(ex.session).splitlines() if line.startswith("Run time"))}

    ex = rx.explore(programs.neighbours, programs.pair(grad=False))
    ex.benchmark(variants=("aot_eager", "regional"), budget_s=0.05)
    first, plan = ex.session, ex.plan
    figures = ex.regions.eager_us.tolist()
    parts = ex.reconciliation.part.tolist()  # on a busy machine the regions may be missing: they do not add up

    ex.rename("first", "begin")
    assert ex.regions[["region", "state"]].to_numpy().tolist() == [["begin", "measured"], ["second", "measured"]]
    assert ex.regions.eager_us.tolist() == figures
    assert ex.reconciliation.part.tolist() == [part.replace("first", "begin") for part in parts]
    assert set(ex.timings.plan) == {"current"}
    assert titles() == {"Run time"}

    ex.unmark("second")
    assert ex.regions.state.tolist() == ["measured"]
    assert ex.regions.eager_us.tolist() == figures[:1]
    assert set(ex.timings.plan) == set(ex.numerics.plan) == set(ex.reconciliation.plan) == {"another plan"}
    assert titles() == {"Run time of another plan"}

    ex.configure("begin", {"max_fusion_size": 7}).compile()
    assert ex.regions.state.tolist() == ["measured"], "the code is the same"
    assert ex.regions.eager_us.tolist() == figures[:1]

    ex.configure("begin", {"size_asserts": False}).compile()  # other code of the same kernels
    assert ex.regions.state.tolist() == ["compiled"]
    assert ex.regions.eager_us.isna().all()
    assert "The figures are of the earlier plan." in " ".join(repr(ex).split())

    ex.plan = plan
    # Diagnostics may mention what was tried meanwhile; each compile says how fast this machine is.
    assert replace(ex.session, diagnostics=(), compile_rate=1.0) == replace(first, diagnostics=(), compile_rate=1.0)
    assert len(ex.runs) == 1
    ex.rename("first", "begin").benchmark(variants=("regional",), budget_s=0.05)
    assert [run.plan.regions[0].name for run in ex.runs] == ["begin"], "plans that differ only in a name are one run"
