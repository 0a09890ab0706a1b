"""How artifacts were compiled: hits, misses and bypasses of caches, the nearest key, and the time by compile phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class CacheAnswer(StrEnum):
    """The result of looking up an artifact in Inductor's cache; with ``BYPASS`` and ``OFF`` there was no look-up.

    ``SHIPPED`` artifacts came from a folder of artifacts, without a look-up.
    """

    HIT = "hit"
    MISS = "miss"
    BYPASS = "bypass"
    OFF = "off"
    SHIPPED = "shipped"


class CompilePhase(StrEnum):
    """The phases of a compile. ``OTHER`` is the time that belongs to no other phase."""

    CACHE = "cache"
    TRACING = "tracing and passes"
    LOWERING = "lowering"
    SCHEDULING = "scheduling"
    CODE = "code generation"
    BUILD = "C++ or Triton"
    LOAD = "load"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A part of a cache key that differs from that of another artifact; a part that one of them lacks is empty."""

    part: str
    before: str
    after: str

    def __str__(self) -> str:
        """Return for example ``inductor config max_fusion_size: 64 → 8``."""
        return f"{self.part}: {self.before or 'nothing'} → {self.after or 'nothing'}"


@dataclass(frozen=True, slots=True)
class ArtifactCompile:
    """The one compile that made an artifact, in whichever process.

    ``reason`` says why the cache was bypassed or off, or explains its answer. ``nearest`` is the artifact with the most
    similar key among those that this process knew before; ``changes`` are the parts that differ. ``phases`` adds up to
    ``seconds``. ``pre_grad_passes`` says when those passes run, ``pre_grad_s`` how long they took here. ``cold`` says
    that the compile was requested with empty caches.
    """

    seconds: float
    answer: CacheAnswer
    reason: str = ""
    nearest: str | None = None
    changes: tuple[KeyChange, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    pre_grad_passes: str = ""
    pre_grad_s: float = 0.0
    cold: bool = False
    artifact: str = ""

    @property
    def why(self) -> str:
        """Why the cache had the artifact or not, as far as is known."""
        if self.cold:
            return "compiled with empty caches, as requested"
        reasons = [self.reason] if self.reason else []
        if self.answer is CacheAnswer.MISS:
            if self.changes:
                reasons.append("; ".join(map(str, self.changes)))
            elif self.nearest is not None:
                reasons.append("compiled before under the same key, but the cache entry is gone or was for other sizes")
            else:
                reasons.append("nothing like it was compiled in this process before")
        return ". ".join(reasons)

    @property
    def cache(self) -> str:
        """``warm`` if it came from the cache, ``shipped`` if from a folder of artifacts, else ``cold``."""
        return {CacheAnswer.HIT: "warm", CacheAnswer.SHIPPED: "shipped"}.get(self.answer, "cold")
