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
        self._for_targets: dict[tuple[str, str], tuple[Plan, ShownCode]] = {}

    def known(self, state: PanelState, session: Session) -> ShownCode | None:
        """Return the code as far as it was read; None if no region is open."""
        name = state.opened
        if name is None or name not in state.plan:
            return None
        if not state.target:
            return ShownCode(name, region_code(session, name))
        plan, found = self._for_targets.get((name, state.target), (None, None))
        return found if plan == state.plan and found is not None else ShownCode(name)

    def unread(self, state: PanelState, session: Session) -> int:
        """Return how many partitions of the open region have code that was not read yet."""
        known = self.known(state, session)
        if known is None:
            return 0
        shown = {part.partition.id for part in known.partitions}
        mine = (part for part in session.partitions if part.region == known.region and part.id not in shown)
        return sum(bool(state.target) or part.artifact is not None for part in mine)

    def reader(self, state: PanelState) -> Callable[[Exploration, Callable[[], bool], Throttle], None]:
        """Return a job that reads the code of the region that is open in ``state``."""
        name, target, plan = state.opened or "", state.target, state.plan

        def read(exploration: Exploration, cancelled: Callable[[], bool], progress: Throttle) -> None:
            found = exploration.code(name, target=target or None, cancelled=cancelled, progress=progress)
            if target:
                self._for_targets[name, target] = plan, ShownCode(name, found.partitions, found.note)

        return read
