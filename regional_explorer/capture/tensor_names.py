"""Names the tensors that a call reaches as the user's program does; no two have the same name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regional_explorer.capture.reachable_modules import parameter_names
from regional_explorer.capture.restore.reachable_state import Reach
from regional_explorer.capture.tensors import tensors_in

if TYPE_CHECKING:
    from torch import nn

_UNNAMED = "unnamed"


def tensor_names(
    reachable: Reach, roots: Sequence[nn.Module], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[int, str]:
    """Return the names of all tensors that a call reaches, keyed by ``id(tensor)``.

    Those of a single root module have their paths below it; with several roots, the root's own name comes first.
    """
    below_root = parameter_names(roots)
    in_arguments = [*tensors_in(args, "args"), *tensors_in(kwargs, "kwargs")]
    arguments = {id(tensor): name for name, tensor in reversed(in_arguments)}  # a tensor given twice: its first name
    reached = {id(tensor): name for name, tensor in zip(reachable.names, reachable.tensors, strict=True)}
    several_roots = sum(bool(parameter_names([root])) for root in roots) > 1
    names = {**below_root, **reached, **arguments} if several_roots else {**reached, **arguments, **below_root}
    return dict(zip(names, _distinct(names.values()), strict=True))


def _distinct(names: Iterable[str]) -> Iterable[str]:
    counts: Counter[str] = Counter()
    for name in names:
        counts[name] += 1
        yield f"{name or _UNNAMED} ({counts[name]})" if counts[name] > 1 else name or _UNNAMED
