"""Inductor configs worth trying, each with the case in which it may matter: for tuning, remedies, cures and presets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from regional_explorer.errors import InvalidConfigValueError, did_you_mean, shown_value


class ConfigCase(StrEnum):
    """The case in which a config may matter."""

    LAUNCHES = "time passes between kernels: allocating, checking, launching"
    LOOPS = "the loops of generated kernels take the time"
    PRODUCTS = "matrix products and convolutions take the time"
    RECOMPUTED = "kernels compute a value again for each of its readers"
    REFUSED = "Inductor refused to fuse loops that touch the same data"
    ROUNDING = "results are rounded differently than in eager"
    RANDOM = "random numbers differ from eager's"
    FAULT = "compiled code is wrong, and the cause is unknown"


FASTER = (ConfigCase.LAUNCHES, ConfigCase.LOOPS, ConfigCase.PRODUCTS, ConfigCase.RECOMPUTED, ConfigCase.REFUSED)
"""The cases in which a config may make code faster."""

AUTOTUNED = "max-autotune, no cudagraphs"


@dataclass(frozen=True, slots=True)
class KnownConfig:
    """A config worth trying."""

    config: Mapping[str, Any]
    """The keys with their values."""
    when: ConfigCase
    """The case in which it may matter."""
    device: str = ""
    """The type of device that it is for; empty: any."""
    refusals: tuple[str, ...] = ()
    """Words of Inductor's reason for not fusing that the config removes."""
    ops: tuple[str, ...] = ()
    """The ops of which a graph must have one; none: any graph."""
    preset: str = ""
    """The preset that it is a part of."""
    needs_constants: bool = False
    """Whether it matters only where weights are constants."""


KNOWN_CONFIGS = (
    KnownConfig({"cpp_wrapper": True}, ConfigCase.LAUNCHES),
    KnownConfig({"size_asserts": False}, ConfigCase.LAUNCHES),
    KnownConfig({"triton.cudagraphs": True}, ConfigCase.LAUNCHES, "cuda"),
    KnownConfig({"memory_planning": True}, ConfigCase.LAUNCHES),
    KnownConfig({"max_autotune": True}, ConfigCase.PRODUCTS, "cuda", preset=AUTOTUNED),
    # Of the other products Inductor has C++ code only where weights are constants: the search tries these by itself.
    KnownConfig({"max_autotune": True}, ConfigCase.PRODUCTS, "cpu", ops=("bmm",)),
    KnownConfig({"layout_optimization": False}, ConfigCase.PRODUCTS, ops=("convolution",)),
    KnownConfig({"cpp.enable_concat_linear": True}, ConfigCase.PRODUCTS, "cpu", needs_constants=True),
    KnownConfig({"coordinate_descent_tuning": True}, ConfigCase.LOOPS, "cuda", preset=AUTOTUNED),
    KnownConfig({"triton.cudagraphs": False}, ConfigCase.FAULT, "cuda", preset=AUTOTUNED),
    KnownConfig({"realize_opcount_threshold": 3}, ConfigCase.RECOMPUTED),
    KnownConfig({"realize_opcount_threshold": 10}, ConfigCase.LOOPS),
    KnownConfig({"inplace_buffers": False}, ConfigCase.LOOPS),
    KnownConfig({"max_fusion_size": 16}, ConfigCase.LOOPS),
    KnownConfig({"max_fusion_size": 512}, ConfigCase.REFUSED, refusals=("exceeds max fusion",)),
    KnownConfig(
        {"cpp.max_horizontal_fusion_size": 512}, ConfigCase.REFUSED, "cpu", refusals=("cpp.max_horizontal_fusion_size",)
    ),
    KnownConfig({"score_fusion_memory_threshold": 1}, ConfigCase.REFUSED, refusals=("score_fusion_memory_threshold",)),
    KnownConfig(
        {"loop_ordering_after_fusion": True},
        ConfigCase.REFUSED,
        refusals=("indexing mismatch", "memory deps did not match"),
    ),
    KnownConfig({"cpp.enable_tiling_heuristics": False}, ConfigCase.LOOPS, "cpu"),
    KnownConfig({"cpp.threads": 1}, ConfigCase.LOOPS, "cpu"),
    KnownConfig({"cpp.min_chunk_size": 4096}, ConfigCase.LOOPS, "cpu"),  # the default is 512 (torch 2.13)
    KnownConfig({"cpp.use_decompose_tanh": True}, ConfigCase.LOOPS, "cpu"),  # off by default: pytorch #148241, rounding
    KnownConfig({"cpp.enable_floating_point_contract_flag": "fast"}, ConfigCase.LOOPS, "cpu"),
    KnownConfig({"max_fusion_size": 1}, ConfigCase.FAULT, preset="no fusion"),
    # Its epilogues are those of templates, which products on the CPU have only where weights are constants.
    KnownConfig({"epilogue_fusion": False}, ConfigCase.FAULT, preset="no fusion"),
    KnownConfig({"emulate_precision_casts": True}, ConfigCase.ROUNDING, preset="eager numerics"),
    KnownConfig({"fallback_random": True}, ConfigCase.RANDOM, preset="eager numerics"),
    KnownConfig({"nan_asserts": True}, ConfigCase.FAULT, preset="NaN asserts"),
    KnownConfig(
        {"size_asserts": True, "scalar_asserts": True, "alignment_asserts": True},
        ConfigCase.FAULT,
        preset="size asserts",
    ),
)
"""The known configs, the likeliest to matter first."""


def combined_config(*when: ConfigCase) -> dict[str, Any]:
    """Return the configs that may matter in a case, combined into one."""
    return {key: value for known in KNOWN_CONFIGS if known.when in when for key, value in known.config.items()}


def speed_configs(device_type: str, ops: Collection[str]) -> list[Mapping[str, Any]]:
    """Return the configs that may make code of ``ops`` on a type of device faster, the likeliest first."""
    return [
        known.config
        for known in KNOWN_CONFIGS
        if known.when in FASTER and known.device in ("", device_type) and (not known.ops or {*known.ops} & {*ops})
    ]


def may_matter(config: Mapping[str, Any], *, constants: bool) -> bool:
    """Return whether a config may change code in which weights are ``constants``, or are not."""
    return constants or not any(known.needs_constants and known.config == config for known in KNOWN_CONFIGS)


KEEP_RESULTS = combined_config(ConfigCase.RECOMPUTED)
"""Under this config Inductor stores a value that takes more than three ops, instead of recomputing it per reader."""

FUSING: Mapping[str, Mapping[str, Any]] = {words: known.config for known in KNOWN_CONFIGS for words in known.refusals}
"""Configs under which Inductor fuses what it refused, by words of its reason; other reasons have no config."""

RANDOM_AS_EAGER = combined_config(ConfigCase.RANDOM)

CURES = combined_config(ConfigCase.ROUNDING, ConfigCase.RANDOM)
"""Configs that make compiled code round, or draw random numbers, as eager code does."""

PRESETS: Mapping[str, Mapping[str, Any]] = {
    name: {key: value for known in KNOWN_CONFIGS if known.preset == name for key, value in known.config.items()}
    for name in ("default", AUTOTUNED, "eager numerics", "no fusion", "NaN asserts", "size asserts")
}
"""Configs that have a name; ``default`` is empty."""

ASSERTS = frozenset((*PRESETS["NaN asserts"], *PRESETS["size asserts"]))
"""Config keys under which a failing region raises instead of running eagerly."""


def preset(name: str) -> Mapping[str, Any]:
    """Return the config called ``name``.

    Raises:
        InvalidConfigValueError: no preset has that name.
    """
    if name not in PRESETS:
        raise InvalidConfigValueError(
            f"No preset is called {shown_value(name)}.{did_you_mean(name, PRESETS)} Presets: {', '.join(PRESETS)}."
        )
    return PRESETS[name]
