"""Upstream's own tests on our cut, where a checkout of PyTorch is: ``REGIONAL_EXPLORER_PYTORCH=/path/to/pytorch``."""

import operator
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import annotate, preserve_node_meta

from benchmarks.campaign import upstream_shim
from tests.shared.checks import needs_region_ids

pytestmark = pytest.mark.slow

CHECKOUT = "REGIONAL_EXPLORER_PYTORCH"


def marked_graph():
    def fn(x):
        x = x.sin()
        with annotate({"compile_with_inductor": {"inductor_region": "r"}}):
            y = x.cos() * 2
        return y + x

    with preserve_node_meta():
        return make_fx(fn, tracing_mode="fake")(torch.randn(4))


def test_our_cut_has_the_shape_of_upstreams():
    x = torch.randn(4)
    expected = marked_graph()(x)
    gm = upstream_shim.scooped(marked_graph())
    (called,) = gm.graph.find_nodes(op="call_module")
    assert called.target.startswith(upstream_shim.PREFIX)
    inside = [node for node in gm.get_submodule(called.target).graph.nodes if node.op.startswith("call")]
    assert [node.target.overloadpacket for node in inside] == [torch.ops.aten.cos, torch.ops.aten.mul]
    assert [node.target for node in called.users] == [operator.getitem]
    torch.testing.assert_close(gm(x), expected, rtol=0, atol=0)


def test_a_graph_with_inspected_annotations_is_cut_and_compared(monkeypatch):
    gm = marked_graph()
    assert "'inductor_region': 'r'" in upstream_shim.check_cut_and_get_metadata(gm)

    def wrong(marked):
        cut = marked_graph()
        (x,) = cut.graph.find_nodes(op="placeholder")
        (product,) = cut.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
        product.args = (x, 3)
        return cut

    monkeypatch.setattr(upstream_shim, "_cut", wrong)
    with pytest.raises(AssertionError):
        upstream_shim.check_cut_and_get_metadata(gm)


@pytest.mark.compiles
@needs_region_ids
@pytest.mark.skipif(not os.environ.get(CHECKOUT), reason=f"no checkout of PyTorch in {CHECKOUT}")
def test_upstreams_tests_pass():
    tests = Path(os.environ[CHECKOUT]) / "test"
    annotating = [file for file in sorted(tests.glob("functorch/test_*.py")) if "annotate" in file.read_text("utf-8")]
    files = [tests / "dynamo" / "test_regional_inductor.py", *annotating]
    found = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", upstream_shim.__name__, "-p", "no:cacheprovider"),
            *("-c", os.devnull, "--rootdir", str(tests), "--import-mode=importlib"),
            *("-k", "Regional or annotate", *map(str, files)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])},
    )
    print(found.stdout)
    count = re.search(r"our cut: (\d+) passed, (\d+) failed", found.stdout)
    assert count, found.stdout + found.stderr
    assert int(count[1])
    assert int(count[2]) == 0, found.stdout
