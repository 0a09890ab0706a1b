"""Counts the patterns of Inductor's passes that match, by name."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from inspect import getclosurevars, isfunction
from typing import Any
from unittest import mock

from torch._inductor import pattern_matcher

_KINDS = (
    pattern_matcher.LoweringPatternEntry,
    pattern_matcher.GraphPatternEntry,
    pattern_matcher.ReplacementPatternEntry,
)


@contextlib.contextmanager
def counting_patterns() -> Iterator[Counter[str]]:
    """Context manager: count each match in the block; the compile lock must be held.

    Torch's own counts by name need an environment variable, and torch 2.11 has none.
    """
    matched: Counter[str] = Counter()

    def counting(apply: Callable[..., None]) -> Callable[..., None]:
        def counted_apply(entry: Any, *args: Any, **kwargs: Any) -> None:
            matched[_name(entry)] += 1
            apply(entry, *args, **kwargs)

        return counted_apply

    with contextlib.ExitStack() as patches:
        for kind in _KINDS:
            patches.enter_context(mock.patch.object(kind, "apply", counting(kind.apply)))
        yield matched


def _name(entry: Any) -> str:
    """Return the name of the function that a pattern was traced from, else of the function that replaces its matches.

    The first stands in the closure of the check: ``pattern_name`` (torch 2.13) is another one for each dtype and mode.
    """
    check, function = entry.extra_check, getattr(entry, "handler", None)
    if function is None and isfunction(check):
        function = getclosurevars(check).nonlocals.get("search_fn")
    return str(getattr(function, "__name__", None) or type(entry.pattern).__name__)
