"""Generated code as HTML: sections, links, colours, and the limits of its size."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
from html import unescape

import pytest
from msgspec.structs import replace

from regional_explorer.page.code import code_html, code_pane, code_text, diff_text, sections, tokens_by_line
from regional_explorer.record.artifact import ArtifactCode, CodeDiff, GpuResources, Kernel, KernelKind
from regional_explorer.record.graph import Node, Role, SourceLine
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.region_code import PartitionCode
from regional_explorer.style.element import to_html, words
from tests.shared.pages import Page
from tests.shared.work import calls

TEXT = """# AOT ID: ['0_inference']
import torch

cpp_fused_sin_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(const float* in_ptr0, float* out_ptr0)
{
    if (x < 1 && y > 2) out_ptr0[0] = 1.5;  // <b>
}
''')


async_compile.wait(globals())
class Runner:
    def call(self, args):
        cpp_fused_sin_0(arg0_1, buf0)
        extern_kernels.mm(buf0, arg1_1, out=buf1)
        return (buf1, )

def benchmark_compiled_module(args):
    pass
"""
KERNELS = (
    Kernel("cpp_fused_sin_0", KernelKind.POINTWISE, ("sin",), (0,), (), 4096, 4096, 1024, {"sin": 1}, (4, 10), 16),
    Kernel("extern_kernels.mm", KernelKind.EXTERN, ("mm",), (1,), (), 8192, 4096, None, {}, None, 17),
)


def partition_code(
    text: str = TEXT, kernels: tuple[Kernel, ...] = KERNELS, problem: str | None = None, number: int = 0
) -> PartitionCode:
    lines = [SourceLine("m.py", number, "f", f"y = {number}") for number in (3, 4)]
    nodes = tuple(
        Node(name, Role.OP, f"aten.{name}.default", stack=(line,))
        for name, line in zip(("sin", "mm"), lines, strict=True)
    )
    part = Partition(f"r/fwd/{number}", "r", 0, "0/forward", ("sin", "mm"), State.COMPILED, artifact="a")
    return PartitionCode(part, ArtifactCode(text, kernels, problem=problem), nodes)


def lines_of(page: str) -> list[str]:
    return "".join(Page(page).texts["code"]).splitlines()


def test_boilerplate_and_long_kernels_are_folded() -> None:
    found = sections(partition_code().code)
    numbers = [number for section in found for number in range(section.first, section.last + 1)]
    assert numbers == list(range(1, len(TEXT.splitlines()) + 1))
    assert [(section.title, section.folded) for section in found] == [
        ("Imports and settings", True),
        ("cpp_fused_sin_0", False),
        ("Between kernels", True),
        ("The calls, in order", False),
        ("Inductor's own benchmark", True),
    ]
    long = TEXT.replace("    if", "    a;\n" * 100 + "    if")
    kernel = Kernel("cpp_fused_sin_0", KernelKind.POINTWISE, defined=(4, 110))
    assert sections(ArtifactCode(long, (kernel,)))[1].folded


@pytest.mark.parametrize("lines", [0, 2000, 10_000])
def test_panel_and_cell_colour_code_alike(lines: int) -> None:
    text = TEXT.replace("    if", "    int a;\n" * lines + "    if")
    code = partition_code(
        text, (Kernel("cpp_fused_sin_0", KernelKind.POINTWISE, ("sin",), (0,), defined=(4, 10 + lines)),)
    )

    def text_by_colour(page: str) -> dict[str, str]:
        tokens = re.findall(r'<span class="([ckms])">([^<]*)</span>', page)
        return {kind: unescape("".join(text for found, text in tokens if found == kind)) for kind in "ckms"}

    panel = text_by_colour(to_html(*code_pane((code,))[0]))
    assert panel == text_by_colour(code_html("r", (code,)))
    assert bool(panel["k"]) is (lines <= 2000)


@pytest.mark.parametrize("pygments", [True, False])
def test_the_page_has_the_code_unchanged(monkeypatch: pytest.MonkeyPatch, pygments: bool) -> None:
    if not pygments:
        monkeypatch.setitem(sys.modules, "pygments.lexers", None)
    page = code_html("r", (partition_code(),))
    assert lines_of(page) == TEXT.splitlines()
    assert "// <b>" not in page
    assert ('class="k"' in page or 'class="kt"' in page) == pygments


def test_lines_and_launches_have_their_kernels_and_nodes() -> None:
    page = code_html("r", (partition_code(),))
    links = re.findall(r'<code data-kernels="([\d ]+)" data-nodes="([^"]*)">(.*)', page)
    assert {(numbers, nodes) for numbers, nodes, _ in links} == {("1", "0/forward:sin"), ("2", "0/forward:mm")}
    (launch,) = [unescape(re.sub(r"<[^>]*>", "", line)) for numbers, _, line in links if numbers == "2"]
    assert launch.strip().startswith("extern_kernels.mm(buf0")


def test_equal_code_is_shown_once() -> None:
    first = partition_code()
    parts = first, dataclasses.replace(partition_code(number=1), code=first.code)
    page, text = code_html("r", parts), code_text("r", parts)
    assert page.count("Inductor's own benchmark") == 1
    assert text.count("def benchmark_compiled_module") == 1
    assert text.count("Kernels of ") == 1
    assert "The code of 1 more partition is the same: r/fwd/1." in text
    assert page.count("The code of 1 more partition is the same") == 1


def test_long_code_is_cut_so_rendering_work_is_bounded() -> None:
    one, two = (TEXT + "x = 1  # and so on\n" * lines for lines in (55_000, 110_000))
    page = code_html("r", (partition_code(two),))
    assert len(page) < 3_000_000
    assert "The code goes on for" in page
    assert len(code_text("r", (partition_code(two),))) < 500_000
    for show in (code_html, code_text):
        of_one, of_two = (calls(functools.partial(show, "r", (partition_code(text),))) for text in (one, two))
        assert of_two < 1.1 * of_one


def test_views_of_code_say_why_it_has_no_kernels_and_drop_control_characters() -> None:
    for show in (code_html, code_text):
        assert "is not compiled" in show("r", ())
    assert "Inductor raised X: &lt;y&gt;" in code_html(
        "r", (partition_code(kernels=(), problem="Inductor raised X: <y>"),)
    )
    assert "\x1b" not in code_html("r", (partition_code(TEXT.replace("import torch", "import torch  # \x1b[31m")),))


def test_code_with_a_long_line_keeps_lines_and_colours() -> None:
    text = TEXT.replace("    if (x < 1", f"    // {'x' * 3_000}\n    if (x < 1")
    kernel = replace(KERNELS[0], defined=(4, 11), called=17)
    page = code_html("r", (partition_code(text, (kernel,)),))
    assert "x" * 1_900 in page
    assert "x" * 2_100 not in page
    assert 'class="c"' in page
    assert '<span class="m">1.5</span>' in page
    assert len(lines_of(page)) == len(text.splitlines())


def test_a_kernel_in_the_panel_lists_its_gpu_resources() -> None:
    def resources(spilled: int, shared: int) -> str:
        gpu = GpuResources(32, spilled, shared, None, "XBLOCK=1, 1 warp", 1)
        return " ".join(map(words, code_pane((partition_code(kernels=(replace(KERNELS[0], gpu=gpu),)),))[0]))

    assert "registers 32 · launch XBLOCK=1, 1 warp" in resources(0, 0)
    assert "registers 32 · spilled 16 B · shared 1.00 KiB · launch" in resources(16, 1024)


def test_the_definition_of_a_kernel_has_nodes_of_all_launches() -> None:
    launches = KERNELS[0], replace(KERNELS[0], nodes=(1,), called=17)
    _, rows = code_pane((partition_code(kernels=launches),))
    sin, mm = "0/forward:sin", "0/forward:mm"
    lines = {key: own for key, (own, _) in rows.items() if key.startswith("c")}
    assert lines == {"c0.1+2": (sin, mm), "c0.1": (sin,), "c0.2": (mm,)}


def test_a_partition_without_code_on_one_side_is_not_compared() -> None:
    code, failed = ArtifactCode(TEXT), ArtifactCode("", problem="Inductor raised X")
    missing, changed = CodeDiff("r/0", code, failed), CodeDiff("r/1", code, ArtifactCode(f"{TEXT}x = 1\n"))
    nothing = "Region 'r' has no partition whose code is known on both sides."
    assert diff_text("r", [missing]) == f"{nothing}\n\nr/0: Inductor raised X"
    summary = "The code of 1 of 1 partitions of region 'r' changed. 1 more partition had no code on one side."
    assert diff_text("r", [missing, changed]).startswith(f"{summary}\n\nr/0: Inductor raised X\n\nr/1: ")


def test_code_is_compared_line_by_line() -> None:
    found = tokens_by_line(["// note", "", "int a = 3;", ""], "cpp")
    assert ["".join(text for _, text in row) for row in found] == ["// note", "", "int a = 3;", ""]
    assert [kind for row in found for kind, text in row if text.strip()][:2] == ["c", "k"]
    assert ("m", "3") in found[2]
    assert len(tokens_by_line(["", "", "a = 1", "", ""], "python")) == 5
