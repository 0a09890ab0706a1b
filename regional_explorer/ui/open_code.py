"""The generated code of the region that is open in the panel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from regional_explorer.record.plan import Plan
from regional_explorer.record.region_code import PartitionCode, region_code
from regional_explorer.record.session import Session
from regional_explorer.ui.state import PanelState
from regional_explorer.ui.threads.progress import Throttle

if TYPE_CHECKING:
    from regional_explorer.exploration.exploration import Exploration


@dataclass(frozen=True, slots=True)
class ShownCode:
    """The code of a region as the panel shows it: that of its partitions, and a note on where it comes from."""

    region: str
    partitions: tuple[PartitionCode, ...] = ()
    note: str = ""


class OpenCode:
    """Finds the code of the open region: the session's, or what was generated for a target GPU under this plan."""

    def __init__(self) -> None:
        self._code_for_targets: dict[tuple[str, str], tuple[Plan, ShownCode]] = {}

    def known(self, state: PanelState, session: Session) -> ShownCode | None:
        """Return the code as far as it was read; None if no region is open."""
        region = state.opened
        if region is None or region not in state.plan:
            return None
        if not state.target:
            return ShownCode(region, region_code(session, region))
        plan, code = self._code_for_targets.get((region, state.target), (None, None))
        return code if plan == state.plan and code is not None else ShownCode(region)

    def unread(self, state: PanelState, session: Session) -> int:
        """Return how many partitions of the open region have code that was not read yet."""
        code = self.known(state, session)
        if code is None:
            return 0
        read_ids = {part.partition.id for part in code.partitions}
        unread = (part for part in session.partitions if part.region == code.region and part.id not in read_ids)
        return sum(bool(state.target) or part.artifact is not None for part in unread)

    def reader(self, state: PanelState) -> Callable[[Exploration, Callable[[], bool], Throttle], None]:
        """Return a job that reads the code of the region that is open in ``state``."""
        region, target, plan = state.opened or "", state.target, state.plan

        def read_code(exploration: Exploration, cancelled: Callable[[], bool], progress: Throttle) -> None:
            code = exploration.code(region, target=target or None, cancelled=cancelled, progress=progress)
            if target:
                self._code_for_targets[region, target] = plan, ShownCode(region, code.partitions, code.note)

        return read_code
