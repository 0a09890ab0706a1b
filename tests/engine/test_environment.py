"""The environment fails, the exploration does not: disk, memory, cache directory, code that raises, a clock."""

import errno
import os
import time
from dataclasses import replace

import pytest
import torch

import regional_explorer as rx
from regional_explorer.compiler.compilation import warm_toolchain
from regional_explorer.torch_api import inductor as torch_compile
from tests.shared.processes import assert_mended, python

pytestmark = pytest.mark.compiles


def two(x):
    with rx.region("bad"):
        y = x.sin() * 2
    y = y.exp()
    with rx.region("good"):
        return y.cos() + 1


def states(ex):
    return dict(zip(ex.partitions.region, ex.partitions.state, strict=True))


def failed(ex):
    return {item.region: item.message for item in ex.diagnostics if item.code == "region-failed"}


# ------------------------------------------------------------------------------------------------ compiled code raises


@pytest.fixture
def explored():
    """Return an exploration of ``two``, compiled; its region ``bad`` raises what is in the list beside it."""
    errors, pieces = [], []
    original = torch_compile.compile_piece

    def compile_piece(*args):
        compiled = original(*args)
        pieces.append(compiled)
        if len(pieces) > 1:
            return compiled

        def call(arguments):
            given = list(arguments)
            arguments.clear()
            if errors:
                raise errors[0]
            return compiled.call(given)

        return replace(compiled, call=call)

    ex = rx.explore(two, (torch.randn(8),))
    ex.live.program.store.run_inductor = compile_piece
    ex.compile()
    assert states(ex) == {"bad": "compiled", "good": "compiled"}
    return ex, errors


PLANTED = [MemoryError("planted"), RuntimeError("planted"), torch.OutOfMemoryError("planted")]


@pytest.mark.parametrize("error", PLANTED, ids=lambda error: type(error).__name__)
def test_compiled_code_that_raises_costs_its_region_alone(explored, error):
    ex, errors = explored
    errors.append(error)
    x = torch.randn(8)
    torch.testing.assert_close(ex.live.capture.run(x), two(x))
    assert states(ex) == {"bad": "failed", "good": "compiled"}
    assert f"the compiled code raised {type(error).__name__}: planted" in failed(ex)["bad"]
    ex.benchmark(("eager", "regional"), budget_s=0.1)
    assert set(ex.timings.variant) == {"eager", "regional"}
    assert list(failed(ex)) == ["bad"]


@pytest.mark.parametrize("error", PLANTED, ids=lambda error: type(error).__name__)
def test_compiled_code_that_raises_in_a_later_call_is_found_by_the_next(explored, error):
    ex, errors = explored
    x = torch.randn(8)
    ex.compiled(x)
    errors.append(error)
    with pytest.raises(type(error), match="planted") as raised:
        ex.compiled(x)
    assert raised.value.__notes__ == ["Raised in the compiled code of region 'bad', graph 0/inference."]
    torch.testing.assert_close(ex.compiled(x), two(x))
    assert states(ex) == {"bad": "failed", "good": "compiled"}


def test_what_was_measured_stays_when_compiled_code_raises_later(explored):
    ex, errors = explored
    ex.benchmark(("eager", "regional"), budget_s=0.1)
    measured = ex.history
    errors.append(MemoryError("planted"))
    ex.benchmark(("eager", "aot_eager", "regional"), budget_s=0.1)
    codes = {item.code for item in ex.diagnostics}
    assert codes & {"region-failed", "variant-failed"}
    assert {"eager", "aot_eager"} <= set(ex.timings.variant)
    assert len(measured) == 1


def test_an_error_that_eager_code_raises_too_is_no_failure_of_the_region():
    def f(table, index):
        with rx.region("r"):
            return torch.nn.functional.embedding(index, table).sin()

    table, index = torch.randn(4, 4), torch.tensor([1, 2])
    ex = rx.explore(f, (table, index))
    ex.compile()
    for _ in range(3):
        with pytest.raises((IndexError, RuntimeError)):
            ex.compiled(table, torch.tensor([1, 7]))
        torch.testing.assert_close(ex.compiled(table, index), f(table, index))
    assert states(ex) == {"r": "compiled"}


# ------------------------------------------------------------------------------------------------------- disk, memory


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), PermissionError(errno.EACCES, "denied"), MemoryError("planted")],
    ids=["disk full", "cache directory", "memory"],
)
def test_a_machine_that_fails_is_told_and_tried_again(monkeypatch, error):
    original, planted = torch._inductor.standalone_compile, [error]

    def standalone_compile(*args, **kwargs):
        if planted:
            raise planted[0]
        return original(*args, **kwargs)

    monkeypatch.setattr(torch._inductor, "standalone_compile", standalone_compile)
    warm_toolchain.cache_clear()
    x = torch.randn(8)
    ex = rx.explore(two, (x,))
    ex.compile()
    assert states(ex) == {"bad": "failed", "good": "failed"}
    assert type(error).__name__ in failed(ex)["bad"]
    assert "TORCHINDUCTOR_CACHE_DIR" in failed(ex)["bad"]
    torch.testing.assert_close(ex.compiled(x), two(x))
    ex.benchmark(("eager", "aot_eager", "regional"), budget_s=0.1)
    assert set(ex.timings.variant) == {"eager", "aot_eager", "regional"}
    planted.clear()
    ex.compile()
    assert states(ex) == {"bad": "compiled", "good": "compiled"}
    assert not failed(ex)


def test_a_compiler_that_finds_no_room_is_a_full_disk():
    text = "C++ compile error: fatal error: error writing to /tmp/x.s: No space left on device"
    error = torch_compile._compile_error(RuntimeError(text))
    assert isinstance(error, rx.errors.CompileEnvironmentError)
    assert "No space left on device" in str(error)


FULL = """
import torch
import regional_explorer as rx

def f(x):
    with rx.region("r"):
        return (x.sin() * {constant} + x.cos()).exp()

x = torch.randn(8)
ex = rx.explore(f, (x,))
{break_it}
ex.compile()
(found,) = [item for item in ex.diagnostics if item.code == "region-failed"]
print(found.message)
assert torch.equal(ex.compiled(x), f(x))
ex.benchmark(budget_s=0.1)
assert {{"eager", "aot_eager", "regional"}} <= set(ex.timings.variant), ex.timings
assert "full-failed" in [item.code for item in ex.diagnostics]
{mend_it}
ex.compile()
assert set(ex.partitions.state) == {{"compiled"}}, ex.partitions.error.tolist()
print("mended")
"""


@pytest.mark.skipif(os.name != "posix", reason="limits as POSIX has them")
@pytest.mark.parametrize("how", [pytest.param("full", marks=pytest.mark.slow), "no directory"])
def test_no_file_can_be_written(how, tmp_path):
    """No file may grow, as on a full disk; or Inductor's cache directory is below a file."""
    assert_mended(FULL, how, tmp_path)


def test_a_cache_directory_that_cannot_be_made_is_named_before_torch_fails_on_it(tmp_path):
    (tmp_path / "file").touch()
    program = "import regional_explorer as rx; rx.explore(abs)"
    last = python(program, cache=tmp_path / "file" / "below", status=1).err.strip().splitlines()[-1]
    assert last.startswith("regional_explorer.errors.CacheDirectoryError: Inductor's cache directory cannot be used")
    assert str(tmp_path) in last
    assert "TORCHINDUCTOR_CACHE_DIR" in last


# ---------------------------------------------------------------------------------------------------------- a clock


def test_a_clock_beside_a_region_is_a_graph_break_and_the_rest_goes_on():
    def f(x):
        with rx.region("r"):
            y = x.sin() * 2
        now = time.time()
        return y + now * 0

    x = torch.randn(8)
    ex = rx.explore(f, (x,))
    ex.benchmark(("eager", "aot_eager", "regional"), budget_s=0.1)
    assert states(ex) == {"r": "measured"}
    assert [item.code for item in ex.diagnostics if "time.time" in item.message] == ["graph-break"]
    assert set(ex.timings.variant) == {"eager", "aot_eager", "regional"}
