"""The code of a region under two configs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.exploration.code_results import RegionCode
from regional_explorer.record.artifact import code_hash

pytestmark = pytest.mark.compiles


def gelu_norm(x: torch.Tensor) -> torch.Tensor:
    with rx.region("r"):
        return F.layer_norm(F.gelu(x), (x.shape[-1],))


@pytest.fixture(scope="module")
def ex() -> rx.Exploration:
    return rx.explore(gelu_norm, (torch.randn(64, 256),))


def test_an_option_that_changes_the_code_is_seen_without_compiling(ex: rx.Exploration) -> None:
    before = ex.code("r", config={})
    after = ex.code("r", config={"realize_opcount_threshold": 3})
    diff = before.diff(after)
    assert not diff.same
    (part,) = diff
    assert part.kernels
    assert "+" in part.unified
    assert "The code of 1 of 1 partitions of region 'r' changed" in str(diff)
    assert 'class="rx-good"' in diff._repr_mimebundle_()["text/html"]
    assert ex.live.program.store.compiles == 0


def test_erf_is_computed_once_per_reader_until_it_is_kept(ex: rx.Exploration) -> None:
    def erfs(code: RegionCode) -> int:
        return sum(linked.kernel.loop_ops.get("erf", 0) for part in code for linked in part.kernels)

    assert erfs(ex.code("r", config={})) > 1
    assert erfs(ex.code("r", config={"realize_opcount_threshold": 3})) == 1


def test_an_option_that_changes_nothing_is_said_to(ex: rx.Exploration) -> None:
    diff = ex.code("r", config={}).diff(ex.code("r", config={"shape_padding": False}))
    assert diff.same
    assert "Nothing changed in region 'r'" in str(diff)
    assert "Nothing changed" in diff._repr_mimebundle_()["text/html"]


def test_the_code_generated_is_the_code_that_would_be_compiled(ex: rx.Exploration) -> None:
    seen = ex.code("r", config={"cpp.simdlen": 1})
    ex.configure("r", {"cpp.simdlen": 1})
    ex.compile()
    try:
        assert seen.diff(ex.code("r")).same
        assert [linked.kernel for linked in seen.partitions[0].kernels] == [
            linked.kernel for linked in ex.code("r").partitions[0].kernels
        ]
    finally:
        ex.reset("r")


def test_kernels_are_matched_by_code_then_by_nodes() -> None:
    def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with rx.region("r"):
            y = torch.sin(x) @ w
            return F.layer_norm(F.gelu(y), (y.shape[-1],))

    ex = rx.explore(chain, (torch.randn(64, 64), torch.randn(64, 64)))
    (part,) = ex.code("r", config={}).diff(ex.code("r", config={"realize_opcount_threshold": 3}))
    words = {pair.after.name: pair.word for pair in part.kernels if pair.after is not None}
    assert words["cpp_fused_sin_0"] == "same"
    assert words["extern_kernels.mm"] == "same"
    assert "changed" in words.values()


def test_bad_input_is_told(ex: rx.Exploration) -> None:
    code = ex.code("r", config={})
    with pytest.raises(rx.UnknownConfigKeyError, match="Did you mean"):
        ex.code("r", config={"max_fusion_sizes": 1})
    with pytest.raises(rx.InvalidArgumentError, match=r"ex\.code"):
        code.diff("other")  # type: ignore[arg-type]


def test_names_and_comments_do_not_count() -> None:
    one = "# graph 0\ncpp_fused_sin_0 = f()\ncpp_fused_sin_0(x)\n"
    other = "# graph 7\n\ncpp_fused_cos_3 = f()\ncpp_fused_cos_3(x)\n"
    assert code_hash(one) == code_hash(other)
    assert code_hash(one) != code_hash(one.replace("(x)", "(y)"))
