"""What a search says of a wrong torch.compile, and which verdicts outlive the values that they depend on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import regional_explorer as rx
from regional_explorer.command import cli
from regional_explorer.command.parsed_command import Command
from regional_explorer.compiler.run import PLAIN_RUN
from regional_explorer.measure.variants import Variants
from regional_explorer.page.answer import chart_nodes
from regional_explorer.record.answer import answer_of
from regional_explorer.record.bars import bars_of
from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.plan import Tracing, whole_graph
from regional_explorer.record.tuning import EAGER, TORCH_COMPILE, Outcome
from regional_explorer.style.element import words
from regional_explorer.tuning import live_bench
from regional_explorer.tuning.crew import Crew
from regional_explorer.tuning.live_bench import LiveBench
from tests.shared.fakes import TickingClock

SECONDS = 0.5
"""A budget that the references spend, so that no plan is tried."""
JOINT = Tracing(joint_passes=True)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).softmax(-1)


def write_and_read(x: torch.Tensor) -> torch.Tensor:
    """Write a tensor, and add its own reversed copy; torch 2.13 compiles this to wrong code."""
    x.index_put_((torch.arange(len(x)),), x * 2.0)
    x.add_(x.flip(0))
    return x.mean(1)


def amplify(x: torch.Tensor) -> torch.Tensor:
    """Amplify rounding without limit."""
    return (x.softmax(-1) * 1e9).sin()


Function = Callable[..., Any]


def halve(compiled: Function) -> Function:
    return lambda *args: compiled(*args) / 2


def double_gradients(compiled: Function) -> Function:
    """Return a function with the same values and twice the gradients."""

    def run(*args: Any) -> Any:
        value = compiled(*args)
        return value * 2 - value.detach()

    return run


def fail(_compiled: Function) -> Function:
    def run(*_args: Any) -> Any:
        raise RuntimeError("out of kernels")

    return run


@pytest.fixture
def change_torch_compile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Function], Function]], None]:
    """Return a function that changes what the call under plain ``torch.compile`` does."""
    function_of = Variants.function

    def change(by: Callable[[Function], Function]) -> None:
        monkeypatch.setattr(
            Variants,
            "function",
            lambda variants, name: (by if name == VariantName.FULL else lambda same: same)(function_of(variants, name)),
        )

    return change


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "tries.jsonl"


def shown(ex: rx.Exploration) -> str:
    """Return the answer and its chart as people read them."""
    chart = chart_nodes(bars_of(ex.session))
    return " ".join(f"{ex.answer} {' '.join(map(words, chart))}".split())


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("change", "outcome", "said"),
    [
        (halve, Outcome.WRONG, "torch.compile gives wrong results on this call: grad args[0]: off by up to"),
        (double_gradients, Outcome.WRONG, "torch.compile gives wrong results on this call: grad args[0]: off by up to"),
        (fail, Outcome.FAILED, "torch.compile fails on this call: "),
    ],
)
def test_a_torch_compile_that_is_not_right_is_no_rival_and_no_answer(
    change: Callable[[Function], Function],
    outcome: Outcome,
    said: str,
    change_torch_compile: Callable[[Callable[[Function], Function]], None],
    ledger: Path,
) -> None:
    change_torch_compile(change)
    with rx.explore(softmax, (torch.rand(8, 8, requires_grad=True),)) as ex:
        found = ex.tune(SECONDS, keys=[], ledger=ledger, max_compile_s=1e-9)  # so no plan wins on a quiet machine
        full = found.record.by_title[TORCH_COMPILE]
        assert (full.outcome, full.final, full.time_s) == (outcome, False, None)
        assert (found.record.answer, found.record.rival) == (EAGER, EAGER)
        assert said in " ".join(str(found).split())


@pytest.mark.compiles
@pytest.mark.parametrize("order", ["search, benchmark", "benchmark, search", "benchmark, mark, search"])
def test_a_wrong_torch_compile_is_told_whatever_was_measured_first(
    order: str, change_torch_compile: Callable[[Callable[[Function], Function]], None], ledger: Path
) -> None:
    change_torch_compile(halve)
    with torch.no_grad(), rx.explore(softmax, (torch.rand(8, 8),), plan=rx.Plan()) as ex:
        for step in order.split(", "):
            if step == "search":
                found = ex.tune(SECONDS, keys=[], ledger=ledger, max_compile_s=1e-9)  # so no plan wins
                assert found.record.answer == EAGER
            elif step == "mark":
                ex.mark("all", ops="*")
            else:
                ex.benchmark(["eager", "full"], SECONDS)
        assert {bar.word for bar in bars_of(ex.session) if bar.seconds} <= {EAGER}
        full = answer_of(ex.session).speed(VariantName.FULL, VariantName.EAGER)
        assert full is None or full.speedup is None
        assert "× as fast" not in shown(ex)
        assert "Use torch.compile" not in shown(ex)


@pytest.mark.compiles
def test_plans_are_compared_with_eager_alone_if_torch_compile_is_wrong(
    slow_references: TickingClock,
    change_torch_compile: Callable[[Callable[[Function], Function]], None],
    ledger: Path,
) -> None:
    change_torch_compile(halve)
    with torch.no_grad(), rx.explore(softmax, (torch.rand(8, 8),), plan=rx.Plan()) as ex:
        found = ex.tune(2.0, keys=[], ledger=ledger, apply=True).record
        assert found.by_title[TORCH_COMPILE].outcome is Outcome.WRONG
        assert (found.rival, found.plan) == (EAGER, ex.plan)
        assert found.gain == found.by_title[found.answer].speedup
        assert found.by_title[found.answer].over_full is None
        text = shown(ex)
        assert "The results of torch.compile are wrong, so there is no speed to compare." in text
        assert "torch.compile was not measured" not in text


@pytest.mark.compiles
def test_torch_compile_is_checked_like_a_plan(ledger: Path) -> None:
    """Its code for this call is wrong in torch 2.13 and may be right in others."""
    x = torch.rand(64, 256)
    ours, theirs = x.clone(), x.clone()
    means = write_and_read(ours), torch.compile(write_and_read)(theirs)
    is_right = torch.allclose(*means) and torch.allclose(ours, theirs)
    with rx.explore(write_and_read, (x,)) as ex:
        found = ex.tune(SECONDS, keys=[], ledger=ledger)
        outcome = found.record.by_title[TORCH_COMPILE].outcome
        assert outcome is (Outcome.MEASURED if is_right else Outcome.WRONG)
        assert is_right or found.record.answer != TORCH_COMPILE


@pytest.mark.compiles
def test_results_that_rounding_decides_are_not_called_wrong(ledger: Path) -> None:
    with torch.no_grad(), rx.explore(amplify, (torch.rand(8, 64),)) as ex:
        found = ex.tune(SECONDS, keys=[], ledger=ledger)
        assert found.record.by_title[TORCH_COMPILE].outcome == "chaotic"
        assert found.record.answer != TORCH_COMPILE
        assert "wrong" not in str(found)


@pytest.mark.compiles
def test_the_command_line_says_that_torch_compile_is_wrong(
    change_torch_compile: Callable[[Callable[[Function], Function]], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    change_torch_compile(halve)
    (tmp_path / "program.py").write_text("import torch\nx = torch.rand(8, 8)\ndef f(x): return (x * 2).softmax(-1)\n")
    code = cli.main(["tune", str(tmp_path / "program.py"), "f(x)", "--budget", "0.01", "--quiet"])
    assert code == cli.EXIT_NO
    assert "torch.compile gives wrong results on this call: output" in " ".join(capsys.readouterr().out.split())


@pytest.mark.compiles
def test_the_command_does_not_measure_the_found_plan_again(
    slow_references: TickingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()
    monkeypatch.setattr(rx.Exploration, "benchmark", lambda _ex, **options: asked.append(options["variants"]))
    with torch.no_grad():
        for variants in ((), ("eager", "regional")):
            command = Command(tune=2.0, variants=variants)
            with command.explore(softmax, (torch.rand(8, 8),), {}) as ex:
                assert command.measure(ex, PLAIN_RUN)
                assert ex.session.tuning is not None
                assert ex.plan == ex.session.tuning.plan
                assert {*ex.session.whole_timings} == {"eager", "regional", "full"}
    assert asked == [("eager", "regional")], "only what is asked for beside the search"


# ----------------------------------------------------------------------------------------- verdicts of earlier searches


@pytest.mark.compiles
def test_a_verdict_is_not_kept_when_the_weights_change(
    slow_references: TickingClock, monkeypatch: pytest.MonkeyPatch, ledger: Path
) -> None:
    """With equal weights all gradients are zero to rounding, so that nothing can be said of them."""
    monkeypatch.setattr(live_bench, "suggest_regions", lambda _graphs: ())
    student = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    teacher = copy.deepcopy(student).requires_grad_(False)

    def loss(x: torch.Tensor) -> torch.Tensor:
        products: torch.Tensor = student(x).log_softmax(-1) * teacher(x).softmax(-1)
        return -products.sum(-1).mean()

    x = torch.randn(4, 8)
    with rx.explore(loss, (x,)) as ex:
        ex.tune(2.0, keys=[], ledger=ledger)
    with torch.no_grad():
        for weights in student.parameters():
            weights.add_(0.1 * torch.randn_like(weights))
    with rx.explore(loss, (x,)) as ex:
        tries = ex.tune(2.0, keys=[], ledger=ledger).record.tries
    outcomes = {one.outcome for one in tries if one.plan}
    assert Outcome.MEASURED in outcomes
    assert outcomes <= {Outcome.MEASURED, Outcome.SLOWER, Outcome.SAME_CODE, Outcome.NOT_TRIED}


def test_a_plan_has_another_key_under_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def key() -> str:
        bench = LiveBench(ex.live.variants, ex.live.environment, PLAIN_RUN, lambda _timed: nullcontext(), Crew(0))
        with bench.closing():
            return bench.prepare(whole_graph(JOINT)).key

    def set_and_reset(setting: Callable[[Any], object], value: Any, before: Any) -> str:
        setting(value)
        try:
            return key()
        finally:
            setting(before)

    with torch.no_grad(), rx.explore(softmax, (torch.rand(8, 8),)) as ex:
        keys = [
            key(),
            set_and_reset(torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()),
            set_and_reset(torch.set_default_dtype, torch.float64, torch.float32),
            set_and_reset(torch.set_float32_matmul_precision, "high", "highest"),
        ]
        assert len(set(keys)) == len(keys)
        assert key() == keys[0]
        monkeypatch.setattr(torch, "__version__", "9.9")
        assert key() not in keys
