"""Tables, texts and pages: words that they have, and words that they must not have."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from regional_explorer.page import report
from regional_explorer.page.answer import answer_nodes, sentences
from regional_explorer.page.report import page_html, session_html, session_text
from regional_explorer.picture.svg import session_svg
from regional_explorer.record.answer import answer_of
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes
from regional_explorer.record.benchmark import MemoryPeak, NumericsVerdict, Phase, Verdict
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.figure import Figure, Noise
from regional_explorer.record.partition import State
from regional_explorer.record.session import Session
from regional_explorer.style.element import to_html, words
from regional_explorer.tables.benchmark import (
    MOST_FAILED,
    Scale,
    memory_table,
    numerics_table,
    timings_table,
)
from regional_explorer.tables.plan import diagnostics_nodes, measured_plans, partitions_table
from regional_explorer.tables.regions import regions_alone_table, regions_table
from tests.shared import sessions
from tests.shared.pages import Page
from tests.shared.sessions import cells, measured_alone, notes_text


def test_failed_numerics_have_no_speedup() -> None:
    session = sessions.measured(numerics=NumericsVerdict.FAILED)
    text = timings_table(session).text(width=120)
    regional = cells(timings_table(session))[2]
    assert regional == ["forward", "regional", "320 µs", "6.40 µs", "–", "–", "", "withheld", "failed", "40"]
    assert "1.24" not in session_text(session)
    assert "1.24" not in session_html(session)
    assert "faster" not in text
    assert Scale.of(session.timings).chart(session.timings[2]) == []


def test_shared_warning_is_shown_once() -> None:
    base = sessions.measured()

    def text(*figures: int) -> str:
        timings = (
            replace(found, warnings=(f"the machine got quicker meanwhile, by {figure}%: look",))
            for found, figure in zip(base.timings, figures, strict=True)
        )
        return " ".join(timings_table(replace(base, timings=tuple(timings))).text().split())

    assert "eager, traced, your plan, torch.compile: the machine got quicker meanwhile, by 20%: look" in text(
        20, 20, 20, 20
    )
    differing = "eager: the machine got quicker meanwhile, by 20%: look; likewise traced, your plan, torch.compile"
    assert differing in text(20, 21, 22, 23)
    assert text(20, 21, 22, 23).count("got quicker") == 1
    of_backward = replace(base.timings[0], phase=Phase.BACKWARD, warnings=("slow",))
    assert "eager backward: slow" in timings_table(replace(base, timings=(*base.timings, of_backward))).text()


def test_empty_session_gives_advice() -> None:
    text = " ".join(session_text(sessions.session()).split())
    assert 'No region yet. Mark one with ex.mark("mlp", modules="layers.*.mlp")' in text
    assert "Nothing measured yet. ex.benchmark()" in text


@pytest.mark.parametrize("show", [session_html, page_html])
def test_pages_do_not_advise_to_call_methods_for_empty_tables(show: Callable[[Session], str]) -> None:
    assert "Nothing measured yet" not in show(sessions.session())


def test_the_table_of_regions_says_why_one_runs_eagerly() -> None:
    def state_and_note(session: Session) -> tuple[str, str]:
        return cells(regions_table(session))[0][-1], notes_text(regions_table(session))

    base = sessions.session((sessions.layers_graph(1),), (sessions.region("attn"),))
    assert state_and_note(base) == ("empty", "")
    off = sessions.training_session(2, state=State.EAGER)
    assert state_and_note(replace(off, plan=off.plan.changed("mlp", enabled=False))) == ("eager", "mlp: disabled")
    whole = replace(sessions.training_session(2), partitions=())
    assert state_and_note(whole) == ("eager", "mlp: none of its ops could be cut out")
    half = sessions.training_session(2)
    half = replace(half, partitions=(replace(half.partitions[0], state=State.FAILED), *half.partitions[1:]))
    assert state_and_note(half) == ("failed", "mlp: 1 failed, 3 compiled")


def test_a_config_not_applied_as_requested_has_a_warning() -> None:
    base = sessions.training_session(1, max_autotune=True, epilogue_fusion=False, shape_padding=True)
    done = {"max_autotune": True, "epilogue_fusion": True, "cpp_wrapper": True}
    (part, *_), made = base.partitions, base.artifacts["artifact-0/forward"]
    session = replace(base, partitions=(part,), artifacts={"artifact-0/forward": replace(made, config=done)})
    assert cells(partitions_table(session))[0][6] == (
        "max_autotune=True, epilogue_fusion=True (differs), shape_padding missing, cpp_wrapper=True (not requested)"
    )
    assert "rx-warn" in to_html(*partitions_table(session).elements())
    assert "differs" in partitions_table(session).text()


def test_a_failed_partition_shows_its_error() -> None:
    session = sessions.training_session(2, state=State.FAILED, error="CppCompileError: no compiler")
    page = Page(to_html(*report.report_nodes(session, without=("Regions",))))
    assert page.texts["td"][4] == "✗ failed"
    assert "mlp in 0/backward: CppCompileError: no compiler" in page.words
    assert "mlp in 0/forward: CppCompileError: no compiler" in partitions_table(session).text()


def test_numerics_show_the_closest_to_failing_and_all_failed() -> None:
    assert [row[1] for row in cells(numerics_table(sessions.measured()))] == ["output 0"]
    assert [row[1] for row in cells(numerics_table(sessions.measured(numerics=NumericsVerdict.FAILED)))] == [
        "output 0",
        "gradient of layers.0.w",
    ]


def test_first_failed_tensors_are_shown() -> None:
    session = sessions.measured(numerics=NumericsVerdict.FAILED)
    right, wrong = replace(session.numerics[0], verdict=NumericsVerdict.OK), session.numerics[0]
    for count, which in ((8, "all that failed"), (9, "the first 8 that failed in each variant")):
        table = numerics_table(replace(session, numerics=(right, *[wrong] * count)))
        assert len(cells(table)) == MOST_FAILED
        assert f"The table shows the closest to failing, and {which};" in " ".join(table.notes())


def test_chaotic_tensors_are_shown_before_tensors_that_cannot_be_compared() -> None:
    session = sessions.measured(numerics=NumericsVerdict.CHAOTIC)
    chaotic = session.numerics[0]
    farther = replace(chaotic, tensor="noise", verdict=NumericsVerdict.NOT_COMPARABLE, error=1.0, variant_error=1.0)
    assert farther.share > chaotic.share
    assert [row[1] for row in cells(numerics_table(replace(session, numerics=(farther, chaotic))))] == [chaotic.tensor]


def test_informational_tables_are_folded() -> None:
    info = Diagnostic(DiagnosticCode.REGION_WORTH, "Something happened", severity=Severity.INFO)
    severe = tuple(
        replace(info, severity=severity) for severity in (Severity.WARNING, Severity.ERROR) for _ in range(4)
    )
    page = to_html(*diagnostics_nodes((info, *severe, info)))
    assert "<h4>8 diagnostics</h4>" in page
    assert "<details><summary>2 infos</summary>" in page
    assert "<details" not in to_html(*diagnostics_nodes(severe))
    assert diagnostics_nodes(()) == []


def test_every_result_begins_with_the_answer() -> None:
    answer = answer_of(sessions.measured())
    (shown,) = answer_nodes(answer)
    first = shown[2][2]
    assert first[1]["class"] == "rx-headline"
    text = " ".join(words(first).split())
    assert text.startswith("Use your plan: ▲ 1.24× as fast as eager (1.21–1.27)")
    _use, *others = sentences(answer)
    assert text.endswith(" ".join(others))


def busy_session() -> Session:
    """Return a session with noise in its benchmark, its profile and the kernel times of an artifact."""
    session = sessions.profiled(sessions.measured())
    key, artifact = next(iter(session.artifacts.items()))
    assert session.conditions
    assert session.profile
    times = ArtifactKernelTimes(noise=Noise(1_000_000))
    return replace(
        session,
        conditions=replace(session.conditions, noise=Noise(100, 30, 30, 1.0, 2)),
        profile=replace(session.profile, noise=Noise(300, 80, 80, 0.6, 2)),
        artifacts={**session.artifacts, key: replace(artifact, kernel_times=times)},
    )


def test_busy_machine_is_reported_once_at_the_top() -> None:
    busy = busy_session()
    sentence = "The machine was busy: 110 of 400 rounds left out; other processes used 0.7 of 2 cores."
    assert busy.noise.sentence == sentence, "the quiet rounds of the kernels do not hide it"
    for shown in (session_text(busy), words(session_html(busy)), words(page_html(busy))):
        text = " ".join(shown.split())
        assert text.count("machine was busy") == text[: text.index("Run time")].count(sentence) == 1
    assert "busy" not in session_text(sessions.profiled(sessions.measured()))
    by_no_process = (
        "The machine was busy: 30 of 100 rounds left out; nothing on this system was seen: a virtual machine's "
        "neighbour or the processor's clock."
    )
    assert Noise(100, 30, 30, 0.04, 2).sentence == by_no_process
    assert busy.conditions
    hopeless = replace(busy, conditions=replace(busy.conditions, noise=Noise(100, 90)))
    assert (
        "80 of 400 rounds left out; 90 more were disturbed and kept, as too few would be left"
        in hopeless.noise.sentence
    )
    (times,) = (made.kernel_times for made in busy.artifacts.values() if made.kernel_times)
    kernels = {"a": replace(next(iter(busy.artifacts.values())), kernel_times=replace(times, noise=Noise(10, 5, 5)))}
    assert replace(busy, artifacts=kernels).noise.rounds == 410


def test_other_work_that_changes_nothing_is_not_mentioned() -> None:
    session = busy_session()
    assert session.conditions
    few = Noise(100, 9, 9, 1.0, 2, culprit="the browser used 1.0 of 2 cores")
    beside = replace(session, conditions=replace(session.conditions, noise=few), profile=None, artifacts={})
    sure = [replace(row, verdict=Verdict.FASTER) for row in session.timings]
    assert replace(beside, timings=tuple(sure)).noise.sentence == ""
    unsure = replace(beside, timings=(*sure[1:], replace(sure[0], verdict=Verdict.INCONCLUSIVE)))
    assert unsure.noise.sentence == "The machine was busy: the browser used 1.0 of 2 cores."


def test_different_disturbances_are_all_reported() -> None:
    session = busy_session()
    assert session.conditions
    assert session.profile
    disturbed, shared = Noise(100, 12, 12, 0.05, 2), Noise(300, 0, 0, 0.21, 2)
    assert (disturbed + shared).sentence == ""
    both = replace(
        session,
        conditions=replace(session.conditions, noise=disturbed),
        profile=replace(session.profile, noise=shared),
    )
    assert both.noise.sentence == disturbed.sentence != ""


@pytest.mark.parametrize("width", [100, 120])
def test_text_keeps_to_the_width(width: int) -> None:
    # Without compiles: numbers are not wrapped, and those of all phases are wider.
    text = session_text(replace(sessions.session_with_diagnostics(), artifacts={}), width=width)
    assert max(map(len, text.splitlines())) <= width


def test_narrow_columns_break_between_words() -> None:
    text = numerics_table(sessions.measured(numerics=NumericsVerdict.FAILED)).text(width=80)
    assert {"your", "float32", "gradient", "layers.0.w"} <= set(text.split())
    assert "320 µs" in timings_table(sessions.measured()).text(width=60)


def test_text_aligns_wide_characters() -> None:
    session = replace(
        sessions.measured(), timings=(sessions.timing("日本", 1e-3, 1.0), sessions.timing("ab", 1e-3, 1.0))
    )
    lines = [line for line in timings_table(session).text().splitlines() if "ms" in line]
    assert lines[0].index("1.00 ms") == lines[1].index("1.00 ms") - 2


def test_styles_are_scoped_under_one_class() -> None:
    page = session_html(sessions.training_session(2))
    sheet = re.sub(r"@media\([^)]*\)\{", "", page[page.index("<style>") + 7 : page.index("</style>")])
    while (flat := re.sub(r"[^{};]+\{[^{}]*\}(?=[^{}]*\})", "", sheet)) != sheet:  # what is nested is inside a class
        sheet = flat
    for selectors in re.findall(r"([^{}]+)\{", sheet):
        for selector in re.sub(r":(is|not)\((?:[^()]|\([^()]*\))*\)", "", selectors).split(","):
            assert ".rx" in selector, selector


def test_a_saved_result_stays_small() -> None:
    session = sessions.measured(sessions.training_session(40))
    assert len(session_html(session, picture=session_svg(session)).encode()) < 100_000


def test_whiskers_of_one_table_share_a_scale_that_includes_one() -> None:
    timings = sessions.measured().timings
    scale = Scale.of(timings)
    assert scale.low < 0.72
    assert scale.high > 1.27
    slower, faster = (to_html(*scale.chart(timing)) for timing in timings[1:3])
    assert "rx-bad" in slower
    assert "rx-good" in faster
    assert 'aria-label="1.24×, CI 1.21–1.27×"' in faster
    assert scale.at(0.75) < scale.at(1) < scale.at(1.24)
    unsure = replace(timings[2], speedup=Figure(9.0, why="the machine was too busy"))
    assert scale.chart(unsure) == []
    assert Scale.of([*timings, unsure]) == scale
    assert scale.at(1) - scale.at(0.8) == pytest.approx(scale.at(1.25) - scale.at(1)), "a log axis"


def test_a_table_says_how_many_samples_a_ratio_needs() -> None:
    base = sessions.measured()
    few = tuple(replace(one, samples_s=one.samples_s[:7], iqr_s=None, speedup=None) for one in base.timings)
    assert "Fewer than 8 samples" in notes_text(timings_table(replace(base, timings=few)))
    assert "fewer than 8 samples" not in notes_text(timings_table(base))


def test_phases_come_in_their_order() -> None:
    base = sessions.measured()
    backward = replace(base.timings[0], phase=Phase.BACKWARD)
    found = cells(timings_table(replace(base, timings=(backward, *base.timings))))
    assert [row[0] for row in found] == ["forward"] * 4 + ["backward"]


# ------------------------------------------------------------------------------------------------------- regions alone


def test_a_failed_check_shows_no_speedup_anywhere() -> None:
    session = measured_alone(numerics=NumericsVerdict.FAILED, speedup=None, worst_tensor="mm1")
    (row,) = cells(regions_alone_table(session))
    assert row[3:9] == ["–", "–", "–", "withheld", "failed", "mm1"]
    assert row[-1] == "–"


def test_useless_compile_never_pays_off() -> None:
    fields = {"verdict": Verdict.SLOWER, "speedup": Figure(0.5, 0.4, 0.6), "warnings": ("busy machine: very",)}
    found = regions_alone_table(measured_alone(**fields))
    (row,) = cells(found)
    assert (row[3], row[-1]) == ("−600 µs", "never")
    assert notes_text(found).count("busy machine") == 1


def test_unmeasurably_small_peaks_are_shown_as_bounds() -> None:
    found = (Figure(25_200_000, 25_000_000, 26_000_000), Figure(100, 90, 110))
    peaks = tuple(
        MemoryPeak(name, peak, "resident set", 1 << 20) for name, peak in zip(("eager", "full"), found, strict=True)
    )
    assert cells(memory_table(replace(measured_alone(), memory=peaks))) == [
        ["eager", "24.0 MiB", "23.8 MiB to 24.8 MiB", "resident set"],
        ["full", "below 1.00 MiB", "–", "resident set"],
    ]


def test_bounds_of_a_peak_may_be_fractions_of_bytes() -> None:
    peak = MemoryPeak("eager", Figure(2e6, 1_500_000.5, 2_500_000.5), "resident set")
    frame = timings_table(replace(sessions.measured(), memory=(peak,))).dataframe()
    of_eager = frame.variant == "eager"
    bounds = frame[of_eager][["peak_low_bytes", "peak_high_bytes"]]
    assert set(map(tuple, bounds.to_numpy())) == {(1_500_000, 2_500_000)}
    assert frame[~of_eager].peak_bytes.isna().all()


def test_regions_alone_need_measurements_of_all_partitions() -> None:
    # A region with only some partitions measured has no row.
    interrupted = replace(measured_alone(), partition_timings=measured_alone().partition_timings[:1])
    for show in (session_text, session_html, page_html):
        assert "Regions alone" in show(measured_alone())
        for session in (sessions.training_session(), interrupted):
            assert "Regions alone" not in show(session)
            assert "How it adds up" not in show(session)


# -------------------------------------------------------------------------------------------------- the saved page


def test_page_is_self_contained() -> None:
    page = page_html(sessions.measured(sessions.session_with_diagnostics()))
    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r"url\(|@import|http(?!-equiv|://www\.w3\.org/2000/svg)", page)
    parsed = Page(page)
    assert not {"href", "src", "action"} & parsed.attributes
    _, code = parsed.texts["script"]
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert policy[1].split(";") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


@pytest.mark.parametrize("add", [sessions.measured, sessions.profiled])
def test_a_page_of_layers_stays_small(add: Callable[[Session], Session]) -> None:
    page = page_html(add(sessions.training_session(24)))
    assert len(page.encode()) < 150_000


def test_the_page_holds_the_times_of_single_regions() -> None:
    base = sessions.measured()
    assert "Regions alone" not in page_html(base)
    alone = tuple(sessions.partition_timing(part.id, 3e-4, 1e-4) for part in base.partitions)
    page = page_html(replace(base, partition_timings=alone))
    assert page.count("<h4>Regions alone</h4>") == 1
    assert re.search("1.20 ms.*400 µs.*3.00×", re.sub("<[^>]*>", " ", page.split("<h4>Regions alone</h4>")[1]))


def test_boxes_of_a_profiled_page_have_shares_of_the_time() -> None:
    view = Page(page_html(sessions.profiled(sessions.training_session()))).data
    assert [overlay["title"] for overlay in view["overlays"]] == ["module", "share of the time"]
    for number in range(len(view["graphs"])):
        times = view[f"folds{number}"]["times"]
        shown_times = [*times["folds"], *times["nodes"]]
        assert all(tooltip.startswith(f"{label} of the call") for _, label, tooltip in shown_times)
        assert len({seconds for seconds, *_ in shown_times}) > 4


def test_the_page_holds_source_code_diagnostics_and_plans() -> None:
    base = sessions.measured(sessions.session_with_diagnostics())
    session = sessions.with_code(base, ArtifactCode("def call(args):\n    return args  # </script>\n"))
    other = replace(session, plan=session.plan.changed("mlp", enabled=False))
    page = page_html(session, measured_plans((session, other), session))
    assert "<summary>Code of mlp</summary>" in page
    assert page.count("&lt;/script&gt;") == 1
    assert "Measured plans" in page
    assert "mlp off" in page
    assert "Use this plan" not in page
    assert "<summary>Diagnostics (2)</summary>" in page
    assert "y = self.mlp(x)" in json.dumps(Page(page).data["part_source"])


@pytest.mark.parametrize(
    ("numerics", "shown"), [(NumericsVerdict.FAILED, "✗ withheld"), (NumericsVerdict.OK, "▲ 1.24×")]
)
def test_a_measured_plan_with_wrong_results_shows_no_speedup(numerics: NumericsVerdict, shown: str) -> None:
    session = sessions.measured(numerics=numerics)
    other = replace(session, plan=session.plan.changed("mlp", enabled=False))
    assert shown in to_html(*measured_plans((session, other), session))
