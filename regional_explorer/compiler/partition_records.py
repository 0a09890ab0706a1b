"""Partitions as records, with their diagnostics, and the preview of a plan."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch

from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.program import CutProgram
from regional_explorer.compiler.region_config import catalogue, inert_reason
from regional_explorer.compiler.switch import Switch
from regional_explorer.diagnostics import check
from regional_explorer.diagnostics.evidence import Evidence
from regional_explorer.record.artifact import ArtifactRecord
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.graph import Graph
from regional_explorer.record.partition import Partition, Preview, State
from regional_explorer.record.plan import DEFAULT, Direction, Plan, Region, config_of
from regional_explorer.record.session import Environment
from regional_explorer.regions.cut import PartitionNumbering, cut_graph
from regional_explorer.regions.select import assign


def partitions(program: CutProgram) -> tuple[Partition, ...]:
    """Return the record of all partitions."""
    keys = program.keys()
    return tuple(_partition_record(program, switch, keys.get(switch, "")) for switch in program.switches)


def _partition_record(program: CutProgram, switch: Switch, key: str) -> Partition:
    region = program.plan[switch.piece.claim.region]
    artifact = program.store.artifacts.get(key)
    refused = artifact is not None and switch.refused is artifact
    problem = switch.failure or program.store.failures.get(key) or (switch.refusal if refused else None)
    problem = problem if region.enabled else None  # it is not to run compiled
    return Partition(
        id=switch.partition.name,
        region=region.name,
        instance=switch.partition.instance,
        graph=switch.piece.graph_id,
        nodes=switch.piece.nodes,
        state=_partition_state(region, artifact, problem),
        config_requested=config_of(region, Direction.of_graph(switch.piece.graph_id)),
        artifact=artifact.key if artifact is not None else None,
        error=problem,
        code_hash=program.store.code_hash(key) if artifact is not None else None,
    )


def artifact_records(program: CutProgram, records: Iterable[Partition]) -> dict[str, ArtifactRecord]:
    """Return the artifacts that these partitions run, by key."""
    artifacts, keys = program.store.artifacts, dict.fromkeys(part.artifact for part in records)
    return {key: ArtifactRecord(artifacts[key].made, artifacts[key].config) for key in keys if key in artifacts}


def _partition_state(region: Region, artifact: Artifact | None, problem: str | None) -> State:
    if not region.enabled:
        return State.EAGER
    if problem is not None:
        return State.FAILED
    return State.COMPILED if artifact is not None else State.STALE


def evidence_of(program: CutProgram, records: Sequence[Partition] = ()) -> Evidence:
    """Return the evidence for checks: what the capture recorded, and these partitions, if any."""
    capture = program.capture
    return Evidence(
        graphs=capture.graphs,
        pending=capture.pending,
        plan=program.plan,
        assignment=program.assignment,
        partitions=records,
        breaks=capture.breaks,
        blocks=capture.blocks,
        folded=[fold for frame in capture.frames for fold in frame.folded],
        min_cut=capture.tracing.partitioner == "min_cut",
        not_restored=capture.not_restored,
        outdated=list(capture.outdated.values()),
        failed_ops=capture.failed_ops,
    )


def diagnostics(program: CutProgram, records: Sequence[Partition], device_type: str) -> list[Diagnostic]:
    """Return the diagnostics of cutting and of compiling."""
    evidence = replace(evidence_of(program, records), cyclic=program.cyclic)
    return [*check(evidence), *_inert_configs(program, records, device_type)]


def preview_of(program: CutProgram, plan: Plan) -> Preview:
    """Return the partitions and diagnostics that another plan would give; the graphs stay as they are."""
    recorded = evidence_of(program)
    assignment = assign(recorded.graphs, plan, pending=recorded.pending)
    order = [region.name for region in plan.regions]
    cuts = [cut_graph(live.gm, live.id, recorded.nodes, assignment, order, plan.cut) for live in program.capture.live]
    numbering = PartitionNumbering()
    cut_graphs = [graph for cut in cuts for graph in cut.graphs()]
    records = tuple(
        Partition(
            id=partition_id.name,
            region=group.claim.region,
            instance=partition_id.instance,
            graph=graph.id,
            nodes=tuple(node.name for node in group.nodes),
            state=State.STALE if plan[group.claim.region].enabled else State.EAGER,
            config_requested=config_of(plan[group.claim.region], Direction.of_graph(graph.id)),
        )
        for graph in cut_graphs
        for group in graph.parts
        for partition_id in [numbering.number(group.claim, graph.id)]
    )
    cyclic = [(graph.id, regions) for graph in cut_graphs for regions in graph.cyclic]
    evidence = replace(recorded, plan=plan, assignment=assignment, partitions=records, cyclic=cyclic)
    return Preview(records, tuple(check(evidence)))


def environment_of(graphs: Sequence[Graph]) -> Environment:
    """Return the environment of graphs: torch, Python, the device of their values, and the number of threads."""
    devices = {value.device for graph in graphs for node in graph.nodes for value in node.values}
    device = next((name for name in sorted(devices) if not name.startswith(("cpu", "meta"))), "cpu")
    device_name = f"{device} ({torch.cuda.get_device_name(device)})" if device.startswith("cuda") else device
    return Environment(torch.__version__, platform.python_version(), device_name, torch.get_num_threads())


def _inert_configs(program: CutProgram, records: Sequence[Partition], device_type: str) -> Iterator[Diagnostic]:
    """Yield one ``config-inert`` per config key that is known, or was observed, to have no effect in its region."""
    ineffective = _keys_without_effect(program)
    for region in program.plan.regions:
        for direction, _ in region.configs if region.enabled else ():
            region_records = [
                record
                for record in records
                if record.region == region.name and direction in (None, Direction.of_graph(record.graph))
            ]
            if not region_records:
                continue
            where, argument = ("", "") if direction is None else (f" ({direction})", f', direction="{direction}"')
            for key, value in config_of(region, direction or Direction.FORWARD).items():
                reason = inert_reason(key, device_type) if value != catalogue()[key].default else None
                if reason is None and (region.name, direction, key) in ineffective:
                    reason = "the generated code is the same with it and without"
                if reason is not None:
                    yield DiagnosticCode.CONFIG_INERT.found(
                        f"{key}={value!r} has no effect in region {region.name!r}{where}: {reason}.",
                        region=region.name,
                        graph=region_records[0].graph,
                        remedy=f"Leave it out: ex.configure({region.name!r}, {{{key!r}: rx.DEFAULT}}{argument}).",
                    )


def _keys_without_effect(program: CutProgram) -> set[tuple[str, Direction | None, str]]:
    """Return the config keys that, set or not, made no difference to the code of any partition they were tried on.

    A config was tried if code was compiled, or only generated, under it. Each key comes with its region and direction,
    which is None if one config is for both directions.
    """
    same_code: set[tuple[str, Direction | None, str]] = set()
    other_code: set[tuple[str, Direction | None, str]] = set()
    for switch, own_key in program.keys().items():
        if own_key not in program.store.artifacts:
            continue
        tried_configs = program.tried.get(switch.fingerprint(), {})
        current = tried_configs.get(own_key, {})
        region = program.plan[switch.piece.claim.region]
        direction = None if region.backward_config is None else Direction.of_graph(switch.piece.graph_id)
        for other_key, config in list(tried_configs.items()):
            differing = {key for key in {*current, *config} if current.get(key, DEFAULT) != config.get(key, DEFAULT)}
            code = program.store.code_hash(other_key)
            if len(differing) == 1 and code is not None:
                (key,) = differing
                if code != program.store.code_hash(own_key):
                    other_code.add((region.name, direction, key))
                elif key not in current or key not in config:
                    same_code.add((region.name, direction, key))
    return same_code - other_code
