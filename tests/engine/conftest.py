"""What the tests of the engine share."""

import pytest
import torch

from regional_explorer.torch_api.dynamo import ISOLATES


@pytest.fixture
def own_recompile_limit() -> None:
    """Let torch 2.11 forget all compiles: it counts those of one function together, and stops after eight."""
    if not ISOLATES:
        torch._dynamo.reset()
