"""A program of the campaign: a call whose regions have names, feed each other one way, and have no configs."""

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
    ``upstreams_cut_is_right`` is False where upstream's cut, node for node ours under ``cut="upstream"``, has other
    results than the program.
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
    """Programs by name. A call of it makes a decorator, which adds a function under its name."""

    def __call__(
        self, args: Callable[[], Sequence[Any]], *, net: Callable[[], Any] | None = None, **options: Any
    ) -> Callable[[Any], Any]:
        """Return a decorator: the function takes the modules of ``net``, if given, and then what ``args`` returns."""

        def make(fn: Callable[..., Any]) -> tuple[Callable[..., Any], Sequence[Any]]:
            if net is None:
                return fn, args()
            modules = net()
            return lambda *given: fn(modules, *given), args()

        return lambda fn: self.add(fn.__name__, lambda: make(fn), **options)

    def add(self, name: str, make: Callable[[], tuple[Callable[..., Any], Sequence[Any]]], **options: Any) -> None:
        """Add the call that ``make`` returns."""
        assert name not in self
        self[name] = Program(name, make, **options)


def tensor(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(shape).requires_grad_(grad)
