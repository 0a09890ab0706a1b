"""The codes of an exploration's artifacts, found out when first looked at."""

from __future__ import annotations

from collections.abc import Callable

from regional_explorer.compiler.program import Program
from regional_explorer.insight.lowering import artifact_code
from regional_explorer.record.kernels import ArtifactCode


class Codes:
    """The generated code and kernels of the artifacts of ``program``, by artifact; ``found`` only grows."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.found: dict[str, ArtifactCode] = {}

    def look_at(self, region: str, cancelled: Callable[[], bool], progress: Callable[[str, float], object]) -> None:
        """Find out what the kernels of a region are, one artifact after the other, until ``cancelled``."""
        program = self._program
        keys = program.keys()
        wanted = {
            keys.get(switch, ""): switch
            for switch in program.switches
            if switch.piece.claim.region == region and keys.get(switch, "") in program.store.artifacts
        }
        new = [key for key in wanted if key not in self.found]
        for done, key in enumerate(new):
            if cancelled():
                return
            progress(f"reading the code of {region} ({done + 1} of {len(new)})", done / len(new))
            switch, store = wanted[key], program.store
            config = program.config_for(switch)
            self.found[key] = artifact_code(
                store.artifacts[key], switch.piece, switch.inputs or (), config, store.generated
            )
