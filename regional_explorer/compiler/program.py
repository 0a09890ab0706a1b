"""The captured call, cut into the partitions of a plan; their layouts are recorded by running the call again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regional_explorer.capture.live_graph import Frame
from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.artifacts.artifact import Artifact, ArtifactStore
from regional_explorer.compiler.artifacts.fingerprint import artifact_key, surroundings
from regional_explorer.compiler.cut_program import CutProgram, SwitchedGraph
from regional_explorer.compiler.recompiles import warn_of_trace
from regional_explorer.compiler.switch import PieceFacts, Switch
from regional_explorer.errors.texts import count
from regional_explorer.record.plan import Plan
from regional_explorer.regions.cutting.cut import PieceContent


@dataclass
class Program(CutProgram):
    """The cut graphs of a captured call.

    ``_recorded_settings`` are the global settings under which layouts were last recorded, empty before. ``_facts`` has
    what was learned then about every piece that was ever cut, so that pieces that an edit does not change, or that
    undo restores, stay compiled.
    """

    capture: Capture
    _recorded_settings: str = ""
    _has_unknown_layouts: bool = False
    _facts: dict[PieceContent, PieceFacts] = field(default_factory=dict)
    _recording: bool = False

    def cut(self, plan: Plan) -> None:
        """Cut the graphs along ``plan`` at the next use; facts about the pieces are kept."""
        facts = {switch.piece.content: switch.facts for cut in self._made or () for switch in cut.switches}
        super().cut(plan)
        self._facts |= {content: piece_facts for content, piece_facts in facts.items() if piece_facts is not None}

    def adopt_facts(self) -> None:
        """Copy the known facts to pieces that were cut before; the next recorded run collects those of the others."""
        for switch in self.switches:
            if facts := self._facts.get(switch.piece.content):
                switch.adopt(facts)
            else:
                self._has_unknown_layouts = True
        self.apply_artifacts()

    def on_new_graph(self, frame: Frame, cut: SwitchedGraph) -> None:
        """Record the partitions of a graph that a later call traced, run them eagerly from then on, and warn of it."""
        for switch in cut.switches:
            switch.record()
        if cut.switches and not self._recording:
            warn_of_trace(frame, count(len(cut.switches), f"new {cut.live.kind} partition"))
        self.select_regional(on=self._selected)

    def record_layouts(self) -> None:
        """Run the call once, eagerly, and record the layouts of the inputs and outputs of every partition.

        Repeated when global settings have changed: Dynamo guards on the number of threads and the like, traces again,
        and the new graphs are the ones to compile.
        """
        settings = surroundings()
        if not self.switches or (self._recorded_settings == settings and not self._has_unknown_layouts):
            return
        if self._recorded_settings != settings:
            self._facts.clear()
        selected = self._selected
        for switch in self.switches:
            switch.record()
        self._recording = True
        try:
            self.select_regional(on=True)
            with self.capture.call.restoring():
                self.capture.call.run(self.capture.run)
            for switch in self.switches:
                switch.assume_if_unreached()
            self._recorded_settings, self._has_unknown_layouts = settings, False
        finally:
            self._recording = False
            self.apply_artifacts()
            self.select_regional(on=selected)

    def stale(self, *, everything: bool = False) -> dict[str, Switch]:
        """Record the layouts, then return the artifacts still to compile."""
        self.record_layouts()
        return super().stale(everything=everything)

    @contextlib.contextmanager
    def drawing_as_eager(self) -> Iterator[None]:
        """A block in which compiled pieces draw the random numbers that eager draws, so that results can be compared.

        Inductor has its own generator; each piece that draws is replaced by a twin compiled under ``fallback_random``.

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
        """Return the artifact of a partition under its region's config with ``config`` on top; compile it if needed.

        Raises:
            RegionCompileError: it does not compile.
        """
        assert switch.inputs is not None  # noqa: S101 - layouts are recorded before an artifact is compiled
        requested = {**self.config_for(switch), **config}
        key = artifact_key(switch.fingerprint(), requested, surroundings())
        return self.store.artifacts.get(key) or self.store.compile(key, switch.piece, switch.inputs, requested)

    def revision(self) -> tuple[Any, ...]:
        """Return a value that changes whenever the record of this program would."""
        switches = [(switch.inputs, switch.failure, switch.refusal) for switch in self.switches]
        compiles = [(key, artifact.made) for key, artifact in self.store.artifacts.items()]
        store = (*compiles, *self.store.failures, sum(map(len, self.tried.values())))
        return self.plan, surroundings(), len(self.capture.graphs), store, switches

    def take_over(self, earlier: Program) -> None:
        """Continue with the artifacts of a program of an earlier trace, which loses them."""
        self.store, earlier.store = earlier.store, ArtifactStore()
        self.tried = earlier.tried

    def close(self) -> None:
        """Free the artifacts and all live objects. The record stays."""
        self._facts.clear()
        super().close()
