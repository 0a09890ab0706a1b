"""Architectures drawn at random from the registries of other libraries, with random weights and small.

The seed is fixed, so that a version of a library always gives the same draw. What cannot be built or run in eager mode
with the arguments used here is passed over, and so is what is too large for a quick look.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from tests.campaign import libraries_diffusers, libraries_graphs, libraries_layers, libraries_vision
from tests.campaign.library_case import Build, Case

SEED = 20_260_101

DRAWN = {
    "timm": 9,
    "torchvision": 7,
    "diffusers": 6,
    "torch_geometric": 6,
    "x_transformers": 5,
    "peft": 4,
    "torchao": 3,
}
"""How many architectures are drawn from each library: 40 in all."""

CANDIDATES: Mapping[str, Callable[[random.Random], Iterator[tuple[str, Build]]]] = {
    "timm": libraries_vision.timm_models,
    "torchvision": libraries_vision.torchvision_models,
    "diffusers": libraries_diffusers.models,
    "torch_geometric": libraries_graphs.convolutions_and_models,
    "x_transformers": libraries_layers.x_transformers,
    "peft": libraries_layers.adapters,
    "torchao": libraries_layers.quantizations,
}


def installed(library: str) -> bool:
    """Tell whether a library of the campaign is there."""
    return importlib.util.find_spec(library) is not None


def cases(library: str) -> Iterator[Case]:
    """Yield the architectures drawn from a library, each of which builds and runs in eager mode."""
    libraries_vision.load_torchvision()  # where it is installed, other libraries import it too
    candidates = CANDIDATES[library](random.Random(f"{SEED} {library}"))  # noqa: S311 - no secret
    found = (case for name, build in candidates if (case := Case(library, name, build)).runs())
    yield from itertools.islice(found, DRAWN[library])


@cache
def drawn(library: str) -> tuple[Case, ...]:
    """Return the architectures drawn from a library."""
    return tuple(cases(library))
