"""The key of Inductor's caches as readable text, part by part, by a pickler that describes what is hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import fx

from regional_explorer.torch_api.config import changed_functorch_config
from regional_explorer.torch_api.graphs import bodies

LONGEST = 80
"""Longer texts are shown as a hash."""


@dataclass(frozen=True)
class CacheKey:
    """The parts of a key by name, and the ops of its graph in order, as text; ``whole`` is torch's hash of it all.

    Configs at their default are left out. A part without a short text is given by its hash.
    """

    whole: str
    parts: Mapping[str, str] = field(default_factory=dict)
    ops: tuple[str, ...] = ()

    @classmethod
    def of(cls, whole: str, details: Any, pickler: Any) -> CacheKey:
        """Return the key of what torch hashes: ``FxGraphHashDetails``, or AOTAutograd's, which adds to them."""
        parts: dict[str, str] = {}
        ops: tuple[str, ...] = ()
        for name, value in vars(details).items():
            if name == "gm":
                ops = tuple(_ops(value))
            elif name == "example_inputs":
                parts |= {f"input {index}": _input(one, pickler) for index, one in enumerate(value)}
            elif name == "inductor_config" and isinstance(value, Mapping):
                parts |= _changed_configs(value, pickler)
            elif name == "autograd_config":
                parts |= _named("functorch config", changed_functorch_config(), pickler)
            else:
                parts |= _named(name.strip("_").replace("_", " "), value, pickler)
        return cls(whole, parts, ops)


def _changed_configs(config: Mapping[str, Any], pickler: Any) -> dict[str, str]:
    """Return the Inductor configs that are not at their default, as the key has them."""
    known: Any = inductor_config._config  # type: ignore[attr-defined]  # the module replaces itself
    return {
        f"inductor config {key}": _text(value, pickler)
        for key, value in config.items()
        if key not in known or value != known[key].default
    }


def _named(name: str, value: Any, pickler: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {f"{name} {key}": _text(one, pickler) for key, one in value.items()}
    if isinstance(value, list):
        return {f"{name} {index}": _text(one, pickler) for index, one in enumerate(value)}
    return {name: _text(value, pickler)}


def _text(value: Any, pickler: Any) -> str:
    """Return a value as text if that is complete and short, else its hash."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()[:12]
    text = repr(value) if _is_plain(value) else ""
    return text if text and len(text) <= LONGEST else _hash(value, pickler)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device))


def _hash(value: Any, pickler: Any) -> str:
    try:
        return str(pickler.get_hash(value))[:12]
    except Exception:  # noqa: BLE001 - what cannot be hashed alone is still part of the whole key
        return ""


def _input(value: Any, pickler: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return _text(value, pickler)
    grad = ", requires grad" if value.requires_grad else ""
    dtype = str(value.dtype).removeprefix("torch.")
    if value.layout is not torch.strided:
        return f"{dtype} {list(value.shape)} {value.layout}{grad}"
    return f"{dtype} {list(value.shape)} strides {list(value.stride())} on {value.device}{grad}"


def _ops(gm: fx.GraphModule) -> Iterator[str]:
    for node in gm.graph.nodes:
        given = ", ".join([*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())])
        if node.op == "output":
            yield f"return({given})"
        elif node.op not in ("placeholder", "get_attr"):
            yield f"{_target(node)}({given})"
    for name, body in bodies(gm):
        yield from (f"{name}: {op}" for op in _ops(body))


def _target(node: fx.Node) -> str:
    target = node.target
    return str(target) if isinstance(target, torch._ops.OpOverload) else str(getattr(target, "__name__", target))
