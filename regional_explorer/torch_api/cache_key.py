"""The key of Inductor's caches as readable text, part by part, by a pickler that describes what is hashed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import fx

from regional_explorer.torch_api.config import changed_functorch_config
from regional_explorer.torch_api.graphs import bodies

LONGEST_TEXT = 80
"""Longer texts are shown as a hash."""


@dataclass(frozen=True)
class CacheKey:
    """The parts of a key by name, and the ops of its graph in order, as text; ``whole`` is torch's hash of it all.

    Configs at their default are left out. A part without a short text is given by its hash.
    """

    whole: str
    parts: Mapping[str, str] = field(default_factory=dict)
    ops: tuple[str, ...] = ()

    @cached_property
    def op_counts(self) -> Counter[str]:
        """How often each op occurs."""
        return Counter(self.ops)

    @cached_property
    def target_counts(self) -> Counter[str]:
        """How often each target of an op occurs, whatever its arguments."""
        return Counter(op.partition("(")[0] for op in self.ops)

    @classmethod
    def of(cls, whole: str, details: Any, pickler: Any) -> CacheKey:
        """Return the key of what torch hashes: ``FxGraphHashDetails``, or AOTAutograd's, which adds to them."""
        parts: dict[str, str] = {}
        ops: tuple[str, ...] = ()
        for name, detail in vars(details).items():
            if name == "gm":
                ops = tuple(_op_texts(detail))
            elif name == "example_inputs":
                parts |= {f"input {index}": _input_text(example, pickler) for index, example in enumerate(detail)}
            elif name == "inductor_config" and isinstance(detail, Mapping):
                parts |= _changed_configs(detail, pickler)
            elif name == "autograd_config":
                parts |= _named_parts("functorch config", changed_functorch_config(), pickler)
            else:
                parts |= _named_parts(name.strip("_").replace("_", " "), detail, pickler)
        return cls(whole, parts, ops)


def _changed_configs(config: Mapping[str, Any], pickler: Any) -> dict[str, str]:
    """Return the Inductor configs that are not at their default, as the key has them."""
    entries: Any = inductor_config._config  # type: ignore[attr-defined]  # the module replaces itself
    return {
        f"inductor config {key}": _text_or_hash(value, pickler)
        for key, value in config.items()
        if key not in entries or value != entries[key].default
    }


def _named_parts(name: str, value: Any, pickler: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {f"{name} {key}": _text_or_hash(item, pickler) for key, item in value.items()}
    if isinstance(value, list):
        return {f"{name} {index}": _text_or_hash(item, pickler) for index, item in enumerate(value)}
    return {name: _text_or_hash(value, pickler)}


def _text_or_hash(value: Any, pickler: Any) -> str:
    """Return a value as text if that is complete and short, else its hash."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()[:12]
    text = repr(value) if _has_plain_repr(value) else ""
    return text if text and len(text) <= LONGEST_TEXT else _short_hash(value, pickler)


def _has_plain_repr(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_has_plain_repr, value))
    return value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device))


def _short_hash(value: Any, pickler: Any) -> str:
    try:
        return str(pickler.get_hash(value))[:12]
    except Exception:  # noqa: BLE001 - what cannot be hashed alone is still part of the whole key
        return ""


def _input_text(example: Any, pickler: Any) -> str:
    if not isinstance(example, torch.Tensor):
        return _text_or_hash(example, pickler)
    grad = ", requires grad" if example.requires_grad else ""
    dtype = str(example.dtype).removeprefix("torch.")
    if example.layout is not torch.strided:
        return f"{dtype} {list(example.shape)} {example.layout}{grad}"
    return f"{dtype} {list(example.shape)} strides {list(example.stride())} on {example.device}{grad}"


def _op_texts(gm: fx.GraphModule) -> Iterator[str]:
    for node in gm.graph.nodes:
        arguments = ", ".join([*map(str, node.args), *(f"{key}={value}" for key, value in node.kwargs.items())])
        if node.op == "output":
            yield f"return({arguments})"
        elif node.op not in ("placeholder", "get_attr"):
            yield f"{_target_text(node)}({arguments})"
    for name, body in bodies(gm):
        yield from (f"{name}: {op}" for op in _op_texts(body))


def _target_text(node: fx.Node) -> str:
    target = node.target
    return str(target) if isinstance(target, torch._ops.OpOverload) else str(getattr(target, "__name__", target))
