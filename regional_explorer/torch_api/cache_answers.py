"""Torch's counters of hits, misses and bypasses of Inductor's caches in this process."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

from regional_explorer.errors import CompileEnvironmentError
from regional_explorer.record.compiles import CacheAnswer

_WORST_FIRST = (CacheAnswer.BYPASS, CacheAnswer.MISS, CacheAnswer.HIT)


@dataclass(frozen=True)
class CacheAnswers:
    """How often AOTAutograd's cache, and Inductor's own behind it, have returned each answer."""

    aot: Mapping[CacheAnswer, int]
    inductor: Mapping[CacheAnswer, int]

    @classmethod
    def now(cls) -> Self:
        """Return the current counts."""
        aot, inductor = counters["aot_autograd"], counters["inductor"]
        return cls(
            {answer: int(aot[f"autograd_cache_{answer}"]) for answer in _WORST_FIRST},
            {answer: int(inductor[f"fxgraph_cache_{answer}"]) for answer in _WORST_FIRST},
        )

    def answer(self) -> CacheAnswer:
        """Return the worst answer since these counts, Inductor's own if AOTAutograd's cache was not consulted."""
        answers = (answer for counts in self._new_counts() for answer in _WORST_FIRST if counts[answer])
        return next(answers, CacheAnswer.OFF)

    def since(self) -> str:
        """Return ``warm`` if everything compiled since these counts came from the caches, else ``cold``."""
        aot, inductor = self._new_counts()
        missed = inductor[CacheAnswer.BYPASS] or inductor[CacheAnswer.MISS]
        return "warm" if (aot[CacheAnswer.HIT] or inductor[CacheAnswer.HIT]) and not missed else "cold"

    def _new_counts(self) -> tuple[Counter[CacheAnswer], Counter[CacheAnswer]]:
        now = CacheAnswers.now()
        return Counter(now.aot) - Counter(self.aot), Counter(now.inductor) - Counter(self.inductor)


@contextlib.contextmanager
def empty_caches() -> Iterator[None]:
    """A block in which Inductor's caches are empty, in memory and on disk; nothing that it compiles is kept on disk.

    What all compiles share, such as precompiled headers, is in another directory and stays.

    Raises:
        CompileEnvironmentError: an empty cache directory cannot be created.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(fresh_cache())
        except OSError as error:
            raise CompileEnvironmentError(f"No empty cache directory can be made: {error}.") from error
        yield
