"""The variants to compare: eager, aot_eager, regional and full."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from regional_explorer.capture.call import Call
from regional_explorer.compiler.program import Program
from regional_explorer.record.timing import CompileCost
from regional_explorer.torch_api import (
    CacheAnswers,
    as_first_call,
    compile_isolated,
    has_given_up,
    release_compiled,
    traces_of,
)


class VariantName(StrEnum):
    """The variants. ``aot_eager`` is the capture with nothing cut, ``full`` plain ``torch.compile``."""

    EAGER = "eager"
    AOT_EAGER = "aot_eager"
    REGIONAL = "regional"
    FULL = "full"


@dataclass(frozen=True)
class Variant:
    """One variant: ``select`` makes it the live implementation, ``forward`` then makes the call."""

    name: VariantName
    forward: Callable[[], Any]
    backward: Callable[[Any], Any] | None
    select: Callable[[], None]
    function: Callable[..., Any]


class Variants:
    """Makes the variants of ``call``, which ``program`` runs; keeps the whole-graph compile and its cost."""

    def __init__(self, call: Call, program: Program, *, dynamic: bool | None) -> None:
        self.call = call
        self.program = program
        self._dynamic = dynamic
        self._full: Callable[..., Any] | None = None
        self.cost: CompileCost | None = None
        self._traced_anew: set[VariantName] = set()

    def get(self, name: VariantName) -> Variant:
        """Return the variant ``name``; ``full`` is compiled by its first call, see ``compile_full``."""
        function = self._function(name)
        return Variant(
            name=name,
            forward=lambda: self.call.forward(function),
            backward=self.call.backward if self.call.grad else None,
            select=lambda: self.program.select_regional(on=name is not VariantName.AOT_EAGER),
            function=function,
        )

    def _function(self, name: VariantName) -> Callable[..., Any]:
        match name:
            case VariantName.EAGER:
                return self.call.fn
            case VariantName.FULL:
                assert self._full is not None  # noqa: S101 - compile_full comes first
                return self._full
            case _:
                return self.program.capture.run

    def compile_full(self) -> None:
        """Compile the whole call with plain ``torch.compile``, and note what its first call cost.

        Raises:
            Exception: whatever torch raises.
        """
        if self._full is not None:
            return
        function = compile_isolated(self.call.fn, "inductor", dynamic=self._dynamic)
        answers = CacheAnswers.now()
        started = time.perf_counter()
        with self.program.capture.generated.collected(), self.call.kept(), as_first_call(self.call.fn):
            outputs = self.call.forward(function)
            if self.call.grad:
                self.call.backward(outputs)
        seconds = time.perf_counter() - started
        self.cost = CompileCost("full", seconds, answers.since())
        self._full = function

    def traces(self) -> dict[VariantName, int]:
        """Return how often Dynamo has traced the call for each variant so far."""
        own = len(self.program.capture.frames)
        full = 0 if self._full is None else traces_of(self._full)
        return {VariantName.AOT_EAGER: own, VariantName.REGIONAL: own, VariantName.FULL: full}

    def traced_since(self, before: Mapping[VariantName, int]) -> dict[VariantName, int]:
        """Return how often Dynamo has traced the call since ``traces`` returned ``before``, where it has at all."""
        since = {name: count - before[name] for name, count in self.traces().items() if count != before[name]}
        self._traced_anew |= since.keys()
        return since

    def given_up(self) -> set[VariantName]:
        """Return the variants that Dynamo traced anew while they were measured, now or before, until it gave up."""
        return {name for name in self._traced_anew if has_given_up(self._function(name))}

    def close(self) -> None:
        """Free the whole-graph compile, and what torch keeps for it."""
        if self._full is not None:
            release_compiled(self._full)
            self._full = None
