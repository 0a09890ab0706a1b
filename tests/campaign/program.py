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
    """Programs by name. As a decorator it adds one: the function makes the call and gives its name."""

    def __call__(self, make: Any = None, /, **options: Any) -> Any:
        if make is None:
            return lambda function: self(function, **options)
        assert make.__name__ not in self
        self[make.__name__] = Program(make.__name__, make, **options)
        return make


def tensor(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(shape).requires_grad_(grad)
