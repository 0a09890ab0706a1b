"""A small exploration that is traced once, and a new control and panel for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from regional_explorer.exploration.exploration import Exploration
from regional_explorer.ui.control import Control, control_of
from regional_explorer.ui.panel import Panel
from tests.shared.panel import BlockedMethod, small_exploration


@pytest.fixture(scope="package")
def traced_exploration() -> Iterator[Exploration]:
    with small_exploration() as ex:
        yield ex


@pytest.fixture
def exploration(traced_exploration: Exploration) -> Iterator[Exploration]:
    """A new exploration of the traced call under its first plan: methods may be replaced, but it is not compiled."""
    plan = traced_exploration.plan
    yield Exploration(traced_exploration.live)
    traced_exploration.live.measurements.runs = ()
    traced_exploration.plan = plan


@pytest.fixture
def own_exploration() -> Iterator[Exploration]:
    """An exploration that the test may compile, measure and trace again."""
    with small_exploration() as ex:
        yield ex


@pytest.fixture
def control(exploration: Exploration) -> Control:
    return control_of(exploration)


@pytest.fixture
def panel(control: Control) -> Iterator[Panel]:
    panel = Panel(control)
    yield panel
    panel.close()


@pytest.fixture
def blocked_work(exploration: Exploration) -> Iterator[BlockedMethod]:
    work = BlockedMethod()
    exploration.benchmark = exploration.compile = work  # type: ignore[method-assign]
    yield work
    work.go_on.set()
