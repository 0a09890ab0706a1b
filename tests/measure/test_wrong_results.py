"""Variants whose results are wrong, or that rounding decides: found, told with their cause, kept in the plan's file."""

import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.command.cli import EXIT_NO, main
from regional_explorer.diagnostics.measured import wrong_variant_diagnostics
from regional_explorer.errors import PlanError
from regional_explorer.measure.variants import CompiledVariant, Variants
from regional_explorer.page.report import page_html
from regional_explorer.record.benchmark import CompileCost, Numerics, NumericsVerdict, VariantName
from regional_explorer.record.configs import RANDOM_AS_EAGER
from regional_explorer.record.diagnostic import Severity
from regional_explorer.record.plan_file import ExplorationRecord, wrong_when_explored
from regional_explorer.torch_api import graphs
from regional_explorer.torch_api.dynamo import compile_isolated
from regional_explorer.torch_api.torch_config import settings_text, under_config
from tests.measure.planted import logistic
from tests.shared import diagnostics_programs, sessions
from tests.shared.checks import change_code, codes, only

pytestmark = pytest.mark.compiles

CODE = "variant-wrong"


def planted(function: Callable[..., Any], content: Any) -> CompiledVariant:
    """Return what a compile would, of another function, which Inductor never sees."""
    return CompiledVariant(compile_isolated(function, "eager"), CompileCost("planted", 0.1, "warm"), content)


def plant_full(ex: rx.Exploration, function: Callable[..., Any]) -> rx.Exploration:
    """Let ``full`` run another function."""
    ex.live.variants._compiled[VariantName.FULL] = planted(function, (settings_text(), None))
    return ex


def plant_twin(ex: rx.Exploration, function: Callable[..., Any]) -> rx.Exploration:
    """Let the twin of ``full`` run another function."""
    with under_config(RANDOM_AS_EAGER):
        ex.live.variants._twin = planted(function, settings_text())
    return ex


def measured(ex: rx.Exploration, *variants: str, **options: Any) -> rx.Exploration:
    ex.benchmark(variants, 0.1, regions=False, **options)
    return ex


def verdicts(ex: rx.Exploration, variant: str = "full") -> set[str]:
    return set(ex.numerics[ex.numerics.variant == variant].verdict)


# ----------------------------------------------------------------------------------------------------------- full alone


def two(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sin() * y, (x > 0).int()


def with_one(tensor: torch.Tensor, index: int, value: float) -> torch.Tensor:
    """Return a tensor with another value in one place."""
    return torch.where(torch.arange(tensor.numel()).view(tensor.shape) == index, value, tensor)


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 1.5


WRONG = {
    "forward alone": (
        lambda x, y: (two(x, y)[0].detach() * 0.01 + two(x, y)[0], two(x, y)[1]),
        "output[0]: 0.00",
        "grad",
    ),
    "gradient alone": (lambda x, y: two(WrongGradient.apply(x), y), "grad args[0]: 0.", "output"),
    "not a number": (
        lambda x, y: (with_one(two(x, y)[0], 3, float("nan")), two(x, y)[1]),
        "output[0]: infinite or not a number where eager is not, or the reverse",
        "output[1]",
    ),
    "one element": (
        lambda x, y: (two(x, y)[0] + with_one(torch.zeros(64, 64), 3, 1e-5), two(x, y)[1]),
        "output[0]: one element off by 1e-05, ",
        "output[1]",
    ),
    "whole numbers": (
        lambda x, y: (two(x, y)[0], two(x, y)[1] * 2),
        "output[1]: off by up to 1, and has to be equal",
        "grad",
    ),
    "no gradient": (
        lambda x, y: (x.detach().sin() * y, two(x, y)[1]),
        "grad args[0]: either eager or the variant has no gradient",
        "output",
    ),
    "another dtype": (
        lambda x, y: (two(x, y)[0].double(), two(x, y)[1]),
        "output[0]: torch.float64 [64, 64], not torch.float32 [64, 64]",
        "output[1]",
    ),
}


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.rand(64, 64, requires_grad=True), torch.rand(64, 64, requires_grad=True)


@pytest.mark.parametrize(("function", "said", "unsaid"), WRONG.values(), ids=WRONG)
def test_a_wrong_full_is_found_with_its_first_tensors_and_their_errors(
    function: Callable[..., Any], said: str, unsaid: str
) -> None:
    ex = measured(plant_full(rx.explore(two, pair()), function), "aot_eager", "full")
    found = only(ex, CODE)
    assert found.severity is Severity.ERROR
    assert found.message.startswith("The results of plain torch.compile (full) are wrong: ")
    assert said in found.message
    assert unsaid not in found.message
    assert "The results of aot_eager are right." in found.message
    assert "ex.mark('r', ops='*')" in found.remedy
    rows = ex.timings[ex.timings.variant == "full"]
    assert set(rows.verdict) == {"withheld"}
    assert rows.speedup.isna().all()
    assert "torch.compile: not compared with eager, as the results of torch.compile are wrong" in " ".join(
        repr(ex).split()
    )


def test_a_right_full_gives_no_finding() -> None:
    assert CODE not in codes(measured(plant_full(rx.explore(two, pair()), two), "aot_eager", "full"))


def test_first_wrong_tensors_are_named() -> None:
    def many(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.sin() * factor for factor in range(1, 9)]

    ex = plant_full(rx.explore(many, (torch.rand(8),)), lambda x: [value * 2 for value in many(x)])
    message = only(measured(ex, "full"), CODE).message
    assert message.count("output[") == 3
    assert "; and 5 more of 8 tensors" in message


def test_chaotic_rounding_is_one_finding() -> None:
    ex = rx.explore(logistic, (torch.rand(1000),))
    measured(plant_full(ex, lambda x: logistic(x) * 0.5), "aot_eager", "full")
    found = only(ex, CODE)
    assert found.severity is Severity.WARNING
    assert "It is unknown whether the results of plain torch.compile (full) are right" in found.message
    assert set(ex.timings[ex.timings.variant == "full"].verdict) == {"withheld"}
    rows = tuple(replace(row, variant="regional") for row in ex.session.numerics if row.variant == "full")
    both = replace(ex.session, numerics=(*ex.session.numerics, *rows))
    (found,) = wrong_variant_diagnostics(both, ())
    assert "the plan (regional) and of plain torch.compile (full)" in found.message


def test_a_right_plan_is_the_remedy_for_a_wrong_full() -> None:
    ex = rx.explore(two, pair()).mark("r", ops="aten.sin*")
    found = only(measured(plant_full(ex, lambda x, y: two(x * 2, y)), "aot_eager", "regional", "full"), CODE)
    assert "The results of aot_eager and regional are right." in found.message
    assert found.remedy == "The plan is right: run it with rx.compile(fn, ex.save_plan('plan.json'))."
    ex.mark("s", ops="aten.mul*")
    assert "The results of aot_eager are right." in only(ex, CODE).message, "of this plan nothing is known"


def test_the_program_of_the_page_shows_a_write_that_inductor_loses(tmp_path: Path) -> None:
    ex = diagnostics_programs.explored(diagnostics_programs.measured_programs()[CODE], tmp_path)
    if verdicts(ex) == {"ok"}:
        pytest.skip("this torch compiles it right")
    assert "written args[0]: " in only(ex, CODE).message
    assert "The plan is right" in only(ex, CODE).remedy
    assert ex.timings.set_index("variant").verdict["full"] == "withheld"


# --------------------------------------------------------------------------------------------------------- the plan


def halved(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda args: tuple(value * 0.5 for value in right(args))


def marked(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        y = x.sin() * 2
    return y.cos()


@pytest.fixture
def wrong_plan() -> rx.Exploration:
    ex = rx.explore(marked, (torch.rand(64, 64),))
    ex.compile()
    change_code(ex, halved)
    return measured(ex, "aot_eager", "regional")


def test_wrong_plan_and_its_cure_are_found(wrong_plan: rx.Exploration) -> None:
    ex = wrong_plan
    found = only(ex, CODE)
    assert found.message.startswith("The results of the plan (regional) are wrong: output: ")
    assert "ex.benchmark(regions=True) says which region" in found.remedy
    with pytest.MonkeyPatch.context() as patch:
        artifact = ex.live.program.switches[0].artifact
        patch.setattr(ex.live.program, "twin", lambda *_: artifact)
        ex.benchmark(("regional",), 0.1)
    assert only(ex, "region-numerics").remedy in only(ex, CODE).remedy
    assert "ex.disable('r')" in only(ex, CODE).remedy
    ex.disable("r")
    assert {CODE, "region-numerics"}.isdisjoint(codes(ex))


def test_no_region_is_blamed_if_all_are_right_alone(wrong_plan: rx.Exploration) -> None:
    session = wrong_plan.session
    alone = Numerics("compiled", "mul", verdict=NumericsVerdict.OK, partition=session.partitions[0].id)
    (found,) = wrong_variant_diagnostics(replace(session, partition_numerics=(alone,)), ())
    assert found.remedy.startswith("No region is wrong alone")


def warned(work: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what ``work`` returns, and the warnings about wrong results."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = work()
    about = [one for one in found if "wrong" in str(one.message)]
    assert all(one.filename == __file__ for one in about)
    return result, [str(one.message) for one in about]


def test_wrong_plan_is_reported_everywhere(
    wrong_plan: rx.Exploration, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ex, x = wrong_plan, torch.rand(64, 64)
    path, said = warned(lambda: ex.save_plan(tmp_path / "plan.json"))
    assert len(said) == 1
    assert said[0].startswith("The results of the plan (regional) are wrong: output: ")
    assert "The plan was saved anyway." in said[0]
    explored = json.loads(path.read_text())["explored"]
    assert (explored["numerics"], explored["wrong"].partition(":")[0]) == ("failed", "output")
    assert ex.to_source().startswith("# The results of the plan (regional) are wrong: output: ")
    for text in (page_html(ex.session), repr(rx.load(ex.save(tmp_path / "x.json")))):
        assert "The results of your plan are wrong: no speed is given" in text
    assert "The results of the plan (regional) are wrong" in page_html(ex.session)

    compiled, said = warned(lambda: rx.compile(marked, path))
    assert len(said) == 1
    assert f"[{CODE}] When it was explored, the results of the plan were wrong: output: " in said[0]
    assert "ex." not in said[0]
    torch.testing.assert_close(compiled(x), marked(x))
    assert warned(lambda: compiled(x))[1] == []
    assert [str(one.code) for one in rx.status(compiled).diagnostics].count(CODE) == 1
    assert f"[{CODE}]" in repr(rx.status(compiled))
    with pytest.raises(PlanError, match=r"results of the plan were wrong.*strict=True this is an error"):
        rx.compile(marked, path, strict=True)

    here = rx.explore(marked, (x,), plan=path)
    assert only(here, CODE).message.startswith("When it was explored, the results of the plan were wrong")
    assert CODE not in codes(here.disable("r")), "that is another plan"
    assert CODE in codes(here.enable("r"))
    measured(here, "regional")
    assert CODE not in codes(here), "here it is right"

    model = tmp_path / "model_of_mine.py"
    model.write_text("import torch\nimport regional_explorer as rx\nx = torch.rand(64, 64)\n" + SOURCE_OF_MARKED)
    assert main(["check", str(path), str(model), "marked(x)", "--budget", "0.1", "--quiet"]) == EXIT_NO
    out = capsys.readouterr().out
    assert out.startswith("The plan does not hold.")
    assert "numerics: ok" in out
    assert f"[{CODE}] When it was explored" in out


SOURCE_OF_MARKED = """
def marked(x):
    with rx.region("r"):
        y = x.sin() * 2
    return y.cos()
"""


def test_right_plan_gives_no_warning(tmp_path: Path) -> None:
    ex = measured(rx.explore(marked, (torch.rand(64, 64),)), "regional")
    path, said = warned(lambda: ex.save_plan(tmp_path / "plan.json"))
    explored = json.loads(path.read_text())["explored"]
    assert (said, explored["numerics"], explored.get("wrong", "")) == ([], "ok", "")
    assert warned(lambda: rx.compile(marked, path, strict=True))[1] == []


def test_unchecked_plan_is_unknown(tmp_path: Path) -> None:
    path = rx.explore(marked, (torch.rand(64, 64),)).save_plan(tmp_path / "plan.json")
    assert json.loads(path.read_text())["explored"].get("numerics") is None
    assert warned(lambda: rx.compile(marked, path, strict=True))[1] == []


@pytest.mark.parametrize("numerics", NumericsVerdict)
def test_a_plan_file_tells_of_results_that_withhold_the_speedup(numerics: NumericsVerdict) -> None:
    explored = ExplorationRecord("f", sessions.ENVIRONMENT, grad=False, numerics=numerics, wrong="output: 3 from eager")
    found = wrong_when_explored(explored)
    assert [str(one.severity) for one in found] == {"failed": ["error"], "chaotic": ["warning"]}.get(numerics, [])
    assert all("output: 3 from eager" in one.message for one in found)
    assert wrong_when_explored(replace(explored, numerics=None)) == []


def test_a_check_of_a_chaotic_plan_does_not_hold() -> None:
    from regional_explorer.command.checks import plan_check

    assert plan_check(sessions.measured(), "eager").holds
    for numerics in (NumericsVerdict.CHAOTIC, NumericsVerdict.FAILED):
        found = plan_check(sessions.measured(numerics=numerics), "eager")
        assert (found.holds, found.numerics) == (False, numerics)
        assert f"[{CODE}]" in found.problems[0]
        assert found.speeds[0].verdict == f"withheld: numerics of regional {numerics}"


# ------------------------------------------------------------------------------------------------ the trace, the call


def differing(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        y = x.sin()
    return y * (2 if torch.compiler.is_compiling() else 3)


def test_a_wrong_trace_is_not_blamed_on_a_compiler(tmp_path: Path) -> None:
    ex = plant_full(rx.explore(differing, (torch.rand(64, 64),)), lambda x: x.sin() * 2)
    measured(ex, "aot_eager", "regional", "full")
    assert verdicts(ex) == verdicts(ex, "regional") == {"failed"}
    assert codes(ex) == ["trace-differs"]
    path, said = warned(lambda: ex.save_plan(tmp_path / "plan.json"))
    assert len(said) == 1, "the plan is wrong all the same"
    assert "trace-differs" in said[0]
    with pytest.raises(PlanError, match="results of the plan were wrong"):
        rx.compile(differing, path, strict=True)


def test_full_is_blamed_beyond_the_trace() -> None:
    ex = plant_full(rx.explore(differing, (torch.rand(64, 64),)), lambda x: x.sin() * 5)
    measured(ex, "aot_eager", "full")
    assert set(codes(ex)) == {"trace-differs", CODE}
    assert "(full)" in only(ex, CODE).message
    assert "aot_eager" not in only(ex, CODE).message
    measured(ex, "full")
    assert codes(ex) == ["trace-differs"], "without aot_eager nobody knows what the trace explains"


def row(variant: str, tensor: str, error: float, verdict: NumericsVerdict = NumericsVerdict.FAILED) -> Numerics:
    return Numerics(variant, tensor, "float32", error=error, max_error=error, tolerance=0.1, verdict=verdict)


def test_wrong_results_of_the_graphs_are_one_finding() -> None:
    rows = [row(name, "output", 1.0) for name in ("aot_eager", "regional", "full")]
    session = replace(sessions.measured(), numerics=(*rows, row("full", "grad w", 2.0)))
    trace, full = sorted(wrong_variant_diagnostics(session, ()), key=lambda found: "plain" in found.message[:40])
    assert "(aot_eager) and of the plan (regional) are wrong: output: 1 from eager (0.1 is allowed)" in trace.message
    assert "No compiler is the cause" in trace.remedy
    assert "(full) are wrong: grad w: 2 from eager" in full.message
    assert "output" not in full.message


class Drift:
    added: Iterator[float] = itertools.repeat(0.0)


def drift(x: torch.Tensor) -> torch.Tensor:
    return x + next(Drift.added)


untraced_drift: Any = torch.compiler.disable(drift)


def test_a_nondeterministic_call_is_the_cause_of_all_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows in the check of the second variant; what the first was called does not stand beside that."""
    ex = rx.explore(lambda x: untraced_drift(x.sin()) * 2, (torch.rand(8),)).mark("r", ops="*")
    plant_full(ex, lambda x: x.sin() * 3)
    changing = itertools.count()
    looked = "regional_explorer.measure.benchmark.recheck_eager"
    from regional_explorer.measure.reference import recheck_eager

    def looks(reference: Any, run_eager: Any) -> Any:
        if next(changing):
            monkeypatch.setattr(Drift, "added", itertools.repeat(1.0))
        return recheck_eager(reference, run_eager)

    monkeypatch.setattr(looked, looks)
    upstream = planted(lambda x: x.sin() * 4, None)
    monkeypatch.setattr(Variants, "compile", lambda self, name: self._compiled[name])
    ex.live.variants._compiled[VariantName.UPSTREAM] = upstream
    measured(ex, "full", "upstream")
    assert verdicts(ex) == verdicts(ex, "upstream") == {"not comparable"}
    assert "call-nondeterministic" in codes(ex)
    assert CODE not in codes(ex)


# ------------------------------------------------------------------------------------------------------ random numbers


def dropped(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.sin(), 0.5) * 2


def other_mask(x: torch.Tensor) -> torch.Tensor:
    """As Inductor does: another mask than eager's."""
    torch.rand(3)
    return dropped(x)


def drawing() -> rx.Exploration:
    torch.manual_seed(0)
    return plant_full(rx.explore(dropped, (torch.rand(64, 64, requires_grad=True),)), other_mask)


TWIN = "checked on a twin compiled with fallback_random"


def test_full_is_checked_on_a_twin() -> None:
    ex = measured(plant_twin(drawing(), dropped), "full")
    assert verdicts(ex) == {"ok"}
    assert set(ex.numerics.note) == {TWIN}
    assert codes(ex) == []
    assert ex.session.whole_timings["full"].numerics == "ok"


@pytest.mark.parametrize(
    ("wrong", "tensor"),
    [(lambda x: dropped(WrongGradient.apply(x)), "grad args[0]"), (lambda x: dropped(x) * 1.01, "output")],
)
def test_a_twin_that_is_wrong_fails_full(wrong: Callable[..., Any], tensor: str) -> None:
    ex = measured(plant_twin(drawing(), wrong), "full")
    found = only(ex, CODE)
    assert f"(full) are wrong: {tensor}: " in found.message
    assert f"{TWIN.capitalize()}." in found.message
    assert set(ex.timings[ex.timings.variant == "full"].verdict) == {"withheld"}


def test_a_twin_that_does_not_compile_leaves_full_not_comparable(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: Any) -> Any:
        raise RuntimeError("no room\nfor a twin")

    ex = drawing()
    monkeypatch.setattr(Variants, "_first_run", raising)
    measured(ex, "full")
    assert verdicts(ex) == {"not comparable"}
    (note,) = set(ex.numerics[ex.numerics.verdict != "ok"].note)
    assert note == "Inductor draws its own random numbers, and a twin with fallback_random fails: RuntimeError: no room"
    assert codes(ex) == []
    assert "full" in set(ex.timings.variant)


@contextmanager
def counted_twins(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield what is compiled meanwhile; a twin is never Inductor's."""
    compiled: list[str] = []

    def first_run(_variants: Any, what: str, function: Any, _backend: Any, _watched: Any) -> Any:
        compiled.append(what)
        return compile_isolated(function, "eager"), CompileCost(what, 0.5, "cold")

    monkeypatch.setattr(Variants, "_first_run", first_run)
    yield compiled


def test_a_twin_is_an_extra_task_compiled_once_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    ex, tasks = drawing(), []
    with counted_twins(monkeypatch) as compiled:
        for _ in range(2):
            measured(ex, "full", run=rx.Run(progress=lambda doing, _: tasks.append(doing)))
    assert compiled == ["full, a twin that draws eager's random numbers"]
    assert tasks.count(f"compiling {compiled[0]}") == 2
    assert set(ex.timings.variant) == {"eager", "full"}
    assert [cost.what for cost in ex.session.variant_costs] == ["planted", *compiled]


def test_twin_with_other_draw_order_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(dropped(x), 0.5)

    def drawn(twin: Callable[..., Any]) -> set[str]:
        ex = rx.explore(twice, (torch.rand(64, 64, requires_grad=True),))
        return verdicts(measured(plant_twin(plant_full(ex, other_mask), twin), "full"))

    for in_order, verdict in ((True, "failed"), (False, "not comparable")):
        monkeypatch.setattr(graphs, "inductor_keeps_random_order", lambda in_order=in_order: in_order)
        assert drawn(lambda x: F.dropout(dropped(x).flip(0), 0.5).flip(0)) == {verdict}
        assert "failed" in drawn(lambda x: twice(WrongGradient.apply(x)))
        assert "failed" in verdicts(measured(plant_twin(drawing(), lambda x: dropped(x) * 1.01), "full")), "one draw"


def test_no_twin_without_other_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    with counted_twins(monkeypatch) as compiled:
        with torch._inductor.config.patch(fallback_random=True):
            ex = measured(drawing(), "full")  # planted under this setting
            assert verdicts(ex) == {"failed"}
        ex = rx.explore(two, pair())
        measured(plant_full(ex, lambda x, y: two(x * 2, y)), "full")
        torch.manual_seed(0)
        right = plant_full(rx.explore(dropped, (torch.rand(64, 64),)), dropped)
        assert verdicts(measured(right, "full")) == {"ok"}, "as it may where only eager parts draw"
    assert compiled == []


def test_a_cancelled_benchmark_compiles_no_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    ex, tasks = drawing(), []
    run = rx.Run(cancelled=lambda: "checking numerics: full" in tasks, progress=lambda doing, _: tasks.append(doing))
    with counted_twins(monkeypatch) as compiled:
        measured(ex, "full", run=run)
    assert compiled == []
    assert ex.timings.empty


def test_a_mask_that_the_backward_draws_anew_is_found() -> None:
    weight = torch.randn(64, 64, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return (F.dropout((x @ weight).relu().sin(), 0.5).cos() * 2).sum()

    x = torch.randn(32, 64, requires_grad=True)
    assert verdicts(measured(rx.explore(f, (x,)), "full")) == {"ok"}
    with torch._functorch.config.patch(activation_memory_budget=0.1):
        ex = measured(rx.explore(f, (x,)), "full")
    if verdicts(ex) == {"ok"}:
        pytest.skip("this torch saves the mask, or its seed")
    message = only(ex, CODE).message
    assert "grad " in message
    assert "output" not in message
    assert ex.timings.set_index(["variant", "phase"]).verdict["full", "step"] == "withheld"
