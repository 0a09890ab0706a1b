"""What of torch's global state reaches generated code: read in one process, set in another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from regional_explorer.torch_api.config import changed_config, changed_functorch_config, set_config

_memory: Any = torch.utils.deterministic
"""The module replaces its class, so that no type checker knows its one attribute."""


@dataclass(frozen=True)
class Settings:
    """Everything outside of a piece and its region's config that reaches the generated code.

    ``inductor`` and ``functorch`` are the configs that differ from their default. Those of functorch are left out of the
    text: they say how a piece is cached, but AOTAutograd has little left to decide about it.
    """

    version: str
    threads: int
    default_dtype: torch.dtype
    float32_matmul_precision: str
    fp16_reductions: bool | tuple[bool, ...]
    bf16_reductions: bool | tuple[bool, ...]
    deterministic: bool
    warn_only: bool
    fill_uninitialized: bool
    inductor: Mapping[str, Any]
    functorch: Mapping[str, Any] = field(repr=False)

    @classmethod
    def now(cls) -> Settings:
        """Return what holds in this process and context."""
        matmul = torch.backends.cuda.matmul
        return cls(
            version=torch.__version__,
            threads=torch.get_num_threads(),
            default_dtype=torch.get_default_dtype(),
            float32_matmul_precision=torch.get_float32_matmul_precision(),
            fp16_reductions=matmul.allow_fp16_reduced_precision_reduction,
            bf16_reductions=matmul.allow_bf16_reduced_precision_reduction,
            deterministic=torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
            fill_uninitialized=_memory.fill_uninitialized_memory,
            inductor=changed_config(),
            functorch=changed_functorch_config(),
        )

    def take_over(self) -> None:
        """Set this process to the same; whether that worked, ``Settings.now()`` tells."""
        matmul = torch.backends.cuda.matmul
        torch.set_num_threads(self.threads)
        torch.set_default_dtype(self.default_dtype)
        torch.set_float32_matmul_precision(self.float32_matmul_precision)
        matmul.allow_fp16_reduced_precision_reduction = self.fp16_reductions
        matmul.allow_bf16_reduced_precision_reduction = self.bf16_reductions
        torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warn_only)
        _memory.fill_uninitialized_memory = self.fill_uninitialized
        set_config(self.inductor, self.functorch)
