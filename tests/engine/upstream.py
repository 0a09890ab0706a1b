"""What the running torch can do, and its own regional_inductor."""

import inspect

import pytest
import torch
from torch.fx.passes import regional_inductor

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
BEFORE_2_13, BEFORE_2_15 = TORCH < (2, 13), TORCH < (2, 15)

REGION_IDS = "inductor_region" in inspect.getsource(regional_inductor)
"""Whether blocks are told apart by name; torch 2.11 takes all marks for one region."""

needs_region_ids = pytest.mark.skipif(not REGION_IDS, reason="this torch has no region ids")
