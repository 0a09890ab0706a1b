"""One architecture of the campaign: how it is built and called."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regional_explorer.capture.tensors import tensors_in

MOST_PARAMETERS = 12_000_000
MOST_MODULES = 350


@dataclass(frozen=True)
class Built:
    """A model with the arguments of its call."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None

    def __call__(self) -> Any:
        return self.model(*self.args, **(self.kwargs or {}))


Build = Callable[[bool], Built]
"""Makes a model for training, or for inference."""


@dataclass(frozen=True)
class Case:
    """One architecture of one library."""

    library: str
    name: str
    build: Build

    def make(self, *, training: bool) -> Built:
        """Build the model with its weights and inputs, the same each time."""
        torch.manual_seed(0)
        with quiet():
            built = self.build(training)
        built.model.train(training)
        return built

    def runs(self) -> bool:
        """Tell whether the model runs in eager mode, for inference and for training, and is small."""
        try:
            for training in (False, True):
                built = self.make(training=training)
                if not is_small(built.model):
                    return False
                with quiet(), torch.set_grad_enabled(training):
                    outputs = built()
                if training and not any(tensor.requires_grad for _, tensor in tensors_in(outputs)):
                    return False
        except Exception:  # noqa: BLE001 - whatever a library raises for arguments it does not take
            return False
        return True


def is_small(model: nn.Module) -> bool:
    """Tell whether a model can be explored in seconds."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return parameters <= MOST_PARAMETERS and sum(1 for _ in model.modules()) <= MOST_MODULES


@contextmanager
def quiet() -> Iterator[None]:
    """A block in which libraries warn of nothing."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
