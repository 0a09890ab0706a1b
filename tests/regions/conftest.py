"""An exploration whose plan the tests of edits change."""

import pytest
import torch

import regional_explorer as rx
from tests.shared import programs


@pytest.fixture(scope="module")
def stack() -> rx.Exploration:
    """Return an exploration of equal layers, whose plan tests may change."""
    return rx.explore(programs.Stack(), (torch.randn(4, 16),))


@pytest.fixture
def ex(stack: rx.Exploration) -> rx.Exploration:
    """Return that exploration without a region."""
    stack.plan = rx.Plan()
    return stack
