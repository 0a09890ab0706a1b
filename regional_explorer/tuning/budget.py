"""The budget of a search, the limits that its plans have to keep, and where its time went."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any

from regional_explorer.compiler.region_config import catalogue, check_value
from regional_explorer.compiler.run import Run
from regional_explorer.errors import InvalidArgumentError, did_you_mean, shown_value
from regional_explorer.measure.rounds import check_budget
from regional_explorer.record.configs import speed_configs
from regional_explorer.record.plan import UserFunction
from regional_explorer.record.tuning import NumericsRequirement, SearchStage
from regional_explorer.tuning.bench import Bench
from regional_explorer.tuning.space import WRAPPER, Candidate, shipped_passes


@dataclass(frozen=True)
class Limits:
    """The budget of a search, and the limits that a plan has to keep."""

    budget_s: float
    numbers: NumericsRequirement = NumericsRequirement.CLOSE
    max_memory: int | None = None
    """The most bytes that a plan's peak and frozen weights may take together; None: the peak may not exceed eager's."""

    max_compile_s: float | None = None
    keys: Sequence[Mapping[str, Any]] = ()
    """The configs to try on the best plan, the likeliest first."""

    passes: Sequence[UserFunction] = ()
    """The passes to try on the whole graph."""


def checked_limits(
    budget_s: object,
    numerics: object,
    max_memory: object,
    max_compile_s: object,
    keys: object,
    device_type: str,
    ops: Collection[str] = (),
) -> Limits:
    """Return the checked limits; without ``keys``, all configs that may make code for the device faster are tried.

    ``ops`` are those of the call: some configs matter only for one of them.

    Raises:
        MeasureError, InvalidArgumentError: a limit is invalid.
        UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config is invalid.
    """
    if not isinstance(numerics, str) or numerics not in tuple(NumericsRequirement):
        raise InvalidArgumentError(
            f"numerics={shown_value(numerics)}: give {' or '.join(repr(str(one)) for one in NumericsRequirement)}."
            f"{did_you_mean(numerics, map(str, NumericsRequirement))}"
        )
    memory = _checked_number("max_memory", max_memory, "bytes, such as 2**30")
    compile_s = _checked_number("max_compile_s", max_compile_s, "seconds, such as 60")
    return Limits(
        check_budget(budget_s),  # type: ignore[arg-type]  # which checks the type, too
        NumericsRequirement(numerics),
        None if memory is None else int(memory),
        compile_s,
        tuple(known_configs(speed_configs(device_type, ops)) if keys is None else _checked_keys(keys)),
        tuple(shipped_passes(device_type, ops)),
    )


def _checked_number(name: str, value: object, meaning: str) -> float | None:
    if value is None:
        return None
    with contextlib.suppress(OverflowError, ValueError):  # too large, or a signalling NaN
        if isinstance(value, Real) and not isinstance(value, bool) and 0.0 <= float(value) < math.inf:
            return float(value)
    raise InvalidArgumentError(f"{name}={shown_value(value)}: give a number of {meaning}.")


def known_configs(configs: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Return the configs whose keys the running torch has, with a value that is not its default."""
    keys = catalogue()
    return [
        config
        for config in configs
        if keys.keys() >= config.keys() and any(keys[key].default != value for key, value in config.items())
    ]


def _checked_keys(keys: object) -> Iterable[Mapping[str, Any]]:
    configs = list(keys) if isinstance(keys, Iterable) and not isinstance(keys, (str, Mapping)) else None
    if configs is None or not all(isinstance(config, Mapping) and config for config in configs):
        raise InvalidArgumentError(
            f"keys={shown_value(keys)}: give a list of configs, such as [{{'max_fusion_size': 8}}]."
        )
    for config in configs:
        for key, value in config.items():
            check_value(key, value)
    return configs


# ------------------------------------------------------------------------------------------------------ what was spent


WRAPPER_COSTS = 2.5
"""The factor by which a C++ wrapper is assumed to lengthen a compile, until one was timed."""


class Spending:
    """The clock of a search with a budget: it reports each step, runs it, and charges its time to a task.

    ``so_far`` returns the beginning of each report; ``first_cost_s`` is the assumed cost of a plan until one was
    compiled, ``expected_s`` the cost of a plan by title where it is known from a shorter call.
    """

    def __init__(self, bench: Bench[Any], budget_s: float, so_far: Callable[[], str]) -> None:
        self._bench, self.budget_s, self._so_far = bench, budget_s, so_far
        self.began_s = self.now()
        self.spent_on: dict[str, float] = {}
        self.first_cost_s = 0.0
        self.expected_s: dict[str, float] = {}
        self._costs: dict[tuple[bool, bool], list[float]] = {}

    def on_another_call(self, bench: Bench[Any], so_far: Callable[[], str]) -> Spending:
        """Return the spending of the same budget on plans of another call, which cost something else."""
        other = Spending(bench, self.budget_s, so_far)
        other.began_s, other.spent_on = self.began_s, self.spent_on
        return other

    def now(self) -> float:
        """Return the time of the bench's clock."""
        return self._bench.context.clock.now()

    def share_s(self, share: float) -> float:
        """Return the seconds of a share of the budget."""
        return share * self.budget_s

    @property
    def spent_s(self) -> float:
        """The seconds since the beginning."""
        return self.now() - self.began_s

    @property
    def end_s(self) -> float:
        """The time at which the budget is spent."""
        return self.began_s + self.budget_s

    # ---------------------------------------------------------------------------------------------------------- steps

    @contextmanager
    def step(self, task: str, doing: str, *, timed: bool = False) -> Iterator[None]:
        """Context manager: report a step, and charge the time of the block to ``task``.

        Raises:
            CancelledError: the search was cancelled before the step.
        """
        self.stop_if_cancelled()
        self._report(doing)
        began_s = self.now()
        try:
            with self._bench.step(timed=timed):
                yield
        finally:
            self.spent_on[task] = self.spent_on.get(task, 0.0) + self.now() - began_s

    def reporting(self, doing: str = "", until_s: float = math.inf) -> Run:
        """Return the bench's run, with its reports made as reports of the search, and cancelled at ``until_s``."""
        run = self._bench.context.run
        return dataclasses.replace(
            run,
            cancelled=lambda: run.cancelled() or self.now() > until_s,
            progress=lambda text, _: self._report(": ".join(filter(None, (doing, text)))),
            estimate=lambda _: None,
        )

    def stop_if_cancelled(self) -> None:
        """Raise CancelledError if the search was cancelled."""
        if self._bench.context.run.cancelled():
            raise CancelledError

    def _report(self, doing: str) -> None:
        run = self._bench.context.run
        run.estimate(max(0.0, self.budget_s - self.spent_s))
        run.progress(f"{self._so_far()}{doing}", min(1.0, self.spent_s / self.budget_s))

    # ---------------------------------------------------------------------------------------------------------- costs

    def record_cost(self, candidate: Candidate, seconds: float) -> None:
        """Remember how long it took to trace, compile, check and time a plan."""
        self._costs.setdefault(_cost_kind(candidate), []).append(seconds)

    def cost_s(self, candidate: Candidate) -> float:
        """Return the expected cost of a plan in seconds, from the shorter call or the plans most like it."""
        if candidate.title in self.expected_s:
            return self.expected_s[candidate.title]
        wrapped, has_keys = _cost_kind(candidate)
        alike = ((wrapped, has_keys), (wrapped, not has_keys), (not wrapped, has_keys), (not wrapped, not has_keys))
        nearest = next((kind for kind in alike if kind in self._costs), (False, False))
        costs = self._costs.get(nearest, [self.first_cost_s])
        return sum(costs) / len(costs) * (WRAPPER_COSTS if wrapped and not nearest[0] else 1.0)


def _cost_kind(candidate: Candidate) -> tuple[bool, bool]:
    """Return whether C++ calls the kernels of a candidate, and whether only its config is new.

    A C++ wrapper takes longer to build. If only the config is new, most kernels are built already.
    """
    wrapped = any(
        WRAPPER.items() <= config.items() for region in candidate.plan.regions for _, config in region.configs
    )
    return wrapped, candidate.stage in (SearchStage.KEYS, SearchStage.TOGETHER)
