"""Variants with wrong results, or results that rounding decides: reported with their cause, also in the plan's file."""

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
from regional_explorer.record.benchmark import CompileCost, Numerics, NumericsVerdict, VariantName, Verdict
from regional_explorer.record.configs import RANDOM_AS_EAGER
from regional_explorer.record.diagnostic import Severity
from regional_explorer.record.plan_file import ExplorationRecord, wrong_when_explored
from regional_explorer.torch_api import graphs
from regional_explorer.torch_api.dynamo import compile_isolated
from regional_explorer.torch_api.torch_config import settings_text, under_config
from tests.measure.fake_variants import logistic
from tests.shared import diagnostics_programs, sessions
from tests.shared.checks import change_code, codes, only

pytestmark = pytest.mark.compiles

CODE = "variant-wrong"


def fake_variant(function: Callable[..., Any], content: Any) -> CompiledVariant:
    """Return what a compile returns, for another function, which is not compiled by Inductor."""
    return CompiledVariant(compile_isolated(function, "eager"), CompileCost("fake", 0.1, "warm"), content)


def fake_full(ex: rx.Exploration, function: Callable[..., Any]) -> rx.Exploration:
    """Let ``full`` run another function."""
    ex.live.variants._compiled[VariantName.FULL] = fake_variant(function, (settings_text(), None))
    return ex


def fake_twin(ex: rx.Exploration, function: Callable[..., Any]) -> rx.Exploration:
    """Let the twin of ``full`` run another function."""
    with under_config(RANDOM_AS_EAGER):
        ex.live.variants._twin = fake_variant(function, settings_text())
    return ex


def measure(ex: rx.Exploration, *variants: str, **options: Any) -> rx.Exploration:
    ex.benchmark(variants, 0.1, regions=False, **options)
    return ex


def verdicts(ex: rx.Exploration, variant: str = "full") -> set[str]:
    return set(ex.numerics[ex.numerics.variant == variant].verdict)


# ----------------------------------------------------------------------------------------------------------- full alone


def product_and_sign(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sin() * y, (x > 0).int()


def replace_one(tensor: torch.Tensor, index: int, value: float) -> torch.Tensor:
    """Return the tensor with another value of one element."""
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
        lambda x, y: (product_and_sign(x, y)[0].detach() * 0.01 + product_and_sign(x, y)[0], product_and_sign(x, y)[1]),
        "output[0]: 0.00",
        "grad",
    ),
    "gradient alone": (lambda x, y: product_and_sign(WrongGradient.apply(x), y), "grad args[0]: 0.", "output"),
    "not a number": (
        lambda x, y: (replace_one(product_and_sign(x, y)[0], 3, float("nan")), product_and_sign(x, y)[1]),
        "output[0]: infinite or not a number where eager is not, or the reverse",
        "output[1]",
    ),
    "one element": (
        lambda x, y: (product_and_sign(x, y)[0] + replace_one(torch.zeros(64, 64), 3, 1e-5), product_and_sign(x, y)[1]),
        "output[0]: one element off by 1e-05, ",
        "output[1]",
    ),
    "integers": (
        lambda x, y: (product_and_sign(x, y)[0], product_and_sign(x, y)[1] * 2),
        "output[1]: off by up to 1, and has to be equal",
        "grad",
    ),
    "no gradient": (
        lambda x, y: (x.detach().sin() * y, product_and_sign(x, y)[1]),
        "grad args[0]: either eager or the variant has no gradient",
        "output",
    ),
    "another dtype": (
        lambda x, y: (product_and_sign(x, y)[0].double(), product_and_sign(x, y)[1]),
        "output[0]: torch.float64 [64, 64], not torch.float32 [64, 64]",
        "output[1]",
    ),
}


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.rand(64, 64, requires_grad=True), torch.rand(64, 64, requires_grad=True)


@pytest.mark.parametrize(("function", "expected", "unexpected"), WRONG.values(), ids=WRONG)
def test_a_wrong_full_is_reported_with_its_first_tensors(
    function: Callable[..., Any], expected: str, unexpected: str
) -> None:
    ex = measure(fake_full(rx.explore(product_and_sign, arguments()), function), "aot_eager", "full")
    found = only(ex, CODE)
    assert found.severity is Severity.ERROR
    assert found.message.startswith("The results of torch.compile are wrong: ")
    assert expected in found.message
    assert unexpected not in found.message
    assert "The results of the traced graphs without a compiler are right." in found.message
    assert "ex.mark('r', ops='*')" in found.remedy
    rows = ex.timings[ex.timings.variant == "full"]
    assert set(rows.verdict) == {"withheld"}
    assert rows.speedup.isna().all()
    assert "The results of torch.compile are wrong, so there is no speed to compare." in " ".join(repr(ex).split())


def test_a_right_full_gives_no_finding() -> None:
    assert CODE not in codes(
        measure(fake_full(rx.explore(product_and_sign, arguments()), product_and_sign), "aot_eager", "full")
    )


def test_the_message_names_the_first_wrong_tensors() -> None:
    def many(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.sin() * factor for factor in range(1, 9)]

    ex = fake_full(rx.explore(many, (torch.rand(8),)), lambda x: [value * 2 for value in many(x)])
    message = only(measure(ex, "full"), CODE).message
    assert message.count("output[") == 3
    assert "; and 5 more of 8 tensors" in message


def test_results_that_cannot_be_judged_are_reported_once_for_all_variants() -> None:
    ex = rx.explore(logistic, (torch.rand(1000),))
    measure(fake_full(ex, lambda x: logistic(x) * 0.5), "aot_eager", "full")
    found = only(ex, CODE)
    assert found.severity is Severity.WARNING
    assert "It is unknown whether the results of torch.compile are right" in found.message
    assert set(ex.timings[ex.timings.variant == "full"].verdict) == {"withheld"}
    rows = tuple(replace(row, variant="regional") for row in ex.session.numerics if row.variant == "full")
    both = replace(ex.session, numerics=(*ex.session.numerics, *rows))
    (found,) = wrong_variant_diagnostics(both, ())
    assert "your plan and of torch.compile" in found.message


def test_a_right_plan_is_the_remedy_for_a_wrong_full() -> None:
    ex = rx.explore(product_and_sign, arguments()).mark("r", ops="aten.sin*")
    found = only(measure(fake_full(ex, lambda x, y: product_and_sign(x * 2, y)), "aot_eager", "regional", "full"), CODE)
    assert "The results of the traced graphs without a compiler and of your plan are right." in found.message
    assert found.remedy == "The plan is right: run it with rx.compile(fn, ex.save_plan('plan.json'))."
    ex.mark("s", ops="aten.mul*")
    assert "The results of the traced graphs without a compiler are right." in only(ex, CODE).message, (
        "this plan was not checked"
    )


def test_the_documented_program_shows_a_lost_write(tmp_path: Path) -> None:
    ex = diagnostics_programs.run_page_program(diagnostics_programs.measured_programs()[CODE], tmp_path)
    if verdicts(ex) == {"ok"}:
        pytest.skip("this torch compiles it right")
    assert "written args[0]: " in only(ex, CODE).message
    assert "The plan is right" in only(ex, CODE).remedy
    assert ex.timings.set_index("variant").verdict["full"] == "withheld"


# --------------------------------------------------------------------------------------------------------- the plan


def halve_results(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda args: tuple(value * 0.5 for value in right(args))


def marked(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        y = x.sin() * 2
    return y.cos()


@pytest.fixture
def wrong_plan() -> rx.Exploration:
    ex = rx.explore(marked, (torch.rand(64, 64),))
    ex.compile()
    change_code(ex, halve_results)
    return measure(ex, "aot_eager", "regional")


def test_wrong_plan_and_its_cure_are_found(wrong_plan: rx.Exploration) -> None:
    ex = wrong_plan
    found = only(ex, CODE)
    assert found.message.startswith("The results of your plan are wrong: output: ")
    assert "ex.benchmark(regions=True) says which region" in found.remedy
    with pytest.MonkeyPatch.context() as patch:
        artifact = ex.live.program.switches[0].artifact
        patch.setattr(ex.live.program, "twin", lambda *_: artifact)
        ex.benchmark(("regional",), 0.1)
    assert only(ex, "region-numerics").remedy in only(ex, CODE).remedy
    assert "ex.disable('r')" in only(ex, CODE).remedy
    ex.disable("r")
    assert {CODE, "region-numerics"}.isdisjoint(codes(ex))


def test_the_remedy_names_no_region_if_all_are_right_alone(wrong_plan: rx.Exploration) -> None:
    session = wrong_plan.session
    alone = Numerics("compiled", "mul", verdict=NumericsVerdict.OK, partition=session.partitions[0].id)
    (found,) = wrong_variant_diagnostics(replace(session, partition_numerics=(alone,)), ())
    assert found.remedy.startswith("No region is wrong alone")


def result_and_warnings(work: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return the result of ``work``, and its warnings about wrong results."""
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
    path, messages = result_and_warnings(lambda: ex.save_plan(tmp_path / "plan.json"))
    assert len(messages) == 1
    assert messages[0].startswith("The results of your plan are wrong: output: ")
    assert "The plan was saved anyway." in messages[0]
    explored = json.loads(path.read_text())["explored"]
    assert (explored["numerics"], explored["wrong"].partition(":")[0]) == ("failed", "output")
    assert ex.to_source().startswith("# The results of your plan are wrong: output: ")
    for text in (page_html(ex.session), repr(rx.load(ex.save(tmp_path / "x.json")))):
        assert "The results of your plan are wrong: output" in text
        assert "no speed is given" in text
    assert "The results of your plan are wrong" in page_html(ex.session)

    compiled, messages = result_and_warnings(lambda: rx.compile(marked, path))
    assert len(messages) == 1
    assert f"[{CODE}] When it was explored, the results of the plan were wrong: output: " in messages[0]
    assert "ex." not in messages[0]
    torch.testing.assert_close(compiled(x), marked(x))
    assert result_and_warnings(lambda: compiled(x))[1] == []
    assert [str(one.code) for one in rx.status(compiled).diagnostics].count(CODE) == 1
    assert f"[{CODE}]" in repr(rx.status(compiled))
    with pytest.raises(PlanError, match=r"results of the plan were wrong.*strict=True this is an error"):
        rx.compile(marked, path, strict=True)

    here = rx.explore(marked, (x,), plan=path)
    assert only(here, CODE).message.startswith("When it was explored, the results of the plan were wrong")
    assert CODE not in codes(here.disable("r")), "that is another plan"
    assert CODE in codes(here.enable("r"))
    measure(here, "regional")
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


def test_unchecked_and_right_plans_give_no_warning(tmp_path: Path) -> None:
    ex = rx.explore(marked, (torch.rand(64, 64),))
    unchecked = ex.save_plan(tmp_path / "unchecked.json")
    assert json.loads(unchecked.read_text())["explored"].get("numerics") is None
    assert result_and_warnings(lambda: rx.compile(marked, unchecked, strict=True))[1] == []
    measure(ex, "regional")
    path, messages = result_and_warnings(lambda: ex.save_plan(tmp_path / "plan.json"))
    explored = json.loads(path.read_text())["explored"]
    assert (messages, explored["numerics"], explored.get("wrong", "")) == ([], "ok", "")
    assert result_and_warnings(lambda: rx.compile(marked, path, strict=True))[1] == []


@pytest.mark.parametrize("numerics", NumericsVerdict)
def test_a_plan_file_reports_results_that_withhold_the_speedup(numerics: NumericsVerdict) -> None:
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
        assert found.speeds[0].verdict is Verdict.WITHHELD
        assert found.speeds[0].wrong == {"your plan": numerics}


# ------------------------------------------------------------------------------------------------ the trace, the call


def wrong_when_traced(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        y = x.sin()
    return y * (2 if torch.compiler.is_compiling() else 3)


def test_variants_that_run_a_wrong_trace_are_not_reported_again(tmp_path: Path) -> None:
    ex = fake_full(rx.explore(wrong_when_traced, (torch.rand(64, 64),)), lambda x: x.sin() * 2)
    measure(ex, "aot_eager", "regional", "full")
    assert verdicts(ex) == verdicts(ex, "regional") == {"failed"}
    assert codes(ex) == ["trace-differs"]
    path, messages = result_and_warnings(lambda: ex.save_plan(tmp_path / "plan.json"))
    assert len(messages) == 1, "the plan is wrong all the same"
    assert "trace-differs" in messages[0]
    with pytest.raises(PlanError, match="results of the plan were wrong"):
        rx.compile(wrong_when_traced, path, strict=True)


def test_full_is_reported_if_the_trace_does_not_explain_it() -> None:
    ex = fake_full(rx.explore(wrong_when_traced, (torch.rand(64, 64),)), lambda x: x.sin() * 5)
    measure(ex, "aot_eager", "full")
    assert set(codes(ex)) == {"trace-differs", CODE}
    assert "The results of torch.compile are wrong" in only(ex, CODE).message
    assert "aot_eager" not in only(ex, CODE).message
    measure(ex, "full")
    assert codes(ex) == ["trace-differs"], "without aot_eager it is unknown what the trace explains"


def row(variant: str, tensor: str, error: float, verdict: NumericsVerdict = NumericsVerdict.FAILED) -> Numerics:
    return Numerics(variant, tensor, "float32", error=error, max_error=error, tolerance=0.1, verdict=verdict)


def test_a_wrong_trace_is_reported_once_for_all_variants_that_run_it() -> None:
    rows = [row(name, "output", 1.0) for name in ("aot_eager", "regional", "full")]
    session = replace(sessions.measured(), numerics=(*rows, row("full", "grad w", 2.0)))
    trace, full = sorted(wrong_variant_diagnostics(session, ()), key=lambda found: "grad w" in found.message)
    assert "without a compiler and of your plan are wrong: output: 1 from eager (0.1 is allowed)" in trace.message
    assert "No compiler is the cause" in trace.remedy
    assert "The results of torch.compile are wrong: grad w: 2 from eager" in full.message
    assert "output" not in full.message


class Drift:
    added: Iterator[float] = itertools.repeat(0.0)


def drift(x: torch.Tensor) -> torch.Tensor:
    return x + next(Drift.added)


untraced_drift: Any = torch.compiler.disable(drift)


def test_a_nondeterministic_call_explains_all_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the second variant finds it, and the verdict of the first is withdrawn."""
    ex = rx.explore(lambda x: untraced_drift(x.sin()) * 2, (torch.rand(8),)).mark("r", ops="*")
    fake_full(ex, lambda x: x.sin() * 3)
    changing = itertools.count()
    from regional_explorer.measure.reference import recheck_eager

    def recheck_and_drift(reference: Any, run_eager: Any) -> Any:
        if next(changing):
            monkeypatch.setattr(Drift, "added", itertools.repeat(1.0))
        return recheck_eager(reference, run_eager)

    monkeypatch.setattr("regional_explorer.measure.benchmark.recheck_eager", recheck_and_drift)
    upstream = fake_variant(lambda x: x.sin() * 4, None)
    monkeypatch.setattr(Variants, "compile", lambda self, name, *_: self._compiled[name])
    ex.live.variants._compiled[VariantName.UPSTREAM] = upstream
    measure(ex, "full", "upstream")
    assert verdicts(ex) == verdicts(ex, "upstream") == {"not comparable"}
    assert "call-nondeterministic" in codes(ex)
    assert CODE not in codes(ex)


# ------------------------------------------------------------------------------------------------------ random numbers


def sin_with_dropout(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.sin(), 0.5) * 2


def other_mask(x: torch.Tensor) -> torch.Tensor:
    """Drop other elements than eager does, as Inductor's code would."""
    torch.rand(3)
    return sin_with_dropout(x)


def explore_with_other_mask() -> rx.Exploration:
    torch.manual_seed(0)
    return fake_full(rx.explore(sin_with_dropout, (torch.rand(64, 64, requires_grad=True),)), other_mask)


TWIN = "checked on a twin compiled with fallback_random"


def test_full_is_checked_on_a_twin() -> None:
    ex = measure(fake_twin(explore_with_other_mask(), sin_with_dropout), "full")
    assert verdicts(ex) == {"ok"}
    assert set(ex.numerics.note) == {TWIN}
    assert codes(ex) == []
    assert ex.session.whole_timings["full"].numerics == "ok"


@pytest.mark.parametrize(
    ("wrong", "tensor"),
    [
        (lambda x: sin_with_dropout(WrongGradient.apply(x)), "grad args[0]"),
        (lambda x: sin_with_dropout(x) * 1.01, "output"),
    ],
)
def test_a_twin_that_is_wrong_fails_full(wrong: Callable[..., Any], tensor: str) -> None:
    ex = measure(fake_twin(explore_with_other_mask(), wrong), "full")
    found = only(ex, CODE)
    assert f"torch.compile are wrong: {tensor}: " in found.message
    assert f"{TWIN.capitalize()}." in found.message
    assert set(ex.timings[ex.timings.variant == "full"].verdict) == {"withheld"}


def test_full_is_not_comparable_if_its_twin_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: Any) -> Any:
        raise RuntimeError("no room\nfor a twin")

    ex = explore_with_other_mask()
    monkeypatch.setattr(Variants, "_first_run", raising)
    measure(ex, "full")
    assert verdicts(ex) == {"not comparable"}
    (note,) = set(ex.numerics[ex.numerics.verdict != "ok"].note)
    assert note == "Inductor draws its own random numbers, and a twin with fallback_random fails: RuntimeError: no room"
    assert codes(ex) == []
    assert "full" in set(ex.timings.variant)


@contextmanager
def record_compiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the list of what is compiled; no twin is compiled by Inductor."""
    compiled: list[str] = []

    def first_run(_variants: Any, what: str, function: Any, _backend: Any, _watched: Any) -> Any:
        compiled.append(what)
        return compile_isolated(function, "eager"), CompileCost(what, 0.5, "cold")

    monkeypatch.setattr(Variants, "_first_run", first_run)
    yield compiled


def test_a_twin_is_compiled_once_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    ex, tasks = explore_with_other_mask(), []
    with record_compiles(monkeypatch) as compiled:
        for _ in range(2):
            measure(ex, "full", run=rx.Run(progress=lambda doing, _: tasks.append(doing)))
    assert compiled == ["full, a twin that draws eager's random numbers"]
    assert tasks.count(f"compiling {compiled[0]}") == 2
    assert set(ex.timings.variant) == {"eager", "full"}
    assert [cost.what for cost in ex.session.variant_costs] == ["fake", *compiled]


def test_a_twin_that_reorders_random_numbers_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def dropout_twice(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(sin_with_dropout(x), 0.5)

    def verdicts_with_twin(twin: Callable[..., Any]) -> set[str]:
        ex = rx.explore(dropout_twice, (torch.rand(64, 64, requires_grad=True),))
        return verdicts(measure(fake_twin(fake_full(ex, other_mask), twin), "full"))

    for in_order, verdict in ((True, "failed"), (False, "not comparable")):
        monkeypatch.setattr(graphs, "inductor_keeps_random_order", lambda in_order=in_order: in_order)
        assert verdicts_with_twin(lambda x: F.dropout(sin_with_dropout(x).flip(0), 0.5).flip(0)) == {verdict}
        assert "failed" in verdicts_with_twin(lambda x: dropout_twice(WrongGradient.apply(x)))
        assert "failed" in verdicts(
            measure(fake_twin(explore_with_other_mask(), lambda x: sin_with_dropout(x) * 1.01), "full")
        ), "one random op"


def test_full_with_eagers_random_numbers_needs_no_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    with record_compiles(monkeypatch) as compiled:
        with torch._inductor.config.patch(fallback_random=True):
            ex = measure(explore_with_other_mask(), "full")  # the fake is of this setting
            assert verdicts(ex) == {"failed"}
        ex = rx.explore(product_and_sign, arguments())
        measure(fake_full(ex, lambda x, y: product_and_sign(x * 2, y)), "full")
        torch.manual_seed(0)
        right = fake_full(rx.explore(sin_with_dropout, (torch.rand(64, 64),)), sin_with_dropout)
        assert verdicts(measure(right, "full")) == {"ok"}, "as it may be if only eager parts have random ops"
    assert compiled == []


def test_a_cancelled_benchmark_compiles_no_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    ex, tasks = explore_with_other_mask(), []
    run = rx.Run(cancelled=lambda: "checking numerics: full" in tasks, progress=lambda doing, _: tasks.append(doing))
    with record_compiles(monkeypatch) as compiled:
        measure(ex, "full", run=run)
    assert compiled == []
    assert ex.timings.empty


def test_another_dropout_mask_in_the_backward_is_found() -> None:
    weight = torch.randn(64, 64, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return (F.dropout((x @ weight).relu().sin(), 0.5).cos() * 2).sum()

    x = torch.randn(32, 64, requires_grad=True)
    assert verdicts(measure(rx.explore(f, (x,)), "full")) == {"ok"}
    with torch._functorch.config.patch(activation_memory_budget=0.1):
        ex = measure(rx.explore(f, (x,)), "full")
    if verdicts(ex) == {"ok"}:
        pytest.skip("this torch saves the mask, or its seed")
    message = only(ex, CODE).message
    assert "grad " in message
    assert "output" not in message
    assert ex.timings.set_index(["variant", "phase"]).verdict["full", "step"] == "withheld"
