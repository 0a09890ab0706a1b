"""The state in which calls are timed, while cells of the user run between two rounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from regional_explorer.compiler.run import SAME_THREAD, Run
from regional_explorer.measure.clock import Turn
from regional_explorer.measure.variants import Variants
from regional_explorer.torch_api.torch_config import TorchFlags


@contextmanager
def in_state_of_call(variants: Variants, run: Run) -> Iterator[Turn]:
    """Context manager: time calls in the state of the first run, with whichever graphs they select.

    What it yields is to be entered for each part of the timed work. If cells of the user run between two parts, these
    find their own state: random numbers, torch's flags, the tensors that the call writes, and the selected graphs.
    """
    state = _State(variants)
    if run.threads is SAME_THREAD:
        with state.entered():
            yield nullcontext
    else:
        yield state.turn


@dataclass
class _State:
    """The state of the call. All turns have the flags of the first: cells may set the number of threads meanwhile."""

    variants: Variants
    flags: TorchFlags | None = None

    @contextmanager
    def entered(self) -> Iterator[None]:
        with self.variants.program.selected(), self.variants.call.restoring():
            yield

    @contextmanager
    def turn(self) -> Iterator[None]:
        flags_of_cells = TorchFlags()
        self.flags = self.flags or flags_of_cells
        self.flags.restore()
        try:
            with self.entered():
                yield
        finally:
            flags_of_cells.restore()
