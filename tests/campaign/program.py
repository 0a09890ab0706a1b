"""What a program of the campaign is: a call whose regions have names, feed each other one way, and carry no configs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import regional_explorer as rx


@dataclass(frozen=True)
class Program:
    """One small call.

    ``make`` returns the function and its arguments. ``quick`` programs are compiled in the quick suite too.
    ``upstreams_cut_is_right`` is False where upstream's cut, node for node ours under ``cut="upstream"``, computes
    something else than the program does.
    """

    name: str
    make: Callable[[], tuple[Callable[..., Any], Sequence[Any]]]
    quick: bool = False
    grad: bool | None = None
    dynamic: bool | None = None
    upstreams_cut_is_right: bool = True

    def explore(self, **options: Any) -> rx.Exploration:
        torch.manual_seed(0)
        fn, args = self.make()
        return rx.explore(fn, args, grad=self.grad, dynamic=self.dynamic, **options)


class Programs(dict[str, Program]):
    """Programs by the name of the function that a decorator of these adds."""

    def __call__(self, args: Callable[[], Sequence[Any]], **options: Any) -> Callable[[Any], Any]:
        """Add a function that is called with what ``args`` returns."""
        return lambda fn: self._add(fn.__name__, lambda: (fn, args()), options)

    def made(self, **options: Any) -> Callable[[Any], Any]:
        """Add the call that the function returns: another function, or a module, and its arguments."""
        return lambda make: self._add(make.__name__, make, options)

    def _add(self, name: str, make: Any, options: dict[str, Any]) -> None:
        assert name not in self
        self[name] = Program(name, make, **options)


def tensor(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(shape).requires_grad_(grad)
