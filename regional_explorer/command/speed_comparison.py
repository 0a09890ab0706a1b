"""``regional-explorer compare``: compares the speedups of two saved sessions."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from regional_explorer.command.options import CommandError
from regional_explorer.export.session_changes import CONFIDENCE, SpeedChange, changes, speed_change
from regional_explorer.record.plan_differences import differences
from regional_explorer.record.session import Session
from regional_explorer.record.variant_name import VariantName


@dataclass(frozen=True)
class SpeedComparison(SpeedChange):
    """How the speedup over eager changed between two sessions, from ``before`` to ``after``, and what else changed."""

    before: float | None = None
    after: float | None = None
    plans_differ: tuple[tuple[str, ...], ...] = ()
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the comparison in one line, and how the plans differ."""
        plans = [f"{name}: {'; '.join(texts)}" for name, texts in zip("AB", self.plans_differ, strict=False) if texts]
        plans += [f"Changed: {'; '.join(self.changed)}"] if self.changed else []
        if self.slowdown is None or self.low is None or self.high is None:
            return "\n".join([self.problem, *plans])
        word = "slower" if self.slowdown >= 1.0 else "faster"
        change = (
            f"Speedup over eager: A {self.before:.3f}, B {self.after:.3f}. B is {abs(self.slowdown - 1.0):.1%} {word} "
            f"({CONFIDENCE:.0%} interval of the change in time: {self.low - 1.0:+.1%} to {self.high - 1.0:+.1%})."
        )
        return "\n".join([change, *plans])


def compare_speed(before: Session, after: Session) -> SpeedComparison:
    """Compare the whole call's speedup over eager, each against the eager samples of its own session.

    Raises:
        SessionError: as ``speed_change``.
    """
    change = speed_change(before, after)
    plans = tuple(map(tuple, differences([before.plan, after.plan])))
    earlier, later = (session.whole_timings[VariantName.REGIONAL].speedup for session in (before, after))
    return SpeedComparison(
        **asdict(change), before=earlier, after=later, plans_differ=plans, changed=tuple(changes(before, after))
    )


def read_limit(text: str) -> float:
    """Return ``3%`` or ``0.03`` as 0.03.

    Raises:
        CommandError: it is neither form, or not below 1.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    limit = float(match[1]) / (100.0 if match[2] else 1.0) if match else -1.0
    if not 0.0 <= limit < 1.0:
        raise CommandError(f"--fail-if-slower takes a fraction below 1, such as 3% or 0.03; got {text!r}.")
    return limit
