"""Graph breaks inside marked blocks: what else the function calls is explored, with ``region-lost`` beside it."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import regional_explorer as rx
from regional_explorer.errors import CaptureError


def helper(x):
    return x.sin() * 2


def stops(x):
    with rx.region("lost"):
        torch._dynamo.graph_break()
        return x + 1


def by_item(x):
    y = helper(x)
    with rx.region("lost"):
        y = y * float(y.sum().item())
    return helper(y)


def by_branch(x):
    y = helper(x)
    with rx.region("lost"):
        y = y + 1 if y.sum() > 0 else y - 1
    return helper(y)


def in_a_loop(x):
    for _ in range(2):
        with rx.region("lost"):
            x = helper(x)
            torch._dynamo.graph_break()
    return x


def in_a_checkpoint(x):
    return helper(checkpoint(stops, helper(x), use_reentrant=False))


@pytest.mark.parametrize("fn", [by_item, by_branch, in_a_loop, in_a_checkpoint])
def test_what_else_the_function_calls_is_explored(fn):
    x = torch.randn(3, requires_grad=True)
    ex = rx.explore(fn, (x,))
    assert [item.region for item in ex.diagnostics if item.code == "region-lost"] == ["lost"]
    functions = {node.source.function for graph in ex.session.graphs for node in graph.ops if node.source}
    assert "helper" in functions
    ex.mark("kept", ops="aten.sin*")
    assert set(ex.partitions.region) == {"kept"}


def test_nothing_captured_is_an_error_that_names_region_and_line():
    with pytest.raises(CaptureError, match=r"Nothing was captured.*region 'lost' \(region-lost\)") as caught:
        rx.explore(stops, (torch.randn(3),))
    assert "in stops" in str(caught.value)
