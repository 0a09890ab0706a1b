"""Keeps the generated code of a program and what was found in it; generates code, for this machine or for a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.compiler.switch import Switch
from regional_explorer.compiler.workpiece import Wanted
from regional_explorer.insight.lowered_code import artifact_code, code_under, codes_on_gpu
from regional_explorer.record.artifact import ArtifactCode, ArtifactKernelTimes, code_hash
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.gpu_targets import GpuTarget
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import DEFAULT
from regional_explorer.torch_api.inductor import build_command
from regional_explorer.torch_api.torch_config import surroundings


class Insights:
    """The generated code of the partitions of ``program``, the times of its kernels, and why regions are slow.

    ``codes`` and ``kernel_times`` are by key of the artifact; ``_other_codes`` is code for other configs, or for GPUs
    that are not there, by key and target. ``diagnoses`` are by region, with the keys of its artifacts then.
    ``revision`` changes with what a session shows.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.codes: dict[str, ArtifactCode] = {}
        self.kernel_times: dict[str, ArtifactKernelTimes] = {}
        self.diagnoses: dict[str, tuple[list[str], tuple[Diagnostic, ...]]] = {}
        self.revision = 0
        self._other_codes: dict[tuple[str, str], ArtifactCode] = {}

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The findings about regions whose code has not changed since they were diagnosed."""
        needed = self.needed() if self.diagnoses else {}
        return tuple(
            diagnostic
            for region, (keys, diagnostics) in self.diagnoses.items()
            if keys == needed.get(region, [])
            for diagnostic in diagnostics
        )

    def needed(self) -> dict[str, list[str]]:
        """Return the keys of the artifacts that each region needs now."""
        return grouped((switch.piece.claim.region, key) for switch, key in self.program.keys().items())

    def forget_replaced(self) -> None:
        """Forget code that a compile replaced under the same key, as autotuning may."""
        for key, artifact in self.program.store.artifacts.items():
            if key in self.codes and artifact.code and code_hash(artifact.code) != code_hash(self.codes[key].text):
                del self.codes[key]
                self.kernel_times.pop(key, None)
                self.diagnoses = {region: found for region, found in self.diagnoses.items() if key not in found[0]}

    def read(self, region: str, run: Run) -> None:
        """Lower the artifacts of a region again for their code and kernels, one after the other, until cancelled."""
        program, artifacts = self.program, self.program.store.artifacts
        keys = program.keys()
        compiled = [
            program.wanted(keys[switch], switch)
            for switch in self._switches_of(region)
            if keys.get(switch, "") in artifacts
        ]
        for wanted in _with_progress(_missing(compiled, self.codes), region, self.codes, run):
            self.codes[wanted.key] = artifact_code(artifacts[wanted.key], wanted, program.store.generated)
            self.revision += 1

    def changed(self, region: str, changes: Mapping[str, Any]) -> dict[str, Wanted]:
        """Return what each partition's artifact is made of under ``changes`` of its config, by partition id.

        Partitions whose layouts are not recorded yet, as after an edit of the plan, are left out.
        """
        settings, changed = surroundings(), {}
        for switch in self._switches_of(region):
            if switch.workpiece is not None:
                merged = {**self.program.config_for(switch), **changes}
                config = {key: value for key, value in merged.items() if value is not DEFAULT}
                changed[switch.partition.name] = switch.workpiece.wanted(config, settings)
        return changed

    def under(
        self, region: str, changed: Mapping[str, Wanted], target: GpuTarget | None, run: Run
    ) -> dict[str, ArtifactCode]:
        """Return the code of ``changed`` partitions of a region, by partition id; fewer if cancelled.

        Nothing is compiled, nor needs to be compiled before; with ``target`` the code is for that GPU.

        Raises:
            CompileEnvironmentError: code for ``target`` cannot be generated on this machine.
        """
        program, gpu_name = self.program, "" if target is None else target.name
        known = {key: code for (key, name), code in self._other_codes.items() if name == gpu_name}
        missing = _missing(changed.values(), known)
        if target is None:
            for wanted in _with_progress(missing, region, known, run):
                known[wanted.key] = code = code_under(wanted, program.store.generated)
                if code.text:
                    program.tried.setdefault(wanted.workpiece.fingerprint, {})[wanted.key] = wanted.config
                    build = build_command(code.text, wanted.config)
                    program.store.hashes[wanted.key] = code_hash(code.text, build)
        elif missing:
            run.estimate(None)
            run.progress(f"generating the code of {region} for {target.title}", 0.0)
            known |= codes_on_gpu(missing, target, run)
        self._other_codes |= {(key, gpu_name): code for key, code in known.items()}
        return {name: known[wanted.key] for name, wanted in changed.items() if wanted.key in known}

    def _switches_of(self, region: str) -> Iterator[Switch]:
        return (switch for switch in self.program.switches if switch.piece.claim.region == region)


def _missing(all_wanted: Iterable[Wanted], known: Mapping[str, ArtifactCode]) -> list[Wanted]:
    """Return the distinct items without known code; an item whose code failed, say on a full disk, is tried again."""
    by_key = {wanted.key: wanted for wanted in all_wanted}
    return [wanted for key, wanted in by_key.items() if key not in known or known[key].problem is not None]


def _with_progress(
    missing: Sequence[Wanted], region: str, known: Mapping[str, ArtifactCode], run: Run
) -> Iterator[Wanted]:
    """Yield the missing items until cancelled, with progress before each; the time estimate is from ``known`` code."""
    for done, wanted in enumerate(missing):
        if run.cancelled():
            return
        mean_s = sum(code.seconds for code in known.values()) / len(known) if known else None
        run.estimate(None if mean_s is None else mean_s * (len(missing) - done))
        run.progress(f"reading the code of {region} ({done + 1} of {len(missing)})", done / len(missing))
        yield wanted
