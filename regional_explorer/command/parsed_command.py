"""The parsed command of the magic and of ``run``, and its steps: check, explore, measure, finish."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regional_explorer.command.options import CommandError
from regional_explorer.errors import MeasureError
from regional_explorer.record.benchmark import BY_DEFAULT, DEFAULT_BUDGET_S, checked_variants
from regional_explorer.record.plan import Direction, Plan, Region, Selector, SelectorKind

if TYPE_CHECKING:
    from regional_explorer.compiler.run import Run
    from regional_explorer.exploration.exploration import Exploration


@dataclass(frozen=True, slots=True)
class Command:
    """The options of one command. ``marks`` are (name, selector), ``settings`` (region, key, value as text)."""

    marks: Sequence[tuple[str, str]] = ()
    settings: Sequence[tuple[str, str, str]] = ()
    grad: bool | None = None
    dynamic: bool | None = None
    variants: tuple[str, ...] = ()
    budget: float = DEFAULT_BUDGET_S
    tune: float | None = None
    plan: Path | str | None = None
    output: str | None = None
    save: Path | None = None
    cold: bool = False
    bench: bool = True
    widget: bool = True
    verbose: bool = False

    def check(self) -> None:
        """Validate everything that can be validated before the call runs.

        Raises:
            RegionalExplorerError: a variant or config key is unknown, a value does not fit, a pattern is malformed, a
                file cannot be written or the plan cannot be read; or with a plan, ``-c`` names no region of it or of
                ``-r``. Without one, it may name a region that is marked in the source.
        """
        from regional_explorer.compiler.region_config import parse_value
        from regional_explorer.export.save import ENDINGS
        from regional_explorer.record.files import writable_path
        from regional_explorer.record.json_file import load_plan
        from regional_explorer.regions.select import LineRange

        try:
            checked_variants(self.variants)
        except MeasureError as error:
            raise CommandError(str(error)) from error
        if self.tune is not None and not self.bench:
            raise CommandError("--tune measures plans, and --no-bench measures nothing: leave one of them out.")
        for _, key, value in self.settings:
            parse_value(key, value)
        regions = {}
        for name, text in self.marks:
            selector = Selector.parse(text)
            regions[name] = Region(name, (selector,))
            for one in (selector, *selector.within, *selector.without):
                for lines in one.patterns if one.kind is SelectorKind.LINES else ():
                    LineRange.parse(lines)
        if self.plan is not None:
            plan = load_plan(self.plan)
            plan = Plan((*plan.regions, *(region for name, region in regions.items() if name not in plan)))
            for target, _, _ in self.settings:
                plan[_region_and_direction(plan, target)[0]]  # or the error names the regions
        if self.save is not None:
            if self.save.suffix.lower() not in ENDINGS:
                raise CommandError(
                    f"--save {self.save}: the file extension selects the format, one of {', '.join(ENDINGS)}."
                )
            writable_path(self.save, CommandError)

    def explore(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exploration:
        """Trace the call, then mark and configure its regions.

        Raises:
            RegionalExplorerError: as ``rx.explore``, ``mark`` and ``configure``.
        """
        from regional_explorer.compiler.region_config import parse_value
        from regional_explorer.exploration.exploration import explore

        exploration = explore(fn, tuple(args), kwargs, grad=self.grad, dynamic=self.dynamic, plan=self.plan)
        try:
            for name, selector in self.marks:
                exploration.mark(name, selector)
            for target, key, value in self.settings:
                _warn_of_another_meaning(exploration.plan, target)
                region, direction = _region_and_direction(exploration.plan, target)
                exploration.configure(region, {key: parse_value(key, value)}, direction=direction)
        except BaseException:
            exploration.close()
            raise
        return exploration

    def only_profiles(self, exploration: Exploration) -> bool:
        """Return whether there is nothing to compile: no region, no variant, and no cold compile."""
        return not exploration.plan.regions and not self.variants and not self.cold

    def measure(
        self, exploration: Exploration, run: Run, *, only_profile: bool = False, default: Sequence[str] = BY_DEFAULT
    ) -> bool:
        """Compile and measure, or only profile, unless ``bench`` is False; with ``tune`` search for a plan first.

        Without ``variants``, those of ``default`` are compared; after a search, which has compiled it, torch.compile
        too. Return False if interrupted.

        Raises:
            RegionalExplorerError: nothing could be measured.
        """
        if not self.bench:
            return True
        try:
            if self.tune is not None:
                exploration.tune(self.tune, apply=True, run=run)
            elif only_profile:
                exploration.profile(self.budget, run=run)
                return True
            if self.cold:
                exploration.compile(cold=True, run=run)
            variants = self.variants or (default if self.tune is None else BY_DEFAULT)
            exploration.benchmark(variants=variants, budget_s=self.budget, run=run)
        except KeyboardInterrupt:
            return False
        return True

    def finish(self, exploration: Exploration) -> Path | None:
        """Save the session if ``save`` is set, and return the path.

        Raises:
            SessionError: the file cannot be written.
        """
        return exploration.save(self.save) if self.save is not None else None


def _region_and_direction(plan: Plan, target: str) -> tuple[str, Direction | None]:
    """Parse a ``-c`` target: ``mlp.backward`` is the backward of ``mlp``, unless a region has exactly that name."""
    name, _, direction = target.rpartition(".")
    if target in plan or name not in plan or direction not in tuple(Direction):
        return target, None
    return name, Direction(direction)


def _warn_of_another_meaning(plan: Plan, target: str) -> None:
    name, _, direction = target.rpartition(".")
    if target in plan and name in plan and direction in tuple(Direction):
        warnings.warn(
            f"-c {target}:… sets the config of the region called {target!r}, not the {direction} config of {name!r}. "
            f"For that, use ex.configure({name!r}, {{…}}, direction={direction!r}), or rename a region.",
            stacklevel=3,
        )
