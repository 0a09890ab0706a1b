"""The part of an Exploration that looks into the generated code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from regional_explorer.exploration.benchmarks import check_progress, no_progress
from regional_explorer.exploration.results import Results
from regional_explorer.insight.code import RegionCode
from regional_explorer.insight.codes import Codes
from regional_explorer.measure.benchmark import ProgressCallback
from regional_explorer.record.region import Plan


class CodeViews(ABC):
    """What an exploration can show of the code that Inductor generates; ``_call`` is None once it is closed."""

    _call: Any
    _codes: Codes

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """The regions with their selectors and configs."""

    @property
    @abstractmethod
    def results(self) -> Results:
        """The tables, pictures and texts of all results so far."""

    def code(
        self,
        name: str,
        *,
        cancelled: Callable[[], bool] = lambda: False,
        progress: ProgressCallback = no_progress,
    ) -> RegionCode:
        """Return the generated code of a region, each kernel linked to the nodes and lines it computes.

        What the kernels are is found out when first asked for: Inductor lowers each distinct partition once more,
        without compiling it. From then on the session has it.

        Args:
            name: the region.
            cancelled: called between partitions; if it returns True the rest is left out.
            progress: called with what is being done and the fraction done.

        Raises:
            UnknownRegionError: there is no such region.
        """
        check_progress(cancelled, progress)
        if self._call is not None:
            self._codes.look_at(self.plan[name].name, cancelled, progress)
        return self.results.code(name)
