"""Generated code, linked: kernels, nodes, source lines."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

import regional_explorer as rx
from regional_explorer.compiler.compilation import warm_toolchain
from regional_explorer.compiler.program import Program
from regional_explorer.errors import NotCompiledError, RegionCompileError
from regional_explorer.insight import lowering
from regional_explorer.insight.lowering import OTHER_CODE
from regional_explorer.record.artifact import KernelKind, normalized
from tests.shared.checks import BEFORE_2_13

pytestmark = pytest.mark.compiles

ROWS, COLUMNS = 64, 256


def two_lines(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        y = torch.sin(x) * 2
        y = y @ w
        y = y.softmax(-1)
    return y


@pytest.fixture(scope="module")
def read() -> rx.Exploration:
    """Return an exploration whose code was looked at, for tests that only read it."""
    ex = explored()
    ex.code("r")
    return ex


def compiled(function: Callable[..., Any], *args: torch.Tensor, dynamic: bool | None = None) -> rx.Exploration:
    ex = rx.explore(function, args, dynamic=dynamic)
    ex.compile()
    return ex


def explored() -> rx.Exploration:
    return compiled(two_lines, torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS, COLUMNS))


def test_each_kernel_has_its_kind_ops_bytes_nodes_and_lines(read: rx.Exploration) -> None:
    (part,) = read.code("r")
    first, product, last = part.kernels
    assert [linked.kernel.kind for linked in part.kernels] == ["pointwise", "extern call", "reduction"]
    assert first.kernel.ops == ("sin", "mul")
    size = 4 * ROWS * COLUMNS
    assert (first.kernel.bytes_read, first.kernel.bytes_written) == (size, size)
    assert first.kernel.operations == 2 * ROWS * COLUMNS
    assert first.kernel.loop_ops == {"mul": 1, "sin": 1}
    assert (product.kernel.name, product.kernel.ops) == ("extern_kernels.mm", ("mm",))
    assert product.kernel.bytes_moved == 2 * size + 4 * COLUMNS**2
    assert product.kernel.operations == 2 * ROWS * COLUMNS * COLUMNS
    assert [node.op for node in first.nodes] == ["sin", "mul"]
    assert [line.text for line in first.lines] == ["y = torch.sin(x) * 2"]
    assert [line.text for line in product.lines] == ["y = y @ w"]
    assert [line.text for line in last.lines] == ["y = y.softmax(-1)"]
    assert [linked.number for linked in part.kernels_of(first.nodes[0].name)] == [1]
    assert (part.coverage.share, part.unlinked) == (1.0, ())


def test_kernels_are_found_in_the_text(read: rx.Exploration) -> None:
    (part,) = read.code("r")
    lines = part.text.splitlines()
    for linked in part.kernels:
        assert linked.kernel.called is not None
        assert f"{linked.kernel.name}(" in lines[linked.kernel.called - 1]
        if linked.kernel.kind is not KernelKind.EXTERN:
            assert linked.kernel.defined is not None
            first, last = linked.kernel.defined
            assert lines[first - 1].startswith(f"{linked.kernel.name} = async_compile.")
            assert lines[last - 1].startswith("'''")


def test_the_code_looked_at_is_that_compiled_and_nothing_is_compiled_for_it() -> None:
    ex = explored()
    artifact = next(iter(ex.live.program.store.artifacts.values()))
    compiles = ex.live.program.store.compiles
    (part,) = ex.code("r")
    assert part.code.problem is None
    assert normalized(part.text) == normalized(artifact.code)
    assert ex.live.program.store.compiles == compiles
    assert ex.compile().empty


def test_kernels_of_an_artifact_out_of_the_cache_are_the_same(read: rx.Exploration) -> None:
    (cold,) = read.code("r")
    ex = explored()
    (warm,) = ex.code("r")
    assert list(ex.partitions.cache) == ["warm"]
    assert warm.code.kernels == cold.code.kernels


def test_code_is_looked_at_when_asked_for_once_and_then_in_the_session() -> None:
    ex = explored()
    assert [artifact.code for artifact in ex.session.artifacts.values()] == [None]
    told: list[str] = []
    ex.code("r", run=rx.Run(progress=lambda doing, _fraction: told.append(doing)))
    assert told == ["reading the code of r (1 of 1)"]
    ex.code("r", run=rx.Run(progress=lambda doing, _fraction: told.append(doing)))
    assert len(told) == 1
    assert None not in [artifact.code for artifact in ex.session.artifacts.values()]


def test_cancelled_before_it_began_nothing_is_lost() -> None:
    ex = explored()
    assert not list(ex.code("r", run=rx.Run(cancelled=lambda: True)))
    assert list(ex.code("r"))


def test_code_under_a_config_is_of_one_plan_where_another_thread_edits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ex = rx.explore(two_lines, (torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS, COLUMNS)))
    record_layouts, threads = Program.record_layouts, list[threading.Thread]()

    def recorded_then_edited(program: Program) -> None:
        record_layouts(program)
        if not threads:
            threads.append(threading.Thread(target=lambda: ex.carve("r", ops="aten.sin*")))
            threads[0].start()
            threads[0].join(0.5)

    monkeypatch.setattr(Program, "record_layouts", recorded_then_edited)
    (part,) = ex.code("r", config={"max_fusion_size": 4})
    threads[0].join()
    assert part.kernels[0].kernel.ops == ("sin", "mul")
    assert ex.plan["r"].carved


def test_a_closed_exploration_and_a_saved_one_keep_the_code(tmp_path: Any) -> None:
    ex = explored()
    before = str(ex.code("r"))
    path = ex.save(tmp_path / "x.json")
    assert str(rx.load(path).code("r")) == before
    ex.close()
    assert str(ex.code("r")) == before


def test_a_file_without_code_and_a_damaged_one(tmp_path: Any) -> None:
    ex = explored()
    ex.code("r")
    path = ex.save(tmp_path / "x.json")
    values = json.loads(path.read_text())
    (artifact,) = values["artifacts"].values()
    artifact["code"]["kernels"][0]["nodes"] = [99]
    path.write_text(json.dumps(values))
    with pytest.raises(rx.SessionError, match=r"artifacts\['\w+'\].code.kernels\[0\]: there is nothing at position 99"):
        rx.load(path)
    del artifact["code"]
    path.write_text(json.dumps(values))
    assert not list(rx.load(path).code("r"))


def test_equal_partitions_share_the_code_but_not_the_nodes() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with rx.region("r"):
                x = torch.sin(x) * 2
            x = x.cumsum(0)
            with rx.region("r"):
                x = torch.sin(x) * 2
            return x

    ex = compiled(Twice(), torch.randn(4, 64))
    one, other = ex.code("r")
    assert one.code is other.code
    assert [node.name for node in one.kernels[0].nodes] == list(one.partition.nodes)
    assert [node.name for node in other.kernels[0].nodes] == list(other.partition.nodes)
    assert {line.line for line in one.source}.isdisjoint(line.line for line in other.source)
    assert str(ex.code("r")).count("async_compile.cpp_pybinding") == 1


class Step(nn.Module):
    """A training step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            y: torch.Tensor = self.net(x)
        return y.square().mean()


def test_a_training_step_is_linked_whole_forward_and_backward() -> None:
    ex = compiled(Step(), torch.randn(8, 64))
    code = ex.code("r")
    assert {part.partition.graph for part in code} == {"0/forward", "0/backward"}
    assert code.coverage.share == 1.0
    assert code.coverage.linked_kernels == code.coverage.kernels > 4


@pytest.mark.skipif(BEFORE_2_13, reason="the new op has no origin there")
def test_what_a_pattern_replaces_is_inferred_and_said_to_be() -> None:
    """Inductor puts one ``addmm`` in the place of ``mm`` and ``add``, which names ``add`` alone."""

    def product(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            return x @ w + b

    ex = compiled(product, torch.randn(64, 64), torch.randn(64, 64), torch.randn(64))
    (part,) = ex.code("r")
    assert [linked.kernel.name for linked in part.kernels] == ["extern_kernels.addmm"]
    assert [node.op for node in part.kernels[0].nodes] == ["mm", "add"]
    assert part.coverage.recorded == 1
    assert "(1 by Inductor, 1 inferred)" in str(ex.code("r"))


def test_what_inductor_makes_itself_is_inferred_from_what_it_is_for() -> None:
    """The seeds of random ops come of no node of the user's."""

    def dropped(x: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            return torch.nn.functional.dropout(torch.sin(x), 0.5)

    ex = compiled(dropped, torch.randn(64, 64))
    code = ex.code("r")
    seeds = [linked for part in code for linked in part.kernels if "inductor_seeds" in linked.kernel.ops]
    assert seeds
    assert all(linked.nodes and linked.lines for linked in seeds)
    assert code.coverage.linked_kernels == code.coverage.kernels


def test_dynamic_sizes() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            return torch.sin(x) * 2

    ex = compiled(scaled, torch.randn(40, 64), dynamic=True)
    (part,) = ex.code("r")
    assert part.coverage.share == 1.0
    assert part.kernels[0].kernel.bytes_read == 4 * 40 * 64


def test_a_region_without_code_is_told_why_and_what_to_do() -> None:
    ex = rx.explore(two_lines, (torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS, COLUMNS)))
    for look in (ex.code, ex.kernel_times, ex.diagnose, ex.stages):
        with pytest.raises(NotCompiledError, match=r"'r' has no code yet.*not been compiled.*ex\.compile\(\)"):
            look("r")
        with pytest.raises(rx.UnknownRegionError, match="Did you mean 'r'"):
            look("rr")
    ex.disable("r")
    with pytest.raises(NotCompiledError, match=r"disabled.*ex\.enable\('r'\)"):
        ex.code("r")
    ex.enable("r")
    ex.compile()
    with pytest.raises(NotCompiledError, match=r"ex\.code\('r'\) before ex\.save"):
        ex.results.stages("r")
    assert "No code of region 'r' is known here" in str(ex.results.code("r"))
    ex.configure("r", {"max_fusion_size": 1})
    with pytest.raises(NotCompiledError, match="not been compiled in its current form"):
        ex.code("r")


def test_other_code_when_lowered_again_is_told_not_shown_as_kernels() -> None:
    ex = explored()
    store = ex.live.program.store
    for key, artifact in store.artifacts.items():
        store.artifacts[key] = replace(artifact, code=artifact.code + "\nother = 1\n")
    (part,) = ex.code("r")
    assert part.code.problem == OTHER_CODE
    assert part.kernels == ()
    assert "Inductor wrote other code" in str(ex.code("r"))
    assert "Inductor wrote other code" in ex.code("r")._repr_mimebundle_()["text/html"]


def test_code_that_could_not_be_read_is_shown_once_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    ex = explored()

    with monkeypatch.context() as patched:
        patched.setattr(lowering, "lower_piece", Mock(side_effect=RegionCompileError("no room")))
        (part,) = ex.code("r")
        assert part.code.problem == "no room"
    (part,) = ex.code("r")
    assert part.code.problem is None
    assert part.kernels


def test_refused_fusions_name_the_reason_and_what_is_shared() -> None:
    def around_a_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            y = torch.sin(x)
            return (y @ w) * y

    ex = compiled(around_a_product, torch.randn(64, 64), torch.randn(64, 64))
    (part,) = ex.code("r")
    assert len(part.kernels) == 3
    (refused,) = part.code.refused
    assert (refused.first, refused.second, refused.shared_bytes) == (0, 2, 4 * 64 * 64)
    assert "intermediate nodes" in refused.reason


def test_a_compile_in_this_process_is_as_before_after_code_was_looked_at() -> None:
    ex = explored()
    ex.code("r")
    warm_toolchain("cpu")
    torch.testing.assert_close(torch.compile(torch.sin)(torch.ones(3)), torch.sin(torch.ones(3)))
    ex.benchmark(("eager", "regional"), 0.1, regions=False)
    assert set(ex.numerics.verdict) <= {"ok", "baseline"}
