"""Assertions on explorations, short reads of their tables and of torch's state, and replaced compiled code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._dynamo import convert_frame
from torch.fx.passes import regional_inductor

import regional_explorer as rx
from regional_explorer.measure.numerics import are_bitwise_equal, compare_results, run_once, verdict
from regional_explorer.measure.reference import find_reference
from regional_explorer.record.configs import RANDOM_AS_EAGER
from regional_explorer.record.diagnostic import Diagnostic

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
BEFORE_2_13, BEFORE_2_15 = TORCH < (2, 13), TORCH < (2, 15)

REGION_IDS = "inductor_region" in inspect.getsource(regional_inductor)
"""Whether regional inductor separates blocks by name; torch 2.11 makes all marks one region."""

needs_region_ids = pytest.mark.skipif(not REGION_IDS, reason="this torch has no region ids")


def codes(ex: rx.Exploration) -> list[str]:
    """Return the code of each diagnostic."""
    return [item.code for item in ex.diagnostics]


def diagnostics_of(ex: rx.Exploration, code: str) -> list[Diagnostic]:
    """Return the diagnostics of this code."""
    return [item for item in ex.diagnostics if item.code == code]


def only(ex: rx.Exploration, code: str) -> Diagnostic:
    """Return the only diagnostic with a code."""
    (found,) = diagnostics_of(ex, code)
    return found


def states(ex: rx.Exploration) -> dict[str, str]:
    """Return the state of the partitions of each region."""
    return dict(zip(ex.partitions.region, ex.partitions.state, strict=True))


def cut_by_region(ex: rx.Exploration, graph: str = "0/forward") -> dict[str, list[list[str]]]:
    """Return the nodes of each partition of a graph and of the bodies in it, by region."""
    found: dict[str, list[list[str]]] = {}
    for part in ex.session.partitions:
        if part.graph.startswith(graph):
            found.setdefault(part.region, []).append(list(part.nodes))
    return found


@contextmanager
def torch_setting(name: str, value: Any) -> Iterator[None]:
    """Context manager: a setting of the process, of ``torch.set_NAME``, is ``value``."""
    write = getattr(torch, f"set_{name}")
    before = getattr(torch, f"get_{name}")()
    write(value)
    try:
        yield
    finally:
        write(before)


def version_of(tensor: torch.Tensor) -> int:
    return tensor._version


def owns_compile_lock() -> bool:
    return bool(convert_frame.compile_lock._is_owned())  # type: ignore[attr-defined]  # a C class


def backwards_use_threads() -> bool:
    return torch._C._is_multithreading_enabled()


def partitions_and_configs(found):
    """Return the partitions of a session or a status, as tuples, and the configs of their artifacts."""
    parts = [
        (p.id, p.region, p.instance, p.graph, p.nodes, p.config_requested, p.artifact, p.state)
        for p in found.partitions
    ]
    return parts, {key: artifact.config for key, artifact in found.artifacts.items()}


def train_step(fn, module, *args):
    """Run a training step of ``fn``; return its loss, and the gradients of the parameters of ``module``."""
    module.zero_grad()
    loss = fn(*args)
    loss.backward()
    return [loss.detach(), *(parameter.grad.clone() for parameter in module.parameters())]


def change_code(ex, change, graph=""):
    """Replace the function of every artifact, or of those of one graph, by what ``change`` makes of it."""
    program = ex.live.program
    for switch in program.switches:
        if graph in ("", switch.piece.graph_id):
            right = switch.artifact
            program.store.artifacts[right.key] = replace(right, call=change(right.call))
    program.apply_artifacts()


def assert_eager_pieces_are_bitwise(ex: rx.Exploration) -> None:
    """Assert that the call, cut into eager pieces, gives bitwise the results of the uncut call."""
    program, call = ex.live.program, ex.live.call
    assert call is not None
    program.select_regional(on=False)
    whole = run_once(call, program.capture.run)
    program.select_regional(on=True)
    cut = run_once(call, program.capture.run)
    pairs = zip((*whole.outputs, *whole.gradients), (*cut.outputs, *cut.gradients), strict=True)
    assert all(are_bitwise_equal(left, right) for (_, left), (_, right) in pairs)


def assert_compiled_is_right(ex):
    """Assert that all partitions compile and that results and gradients are as close to float64 as eager's."""
    call, program = ex.live.call, ex.live.program
    found = find_reference(call, program)
    assert not found.diagnostics
    assert found.exact is not None
    ex.compile()
    with program.using_twins([switch for switch in program.switches if switch.piece.is_random], RANDOM_AS_EAGER):
        for _ in range(2):  # the first call of an artifact checks what it returns, later ones trust it
            rows = compare_results("regional", run_once(call, program.capture.run), found)
            assert verdict(rows) == "ok", [row for row in rows if row.verdict != "ok"]
    assert (ex.partitions.state == "compiled").all(), ex.partitions[["partition", "state", "error"]].to_string()
