"""The configs that a region can have: keys, values, limits; configs from the source, an edit or a saved plan."""

from __future__ import annotations

import ast
import functools
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regional_explorer.compiler.treatment import function_of, with_functions
from regional_explorer.diagnostics.configs import global_config_diagnostic
from regional_explorer.errors import (
    InvalidConfigKeyError,
    InvalidConfigValueError,
    PlanError,
    RegionalExplorerError,
    UnknownConfigKeyError,
    did_you_mean,
    shown_value,
)
from regional_explorer.record import LARGEST_INTEGER
from regional_explorer.record.action import configure_action
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.graph import Graph
from regional_explorer.record.plan import DEFAULT, INDUCTOR, Direction, Plan, Region, config_of, with_config
from regional_explorer.regions.select import source_regions
from regional_explorer.torch_api.torch_config import ConfigEntry, config_comments, config_entries

_QUOTED_CHOICES = re.compile(r'(?:[Oo]ptions|[Vv]alid values|choices are): ((?:(?:or )?"\w+"(?: \([^)]*\))?,? ?)+)')
_NUMBERED_CHOICES = re.compile(r"(?<![\w.])(\d+) - [a-z]")
_COMBINED_WORDS = re.compile(r"combinations of: (\w+(?:, \w+)+)")
_BACKENDS_KEY = re.compile(r"max_autotune_\w+_backends")
MOST_THREADS = 1024

_NUMBERS: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "cpp.simdlen": (
        lambda bits: bits in (0, 1, 128, 256, 512),
        "it takes the bits of a vector register, 128, 256 or 512, or 0 for code without SIMD",
    ),
    "cpp.threads": (
        lambda threads: threads == -1 or 1 <= threads <= MOST_THREADS,
        f"it takes 1 to {MOST_THREADS:,}, or -1 for as many as torch has",
    ),
    "cpp.min_chunk_size": (lambda size: size >= 1, "it takes no number below 1"),
}
"""The numbers that make sense, for keys for which torch accepts any number.

With a ``simdlen`` that no vector register has, torch generates code without SIMD (``pick_vec_isa`` in its
cpu_vec_isa.py); with a number of threads below 1, it takes its own number.
"""


def choices_of(key: str) -> tuple[Any, ...]:
    """Return the values that the comment of ``key`` lists; none if it lists none."""
    comment, default = config_comments().get(key, ""), config_entries()[key].default
    if (quoted := _QUOTED_CHOICES.search(comment)) and (default is None or isinstance(default, str)):
        words = tuple(re.findall(r'"(\w+)"', quoted[1]))
        return (*words, *(() if default in words else (default,)))
    numbered = tuple(dict.fromkeys(map(int, _NUMBERED_CHOICES.findall(comment))))
    return numbered if len(numbered) > 1 and type(default) is int and default in numbered else ()


def combinable_words(key: str) -> tuple[str, ...]:
    """Return the words that ``key`` takes as a comma-separated list; none if torch does not list them."""
    comment = config_comments().get(key, "")
    if _BACKENDS_KEY.fullmatch(key):  # the comments of the other keys say "as above"
        comment = config_comments().get("max_autotune_gemm_backends", "")
    match = _COMBINED_WORDS.search(comment)
    return tuple(match[1].split(", ")) if match and isinstance(config_entries()[key].default, str) else ()


def problem_of(key: str, value: Any) -> str | None:
    """Return the problem with a value of the right type and what to give instead, or None."""
    if isinstance(value, str) and (known_words := combinable_words(key)):
        words = [word.strip() for word in value.split(",") if word.strip()]
        unknown = [word for word in words if word.upper() not in map(str.upper, known_words)]
        if unknown:
            hint = did_you_mean(unknown[0].upper(), map(str.upper, known_words))
            return f"there is no {unknown[0]!r}.{hint} It takes some of {', '.join(known_words)}, with commas between"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "it takes no infinity or NaN"
    if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
        return "that number has more than 64 bits"
    if key in _NUMBERS and not _NUMBERS[key][0](value):
        return _NUMBERS[key][1]
    return "it takes no number below 0" if value < 0 and not _may_be_negative(key) else None


def _may_be_negative(key: str) -> bool:
    """Return whether ``key`` takes negative numbers: its default is one, or its comment mentions them."""
    default = config_entries()[key].default
    mentioned = re.search(r"-1\b|negative", config_comments().get(key, ""))
    return bool(mentioned) or (isinstance(default, (int, float)) and default < 0)


_WORKERS_REASON = "it steers the compile workers, which all regions share"
_INSTALL_REASON = "it depends on what is installed, not on the region"

GLOBAL: Mapping[str, str] = {
    "compile_threads": _WORKERS_REASON,
    "quiesce_async_compile_pool": _WORKERS_REASON,
    "use_static_triton_launcher": _WORKERS_REASON,
    "worker_start_method": _WORKERS_REASON,
    "worker_suppress_logging": _WORKERS_REASON,
    "cpp.cxx": _INSTALL_REASON,
    "cpu_backend": _INSTALL_REASON,
    "cuda_backend": _INSTALL_REASON,
    "xpu_backend": _INSTALL_REASON,
    "triton.cudagraph_trees": "CUDA graph trees belong to the process, not to one region",
    "cpp.force_inline_kernel": "the C++ build fails with it",  # torch 2.13 and 2.15: docs/upstream.md
    "cpp_wrapper_build_separate": _WORKERS_REASON,
}
"""Keys that cannot be set for one region, each with the reason; ``_refusal_reason`` refuses further keys."""

INERT_KEYS: Mapping[str, str] = {
    "freezing": "only rx.Tracing(frozen=True, …) makes weights constants, for all regions",
    "freezing_discard_parameters": "your own weights are never discarded",
    "triton.autotune_at_compile_time": "standalone_compile sets it itself",
}
"""Keys that Inductor accepts for a region and then does not use."""

INERT_KEYS_ON_CPU: Mapping[str, str] = {
    "max_autotune_pointwise": "it tunes Triton kernels",
    "coordinate_descent_tuning": "it tunes Triton kernels",
    "shape_padding": "it pads GPU matrix products",
}

COMMON: Mapping[str, tuple[str, ...]] = {
    "cpu": (
        "max_fusion_size",
        "cpp.simdlen",
        "cpp.threads",
        "cpp.max_horizontal_fusion_size",
        "cpp.min_chunk_size",
        "epilogue_fusion",
        "pattern_matcher",
        "inplace_buffers",
        "realize_opcount_threshold",
        "emulate_precision_casts",
        "fallback_random",
        "cpp_wrapper",
    ),
    "cuda": (
        "max_autotune",
        "coordinate_descent_tuning",
        "max_autotune_gemm_backends",
        "epilogue_fusion",
        "shape_padding",
        "combo_kernels",
        "max_fusion_size",
        "triton.cudagraphs",
        "triton.persistent_reductions",
        "triton.multi_kernel",
        "emulate_precision_casts",
        "fallback_random",
    ),
}
"""The keys most worth trying, per device type."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One config key for display: its type in words, default, allowed values, doc, and why it cannot be set."""

    key: str
    type_name: str
    default: Any
    choices: tuple[Any, ...]
    doc: str
    refused: str | None


@functools.cache
def catalogue() -> Mapping[str, ConfigKey]:
    """Return every config key of the running torch, including those that cannot be set for one region."""
    comments = config_comments()
    return {
        key: ConfigKey(
            key=key,
            type_name=_type_name(entry.value_type),
            default=entry.default,
            choices=_literal_choices(entry.value_type) or choices_of(key),
            doc=comments.get(key, ""),
            refused=_refusal_reason(entry),
        )
        for key, entry in config_entries().items()
    }


def check_key(key: str) -> ConfigKey:
    """Return the catalogue's entry for ``key``.

    Raises:
        UnknownConfigKeyError: the running torch has no such key; near names are listed.
        InvalidConfigKeyError: the key exists but cannot be set for one region; the reason is given.
    """
    entries = catalogue()
    if not isinstance(key, str):
        raise UnknownConfigKeyError(f"A config key is a string, such as 'max_fusion_size'; got {shown_value(key)}.")
    if key not in entries:
        subkeys = [name for name in entries if name.startswith(f"{key}.")]
        hint = f" Write it with a dot, for example {subkeys[0]!r}." if subkeys else did_you_mean(key, entries)
        raise UnknownConfigKeyError(f"torch._inductor.config has no key {shown_value(key)}.{hint}")
    if (reason := entries[key].refused) is not None:
        raise InvalidConfigKeyError(f"{key!r} cannot be set for one region: {reason}.")
    return entries[key]


def check_value(key: str, value: Any) -> Any:
    """Return ``value`` if it fits ``key``.

    Raises:
        InvalidConfigValueError: it has the wrong type, or is not among the allowed values.
        UnknownConfigKeyError, InvalidConfigKeyError: as ``check_key``.
    """
    entry = check_key(key)
    if value is DEFAULT or value is entry.default:
        return value
    if _fits_type(value, config_entries()[key].value_type, entry.default) and _is_choice(value, entry.choices):
        if (problem := problem_of(key, value)) is not None:
            raise InvalidConfigValueError(f"{key}={shown_value(value)}: {problem} (default {entry.default!r}).")
        return value
    if entry.choices:
        raise InvalidConfigValueError(
            f"{key}={shown_value(value)}: {key} takes one of {', '.join(map(repr, entry.choices))} (default "
            f"{entry.default!r}).{did_you_mean(value, map(str, entry.choices))}"
        )
    raise InvalidConfigValueError(
        f"{key}={shown_value(value)} is {type(value).__name__}, but {key} takes {entry.type_name} "
        f"(default {entry.default!r})."
    )


def parse_value(key: str, typed: str | bool) -> Any:  # noqa: FBT001 - the value of a checkbox
    """Return the value that a person typed: a choice by its text, else a Python literal, else the text.

    A literal of another type is taken as text if the key accepts text. The value is not checked.

    Raises:
        UnknownConfigKeyError, InvalidConfigKeyError: as ``check_key``.
    """
    entry, hint = check_key(key), config_entries()[key].value_type
    if isinstance(typed, bool):
        return typed
    text = typed.strip()
    if choices := [choice for choice in entry.choices if str(choice) == text]:
        return choices[0]
    literal = {"true": "True", "false": "False", "none": "None"}.get(text.lower(), text)
    try:
        value = ast.literal_eval(literal)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # what literal_eval raises if it is not a literal
        return text
    return text if _fits_type(text, hint, entry.default) and not _fits_type(value, hint, entry.default) else value


def inert_reason(key: str, device_type: str) -> str | None:
    """Return why ``key`` has no effect in any region on this device, None if it may have one."""
    if device_type != "cpu":
        return INERT_KEYS.get(key)
    gpu_reason = "it steers code for GPUs" if key.startswith(("triton.", "cuda.", "rocm.", "xpu.")) else None
    return INERT_KEYS.get(key) or INERT_KEYS_ON_CPU.get(key) or gpu_reason


def _refusal_reason(entry: ConfigEntry) -> str | None:
    if entry.key in GLOBAL:
        return GLOBAL[entry.key]
    if entry.key.startswith(("trace.", "test_configs.", "autotune_fallback")):
        return "it is set by the tool that reads the compiler's output"
    if entry.key.startswith("_"):
        return "it is private to torch"
    if "cache" in entry.key and not entry.key.startswith(("cuda.", "triton.")):
        return "it steers Inductor's caches, which all regions share"
    if "Callable" in str(entry.value_type) or "custom_graph_pass" in str(entry.value_type):
        return "it holds a Python function; ex.configure takes passes of a region as passes=[…]"
    return None


def _members(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(member for part in typing.get_args(hint) for member in _members(part))
    return (hint,)


def _literal_choices(hint: Any) -> tuple[Any, ...]:
    literals = [part for part in _members(hint) if typing.get_origin(part) is typing.Literal]
    values = tuple(value for part in literals for value in typing.get_args(part))
    return (*values, None) if values and type(None) in _members(hint) else values


def _fits_type(value: Any, hint: Any, default: Any) -> bool:
    if hint is type(None):
        # Declared as plain None, such as ``cpp.simdlen`` in some versions: the type says nothing about other values.
        return value is None or isinstance(value, (bool, int, float, str))
    is_like_default = default is not None and type(value) is type(default) and not _literal_choices(hint)
    return is_like_default or any(_fits_member(value, member) for member in _members(hint))


def _fits_member(value: Any, hint: Any) -> bool:
    """Return whether a value fits a type that is not a union."""
    origin = typing.get_origin(hint) or hint
    if origin is typing.Literal:
        return _is_choice(value, typing.get_args(hint))
    if origin in (int, float):
        return isinstance(value, (int, origin)) and not isinstance(value, bool)
    return origin is typing.Any or (isinstance(origin, type) and isinstance(value, origin))


def _is_choice(value: Any, choices: tuple[Any, ...]) -> bool:
    return not choices or any(value == choice and type(value) is type(choice) for choice in choices)


def _type_name(hint: Any) -> str:
    names = [getattr(part, "__name__", str(part)) if isinstance(part, type) else str(part) for part in _members(hint)]
    readable = {"NoneType": "None", "bool": "True or False", "int": "an int", "float": "a number", "str": "a string"}
    return " or ".join(readable.get(name, name.replace("typing.", "")) for name in names)


def source_plan(graphs: Sequence[Graph]) -> tuple[Plan, list[Diagnostic]]:
    """Return the plan of the regions marked in the source, and a diagnostic for each config key that is global.

    Raises:
        UnknownConfigKeyError, InvalidConfigValueError: a mark holds a config that torch does not have.
    """
    diagnostics = []

    def refuse(region: Region, _: Direction | None, key: str, error: RegionalExplorerError) -> None:
        if not isinstance(error, InvalidConfigKeyError):
            raise type(error)(f"Region {region.name!r}, marked in the source: {error}") from error
        diagnostics.append(global_config_diagnostic(region, key, str(error), graphs))

    return Plan(tuple(_with_accepted_configs(region, refuse) for region in source_regions(graphs))), diagnostics


def _with_accepted_configs(
    region: Region, refuse: Callable[[Region, Direction | None, str, RegionalExplorerError], None]
) -> Region:
    """Return the region with the configs that torch accepts; ``refuse`` is called for each other config."""
    for direction, config in region.configs:
        accepted = {}
        for key, value in config.items():
            try:
                accepted[key] = check_value(key, value)
            except RegionalExplorerError as error:
                refuse(region, direction, key, error)
        region = with_config(region, accepted, direction)
    return region


def configured(plan: Plan, name: str, changes: Mapping[str, Any], direction: Direction | str | None = None) -> Plan:
    """Return the plan with ``changes`` merged into a region's config; the value ``DEFAULT`` removes a key.

    ``direction`` is ``"forward"`` or ``"backward"``; with None both configs change.

    Raises:
        UnknownRegionError, UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError.
    """
    chosen = checked_direction(direction)
    region = plan[name]
    if not isinstance(changes, Mapping):
        raise InvalidConfigValueError(
            f"A config is a dict, such as {{'max_fusion_size': 8}}; got {shown_value(changes)}."
        )
    for key, value in changes.items():
        check_value(key, value)
    for side in Direction if chosen is None else (chosen,):
        merged = {**config_of(region, side), **changes}
        region = with_config(region, {key: value for key, value in merged.items() if value is not DEFAULT}, side)
    return plan.replaced({name}, region)


def checked_direction(direction: Direction | str | None) -> Direction | None:
    """Return ``direction`` as a ``Direction``; None stands for both.

    Raises:
        InvalidConfigValueError: it is not a direction.
    """
    if direction is None or (isinstance(direction, str) and direction in tuple(Direction)):
        return None if direction is None else Direction(direction)
    raise InvalidConfigValueError(
        f'direction={shown_value(direction)}: a config is for the "forward" or the "backward"; '
        "leave direction out for both."
    )


def check_plan(plan: Plan) -> None:
    """Raise what ``configured`` raises for any config of a plan; PlanError if it is no plan or has lost a function."""
    if not isinstance(plan, Plan):
        raise PlanError(
            f"A plan is an rx.Plan, such as ex.plan or ex.draft().plan; got {shown_value(plan)}. "
            "Give a saved plan by its path: rx.explore(fn, args, plan='plan.json')."
        )
    for region in plan.regions:
        for _, config in region.configs:
            for key, value in config.items():
                check_value(key, value)
        for function in region.treatment.functions:
            function_of(function)


def without_unknown_configs(plan: Plan) -> tuple[Plan, list[Diagnostic]]:
    """Return a saved plan without the configs that this torch does not accept, and a diagnostic for each of them.

    A saved plan may come from another torch. Its passes and backends are those that have their names here.

    Raises:
        PlanError: a pass or a backend is not here.
    """
    diagnostics = []
    if any(region.treatment is not INDUCTOR for region in plan.regions):
        plan = with_functions(plan)

    def refuse(region: Region, direction: Direction | None, key: str, error: RegionalExplorerError) -> None:
        name = region.name
        diagnostics.append(
            DiagnosticCode.CONFIG_UNKNOWN.finding(
                f"{key!r} in the saved plan was not applied to region {name!r}",
                f": {error}",
                region=name,
                remedy=(
                    "Set what this torch has instead, ",
                    configure_action(name, direction=direction),
                    ", and save the plan.",
                ),
            )
        )

    return Plan(
        tuple(_with_accepted_configs(region, refuse) for region in plan.regions), plan.cut, plan.tracing
    ), diagnostics
