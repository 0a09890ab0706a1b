"""Small programs with a region, shared by the tests of what the compiler did."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.exploration import exploration
from regional_explorer.record.artifact import ArtifactKernelTimes, BoundBy, KernelTime
from regional_explorer.record.figure import exactly
from tests.shared.programs import Layer


def block(x, w):
    with rx.region("r"):
        y = torch.sin(x) * 2
        return (y @ w).softmax(-1)


@rx.region("r")
def gelu_norm(x):
    return F.layer_norm(F.gelu(x), (x.shape[-1],))


def training_step():
    layer = Layer(64)

    def step(x):
        with rx.region("r"):
            y = layer(x)
        return y.square().mean()

    return step


def compiled_ex(function, *args, dynamic=None):
    ex = rx.explore(function, args, dynamic=dynamic)
    ex.compile()
    return ex


def simulate_times(monkeypatch, kernel_s, bound_s, between_s):
    """Let every kernel take ``kernel_s``, and its code ``between_s`` more, whatever the machine does meanwhile."""

    def measure(insights, *_):
        for key, code in insights.codes.items():
            kernel = KernelTime(exactly(kernel_s), bound_s, None if bound_s is None else BoundBy.COPY)
            kernels, outside = (kernel,) * len(code.kernels), {"between": exactly(between_s), "around": exactly(0.0)}
            insights.kernel_times[key] = ArtifactKernelTimes(kernels, **outside)
        insights.revision += 1

    monkeypatch.setattr(exploration, "measure_kernel_times", measure)
