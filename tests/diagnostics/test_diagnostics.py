"""Diagnostics: the page's program of every code shows it, and clean programs show none."""

import functools
import itertools
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion
from torch.fx.traceback import annotate
from torch.utils.checkpoint import checkpoint

import regional_explorer as rx
from regional_explorer.backend.planned_backend import worded_for_production
from regional_explorer.diagnostics import check
from regional_explorer.diagnostics.evidence import Evidence
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Node
from regional_explorer.record.plan import CutRule
from regional_explorer.regions.instances import Claim
from regional_explorer.regions.select import Assignment
from tests.diagnostics.remedies import REMEDIES, ActionRemedy, TextRemedy, words_of
from tests.golden.snapshots import assert_matches_snapshot, program_text
from tests.shared import diagnostics_programs, programs
from tests.shared.checks import BEFORE_2_13, REGION_IDS, codes, diagnostics_of, needs_region_ids, only
from tests.shared.diagnostics_programs import explore_on_tokens, gpt_of_neighbours
from tests.shared.work import calls

pytestmark = pytest.mark.filterwarnings("ignore:The call was traced again")

PACKAGE = Path(rx.__file__).parent
UPSTREAM = {"upstream-failed", "upstream-merged", "upstream-config", "upstream-ignored"}
COMPILES = {"recompiled", "region-failed", "pass-failed", "inductor-warning", *UPSTREAM}
ALSO: dict[str, set[str]] = {
    "region-cycle": {"region-merged"},
    "region-shrunk": {"region-split"},
    "backward-only": {"region-lost"},
    "upstream-failed": {"region-cycle", "region-merged"},
    "call-nondeterministic": {"graph-break"},
}
"""Other codes that the program of a code shows."""

WITHOUT_LINE = {
    "config-inert",
    "config-unknown",
    "plan-differs",
    "state-kept",
    "state-guarded",
    "call-nondeterministic",
    "upstream-failed",
}
UNDER_UPSTREAM = {
    "upstream-failed": ("", {"eager"}),
    "upstream-merged": ("Upstream compiles 2 instances of region 'r' as one piece.", {"eager", "upstream"}),
    "upstream-config": ("max_fusion_size=1; requested was max_fusion_size=2", {"eager", "upstream"}),
    "upstream-ignored": ("", {"eager", "lite"}),
}
"""A part of the message about programs under upstream's compilers, and the variants that are measured."""
PROGRAMS = diagnostics_programs.page_programs()


Explored = Callable[[str], Exploration]


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Explored:
    """Return a function that explores a program of the page, by its code, or a clean one, and closes it: once each."""
    folder = tmp_path_factory.mktemp("programs")

    @functools.cache
    def explore(name: str) -> Exploration:
        torch.manual_seed(0)
        torch._dynamo.reset()
        if name in diagnostics_programs.CLEAN:
            found = diagnostics_programs.CLEAN[name]()
        else:
            found = diagnostics_programs.run_page_program(PROGRAMS[name], folder)
        with found as ex:
            return ex

    return explore


@pytest.mark.parametrize(
    "code", [pytest.param(code, marks=pytest.mark.compiles if code in COMPILES else ()) for code in PROGRAMS]
)
def test_the_program_of_the_page_shows_its_code_and_remedy(code: str, explored: Explored) -> None:
    ex = explored(code)
    found = diagnostics_of(ex, code)
    if code == "backward-only" and not REGION_IDS:
        assert codes(ex) == ["region-lost"], "torch 2.11 takes the mark away with the frame, from the backward too"
        return
    if code == "upstream-failed" and not REGION_IDS:
        assert not found, "torch 2.11 takes all marks for one region, which it cuts"
        return
    assert found, codes(ex)
    assert set(codes(ex)) - {code} <= ALSO.get(code, set())
    for item in found:
        assert item.message
        assert item.upstream
        assert item.remedy
        assert not re.search(r"\bex\.\w|[Uu]pstream torch", str(worded_for_production(item)))
        assert bool(item.where) is (code not in WITHOUT_LINE)
        assert f"*{item.severity}" in diagnostics_programs.page_sections()[code]
        if item.graph is not None:
            names = {node.name for graph in ex.session.graphs if graph.id == item.graph for node in graph}
            assert set(item.nodes) <= names
        promised = REMEDIES[code]
        assert "ex." not in words_of(item), "calls are actions"
        if not isinstance(promised, ActionRemedy):
            action = promised.action if isinstance(promised, TextRemedy) else ""
            assert [str(one) for one in item.actions] == [*filter(None, [action])]
    if code in UNDER_UPSTREAM and REGION_IDS:
        message, variants = UNDER_UPSTREAM[code]
        assert message in only(ex, code).message
        assert set(ex.timings.variant) == variants
        assert set(ex.numerics.verdict) <= {"ok"}


@pytest.mark.parametrize("code", RefusalCode)
def test_the_program_of_the_page_is_refused_with_its_code(code: RefusalCode, tmp_path: Path) -> None:
    with pytest.raises(CaptureError) as caught:
        diagnostics_programs.run_page_program(diagnostics_programs.refused_programs()[code], tmp_path)
    assert caught.value.code is code
    assert str(caught.value) == f"[{code}] {caught.value.message}"
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
    assert (again.code, str(again)) == (code, str(caught.value))


def emitted_codes() -> set[str]:
    """Return every code that the package names where it makes a diagnostic."""
    text = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    return {str(DiagnosticCode[name]) for name in re.findall(r"\bDiagnosticCode\.([A-Z_0-9]+)", text)}


def test_the_page_explains_every_code_and_no_other() -> None:
    assert set(diagnostics_programs.page_sections()) == emitted_codes()


def test_every_reproducible_code_has_a_program() -> None:
    of_call = {"full-failed", "plan-failed", "variant-failed", "variant-wrong", "region-numerics", "plan-slower"}
    measured = {*of_call, "region-slower", "region-worth", "pattern-lost"}
    kernels_measured = {"region-time", "op-recomputed", "fusion-refused", "kernel-bound", "launch-bound"}
    shipped = {"artifact-differs", "artifact-damaged", "artifact-unsaved"}
    without = set(diagnostics_programs.page_sections()) - set(PROGRAMS)
    assert without == {"no-compiler", *shipped, *measured, *kernels_measured}


# ----------------------------------------------------------------------------------------------------- clean programs


@pytest.mark.parametrize("name", diagnostics_programs.CLEAN)
def test_clean_programs_have_no_diagnostics(name: str, explored: Explored) -> None:
    assert codes(explored(name)) == []


@pytest.mark.compiles
def test_graphs_partitions_and_diagnostics_of_programs(explored: Explored, snapshot: SnapshotAssertion) -> None:
    names = [*PROGRAMS, *diagnostics_programs.CLEAN]
    assert_matches_snapshot([program_text(name, explored(name).session) for name in names], snapshot)


@pytest.mark.compiles
def test_a_clean_program_stays_clean_when_compiled() -> None:
    ex = rx.explore(programs.textbook, programs.pair())
    assert codes(ex) == []
    ex.compile()
    assert codes(ex) == []


def test_the_number_of_diagnostics_does_not_grow_with_the_model() -> None:
    assert codes(stacked_layers(6)) == codes(stacked_layers(3)) == ["backward-unmarked"]


def stacked_layers(depth: int) -> Exploration:
    """Explore layers whose sums of gradients are left out of the region, so that each backward is cut in pieces."""

    def layers(x: torch.Tensor) -> torch.Tensor:
        for _ in range(depth):
            with rx.region("layer"):
                x = x.sin() + x.cos() * 2
            x = x.exp()
        return x

    ex = rx.explore(layers, (torch.randn(3, requires_grad=True),))
    ex.plan = replace(ex.plan, cut=CutRule.MARKED)
    return ex


# ------------------------------------------------------------------------------------------------- what the texts say

REPORTS: dict[str, tuple[Any, ...]] = {}


def reports(code: str, *args: torch.Tensor, edit: Any = lambda ex: ex, never: bool = False, **texts: Any) -> Any:
    """Decorator: the program has one diagnostic of this code, whose texts contain ``texts``; with ``never``, none."""

    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        REPORTS[f"{fn.__name__} {'never' if never else 'reports'} {code}"] = fn, args, code, edit, never, texts
        return fn

    return add


def set_upstreams_cut(ex: Exploration) -> Exploration:
    ex.plan = replace(ex.plan, cut=CutRule.UPSTREAM)
    return ex


X = torch.ones(3)


@reports("region-split", torch.randn(4), message="order of the program", upstream="other numbers")
def a_split_around_random_numbers(x):
    with rx.region("r"):
        a = torch.nn.functional.dropout(x, 0.5)
    b = torch.nn.functional.dropout(x, 0.5)
    with rx.region("r"):
        return torch.nn.functional.dropout(a, 0.5) + a, b


@reports("region-split", X, severity=Severity.INFO, nodes=("exp",))
def a_split_by_a_carved_op_is_as_asked(x):
    with rx.region("r"):
        a = x.sin()
        with annotate({"fallback_to_eager": True}):
            b = a.exp()
        return b.cos() + a


@reports("region-cycle", X, X.clone(), message=["Instances of region 'r'", "r → r through"])
def instances_of_one_region_in_a_cycle(x, y):
    with rx.region("r"):
        a, b = x.sin(), y.cos()
    c, d = a.exp(), b.exp()
    with rx.region("r"):
        return a * d, b * c


@reports("region-merged", X, message="(round.0/0/inference: 4)", where=['with rx.region("round"):'])
def a_merge_says_how_many_and_where(x):
    for _ in range(4):
        with rx.region("round"):
            x = x.sin()
    return x


@reports("region-merged", X, X.clone(), never=True)
@reports(
    "region-merged", X, X.clone(), edit=set_upstreams_cut, message="side by side", where=['with rx.region("r"):'] * 2
)
def blocks_side_by_side_are_merged_by_upstreams_cut(x, y):
    with rx.region("r"):
        a = x.sin()
    with rx.region("r"):
        b = y.cos()
    return a, b


@reports("graph-break", X, remedy="Torch's own hint: Use `torch.cond`")
def a_break_repeats_torchs_hint(x):
    x = x.sin()
    return x.cos() if x.sum() > 0 else x


@reports(
    "region-empty",
    *programs.pair(),
    severity=Severity.INFO,
    message="no op in the backward: no gradient flows through it",
)
def a_region_without_a_backward(x, y):
    with rx.region("mask"):
        keep = (y.detach() > 0).float()
    return x * keep


@reports(
    "region-empty",
    *programs.pair(),
    message="no gradient flows through it, or a gradient passes unchanged through add",
)
def a_sum_in_a_region_without_a_gradient(x, y):
    with rx.region("mask"):
        keep = (y.detach() > 0).float() + 1
    return x * keep


@reports("region-empty", X, message="all its ops are carved out")
def a_region_that_is_carved_out_as_a_whole(x):
    with rx.region("r"), annotate({"fallback_to_eager": True}):
        y = x.sin()
    return y.exp()


@reports("config-conflict", X, severity=Severity.INFO, region=None)
def marks_without_a_name_are_kept_apart(x):
    with annotate({"compile_with_inductor": {"inductor_configs": {"max_fusion_size": 1}}}):
        x = x.sin()
    x = x.exp()
    with annotate({"compile_with_inductor": {"inductor_configs": {"max_fusion_size": 2}}}):
        return x.cos()


@reports("config-conflict", X, never=True)
def the_order_of_keys(x):
    with rx.region("r", max_fusion_size=1, epilogue_fusion=False):
        x = x.sin()
    x = x.exp()
    with rx.region("r", epilogue_fusion=False, max_fusion_size=1):
        return x.cos()


@reports("config-nested", X, never=True)
def an_inner_mark_that_repeats_the_config(x):
    with rx.region("outer", max_fusion_size=2):
        x = x.sin()
        with rx.region("inner", max_fusion_size=2, epilogue_fusion=False):
            return x.cos()


@reports("config-inert", X, never=True)
def a_config_at_its_default(x):
    with rx.region("r", max_autotune=False):
        return x.sin() * 2


@pytest.mark.parametrize("name", REPORTS)
def test_diagnostics_of_programs_have_these_messages(name: str) -> None:
    fn, args, code, edit, never, texts = REPORTS[name]
    ex = edit(rx.explore(fn, args))
    if never:
        assert code not in codes(ex)
        return
    found = only(ex, code)
    for field, expected in texts.items():
        value = getattr(found, field)
        if field == "where":
            assert [line.text for line in value] == expected
        elif field in ("message", "upstream", "remedy"):
            assert all(text in value for text in ([expected] if isinstance(expected, str) else expected)), value
        else:
            assert value == expected


def test_the_remedy_names_the_graph_of_nodes_after_a_break() -> None:
    def behind(x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        print("a graph break")
        with rx.region("r"):
            a = x * 2
        b = a.exp()
        with rx.region("r"):
            return a + b

    ex = rx.explore(behind, (X,))
    assert "1/inference:exp" in only(ex, "region-split").remedy
    assert len(ex.mark("r", nodes="1/inference:exp").partitions) == 1


def test_the_message_about_a_shared_body_names_its_callers() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(4, 4)

        @torch.compiler.nested_compile_region
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(self.up(x))

    ex = rx.explore(torch.nn.Sequential(Block(), Block(), Block()), (torch.ones(2, 4),)).mark("up", modules="*.up")
    found = only(ex, "region-merged")
    # Whether the first call shares the body too is torch's to decide.
    assert re.match(r"2 partitions of region 'up' in a body that [23] calls share \((0, )?1, 2\)", found.message)
    assert found.severity is Severity.INFO


def lost(x: torch.Tensor) -> torch.Tensor:
    with rx.region("gone"):
        print("a graph break")
        return x + 1


def test_nothing_captured_is_an_error() -> None:
    with pytest.raises(CaptureError, match=r"Nothing was captured.*region 'gone' \(region-lost\)(?s:.*)in lost"):
        rx.explore(lost, (X,))
    with pytest.raises(CaptureError, match=r"(?s)Change the lines below.*the call itself: .*allow_rnn=True"):
        rx.explore(torch.nn.LSTM(4, 4), (torch.ones(2, 2, 4),))
    with (
        pytest.warns(UserWarning, match="builtin"),
        pytest.raises(CaptureError, match=r"the call itself: .*Tensor\.item"),
    ):
        rx.explore(X.sum().item, ())


def test_a_lost_block_is_reported_under_the_plans_region_name() -> None:
    def unnamed(size: int) -> Any:
        return annotate({"compile_with_inductor": {"inductor_configs": {"max_fusion_size": size}}})

    def breaks(x: torch.Tensor) -> torch.Tensor:
        with unnamed(2):
            print("a graph break")
            return x + 1

    def call(x: torch.Tensor) -> torch.Tensor:
        with unnamed(1):
            x = x.sin()
        x = x.exp()
        with unnamed(2):
            x = x.cos()
        return breaks(x).tan()

    ex = rx.explore(call, (X,))
    assert only(ex, "region-lost").region == "default-2"
    assert only(ex.rename("default-2", "s"), "region-lost").region == "s"


@needs_region_ids
def test_an_unmarked_forward_is_reported_under_the_plans_region_name(tmp_path: Path) -> None:
    source = PROGRAMS["backward-only"].replace("def f(x):\n", "def f(x):\n    x = before(x)\n")
    before = "def before(x):\n    with rx.region('r'):\n        return x.cos()\n\n"
    ex = diagnostics_programs.run_page_program(source.replace("def g", f"{before}def g"), tmp_path).rename("r", "s")
    assert {only(ex, code).region for code in ("backward-only", "region-lost")} == {"s"}


@pytest.mark.parametrize(
    ("block", "op"),
    [(lambda x: x.clone(), "clone"), (lambda x: x + 1, "add"), (lambda x: x - 1, "sub"), (lambda x: x + x, "add")],
)
def test_a_gradient_that_passes_unchanged_is_explained(block, op) -> None:
    def copies(x):
        with rx.region("r"):
            y = block(x)
        return y.sin()

    x = torch.randn(8, requires_grad=True)
    ex = rx.explore(copies, (x,))
    assert f"a gradient passes unchanged through {op}" in only(ex, "region-empty").message
    (gradient,) = torch.autograd.grad(ex.live.capture.run(x).sum(), x)
    assert gradient.abs().sum() > 0, "a gradient flows"


def test_an_unmarked_backward_of_a_branch_is_explained() -> None:
    def branched(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))  # type: ignore[no-any-return]

    ex = rx.explore(branched, (torch.ones(3, requires_grad=True),)).mark("r", ops="*sin*")
    found = only(ex, "region-empty")
    assert "torch traces the backward of 0/forward:cond again" in found.message
    ex.unmark("r").mark("r", nodes="0/forward:cond")
    assert not codes(ex), "as the remedy says"


def mul_(x: torch.Tensor) -> None:
    x.mul_(3)


def imul(x: torch.Tensor) -> None:
    x *= 3


@pytest.mark.parametrize("write", [mul_, imul])
def test_an_unmarked_backward_of_a_write_is_explained(write) -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        write(y[1:])
        return y.sin()

    ex = rx.explore(writes, (torch.ones(3, requires_grad=True),)).mark("r", ops=write.__name__)
    assert "the backward ops of writes in place" in only(ex, "region-empty").message


def test_the_later_mark_wins_with_a_diagnostic() -> None:
    ex = rx.explore(programs.Stack(), (torch.randn(4, 16),)).mark("layer", modules="layers.*")
    ex.mark("up", modules="layers.*.up")
    found = only(ex, "region-shrunk")
    assert (found.region, found.severity) == ("layer", Severity.INFO)
    assert "3 ops that region 'layer' requested belong to 'up'" in found.message
    ex.mark("all", modules="layers.*")
    empty = diagnostics_of(ex, "region-empty")
    assert {item.region for item in empty} == {"layer", "up"}
    assert all("all its ops belong to 'all'" in item.message for item in empty), "not to a region that lost them too"
    assert all(item.where for item in empty), "the lines of the requested ops"


def test_a_checkpointed_region_has_no_diagnostics() -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            return (x @ x).sin()

    ex = rx.explore(lambda x: checkpoint(block, x, use_reentrant=False) * 2, (torch.ones(3, 3, requires_grad=True),))
    assert any(node.recompute for node in ex.session.graph("0/backward"))
    assert not codes(ex)


def test_the_message_says_why_checkpointed_dropout_is_eager() -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            return torch.nn.functional.dropout(x.sin(), 0.5)

    ex = rx.explore(lambda x: checkpoint(block, x, use_reentrant=False), (torch.ones(3, requires_grad=True),))
    forward, backward = diagnostics_of(ex, "region-shrunk")
    assert "results of run_and_save_rng_state, which runs eagerly, so that a checkpoint" in forward.message
    assert "results of run_with_rng_state, which runs eagerly, so that a checkpoint" in backward.message


def test_an_op_that_is_folded_after_a_graph_break_is_reported_in_its_graph() -> None:
    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.sin() * y
        print("a graph break")
        a = x.sin() * y
        with rx.region("r"):
            b = x.sin() * y + 1
        return a.exp() + b.cos()

    ex = rx.explore(call, programs.pair(), tracing=rx.Tracing("min_cut"))
    assert only(ex, "region-shrunk").graph == "1/forward"


def test_gradient_sums_inside_a_region_are_listed(tmp_path: Path) -> None:
    ex = diagnostics_programs.run_page_program(PROGRAMS["backward-unmarked"], tmp_path)
    assert only(ex, "backward-unmarked").nodes == ("add", "add_1")


def inner_block(x: torch.Tensor) -> torch.Tensor:
    with rx.region("outer", max_fusion_size=2):
        x = x.sin()
        with rx.region("inner"):
            x = x.cos()
        return x.exp()


def test_ops_added_by_an_edit_are_not_reported_as_merged() -> None:
    def followed(x: torch.Tensor) -> torch.Tensor:
        with rx.region("s"):
            x = x.cos()
        with rx.region("r"):
            x = x.sin()
        return x.exp()

    ex = rx.explore(followed, (X,)).mark("r", ops="exp").mark("r", ops="cos")
    assert len(ex.partitions) == 1
    assert "region-merged" not in codes(ex)


def test_the_message_of_a_conflict_names_the_plans_config(tmp_path: Path) -> None:
    ex = diagnostics_programs.run_page_program(PROGRAMS["config-conflict"], tmp_path)
    assert "all are compiled under {'max_fusion_size': 1}" in only(ex, "config-conflict").message
    ex.rename("r", "s").configure("s", {"max_fusion_size": 4})
    found = only(ex, "config-conflict")
    assert found.region == "s"
    assert "Marks of region 's' request 2 different configs" in found.message
    assert "all are compiled under {'max_fusion_size': 4}" in found.message
    ex.configure("s", {"max_fusion_size": 3}, direction="backward")
    both = "under forward {'max_fusion_size': 4}; backward {'max_fusion_size': 3}"
    assert both in only(ex, "config-conflict").message


@pytest.mark.parametrize(
    ("code", "region"),
    [
        ("config-conflict", "r"),
        ("config-nested", "inner"),
    ],
)
def test_disabled_region_is_not_reported_as_compiled(code: str, region: str, tmp_path: Path) -> None:
    ex = diagnostics_programs.run_page_program(PROGRAMS[code], tmp_path).disable(region)
    assert code not in codes(ex)


def test_config_nested_is_reported_once_and_its_remedy_resolves_it() -> None:
    ex = rx.explore(inner_block, (X,))
    found = only(ex, "config-nested")
    assert "x_1 is compiled under no config, not under {'max_fusion_size': 2}." in found.message
    ex.rename("inner", "i").configure("outer", {"max_fusion_size": 3})
    found = only(ex, "config-nested")
    assert found.region == "i"
    assert "x_1 is compiled under no config, not under {'max_fusion_size': 3}." in found.message
    assert "ex.configure('i', {…})" in found.remedy
    assert "config-nested" not in codes(ex.configure("i", {"max_fusion_size": 3}))


def test_config_nested_disappears_after_edits_of_the_nested_regions() -> None:
    ex = rx.explore(inner_block, (X,))
    nested = ex.plan
    for edit in (lambda: ex.unmark("outer"), lambda: ex.unmark("inner"), lambda: ex.mark("later", ops="cos")):
        ex.plan = nested
        assert "config-nested" in codes(ex)
        edit()
        assert "config-nested" not in codes(ex)


@pytest.mark.compiles
def test_a_config_that_was_tried_without_effect_is_reported() -> None:
    ex = rx.explore(programs.textbook, programs.pair(grad=False))
    ex.compile()
    ex.configure("middle", {"max_fusion_size": 7})
    ex.compile()
    assert "same with it and without" in only(ex, "config-inert").message
    ex.reset("middle").configure("middle", {"size_asserts": False})  # other code of the same kernels
    ex.compile()
    assert codes(ex) == []


@pytest.mark.compiles
def test_a_compile_compares_a_value_with_the_default_that_was_never_compiled() -> None:
    ex = rx.explore(programs.textbook, programs.pair(grad=False))
    for size in (7, 6):
        ex.configure("middle", {"max_fusion_size": size}).compile()
        assert "same with it and without" in only(ex, "config-inert").message


def test_recompiled_is_reported_once_per_region_and_guard() -> None:
    ex = rx.explore(programs.two_regions, (torch.ones(8),), dynamic=False)
    for size in (5, 6, 7):
        ex.live.capture.run(torch.ones(size))
    found = diagnostics_of(ex, "recompiled")
    assert [item.region for item in found] == ["a", "b"]
    assert all("again 3 times (graphs 1, 2, 3; the last: float32[7])" in item.message for item in found)
    assert all(re.search(r"size mismatch at index 0\. expected \d, actual \d", item.message) for item in found)
    ex.live.capture.run(torch.ones(8, dtype=torch.float64))
    found = diagnostics_of(ex, "recompiled")
    assert [item.region for item in found] == ["a", "b", "a", "b"], "another guard is another cause"
    assert ["dtype mismatch" in item.message for item in found] == [False, False, True, True]


@pytest.mark.skipif(BEFORE_2_13, reason="Dynamo does not trace itertools.count yet")
def test_a_guard_that_fails_with_changing_values_is_reported_once() -> None:
    numbers = itertools.count(1)

    def counted(x: torch.Tensor) -> torch.Tensor:
        with rx.region("a"):
            return x.sin() * next(numbers)

    ex = rx.explore(counted, (torch.ones(8),))
    for _ in range(3):
        ex.live.capture.run(torch.ones(8))
    found = only(ex, "recompiled")
    assert "again 3 times" in found.message
    assert "numbers" in found.message


def test_the_message_about_a_forgotten_trace_names_the_reset() -> None:
    ex = rx.explore(programs.two_regions, (torch.ones(8),))
    ex.compile()
    torch._dynamo.reset()
    ex.compiled(torch.ones(8))
    found = diagnostics_of(ex, "recompiled")
    assert [item.region for item in found] == ["a", "b"]
    for item in found:
        assert item.message.endswith("since torch._dynamo.reset() made Dynamo forget the earlier trace.")
        assert "ex.retrace() drops the earlier trace" in item.remedy
    ex.retrace()
    assert not diagnostics_of(ex, "recompiled")
    assert {part.graph for part in ex.session.partitions} == {"0/inference"}


def test_the_message_about_a_value_guard_is_one_line() -> None:
    def branching(x: torch.Tensor) -> torch.Tensor:
        with rx.region("a"):
            y = x.sin() * 2
        return y.cos() if y.sum().item() > 0 else y

    ex = rx.explore(branching, (torch.ones(8),))
    for sign in (1, -1):
        ex.live.capture.run(sign * torch.ones(8))
    found = only(ex, "recompiled")
    assert re.search(r"since a guard failed: \S", found.message)
    assert not re.search(r"\n|  |User stack", found.message)


def test_recompiled_without_regions_has_no_region() -> None:
    ex = rx.explore(lambda x: x.sin(), (torch.ones(8),), dynamic=False)
    for size in (5, 6):
        ex.live.capture.run(torch.ones(size))
    found = only(ex, "recompiled")
    assert found.region is None
    assert "trace the call again 2 times" in found.message


def test_the_most_severe_diagnostic_comes_first() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        with rx.region("r", coordinate_descent_tuning=True):
            x = x.sin()
        return lost(x).cos()

    ex = rx.explore(broken, (X,))
    assert [item.severity for item in ex.diagnostics] == [Severity.ERROR, Severity.INFO]


# ---------------------------------------------------------------------------------------------------------------- cost


def repeated(evidence: Evidence, times: int) -> Evidence:
    """Return the evidence of a model that is so many times as deep, without tracing it."""
    step = max(evidence.assignment.owners) + 1000

    def name(text: str, index: int) -> str:
        return f"{text}_x{index}"

    def copy(node: Node, index: int) -> Node:
        origin = None if node.origin is None else node.origin + index * step
        sources = tuple(name(source, index) for source in node.inputs)
        return replace(node, name=name(node.name, index), inputs=sources, origin=origin)

    def claim_of_copy(claim: Claim, index: int) -> Claim:
        return Claim(claim.region, (f"copy {index}", claim.instance[1] if claim.instance else 0))

    copies = range(times)
    return Evidence(
        graphs=[
            replace(graph, nodes=tuple(copy(node, index) for index in copies for node in graph.nodes))
            for graph in evidence.graphs
        ],
        plan=evidence.plan,
        assignment=Assignment(
            {
                origin + index * step: claim_of_copy(claim, index)
                for index in copies
                for origin, claim in evidence.assignment.owners.items()
            },
            claims={
                graph: {
                    name(node, index): claim_of_copy(claim, index) for index in copies for node, claim in claims.items()
                }
                for graph, claims in evidence.assignment.claims.items()
            },
        ),
        partitions=[
            replace(part, instance=part.instance + index * step, nodes=tuple(name(node, index) for node in part.nodes))
            for index in copies
            for part in evidence.partitions
        ],
        blocks={o + index * step: blocks for index in copies for o, blocks in evidence.blocks.items()},
    )


def test_the_work_of_the_checks_grows_linearly_with_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Evidence] = []

    def keep(evidence: Evidence) -> list[Diagnostic]:
        seen.append(evidence)
        return []

    monkeypatch.setattr("regional_explorer.compiler.partition_records.check", keep)
    _ = explore_on_tokens(gpt_of_neighbours(blocks=1)).diagnostics
    _ = stacked_layers(4).diagnostics
    assert len(seen) > 1
    for evidence in seen:

        def work(nodes: int, evidence: Evidence = evidence) -> int:
            large = repeated(evidence, 1 + nodes // sum(len(graph.nodes) for graph in evidence.graphs))
            assert sum(len(graph.nodes) for graph in large.graphs) > nodes
            assert len(check(large)) == len(check(evidence))
            return calls(lambda: check(large))

        assert work(4000) < min(5 * work(1000), 25 * 4000)


def test_diagnostics_stay_after_close() -> None:
    ex = stacked_layers(1)
    before = ex.diagnostics
    ex.close()
    assert ex.diagnostics == before == list(ex.session.diagnostics)
    assert before


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


def test_autograd_function_backward_is_separate_code():
    ex = rx.explore(lambda x: Squared.apply(x.sin()).mean(), (torch.randn(8, requires_grad=True),))
    ex.mark("r", ops="aten.mul*")
    found = only(ex, "region-empty")
    assert "an autograd function has a backward of its own" in found.message
    ex.apply(found)
    assert not ex.diagnostics
    assert {part.graph for part in ex.session.partitions} == {"0/forward", "0/backward"}


def test_ops_beside_an_autograd_function_have_their_backward():
    def call(x):
        return Squared.apply(x.sin()).mean() + x.detach().cos().sum()

    ex = rx.explore(call, (torch.randn(8, requires_grad=True),)).mark("r", ops="aten.cos*")
    assert "no gradient flows through it" in only(ex, "region-empty").message
