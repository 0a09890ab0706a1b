"""Every remedy does what it says: its actions are applied to the program of its diagnostic, or the program is changed.

Findings of measurements are made from simulated figures.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.fx.traceback import annotate

import regional_explorer as rx
from regional_explorer.diagnostics import measured
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.action import (
    ActionKind,
    EffectBasis,
    configure_action,
    disable_action,
    show_table_action,
    unmark_action,
)
from regional_explorer.record.benchmark import Numerics, NumericsVerdict, Verdict
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.figure import Figure
from regional_explorer.record.plan import CutRule
from tests.diagnostics.remedies import REMEDIES, ActionRemedy, EditRemedy
from tests.shared import diagnostics_programs, programs
from tests.shared.checks import REGION_IDS, codes, diagnostics_of
from tests.shared.sessions import measured_alone

pytestmark = pytest.mark.filterwarnings("ignore:The call was traced again", "ignore:.*has a config key")

X = torch.randn(8, 8, requires_grad=True)


COMPILES = {
    *("recompiled", "region-failed", "call-nondeterministic"),
    *("upstream-failed", "upstream-merged", "upstream-config", "upstream-ignored"),
}
PROGRAMS = diagnostics_programs.page_programs()


def remedy_params(remedy_type: type) -> list[Any]:
    return [
        pytest.param(code, marks=pytest.mark.compiles if code in COMPILES else ())
        for code, remedy in REMEDIES.items()
        if isinstance(remedy, remedy_type)
    ]


def apply_all(ex: Exploration, found: Diagnostic, filled: tuple[Any, ...]) -> list[Any]:
    """Apply the actions of a remedy; return what each returned."""
    assert found.actions, found.remedy
    left = list(filled)
    returned = [ex.apply(action, **({action.needs: left.pop(0)} if action.needs else {})) for action in found.actions]
    assert not left
    return returned


def test_the_table_has_every_code() -> None:
    assert set(REMEDIES) == set(DiagnosticCode)


@pytest.mark.parametrize("code", remedy_params(ActionRemedy))
def test_the_actions_of_a_remedy_have_the_promised_effect(code: str, tmp_path: Path) -> None:
    ex = diagnostics_programs.run_page_program(PROGRAMS[code], tmp_path)
    found, promised = diagnostics_of(ex, code)[0], REMEDIES[code]
    assert isinstance(promised, ActionRemedy)
    returned = apply_all(ex, found, promised.filled)
    if promised.keeps:
        assert promised.keeps(ex, returned)
    else:
        assert code not in codes(ex)


@pytest.mark.parametrize("code", remedy_params(EditRemedy))
def test_changing_the_program_by_the_remedy_removes_the_diagnostic(code: str, tmp_path: Path) -> None:
    promised = REMEDIES[code]
    assert isinstance(promised, EditRemedy)
    if code == "backward-only" and not REGION_IDS:
        pytest.skip("torch 2.11 takes the mark away with the frame, from the backward too")
    for edit in promised.edits:
        source = PROGRAMS[code]
        for old, new in edit:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        functions = set(torch._dynamo.config.reorderable_logging_functions)
        try:
            assert code not in codes(diagnostics_programs.run_page_program(source, tmp_path)), edit
        finally:
            torch._dynamo.config.reorderable_logging_functions = functions


# -------------------------------------------------------------------------- remedies with other actions than the page's

OTHERS: dict[str, tuple[Callable[..., Any], Callable[[Exploration], object], str, ActionRemedy]] = {}
"""More programs with a code, the edit of the exploration before the remedy, and the remedy."""


def other_program(
    code: str,
    first: Callable[[Exploration], object] = lambda ex: ex,
    keeps: Callable[[Exploration, list[Any]], bool] | None = None,
    filled: tuple[Any, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        OTHERS[fn.__name__] = fn, first, code, ActionRemedy(keeps, filled)
        return fn

    return add


@other_program("region-split")
def split_by_two_ops(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        a = x.sin()
    b = a.exp().tan()
    with rx.region("r"):
        return b.cos() + a


@other_program("region-split")
def split_by_another_region(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        a = x.sin()
    with rx.region("s"):
        b = a.exp()
    with rx.region("r"):
        return b.cos() + a


@other_program("region-split", lambda ex: ex.mark("r", ops=["sin", "cos", "add"]))
def split_in_each_of_several_layers(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        a = x.sin()
        x = a.exp().cos() + a
    return x


@other_program("region-split", lambda ex: ex.merge("r", "s"))
def a_piece_apart_in_a_merged_region(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        a = x.sin()
    b = a.exp()
    with rx.region("s"):
        return b.cos()


@other_program("region-cycle", lambda ex: ex.mark("a", ops=["sin", "mul"]).mark("b", ops=["cos", "exp", "sub"]))
def a_cycle_of_ops(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = x.sin(), x.exp()
    return a * b, a.cos() - b


@other_program("region-cycle", lambda ex: ex.mark("b", ops=["cos", "exp", "sub"]).mark("a", ops=["sin", "mul"]))
def a_cycle_in_the_other_order_of_the_plan(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = x.sin(), x.exp()
    return a * b, a.cos() - b


@other_program("region-cycle", lambda ex: ex.mark("a", ops=["sin", "mul"]).mark("b", ops=["tan", "cos", "exp", "sub"]))
def a_cycle_through_ops_of_no_region(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = x.sin(), x.tan().exp()
    return a * b.relu(), a.sigmoid().cos() - b


@other_program("region-empty")
def a_region_that_is_carved_out(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"), annotate({"fallback_to_eager": True}):
        y = x.sin()
    return y.exp()


@other_program("region-empty", lambda ex: setattr(ex, "plan", programs.plan_of(r="nothing")))
def a_region_whose_selector_matches_nothing(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@other_program("region-empty")
def a_region_in_a_branch_of_cond(x: torch.Tensor) -> Any:
    def marked(y: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            return y.sin() * 2

    return torch.cond(x.sum() > 0, marked, lambda y: y.cos(), (x,))


def use_marked_cut(ex: Exploration) -> None:
    ex.plan = rx.Plan(ex.plan.regions, cut=CutRule.MARKED)


@other_program("backward-unmarked", use_marked_cut)
def sums_of_gradients_that_the_plan_leaves_out(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        return x.sin() + x.cos() * 2


@other_program("config-inert", lambda ex: ex.configure("r", {"coordinate_descent_tuning": True}, direction="backward"))
def a_key_without_effect_in_the_backward(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        return (x @ x).sin()


@pytest.mark.parametrize("name", OTHERS)
def test_applying_a_remedy_removes_its_diagnostic(name: str) -> None:
    fn, first, code, promised = OTHERS[name]
    ex = rx.explore(fn, (X if code != "region-split" else X.detach(),))
    first(ex)
    (found, *_) = diagnostics_of(ex, code)
    apply_all(ex, found, promised.filled)
    assert code not in codes(ex)


def test_random_numbers_after_a_region_do_not_split_it() -> None:
    def call(x: torch.Tensor, *, between: bool) -> tuple[torch.Tensor, torch.Tensor]:
        dropout = torch.nn.functional.dropout
        with rx.region("r"):
            a = dropout(x, 0.5)
        b = dropout(x, 0.5) if between else x
        with rx.region("r"):
            a = dropout(a, 0.5) + a
        return a, b if between else dropout(x, 0.5)

    (found,) = diagnostics_of(rx.explore(call, (X.detach(),), {"between": True}), "region-split")
    assert found.remedy == "In the program, draw these numbers before the region's first draw, or after its last."
    assert codes(rx.explore(call, (X.detach(),), {"between": False})) == ["region-merged"]


# ------------------------------------------------------------------------------- remedies that only a measurement finds


def explore_mlp() -> Exploration:
    return rx.explore(lambda x: x.sin().exp(), (X,)).mark("mlp", ops=["sin", "exp"])


def measured_findings() -> dict[str, Diagnostic]:
    """Return a finding of each kind about region 'mlp', from simulated figures."""
    slower = measured_alone(speedup=Figure(0.8, 0.75, 0.85), verdict=Verdict.SLOWER)
    part = slower.partitions[0]
    wrong = replace(
        slower,
        partition_numerics=(Numerics("compiled", "mm1", error=1.0, verdict=NumericsVerdict.FAILED, partition=part.id),),
    )
    (cured,) = measured.wrong_region_diagnostics(wrong, {part.id: {"fallback_random": True}})
    (lost,) = measured.wrong_region_diagnostics(wrong, {part.id: None})
    (loses,) = measured.region_diagnostics(slower)
    return {"cured": cured, "no cure": lost, "slower": loses}


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("cured", lambda region: region.config == {"fallback_random": True}),
        ("no cure", lambda region: not region.enabled),
        ("slower", lambda region: not region.enabled),
    ],
)
def test_applying_a_measured_finding_changes_its_region(name: str, holds: Callable[[rx.Region], bool]) -> None:
    ex = explore_mlp()
    assert ex.apply(measured_findings()[name]) is ex
    assert holds(ex.plan["mlp"])


def test_disabling_saves_the_loss_of_a_slower_region() -> None:
    (action,) = measured_findings()["slower"].actions
    assert action.basis is EffectBasis.MEASURED
    assert action.gain_s
    assert action.gain_s.value == pytest.approx(6e-4 / 0.8 - 6e-4)
    assert action.gain_s.bounds == pytest.approx((6e-4 / 0.85 - 6e-4, 6e-4 / 0.75 - 6e-4))


def test_an_action_that_shows_a_table_returns_it() -> None:
    ex = explore_mlp()
    assert list(ex.apply(show_table_action("reconciliation")).columns) == list(ex.reconciliation.columns)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        (
            DiagnosticCode.GRAPH_BREAK.finding("It stopped", remedy="Move the line."),
            "has no action to apply. Move the line.",
        ),
        (
            DiagnosticCode.REGION_TIME.finding(
                "It takes long", remedy=(disable_action("mlp"), " or ", unmark_action("mlp"))
            ),
            r"ex\.apply\(finding\.actions\[1\]\) for ex\.unmark\('mlp'\)",
        ),
        (configure_action("mlp"), r"needs config: ex\.apply\(action, config=…\)"),
        ("ex.disable('mlp')", "a diagnostic of ex.diagnostics, or one of its actions"),
    ],
)
def test_unappliable_diagnostic_is_an_error(what: Any, error: str) -> None:
    ex = explore_mlp()
    with pytest.raises(rx.InvalidArgumentError, match=error):
        ex.apply(what)
    assert ex.plan == explore_mlp().plan


def test_advice_of_an_answer_can_be_applied() -> None:
    layers = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()) for _ in range(3))
    ex = rx.explore(lambda x: layers[2](layers[1](layers[0](x))).sum(), (X.detach(),))
    ex.profile(0.05)
    actions = {part.kind: part for part in ex.answer.next if not isinstance(part, str)}
    assert list(actions) == [ActionKind.TUNE, ActionKind.MARK]
    ex.apply(actions[ActionKind.MARK])
    assert [part.region for part in ex.session.partitions]
    assert ex.answer.not_compiled == len(ex.session.partitions)
