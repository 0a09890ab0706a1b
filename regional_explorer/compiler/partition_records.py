"""Converts the partitions of a program to records, and collects the diagnostics about them."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace

import torch

from regional_explorer.compiler.artifacts.artifact import Artifact
from regional_explorer.compiler.config.catalogue import catalogue, inert_reason
from regional_explorer.compiler.cut_program import CutProgram
from regional_explorer.compiler.recompiles import recompiles
from regional_explorer.compiler.switch import Switch
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Graph
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan import Plan
from regional_explorer.record.preview import Preview
from regional_explorer.record.region import DEFAULT, Direction, Region, config_of
from regional_explorer.record.session import Environment
from regional_explorer.regions.checks import Evidence, check
from regional_explorer.regions.checks.failures import check_failures
from regional_explorer.regions.checks.presence import check_empty
from regional_explorer.regions.cutting.preview import preview


def partitions(program: CutProgram) -> tuple[Partition, ...]:
    """Return the record of all partitions."""
    keys = program.keys()
    keyed = [(switch, keys.get(switch, "")) for switch in program.switches]
    equal = grouped((key, switch.partition.name) for switch, key in keyed)
    return tuple(_partition(program, switch, key, equal[key][0]) for switch, key in keyed)


def _partition(program: CutProgram, switch: Switch, key: str, first: str) -> Partition:
    region = program.plan[switch.piece.claim.region]
    artifact = program.store.artifacts.get(key)
    refused = artifact is not None and switch.refused is artifact
    problem = switch.failure or program.store.failures.get(key) or (switch.refusal if refused else None)
    mine = artifact is not None and first == switch.partition.name
    return Partition(
        id=switch.partition.name,
        region=region.name,
        instance=switch.partition.instance,
        graph=switch.piece.graph_id,
        nodes=switch.piece.nodes,
        state=_state(region, artifact, problem),
        config_requested=config_of(region, Direction.of_graph(switch.piece.graph_id)),
        config_applied=artifact.config if artifact is not None else None,
        artifact=artifact.key if artifact is not None else None,
        shared_with=first if artifact is not None and not mine else None,
        compile_s=artifact.made.seconds if artifact is not None and mine else None,
        cache=artifact.made.cache if artifact is not None and mine else None,
        error=problem,
        code_hash=program.store.code_hash(key) if artifact is not None else None,
    )


def _state(region: Region, artifact: Artifact | None, problem: str | None) -> State:
    if not region.enabled:
        return State.EAGER
    if problem is not None:
        return State.FAILED
    return State.COMPILED if artifact is not None else State.STALE


def _evidence_of(program: CutProgram, parts: Sequence[Partition] = ()) -> Evidence:
    """Return the evidence for checks: what the capture recorded, and these partitions, if any."""
    capture = program.capture
    return Evidence(
        graphs=capture.graphs,
        plan=program.plan,
        assignment=program.assignment,
        partitions=parts,
        breaks=capture.breaks,
        blocks=capture.blocks,
        folded=[fold for frame in capture.frames for fold in frame.folded],
        min_cut=capture.partitioner == "min_cut",
        kept_state=capture.kept_state,
        failed_ops=capture.failed_ops,
    )


def unmatched_regions(program: CutProgram) -> list[Diagnostic]:
    """Return the diagnostics about regions that pick no op, or less than their selectors require."""
    return list(check_empty(_evidence_of(program)))


def compile_failures(program: CutProgram, parts: Sequence[Partition]) -> list[Diagnostic]:
    """Return the diagnostics about the partitions among ``parts`` that did not compile."""
    return list(check_failures(_evidence_of(program, parts)))


def diagnostics(program: CutProgram, parts: Sequence[Partition], device_type: str) -> list[Diagnostic]:
    """Return the diagnostics of cutting, of compiling and of later calls."""
    evidence = replace(_evidence_of(program, parts), cyclic=program.cyclic)
    return [*check(evidence), *inert_configs(program, parts, device_type), *recompiles(program)]


def preview_of(program: CutProgram, plan: Plan) -> Preview:
    """Return the partitions and diagnostics that another plan would give."""
    return preview([(live.id, live.gm) for live in program.capture.live], _evidence_of(program), plan)


def environment_of(graphs: Sequence[Graph]) -> Environment:
    """Return the environment of graphs: torch, Python, the device of their values, and the number of threads."""
    devices = {value.device for graph in graphs for node in graph.nodes for value in node.values}
    device = next((name for name in sorted(devices) if not name.startswith(("cpu", "meta"))), "cpu")
    shown = f"{device} ({torch.cuda.get_device_name(device)})" if device.startswith("cuda") else device
    return Environment(torch.__version__, platform.python_version(), shown, torch.get_num_threads())


def inert_configs(program: CutProgram, parts: Sequence[Partition], device_type: str) -> list[Diagnostic]:
    """Return one ``config-inert`` per config key that is known, or was observed, to have no effect in its region."""
    seen = _without_effect(program)
    found = []
    for region in program.plan.regions:
        for direction, _ in region.configs if region.enabled else ():
            mine = [
                part
                for part in parts
                if part.region == region.name and direction in (None, Direction.of_graph(part.graph))
            ]
            if not mine:
                continue
            where, only = ("", "") if direction is None else (f" ({direction})", f', direction="{direction}"')
            for key, value in config_of(region, direction or Direction.FORWARD).items():
                reason = inert_reason(key, device_type) if value != catalogue()[key].default else None
                if reason is None and key in seen.get((region.name, direction), ()):
                    reason = "the generated code is the same with it and without"
                if reason is not None:
                    found.append(
                        Diagnostic(
                            DiagnosticCode.CONFIG_INERT,
                            f"{key}={value!r} has no effect in region {region.name!r}{where}: {reason}.",
                            Severity.INFO,
                            region=region.name,
                            graph=mine[0].graph,
                            upstream="the same, without a warning.",
                            remedy=f"Leave it out: ex.configure({region.name!r}, {{{key!r}: rx.DEFAULT}}{only}).",
                        )
                    )
    return found


def _without_effect(program: CutProgram) -> dict[tuple[str, Direction | None], set[str]]:
    """Return the config keys that made no difference to the code of any partition they were tried on.

    A config was tried if code was compiled, or only generated, under it. Keyed by region and direction, which is None
    if one config is for both directions.
    """
    keys = program.keys()
    same: dict[tuple[str, Direction | None], set[str]] = {}
    changed: dict[tuple[str, Direction | None], set[str]] = {}
    for switch in program.switches:
        mine = program.store.artifacts.get(keys.get(switch, ""))
        if mine is None:
            continue
        tried = program.tried.get(switch.fingerprint(), {})
        region = program.plan[switch.piece.claim.region]
        direction = None if region.backward_config is None else Direction.of_graph(switch.piece.graph_id)
        for other, config in tried.items():
            own = tried.get(mine.key, {})
            differing = {key for key in {*own, *config} if own.get(key, DEFAULT) != config.get(key, DEFAULT)}
            code = program.store.code_hash(other)
            if len(differing) == 1 and code is not None:
                equal = code == program.store.code_hash(mine.key)
                (same if equal else changed).setdefault((region.name, direction), set()).update(differing)
    return {place: found - changed.get(place, set()) for place, found in same.items()}
