"""Generated code, linked to nodes and lines; under two configs; and what is reported where it is broken or missing."""

import dataclasses
import json
import os
import threading
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.compiler.compilation import warm_toolchain
from regional_explorer.compiler.program import Program
from regional_explorer.errors import NotCompiledError, RegionCompileError
from regional_explorer.exploration.results import RegionCode
from regional_explorer.insight import code_store
from regional_explorer.insight.code_store import OTHER_CODE
from regional_explorer.page.code import CODE_LIMIT, code_pane
from regional_explorer.record.artifact import KernelKind, code_hash, normalized
from regional_explorer.style.element import to_html
from regional_explorer.torch_api import inductor
from tests.insight.programs import compiled_ex, gelu_norm, training_step
from tests.shared.checks import BEFORE_2_13
from tests.shared.processes import assert_mended

pytestmark = pytest.mark.compiles

ROWS, COLUMNS = 64, 256


def two_lines(x, w):
    with rx.region("r"):
        y = torch.sin(x) * 2
        y = y @ w
        y = y.softmax(-1)
    return y


def uncompiled_ex():
    return rx.explore(two_lines, (torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS, COLUMNS)))


def two_lines_ex():
    ex = uncompiled_ex()
    ex.compile()
    return ex


@pytest.fixture(scope="module")
def ex_with_code():
    """Return an exploration whose code was read, for tests that do not change it."""
    ex = two_lines_ex()
    ex.code("r")
    return ex


def test_each_kernel_has_its_kind_ops_bytes_nodes_and_lines(ex_with_code):
    (part,) = ex_with_code.code("r")
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
    lines = ["y = torch.sin(x) * 2", "y = y @ w", "y = y.softmax(-1)"]
    assert [[line.text for line in linked.lines] for linked in (first, product, last)] == [[line] for line in lines]
    assert (part.coverage.share, part.unlinked) == (1.0, ())


def test_kernels_are_found_in_the_text(ex_with_code):
    (part,) = ex_with_code.code("r")
    lines = part.text.splitlines()
    for linked in part.kernels:
        assert f"{linked.kernel.name}(" in lines[linked.kernel.called - 1]
        if linked.kernel.kind is not KernelKind.EXTERN:
            first, last = linked.kernel.defined
            assert lines[first - 1].startswith(f"{linked.kernel.name} = async_compile.")
            assert lines[last - 1].startswith("'''")


def test_code_is_lowered_on_first_request_only(ex_with_code):
    ex = two_lines_ex()
    assert list(ex.partitions.cache) == ["warm"]
    store, tasks = ex.live.program.store, []
    (artifact,), compiles = store.artifacts.values(), store.compiles
    assert not list(ex.code("r", run=rx.Run(cancelled=lambda: True))), "cancelled before it began"
    assert [artifact.code for artifact in ex.session.artifacts.values()] == [None]
    run = rx.Run(progress=lambda doing, _fraction: tasks.append(doing))
    (part,) = ex.code("r", run=run)
    assert tasks == ["reading the code of r (1 of 1)"]
    ex.code("r", run=run)
    assert len(tasks) == 1
    assert None not in [artifact.code for artifact in ex.session.artifacts.values()]
    assert part.code.problem is None
    assert normalized(part.text) == normalized(artifact.code)
    assert store.compiles == compiles
    assert ex.compile().empty
    (cold,) = ex_with_code.code("r")
    assert part.code.kernels == cold.code.kernels, "out of the cache they are the same"


def test_code_is_updated_by_a_cold_compile():
    ex, added = two_lines_ex(), "\nchosen = 'otherwise'\n"
    before = ex.code("r").partitions[0]

    def compile_otherwise(*args):
        compiled = inductor.compile_piece(*args)
        return dataclasses.replace(compiled, code=compiled.code + added)

    ex.live.program.store.run_inductor = compile_otherwise
    ex.compile(cold=True)
    assert ex.session.partitions[0].code_hash != before.partition.code_hash
    (part,) = ex.code("r")
    assert part.text.endswith(added)


def test_code_belongs_to_the_plan_before_another_threads_edit(monkeypatch):
    ex = uncompiled_ex()
    record_layouts, threads = Program.record_layouts, []

    def record_and_edit(program):
        record_layouts(program)
        if not threads:
            threads.append(threading.Thread(target=lambda: ex.carve("r", ops="aten.sin*")))
            threads[0].start()
            threads[0].join(0.5)

    monkeypatch.setattr(Program, "record_layouts", record_and_edit)
    (part,) = ex.code("r", config={"max_fusion_size": 4})
    threads[0].join()
    assert part.kernels[0].kernel.ops == ("sin", "mul")
    assert ex.plan["r"].carved


def test_closed_and_saved_explorations_keep_code(tmp_path):
    ex = two_lines_ex()
    before = str(ex.code("r"))
    path = ex.save(tmp_path / "x.json")
    ex.close()
    assert str(rx.load(path).code("r")) == str(ex.code("r")) == before
    values = json.loads(path.read_text())
    (artifact,) = values["artifacts"].values()
    artifact["code"]["kernels"][0]["nodes"] = [99]
    path.write_text(json.dumps(values))
    with pytest.raises(rx.SessionError, match=r"artifacts\['\w+'\].code.kernels\[0\]: there is nothing at position 99"):
        rx.load(path)
    del artifact["code"]
    path.write_text(json.dumps(values))
    assert not list(rx.load(path).code("r"))


def test_equal_partitions_share_the_code_but_not_the_nodes():
    def twice(x):
        with rx.region("r"):
            x = torch.sin(x) * 2
        x = x.cumsum(0)
        with rx.region("r"):
            return torch.sin(x) * 2

    ex = compiled_ex(twice, torch.randn(4, 64))
    one, other = ex.code("r")
    assert one.code is other.code
    for part in (one, other):
        assert [node.name for node in part.kernels[0].nodes] == list(part.partition.nodes)
    assert {line.line for line in one.source}.isdisjoint(line.line for line in other.source)
    assert str(ex.code("r")).count("async_compile.cpp_pybinding") == 1


def test_all_nodes_of_a_training_step_are_linked():
    code = compiled_ex(training_step(), torch.randn(8, 64)).code("r")
    assert {part.partition.graph for part in code} == {"0/forward", "0/backward"}
    assert code.coverage.share == 1.0
    assert code.coverage.linked_kernels == code.coverage.kernels > 4


@pytest.mark.skipif(BEFORE_2_13, reason="the new op has no origin there")
def test_nodes_replaced_by_patterns_are_inferred():
    """Inductor puts one ``addmm`` in the place of ``mm`` and ``add``, which names ``add`` alone."""
    ex = compiled_ex(
        rx.region("r")(lambda x, w, b: x @ w + b), torch.randn(64, 64), torch.randn(64, 64), torch.randn(64)
    )
    (part,) = ex.code("r")
    assert [linked.kernel.name for linked in part.kernels] == ["extern_kernels.addmm"]
    assert [node.op for node in part.kernels[0].nodes] == ["mm", "add"]
    assert part.coverage.recorded == 1
    assert "(1 by Inductor, 1 inferred)" in str(ex.code("r"))


def test_nodes_made_by_inductor_are_inferred():
    """No node of the user's makes the seeds of random ops."""
    code = compiled_ex(rx.region("r")(lambda x: F.dropout(torch.sin(x), 0.5)), torch.randn(64, 64)).code("r")
    seeds = [linked for part in code for linked in part.kernels if "inductor_seeds" in linked.kernel.ops]
    assert seeds
    assert all(linked.nodes and linked.lines for linked in seeds)
    assert code.coverage.linked_kernels == code.coverage.kernels


def test_kernels_of_dynamic_sizes_are_linked():
    (part,) = compiled_ex(rx.region("r")(lambda x: torch.sin(x) * 2), torch.randn(40, 64), dynamic=True).code("r")
    assert part.coverage.share == 1.0
    assert part.kernels[0].kernel.bytes_read == 4 * 40 * 64


def test_refused_fusions_have_a_reason_and_shared_bytes():
    def around_a_product(x, w):
        y = torch.sin(x)
        return (y @ w) * y

    (part,) = compiled_ex(rx.region("r")(around_a_product), torch.randn(64, 64), torch.randn(64, 64)).code("r")
    assert len(part.kernels) == 3
    (refused,) = part.code.refused
    assert (refused.first, refused.second, refused.shared_bytes) == (0, 2, 4 * 64 * 64)
    assert "intermediate nodes" in refused.reason


def test_the_error_says_why_there_is_no_code():
    ex = uncompiled_ex()
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
    assert "The code of region 'r' is not known" in str(ex.results.code("r"))
    ex.configure("r", {"max_fusion_size": 1})
    with pytest.raises(NotCompiledError, match="not been compiled in its current form"):
        ex.code("r")


def test_unreadable_code_is_shown_once_it_can_be_read(monkeypatch):
    ex = two_lines_ex()
    with monkeypatch.context() as patched:
        patched.setattr(code_store, "lower_piece", Mock(side_effect=RegionCompileError("no room")))
        (part,) = ex.code("r")
        assert part.code.problem == "no room"
    (part,) = ex.code("r")
    assert part.code.problem is None
    assert part.kernels


def test_different_code_on_relowering_is_reported():
    ex = two_lines_ex()
    ((key, artifact),) = ex.live.program.store.artifacts.items()
    ex.live.program.store.artifacts[key] = dataclasses.replace(artifact, code=artifact.code + "\nother = 1\n")
    (part,) = code = ex.code("r")
    assert (part.code.problem, part.kernels) == (OTHER_CODE, ())
    for shown in (str(code), code._repr_mimebundle_()["text/html"]):
        assert "Inductor wrote other code" in shown


def test_compiling_works_after_reading_code():
    ex = two_lines_ex()
    ex.code("r")
    warm_toolchain("cpu")
    torch.testing.assert_close(torch.compile(torch.sin)(torch.ones(3)), torch.sin(torch.ones(3)))
    ex.benchmark(("eager", "regional"), 0.1, regions=False)
    assert set(ex.numerics.verdict) <= {"ok", "baseline"}


# -------------------------------------------------------------------------------------------------- under two configs


@pytest.fixture(scope="module")
def norm_ex():
    return rx.explore(gelu_norm, (torch.randn(64, 256),))


def test_an_option_that_changes_the_code_is_seen_without_compiling(norm_ex):
    def erfs(code):
        return sum(linked.kernel.loop_ops.get("erf", 0) for part in code for linked in part.kernels)

    before = norm_ex.code("r", config={})
    after = norm_ex.code("r", config={"realize_opcount_threshold": 3})
    assert erfs(before) > 1
    assert erfs(after) == 1, "it is kept, not computed again for each reader"
    diff = before.diff(after)
    assert not diff.same
    (part,) = diff
    assert part.kernels
    assert "+" in part.unified
    assert "The code of 1 of 1 partitions of region 'r' changed" in str(diff)
    assert 'class="rx-good"' in diff._repr_mimebundle_()["text/html"]
    assert norm_ex.live.program.store.compiles == 0


def test_option_without_effect_is_reported(norm_ex):
    diff = norm_ex.code("r", config={}).diff(norm_ex.code("r", config={"shape_padding": False}))
    assert diff.same
    assert "Nothing changed in region 'r'" in str(diff)
    assert "Nothing changed" in diff._repr_mimebundle_()["text/html"]


def test_code_under_a_config_equals_the_compiled_code(norm_ex):
    (seen,) = first = norm_ex.code("r", config={"max_fusion_size": 1})
    norm_ex.configure("r", {"max_fusion_size": 1})
    norm_ex.compile()
    try:
        (part,) = code = norm_ex.code("r")
        assert first.diff(code).same
        assert [linked.kernel for linked in seen.kernels] == [linked.kernel for linked in part.kernels]
    finally:
        norm_ex.reset("r")


def test_kernels_are_matched_by_code_then_by_nodes():
    def chain(x, w):
        y = torch.sin(x) @ w
        return F.layer_norm(F.gelu(y), (y.shape[-1],))

    ex = rx.explore(rx.region("r")(chain), (torch.randn(64, 64), torch.randn(64, 64)))
    (part,) = ex.code("r", config={}).diff(ex.code("r", config={"realize_opcount_threshold": 3}))
    words = {pair.after.name: pair.word for pair in part.kernels if pair.after is not None}
    assert words["cpp_fused_sin_0"] == "same"
    assert words["extern_kernels.mm"] == "same"
    assert "changed" in words.values()


def test_unknown_configs_and_diffs_with_no_code_are_refused(norm_ex):
    with pytest.raises(rx.UnknownConfigKeyError, match="Did you mean"):
        norm_ex.code("r", config={"max_fusion_sizes": 1})
    with pytest.raises(rx.InvalidArgumentError, match=r"ex\.code"):
        norm_ex.code("r", config={}).diff("other")


def test_names_and_comments_do_not_make_code_different():
    one = "# graph 0\ncpp_fused_sin_0 = f()\ncpp_fused_sin_0(x)\n"
    other = "# graph 7\n\ncpp_fused_cos_3 = f()\ncpp_fused_cos_3(x)\n"
    assert code_hash(one) == code_hash(other)
    assert code_hash(one) != code_hash(one.replace("(x)", "(y)"))


def test_code_with_another_build_command_is_different():
    loop = '# graph 0\n#include "/tmp/of/this/process.h"\n    #pragma omp parallel num_threads({})\n    { f(x); }\n'
    assert code_hash(loop.replace("{}", "2")) != code_hash(loop.replace("{}", "4"))
    assert code_hash(loop) == code_hash(loop.replace("/this/", "/that/"))
    assert code_hash(loop, "g++ -O3") != code_hash(loop, "g++ -O0")


# -------------------------------------------------------------- much code, kernels of nothing, a cache that cannot be


@pytest.mark.parametrize("lines", [2_000_000 // 50, 1], ids=["many lines", "one line"])
def test_two_megabytes_of_code_are_shown_in_part_and_folded(ex_with_code, lines):
    (part,) = ex_with_code.code("r")
    more = "\n".join(["    # " + "x" * (2_000_000 // lines - 7)] * lines)
    part = dataclasses.replace(part, code=replace(part.code, text=part.text.replace("'''", more + "\n'''", 1)))
    shown = RegionCode("r", (part,))._repr_mimebundle_()
    assert all(len(one) < 2_000_000 for one in shown.values())
    assert all("The code goes on for 1,6" in one for one in shown.values())
    assert "<details><summary>" in shown["text/html"]
    page = to_html(*code_pane((part,))[0])
    assert len(page) < 2_000_000
    assert ("The code goes on for" in page) is (lines > CODE_LIMIT)


def test_a_kernel_without_known_nodes_is_counted_and_shown():
    ex = two_lines_ex()
    (part,) = ex.code("r")
    first, *others = part.code.kernels
    (key,) = ex.live.insights.codes
    kernels = (replace(first, nodes=(), inferred=(), bytes_read=None), *others)
    ex.live.insights.codes[key] = replace(part.code, kernels=kernels)
    ex.live.insights.revision += 1  # the session is made again
    (part,) = code = ex.code("r")
    assert part.kernels[0].lines == ()
    assert [node.op for node in part.unlinked] == ["sin", "mul"]
    assert "2 of 3 kernels linked to nodes" in str(code)
    assert "2 of 4 nodes linked to kernels" in code._repr_mimebundle_()["text/html"]
    assert to_html(*code_pane(code.partitions)[0])
    assert code.kernels.nodes[0] == ""
    times = ex.kernel_times("r", 2.0)
    (first_row,) = times[times.number == 1].itertuples()
    assert first_row.time_us > 0
    assert first_row.lines == ""


BROKEN = """
import torch
import regional_explorer as rx

def f(x):
    with rx.region("r"):
        return (x.sin() * {constant} + x.cos()).exp()

x = torch.randn(8)
ex = rx.explore(f, (x,))
ex.compile()
{break_it}
looks = {{
    "code": lambda: ex.code("r").partitions[0].code.problem,
    "other config": lambda: ex.code("r", config={{"max_fusion_size": 2}}).partitions[0].code.problem,
    "kernel times": lambda: ex.kernel_times("r", 2.0).problem.dropna().tolist(),
    "diagnose": lambda: [item.code for item in ex.diagnose("r", 0.2)],
    "h100": lambda: ex.code("r", target="h100").partitions[0].code.problem,
}}
for name, look in looks.items():
    try:
        print(name, "→", look())
    except rx.RegionalExplorerError as error:
        print(name, "refused:", error)
assert torch.allclose(ex.compiled(x), f(x))
{mend_it}
(part,) = ex.code("r")
assert part.code.problem is None, part.code.problem
assert part.kernels
(part,) = ex.code("r", config={{"max_fusion_size": 2}})
assert part.code.problem is None, part.code.problem
times = ex.kernel_times("r", 2.0)
assert times.problem.isna().all(), times.problem.tolist()
print("mended")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="limits as POSIX has them")
@pytest.mark.parametrize("how", ["full", "no directory", "gone"])
def test_code_recovers_from_unwritable_files(how, tmp_path):
    """No file may grow, as on a full disk; or the cache directory is below a file; or somebody has deleted it."""
    assert_mended(BROKEN, how, tmp_path)
