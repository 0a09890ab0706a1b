"""What the running torch's own regional_inductor can do."""

import inspect

import pytest
from torch.fx.passes import regional_inductor

REGION_IDS = "inductor_region" in inspect.getsource(regional_inductor)
"""Whether blocks are told apart by name; torch 2.11 takes all marks for one region."""

needs_region_ids = pytest.mark.skipif(not REGION_IDS, reason="this torch has no region ids")
