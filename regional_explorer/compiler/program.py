"""The captured call, cut along a plan: its layouts are recorded by running it again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regional_explorer.capture.live_graph import Frame
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.artifacts.artifact import Artifact
from regional_explorer.compiler.artifacts.fingerprint import artifact_key, surroundings
from regional_explorer.compiler.cut_program import CutProgram, SwitchedGraph
from regional_explorer.compiler.recompile_warning import warn_of_trace
from regional_explorer.compiler.switch import PieceFacts, Switch
from regional_explorer.errors.texts import count
from regional_explorer.record.region import Plan
from regional_explorer.regions.cutting.cut import PieceContent


@dataclass
class Program(CutProgram):
    """The cut graphs of a captured call.

    ``_recorded`` are the surroundings that layouts were last recorded in, nothing before. ``_facts`` has what was
    learned there about every piece that was ever cut, so that what an edit leaves alone, or undo brings back, stays
    compiled.
    """

    capture: Capture
    _recorded: str = ""
    _unknown: bool = False
    _facts: dict[PieceContent, PieceFacts] = field(default_factory=dict)
    _recording: bool = False

    def cut(self, plan: Plan) -> None:
        """Cut the graphs along ``plan`` at the next use; facts about the pieces are kept."""
        facts = {one.piece.content: one.facts for cut in self._made or () for one in cut.switches}
        super().cut(plan)
        self._facts |= {content: what for content, what in facts.items() if what is not None}

    def adopt_facts(self) -> None:
        """Give every piece that was cut before its known facts; the next recorded run finds those of the others."""
        for switch in self.switches:
            if facts := self._facts.get(switch.piece.content):
                switch.adopt(facts)
            else:
                self._unknown = True
        self.apply_artifacts()

    def prepare(self, frame: Frame, cut: SwitchedGraph) -> None:
        """Let the partitions of a graph that a later call brought run eagerly until the next compile."""
        for switch in cut.switches:
            switch.record()
        if cut.switches and not self._recording:
            warn_of_trace(frame, count(len(cut.switches), f"new {cut.live.kind} partition"))
        self.select_regional(on=self._selected)

    def record_layouts(self) -> None:
        """Run the call once, eagerly, so that every partition it comes by knows what flows through it.

        Again where what surrounds it has changed: Dynamo guards on the number of threads and the like and traces anew,
        and it is those graphs that have to be compiled then.
        """
        here = surroundings()
        if not self.switches or (self._recorded == here and not self._unknown):
            return
        if self._recorded != here:
            self._facts.clear()
        selected = self._selected
        for switch in self.switches:
            switch.record()
        self._recording = True
        try:
            self.select_regional(on=True)
            with self.capture.call.kept():
                outputs = self.capture.call.forward(self.capture.run)
                if self.capture.call.grad:
                    self.capture.call.backward(outputs)
            for switch in self.switches:
                if switch.inputs is None and switch.failure is None:
                    switch.assume()
            self._recorded, self._unknown = here, False
        finally:
            self._recording = False
            self.apply_artifacts()
            self.select_regional(on=selected)

    def stale(self, *, anew: bool = False) -> dict[str, Switch]:
        """Return the artifacts still to compile, once the layouts are recorded."""
        self.record_layouts()
        return super().stale(anew=anew)

    @contextlib.contextmanager
    def drawing_as_eager(self) -> Iterator[None]:
        """A block in which compiled pieces draw the random numbers that eager draws, so that results can be compared.

        Inductor has a generator of its own; a twin of each piece that draws is compiled under ``fallback_random``.

        Raises:
            RegionCompileError: a twin does not compile.
        """
        try:
            for switch in self.switches:
                if switch.artifact is not None and switch.draws:
                    switch.use(self.twin(switch, {"fallback_random": True}))
            yield
        finally:
            self.apply_artifacts()

    def twin(self, switch: Switch, config: Mapping[str, Any]) -> Artifact:
        """Return the artifact of a partition under ``config`` on top of its region's, compiled where it has none yet.

        Raises:
            RegionCompileError: it does not compile.
        """
        assert switch.inputs is not None  # noqa: S101 - whoever has an artifact has had its layouts recorded
        requested = {**self.config_for(switch), **config}
        key = artifact_key(switch.fingerprint(), requested, surroundings())
        return self.store.artifacts.get(key) or self.store.compile(key, switch.piece, switch.inputs, requested)

    def revision(self) -> tuple[Any, ...]:
        """Return a value that changes whenever the record of this program would."""
        switches = [(switch.inputs, switch.refusal) for switch in self.switches]
        made = [(key, artifact.made) for key, artifact in self.store.artifacts.items()]
        tried = sum(map(len, self.tried.values()))
        store = (*made, *self.store.failures, tried)
        return self.plan, surroundings(), len(self.capture.graphs), store, switches

    def close(self) -> None:
        """Let go of the artifacts and of everything live. The record stays."""
        self._facts.clear()
        super().close()
