"""What the tests of the engine share."""

import pytest
import torch

import regional_explorer as rx
from regional_explorer.torch_api.dynamo import ISOLATES
from tests.shared import programs


@pytest.fixture
def own_recompile_limit() -> None:
    """Let torch 2.11 forget all compiles: it counts those of one function together, and stops after eight."""
    if not ISOLATES:
        torch._dynamo.reset()


@pytest.fixture(scope="module")
def stack() -> rx.Exploration:
    """Return an exploration of equal layers, whose plan tests may change."""
    return rx.explore(programs.Stack(), (torch.randn(4, 16),))


@pytest.fixture
def ex(stack: rx.Exploration) -> rx.Exploration:
    """Return it without a region."""
    stack.plan = rx.Plan()
    return stack
