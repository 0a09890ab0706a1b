"""Inductor's and functorch's configs, and the global settings that affect compiled code."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch.utils import _config_module

from regional_explorer.torch_api.compile_lock import compile_lock


@dataclass(frozen=True)
class ConfigEntry:
    """One key of ``torch._inductor.config`` as the running torch declares it."""

    key: str
    value_type: Any
    default: Any


@functools.cache
def config_entries() -> Mapping[str, ConfigEntry]:
    """Return every Inductor config of the running torch, keyed by its dotted name."""
    entries = inductor_config._config.items()  # type: ignore[attr-defined]  # the module replaces itself
    return {key: ConfigEntry(key, entry.value_type, entry.default) for key, entry in entries}


@functools.cache
def config_comments() -> Mapping[str, str]:
    """Return the comment above each config key in torch's source, keyed by dotted name: the only documentation."""
    try:
        source = inspect.getsource(inductor_config)
    except (OSError, TypeError):
        return {}
    lines = source.splitlines()
    comments: dict[str, str] = {}

    def read_comments(body: Sequence[ast.stmt], prefix: str) -> None:
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                read_comments(statement.body, f"{prefix}{statement.name}.")
                continue
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            for target in targets:
                if isinstance(target, ast.Name):
                    comments[prefix + target.id] = _comment_above(lines, statement.lineno - 1)

    read_comments(ast.parse(source).body, "")
    return {key: text for key, text in comments.items() if text}


def _comment_above(lines: Sequence[str], index: int) -> str:
    start = index
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return " ".join(line.strip().lstrip("# ").strip() for line in lines[start:index]).strip()


def read_config(keys: Iterable[str], module: Any = inductor_config) -> dict[str, Any]:
    """Return the current values of config keys, without copies: custom passes are compared by identity."""
    return {key: functools.reduce(getattr, key.split("."), module) for key in keys}


def changed_config(module: Any = inductor_config) -> dict[str, Any]:
    """Return the configs that differ from their default in this context, as the cache key sees them.

    The defaults are those without environment variables, so that configs set by variables count as changed.
    """
    copies, defaults = sorted(module.get_config_copy().items()), _defaults(module)
    return read_config([key for key, value in copies if value != defaults[key]], module)


def defaults_of_changed_config(module: Any = inductor_config) -> dict[str, Any]:
    """Return the defaults of the configs that differ from their default in this context."""
    return {key: _defaults(module)[key] for key in changed_config(module)}


@functools.cache
def _defaults(module: Any) -> Mapping[str, Any]:
    declared = {key: entry.default for key, entry in module._config.items()}
    return {**declared, **_without_environment()} if module is inductor_config else declared


_READ_AGAIN = f"{__name__}.inductor_config"
_PROGRAMS = {"CXX"}
"""Environment variables with the path of a program, which do not affect the code."""


def _without_environment() -> dict[str, Any]:
    """Return the defaults that Inductor's configs have in an environment without their variables, where these differ.

    Most variables change a default while Inductor is imported, and torch keeps only the changed one. So the module is
    executed once more. Configs that the keys of Inductor's caches leave out stay as they are.
    """
    path = Path(inductor_config.__file__)
    names = os.environ.keys() & set(re.findall(r'"([A-Z][A-Z0-9_]+)"', path.read_text())) - _PROGRAMS
    spec = importlib.util.spec_from_file_location(_READ_AGAIN, path)
    assert spec is not None and spec.loader is not None  # noqa: S101 - it is a file of Python
    module: Any = importlib.util.module_from_spec(spec)
    with compile_lock():
        variables = {name: os.environ.pop(name) for name in names}
        sys.modules[_READ_AGAIN] = module  # the module looks itself up there
        try:
            spec.loader.exec_module(module)
        finally:
            del sys.modules[_READ_AGAIN]
            os.environ.update(variables)
    left_out = tuple(inductor_config._cache_config_ignore_prefix)
    return {
        key: entry.default
        for key, entry in module._config.items()
        if entry.default != inductor_config._config[key].default  # type: ignore[attr-defined]
        and not key.startswith(left_out)
    }


def under_config(config: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Return a context manager that sets Inductor configs."""
    patched: AbstractContextManager[Any] = inductor_config.patch(dict(config))
    return patched


_CONFIGS_ARE_PER_THREAD = hasattr(_config_module, "ContextVar")
"""False in torch 2.11, where a compile sets some configs for all threads while it runs."""


class _Knob(NamedTuple):
    read: Callable[[], Any]
    write: Callable[[Any], object]

    def set(self, value: Any) -> None:
        """Write a value that differs from the current one."""
        if self.read() != value:
            self.write(value)


def _attribute_knob(owner: Any, name: str) -> _Knob:
    return _Knob(lambda: getattr(owner, name, None), lambda value: setattr(owner, name, value))


def _float32_precision() -> Any:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        # The precision was set per backend, so it is read per backend.
        return tuple(knob.read() for knob in _MATMUL_KNOBS.values())


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


_matmul = torch.backends.cuda.matmul
_MATMUL_KNOBS = {
    "float32 precision on cuda": _attribute_knob(_matmul, "fp32_precision"),
    "float32 precision of oneDNN": _attribute_knob(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision"),
}
"""The settings behind the float32 precision. Inductor's keys distinguish "none" and "ieee", which are equivalent."""
_KNOBS = {
    "threads": _Knob(torch.get_num_threads, torch.set_num_threads),
    "default dtype": _Knob(torch.get_default_dtype, torch.set_default_dtype),
    "float32 precision": _Knob(_float32_precision, torch.set_float32_matmul_precision),
    "float16 reductions": _attribute_knob(_matmul, "allow_fp16_reduced_precision_reduction"),
    "bfloat16 reductions": _attribute_knob(_matmul, "allow_bf16_reduced_precision_reduction"),
    "deterministic": _Knob(
        _deterministic, lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1])
    ),
    "fill uninitialized": _attribute_knob(torch.utils.deterministic, "fill_uninitialized_memory"),
}


def _default_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


_sdp, _cudnn = torch.backends.cuda, torch.backends.cudnn
_FLAGS = {
    **_MATMUL_KNOBS,
    **_KNOBS,
    "default device": _Knob(torch.get_default_device, _default_device),
    "anomaly mode": _Knob(
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda value: torch.set_anomaly_enabled(*value),
    ),
    **{f"cuDNN {name}": _attribute_knob(_cudnn, name) for name in ("enabled", "benchmark", "deterministic")},
    "flash attention": _Knob(_sdp.flash_sdp_enabled, _sdp.enable_flash_sdp),
    "efficient attention": _Knob(_sdp.mem_efficient_sdp_enabled, _sdp.enable_mem_efficient_sdp),
    "math attention": _Knob(_sdp.math_sdp_enabled, _sdp.enable_math_sdp),
}


class TorchFlags:
    """A snapshot of torch's process-wide flags, which undoes a call's changes."""

    def __init__(self) -> None:
        self._values = {name: knob.read() for name, knob in _FLAGS.items()}

    def is_unchanged(self) -> bool:
        """Return whether all flags are as they were."""
        return all(knob.read() == self._values[name] for name, knob in _FLAGS.items())

    def restore(self) -> None:
        """Set the flags that differ."""
        for name, knob in _FLAGS.items():
            knob.set(self._values[name])


@dataclass(frozen=True)
class Settings:
    """All settings that affect the generated code, besides the piece and its region's config.

    ``inductor`` and ``functorch`` are the configs that differ from their default. Settings that change only the keys of
    Inductor's caches are not in the ``repr``: ``underneath`` and, as pieces leave AOTAutograd little to decide,
    ``functorch``.
    """

    version: str
    knobs: Mapping[str, Any]
    inductor: Mapping[str, Any]
    underneath: Mapping[str, Any] = field(repr=False)
    functorch: Mapping[str, Any] = field(repr=False)

    @classmethod
    def now(cls) -> Settings:
        """Return the current settings of this process and context; torch 2.11 waits for other threads' compiles."""
        knobs, underneath = ({name: knob.read() for name, knob in group.items()} for group in (_KNOBS, _MATMUL_KNOBS))
        with contextlib.nullcontext() if _CONFIGS_ARE_PER_THREAD else compile_lock():
            return cls(torch.__version__, knobs, changed_config(), underneath, changed_config(functorch_config))

    def as_texts(self) -> dict[str, str]:
        """Return the settings that affect the generated code, by name, as texts to compare."""
        return {name: repr(value) for name, value in (*self.knobs.items(), *self.inductor.items())}

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Context manager: apply these settings instead of the process's own.

        Raises:
            Exception: of any kind, if this process cannot have them.
        """
        before = Settings.now()
        with (
            inductor_config.patch({**defaults_of_changed_config(), **self.inductor}),
            functorch_config.patch({**defaults_of_changed_config(functorch_config), **self.functorch}),
        ):
            try:
                self._set_flags()
                if other := [name for name, value in self._flags.items() if _FLAGS[name].read() != value]:
                    raise ValueError(f"{', '.join(other)} could not be set")
                yield
            finally:
                before._set_flags()

    def _set_flags(self) -> None:
        """Set only the flags that differ: setting the precision to its current value turns "none" into "ieee"."""
        for name, value in self._flags.items():
            _FLAGS[name].set(value)

    @property
    def _flags(self) -> dict[str, Any]:
        return {**self.underneath, **self.knobs}


def guarded_settings() -> str:
    """Return the settings, without the configs, as text: Dynamo guards on most of them."""
    return repr({name: knob.read() for name, knob in _KNOBS.items()})


def settings_text() -> str:
    """Return the global torch settings that affect generated code, as text."""
    return repr(Settings.now())
