"""The floor of a call: its products, measured once by every library, its bytes, and what is shown of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.command.checks import examine
from regional_explorer.compiler.run import Run
from regional_explorer.errors import MeasureError
from regional_explorer.exploration.results import FloorResult
from regional_explorer.measure import floor
from regional_explorer.measure.floor import ProductFile, bytes_between, measure_floor
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record.benchmark import NumericsVerdict, Phase, Verdict
from regional_explorer.record.figure import QUIET, Figure, Noise, exactly
from regional_explorer.record.floor import ATEN, Floor, Product
from regional_explorer.record.reach import phase_reaches, reach_of, share_of_gain
from regional_explorer.record.session import Session
from regional_explorer.tables.floor import floor_sentence, gain_table
from regional_explorer.torch_api.products import is_product_node, ways_of
from tests.shared import sessions
from tests.shared.sessions import ENVIRONMENT, timing

ROWS, WIDTH = 32, 64
SQUARE, WIDE = 4 * WIDTH * WIDTH, 4 * ROWS * WIDTH
HALF_EXACTLY = Figure(0.5, 0.5, 0.5)


def mlp(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.gelu(x.sin() @ w) @ v


def explore_mlp(*, grad: bool = False) -> rx.Exploration:
    sizes = ((ROWS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH))
    return rx.explore(mlp, tuple(torch.randn(*size, requires_grad=grad) for size in sizes), grad=grad)


def floor_of(ex: rx.Exploration, file: ProductFile, run: Run | None = None) -> Floor:
    return measure_floor(ex.live.program, ex.live.present_environment(), run or Run(), 60.0, file)


@pytest.fixture
def on_a_machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Noise], None]:
    """Return a function that decides what else the machine does while products are measured, each for a short time."""
    noise = [QUIET]
    monkeypatch.setattr(floor, "PRODUCT_S", 0.01)
    monkeypatch.setattr(
        floor, "run_rounds", lambda *args, **options: dataclasses.replace(run_rounds(*args, **options), noise=noise[0])
    )
    return lambda other: noise.insert(0, other)


# ----------------------------------------------------------------------------------------------------------- measured


def test_each_product_is_measured_once_for_all_processes(
    tmp_path: Path, on_a_machine: Callable[[Noise], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, busy = tmp_path / "products.jsonl", Noise(10, 9, 0, 2.0, 2)
    on_a_machine(busy)
    first = floor_of(explore_mlp(), ProductFile(path))
    (product,) = first.products
    assert (product.text, product.times) == (f"mm {ROWS}×{WIDTH} · {WIDTH}×{WIDTH} float32", 2), "equal ones are one"
    assert first.busy
    on_a_machine(QUIET)
    again = floor_of(explore_mlp(), ProductFile(path))
    assert not again.busy, "what was measured on a busy machine is measured again"
    assert again.products[0].each_s <= product.each_s
    monkeypatch.setattr(floor, "run_rounds", lambda *_, **__: pytest.fail("it is known"))
    later = floor_of(explore_mlp(), ProductFile(path))
    assert later.products == again.products
    with torch.device("cpu"), monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 77)
        with pytest.raises(pytest.fail.Exception):
            floor_of(explore_mlp(), ProductFile(path))


def test_the_doctor_says_how_many_products_were_measured(
    tmp_path: Path, on_a_machine: Callable[[Noise], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floor, "path_beside_cache", tmp_path.joinpath)

    def found() -> str:
        return next(str(one) for one in examine() if one.name == "measured products")

    assert "none on this machine. ex.floor() measures" in found()
    floor_of(explore_mlp(), ProductFile())
    assert "1 fastest by" in found()
    assert f"torch {torch.__version__}" in found()


def test_a_cancelled_floor_leaves_products_out(tmp_path: Path) -> None:
    found = floor_of(explore_mlp(), ProductFile(tmp_path / "products.jsonl"), Run(cancelled=lambda: True))
    assert (found.products, found.left_out) == ((), 2)
    assert "2 products left out" in str(FloorResult(replace(sessions.measured(), floor=found)))


def test_the_time_in_a_template_of_inductor_counts_as_well(tmp_path: Path, on_a_machine: object) -> None:
    ex = explore_mlp()
    (live,) = ex.live.capture.live
    second = [node.name for node in live.gm.graph.nodes if is_product_node(node)][1]
    file, templates = ProductFile(tmp_path / "products.jsonl"), {(live.id, second): 1e-9}
    found = measure_floor(ex.live.program, ENVIRONMENT, Run(), 60.0, file, templates)
    assert {(one.library, one.each_s) for one in found.products} == {("Inductor's template", 1e-9)}


@pytest.mark.parametrize("constant", [False, True])
def test_every_library_computes_the_same_product(constant: bool) -> None:
    def products(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, image: torch.Tensor, kernel: torch.Tensor) -> Any:
        return F.linear(x, w, b), x @ w, F.conv2d(image, kernel)

    sizes = ((ROWS, WIDTH), (WIDTH, WIDTH), (WIDTH,), (2, 4, 8, 8), (4, 4, 3, 3))
    ex = rx.explore(products, tuple(map(torch.randn, sizes)), grad=False)
    (live,) = ex.live.capture.live
    libraries = set[str]()
    for node in filter(is_product_node, live.gm.graph.nodes):
        ways = ways_of(node, constant=constant)
        libraries |= ways.keys()
        expected = ways[ATEN]()
        for way in ways.values():
            torch.testing.assert_close(way(), expected, atol=1e-4, rtol=1e-4)
    assert libraries >= {ATEN, "ATen, channels last", "oneDNN"}
    assert ("oneDNN, packed weights" in libraries) is constant


# -------------------------------------------------------------------------------------------------------------- bytes


def bytes_of(ex: rx.Exploration) -> list[tuple[int, int]]:
    graphs = ex.live.capture.live
    return sorted(pair for live in graphs for pair in bytes_between(live, graphs))


def test_bytes_are_the_inputs_and_outputs_of_what_lies_between_products() -> None:
    reads_x, writes_sine, writes_gelu = (WIDE, 0), (0, WIDE), (0, WIDE)
    assert bytes_of(explore_mlp()) == sorted([reads_x, writes_sine, writes_gelu]), "a library may apply the gelu"
    # Forward: x, and the result of the product to which gelu is applied. Backward: that result and the gradient of
    # gelu's result, x, and the operands that are written for products, or are the gradient of x.
    assert bytes_of(explore_mlp(grad=True)) == sorted([(WIDE, 0)] * 6 + [(0, WIDE)] * 4)


def test_nothing_between_ops_counts_and_an_embedding_reads_no_other_row() -> None:
    ex = rx.explore(lambda x: (x.sin().cos() * torch.zeros_like(x)).exp(), (torch.randn(WIDTH),), grad=False)
    assert bytes_of(ex) == [(0, 4 * WIDTH), (4 * WIDTH, 0)]
    ids = torch.zeros(4, dtype=torch.int64)
    ex = rx.explore(F.embedding, (ids, torch.randn(1000, 8)), grad=False)
    assert bytes_of(ex) == [(0, 128), (32, 0), (128, 0)]
    ex = rx.explore(lambda x, w: (x @ w).chunk(2)[0].relu(), (torch.randn(8, 8), torch.randn(8, 8)))
    assert bytes_of(ex) == [(0, 128)], "half of the product; a library may apply the relu"


# -------------------------------------------------------------------------------------------------------------- shown


def with_floor(seconds: float, base: Session | None = None, **fields: Any) -> Session:
    """Return a session of a call whose fastest plan takes 320 µs, with a floor of one product and some bytes."""
    product = Product("mm 8×8 · 8×8 float32", 2, seconds / 4, "oneDNN", seconds / 2, has_pass=True)
    found = Floor((product,), 4096, seconds / 2, ENVIRONMENT)
    return replace(base or sessions.measured(), floor=replace(found, **fields))


def answer_text(session: Session) -> str:
    return " ".join(str(rx.SavedSession(session).answer).split())


def test_the_pass_is_named_only_where_it_helps() -> None:
    session = with_floor(240e-6)
    assert "is a pass for them" in FloorResult(session).sentence
    (product,) = session.floor.products if session.floor else ()
    other = with_floor(240e-6, products=(replace(product, has_pass=False),))  # such as a product of bfloat16
    assert "25.0 % of the call in 1 kind of products faster by oneDNN than by ATen." in FloorResult(other).sentence
    reach = reach_of(session)
    assert reach is not None
    assert reach.slow_products == (product,)
    assert replace(reach, by_onednn=True).slow_products == (), "the plan has the pass"


def test_a_floor_says_what_is_left_and_in_which_products() -> None:
    session = with_floor(240e-6)
    reach = reach_of(session)
    assert reach is not None
    assert (reach.title, reach.seconds.value) == ("your plan", 320e-6)
    assert reach.left == pytest.approx(0.25)
    result = FloorResult(session)
    assert result.sentence == (
        "A call takes 320 µs (your plan); floor 240 µs: at most 25.0 % left, "
        "25.0 % of the call in 1 kind of products faster by oneDNN than by ATen "
        "(rx.products_by_onednn is a pass for them)."
    )
    assert list(result.frame.floor_us) == pytest.approx([120.0, 120.0])
    assert result.frame["product"][1] == "all else: 4.00 KiB to read and write"
    assert "At most 25.0 % of the time under your plan can be saved" in answer_text(session)
    assert "oneDNN" in result._repr_mimebundle_()["text/html"]


def test_a_floor_above_a_measurement_is_not_shown() -> None:
    for session in (
        with_floor(330e-6, busy=True),
        with_floor(390e-6, replace(sessions.measured(), timings=sessions.measured().timings[:2])),
    ):
        shown, answer = FloorResult(session), answer_text(session)
        above = session.floor is not None and session.floor.seconds > 320e-6 and len(session.timings) > 2
        assert ("its floor is unknown" in str(shown)) is above
        assert shown.frame.empty is above
        assert ("can be saved" in answer) is not above
        assert ("The machine was busy" in str(shown)) is above


def test_a_floor_is_compared_with_right_plans_under_its_own_settings() -> None:
    wrong = sessions.measured(numerics=NumericsVerdict.FAILED)
    reach = reach_of(with_floor(240e-6, wrong))
    assert reach is not None
    assert reach.title == "eager", "the results of the plan are wrong, and torch.compile is slower"
    other = replace(ENVIRONMENT, threads=77)
    assert reach_of(with_floor(240e-6, replace(sessions.measured(), environment=other))) is None
    alone = with_floor(240e-6, sessions.training_session(1))
    assert reach_of(alone) is None
    assert "no plan was measured beside it" in FloorResult(alone).sentence
    with pytest.raises(MeasureError, match=r"not measured: ex\.floor\(\)"):
        rx.SavedSession(sessions.measured()).floor()


def test_a_floor_of_a_real_program_is_the_sum_of_its_rows(
    tmp_path: Path, on_a_machine: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floor, "path_beside_cache", tmp_path.joinpath)
    ex = explore_mlp(grad=True)
    shown = ex.floor()
    assert shown.frame.floor_us.sum() == pytest.approx(1e6 * shown.record.seconds)
    assert sum(product.times for product in shown.record.products) == 6, "two products, each with two in the backward"
    assert ex.results.floor() == shown
    ex.benchmark(("eager", "regional"), 0.05, regions=False)
    reach = reach_of(ex.session)
    assert reach is not None
    assert (reach.left is None) is (reach.seconds.value < shown.record.seconds)
    assert floor_sentence(shown.record, reach) == ex.results.floor().sentence


# ------------------------------------------------------------------------------------------ the gain of torch.compile


def compared(eager_s: float, regional_s: float, full_s: float, **of_full: Any) -> Session:
    times = {"eager": eager_s, "regional": regional_s, "full": full_s}
    timings = [timing(name, seconds, eager_s / seconds) for name, seconds in times.items()]
    timings[-1] = replace(timings[-1], **of_full)
    return replace(sessions.measured(), timings=tuple(timings))


@pytest.mark.parametrize(
    ("session", "text"),
    [
        (compared(3.0, 2.0, 1.0), "50 % (50 % to 50 %)"),
        (compared(3.0, 0.5, 1.0), "all: faster than torch.compile"),
        (compared(3.0, 4.0, 1.0), "none"),
        (compared(3.0, 2.0, 4.0, verdict=Verdict.SLOWER), "torch.compile is not faster"),
        *(
            (compared(3.0, 2.0, 1.0, verdict=verdict), "torch.compile may not be faster")
            for verdict in (Verdict.BUSY, Verdict.INCONCLUSIVE, Verdict.UNKNOWN)
        ),
        (compared(3.0, 2.0, 1.0, numerics=NumericsVerdict.FAILED), "torch.compile not right"),
    ],
)
def test_the_share_of_the_gain_of_torch_compile(session: Session, text: str) -> None:
    (reach,) = phase_reaches(session)
    assert reach.phase is Phase.FORWARD
    assert gain_table([reach]).text().endswith(text)
    assert gain_table([reach]).text() in str(FloorResult(with_floor(0.1, session)))


@pytest.mark.parametrize(
    ("share", "ending"),
    [
        (Figure(0.9, 0.7, 1.3), "90 % (70 % to 100 %)"),
        (Figure(1.1, 0.9, 1.2), "all, as far as the rounds tell"),
        (exactly(-0.5), "none"),
    ],
)
def test_a_share_of_a_gain_is_at_most_one(share: Figure, ending: str) -> None:
    (reach,) = phase_reaches(compared(3.0, 2.0, 1.0))
    assert gain_table([replace(reach, share=share)]).text().endswith(ending)


def test_a_share_is_the_median_over_rounds_with_its_interval() -> None:
    even = np.ones(20)
    assert share_of_gain(3 * even, 2 * even, even) == HALF_EXACTLY
    drift = np.linspace(1.0, 3.0, 20)
    assert share_of_gain(3 * drift, 2 * drift, drift) == HALF_EXACTLY, "of one machine in each round"
    assert share_of_gain(3 * even[:5], 2 * even, even) == Figure(0.5, why="too few rounds (5)")
    assert share_of_gain(even, even, 2 * even).why == "torch.compile gained nothing in any round"
    once = np.where(np.arange(20) == 3, 4.0, 1.0)
    assert share_of_gain(3 * even, 2 * even, once) == HALF_EXACTLY, "one round in which torch.compile gained nothing"
    often = np.where(np.arange(20) % 2, 4.0, 1.0)
    found = share_of_gain(3 * even, 2 * even, often)
    assert found == Figure(0.5, why="torch.compile gained nothing in too many rounds")


def test_share_intervals_have_nominal_coverage() -> None:
    chance, covered = np.random.default_rng(0), []
    for _ in range(500):
        drift = chance.uniform(1.0, 1.5, 20)
        eager, regional, full = drift * np.array([[3.0], [2.4], [2.0]]) * np.exp(chance.gamma(1.0, 0.05, (3, 20)))
        low, high = share_of_gain(eager, regional, full).bounds or (-np.inf, np.inf)
        covered.append(low <= 0.6 <= high)
    assert np.mean(covered) >= 0.98, "99 %, and twice the standard error of five hundred runs"
