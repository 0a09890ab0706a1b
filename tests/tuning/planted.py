"""Candidates that go wrong in a worker, each in its way, by a key that changes no code of a small call."""

from __future__ import annotations

import math
import os
import pickle
import signal
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import fx

from regional_explorer.compiler import shipment
from regional_explorer.torch_api.shipping import load_piece

CRASH, HANG, MEMORY, WRONG, NAN, LOST = range(61, 67)
KEY = "max_fusion_size"


def compile_planted(content: bytes) -> bytes:
    """In a worker: compile a piece, or do what is planted for its config."""
    sent = pickle.loads(content[len(shipment._HEADER) :])  # noqa: S301 - from the test
    planted = sent.piece.config.get(KEY)
    if planted == CRASH:
        os.abort()
    if planted == HANG:
        time.sleep(1000)
    if planted == LOST:
        os.kill(os.getpid(), signal.SIGKILL)
    factors: dict[Any, float] = {WRONG: 0.5, NAN: math.nan}
    load: Callable[..., Any] = load_piece
    if planted == MEMORY:
        load = too_much
    elif planted in factors:
        load = multiplied(load, factors[planted])
    with mock.patch.object(shipment, "load_piece", load):
        return shipment.compile_shipment(content)


def too_much(*_args: Any) -> Any:
    """Allocate more memory than any process gets."""
    return bytearray(1 << 44)


def multiplied(load: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """Return what loads a piece, and multiplies its first result."""

    def load_multiplied(*args: Any) -> Any:
        gm, inputs = load(*args)
        output = gm.graph.output_node()
        first, *others = output.args[0]
        with gm.graph.inserting_before(output):
            product = gm.graph.call_function(torch.ops.aten.mul.Tensor, (first, factor))
            product.meta = dict(first.meta)
        output.args = ((product, *others),)
        return fx.GraphModule(gm, gm.graph), inputs

    return load_multiplied
