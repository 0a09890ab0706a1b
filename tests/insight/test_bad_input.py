"""What is wrong is reported, and all else works: much code, kernels of nothing, a cache directory that fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

import regional_explorer as rx
from regional_explorer.page.code import CODE_LIMIT, code_pane
from regional_explorer.record.artifact import ArtifactCode
from regional_explorer.style.element import to_html
from tests.shared.processes import assert_mended

pytestmark = pytest.mark.compiles


def two_ops(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        return torch.sin(x) @ w


@pytest.fixture
def ex() -> rx.Exploration:
    ex = rx.explore(two_ops, (torch.randn(64, 64), torch.randn(64, 64)))
    ex.compile()
    ex.code("r")
    return ex


def plant(ex: rx.Exploration, **changes: object) -> ArtifactCode:
    """Change what is known of the region's code."""
    ((key, code),) = ex.live.insights.codes.items()
    ex.live.insights.codes[key] = replace(code, **changes)
    ex.live.insights.revision += 1  # the session is made anew
    return ex.live.insights.codes[key]


@pytest.mark.parametrize("lines", [2_000_000 // 50, 1], ids=["many lines", "one line"])
def test_two_megabytes_of_code_are_shown_in_part_and_folded(ex: rx.Exploration, lines: int) -> None:
    (part,) = ex.code("r")
    more = "\n".join(["    # " + "x" * (2_000_000 // lines - 7)] * lines)
    text = part.text.replace("'''", more + "\n'''", 1)
    plant(ex, text=text)
    code = ex.code("r")
    assert code.partitions[0].text == text, "all of it is there"
    shown = code._repr_mimebundle_()
    assert all(len(one) < 2_000_000 for one in shown.values())
    assert all("The code goes on for 1,6" in one for one in shown.values())
    assert "<details><summary>" in shown["text/html"]
    page = to_html(*code_pane(code.partitions)[0])
    assert len(page) < 2_000_000
    assert ("The code goes on for" in page) is (lines > CODE_LIMIT)
    assert len(code.kernels) == len(part.kernels)


def test_a_kernel_of_no_known_node_is_counted_and_shown_without(ex: rx.Exploration) -> None:
    (part,) = ex.code("r")
    first, *others = part.code.kernels
    plant(ex, kernels=(replace(first, nodes=(), inferred=(), bytes_read=None), *others))
    code = ex.code("r")
    (part,) = code
    assert part.kernels[0].lines == ()
    assert [node.op for node in part.unlinked] == ["sin"]
    assert "1 of 2 kernels linked to nodes" in str(code)
    assert "1 of 2 nodes linked to kernels" in code._repr_mimebundle_()["text/html"]
    assert to_html(*code_pane(code.partitions)[0])
    assert code.kernels.nodes[0] == ""
    times = ex.kernel_times("r", 0.1)
    first_row = times[times.number == 1].iloc[0]
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
    "kernel times": lambda: ex.kernel_times("r", 0.1).problem.dropna().tolist(),
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
times = ex.kernel_times("r", 0.1)
assert times.problem.isna().all(), times.problem.tolist()
print("mended")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="limits as POSIX has them")
@pytest.mark.parametrize("how", ["full", "no directory", "gone"])
def test_code_and_kernel_times_where_no_file_can_be_written(how: str, tmp_path: Path) -> None:
    """No file may grow, as on a full disk; or the cache directory is below a file; or somebody has deleted it."""
    assert_mended(BROKEN, how, tmp_path)
