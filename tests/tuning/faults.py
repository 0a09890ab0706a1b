"""Faults injected into the compiles of workers, by the value of a config key that changes no code of a small call."""

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
FAULT_KEY = "max_fusion_size"


def compile_with_fault(content: bytes) -> bytes:
    """Compile a piece in a worker, with the fault that its config asks for."""
    sent = pickle.loads(content[len(shipment._HEADER) :])  # noqa: S301 - from the test
    fault = sent.piece.config.get(FAULT_KEY)
    if fault == CRASH:
        os.abort()
    if fault == HANG:
        time.sleep(1000)
    if fault == LOST:
        os.kill(os.getpid(), signal.SIGKILL)
    factors: dict[Any, float] = {WRONG: 0.5, NAN: math.nan}
    load: Callable[..., Any] = load_piece
    if fault == MEMORY:
        load = allocate_too_much
    elif fault in factors:
        load = multiply_first_result(load, factors[fault])
    with mock.patch.object(shipment, "load_piece", load):
        return shipment.compile_shipment(content)


def allocate_too_much(*_args: Any) -> Any:
    """Allocate more memory than any process gets."""
    return bytearray(1 << 44)


def multiply_first_result(load: Callable[..., Any], factor: float) -> Callable[..., Any]:
    """Return a loader of pieces like ``load`` that multiplies the first result of the piece by ``factor``."""

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
