"""Partitions as records, with their diagnostics, and the preview of a plan."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from msgspec import structs

from regional_explorer.compiler.artifact import Artifact
from regional_explorer.compiler.program import CutProgram
from regional_explorer.compiler.region_config import catalogue, inert_reason
from regional_explorer.compiler.switch import Switch
from regional_explorer.diagnostics import check
from regional_explorer.diagnostics.evidence import Evidence
from regional_explorer.errors import listing
from regional_explorer.record.action import configure_action
from regional_explorer.record.artifact import ArtifactRecord
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.environment import Environment
from regional_explorer.record.graph import Graph
from regional_explorer.record.grouping import grouped
from regional_explorer.record.partition import Partition, Preview, State, keys_of_same_code
from regional_explorer.record.plan import Direction, Plan, Region, SelectorKind, config_of, config_texts
from regional_explorer.regions.cut import PartitionNumbering, cut_graph
from regional_explorer.regions.select import assign
from regional_explorer.torch_api.prepared import ops_not_plain
from regional_explorer.torch_api.torch_config import Settings, settings_text


def partitions(program: CutProgram) -> tuple[Partition, ...]:
    """Return the record of all partitions."""
    settings = settings_text()
    keys = program.keys(settings)
    return tuple(_partition_record(program, switch, keys.get(switch, ""), settings) for switch in program.switches)


def _partition_record(program: CutProgram, switch: Switch, key: str, settings: str) -> Partition:
    region = program.plan[switch.piece.claim.region]
    artifact = program.store.artifacts.get(key)
    refused = artifact is not None and switch.refused is artifact
    problem = switch.failure or program.store.failures.get(key) or (switch.refusal if refused else None)
    problem = problem if region.enabled else None  # a disabled region does not run compiled
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
        same_without=_keys_of_same_code(program, switch, key, settings) if artifact is not None else (),
        compiles_without=_failing_keys(program, switch, settings) if key in program.store.failures else (),
    )


def _smaller_configs(program: CutProgram, switch: Switch, settings: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the key of each smaller config that the partition was tried under, and the config keys that it lacks."""
    config, workpiece = program.config_for(switch), switch.known_workpiece
    for key, other in list(program.tried_configs.get(workpiece.fingerprint, {}).items()):
        if other.items() < config.items() and key == program.wanted_under(switch, other, settings).key:
            yield key, tuple(name for name in config if name not in other)


def _keys_of_same_code(program: CutProgram, switch: Switch, key: str, settings: str) -> tuple[tuple[str, ...], ...]:
    """Return the sets of config keys that can be left out without changing the partition's code."""
    own = program.store.code_hash(key)
    others = _smaller_configs(program, switch, settings)
    return tuple(names for other, names in others if program.store.code_hash(other) == own is not None)


def _failing_keys(program: CutProgram, switch: Switch, settings: str) -> tuple[str, ...]:
    """Return the fewest config keys without which a partition that failed is known to compile."""
    others = _smaller_configs(program, switch, settings)
    return min((names for other, names in others if other in program.store.artifacts), key=len, default=())


def artifact_records(program: CutProgram, records: Iterable[Partition]) -> dict[str, ArtifactRecord]:
    """Return the artifacts that the partitions of ``records`` run, by key."""
    artifacts, keys = program.store.artifacts, dict.fromkeys(part.artifact for part in records)
    found = {key: artifacts[key] for key in keys if key in artifacts}
    return {key: ArtifactRecord(made.made, made.config, passes=made.passes) for key, made in found.items()}


def _partition_state(region: Region, artifact: Artifact | None, problem: str | None) -> State:
    if not region.enabled:
        return State.EAGER
    if problem is not None:
        return State.FAILED
    return State.COMPILED if artifact is not None else State.STALE


def evidence_of(program: CutProgram, records: Sequence[Partition] = (), plan: Plan | None = None) -> Evidence:
    """Return the evidence for checks: what the capture recorded, and what is checked of the plan and of ``records``.

    Evidence is equal unless something has changed that a check reads.
    """
    capture = program.capture
    return Evidence(
        graphs=capture.graphs,
        pending=capture.pending,
        plan=_without_unmarked_configs(plan or program.plan),
        assignment=program.assignment,
        partitions=[part.as_cut for part in records],
        breaks=capture.breaks,
        blocks=dict(capture.blocks),
        folded=[fold for frame in capture.current_frames() for fold in frame.folded],
        min_cut=capture.tracing.partitioner == "min_cut",
        not_restored=tuple(capture.not_restored),
        reassigned=tuple(capture.reassigned),
        failed_guard=capture.failed_guard,
        outdated=list(capture.outdated.values()),
        failed_ops=capture.failed_ops,
        late_graphs=capture.late_graphs,
    )


def _without_unmarked_configs(plan: Plan) -> Plan:
    """Return the plan with the configs of regions that are marked in the source: what checks compare marks with."""
    regions = (
        region
        if region.patterns(SelectorKind.ANNOTATION)
        else structs.replace(region, config={}, backward_config=None if region.backward_config is None else {})
        for region in plan.regions
    )
    return structs.replace(plan, regions=tuple(regions))


def diagnostics(program: CutProgram, records: Sequence[Partition], device_type: str) -> list[Diagnostic]:
    """Return the diagnostics of cutting and of compiling."""
    evidence = replace(evidence_of(program, records), cyclic=tuple(program.cyclic))
    found = program.checked.of(evidence, lambda: [*check(evidence), *_unfrozen_diagnostics(program)])
    return [*found, *failed_passes(program, records), *inert_config_diagnostics(program, records, device_type)]


def failed_passes(program: CutProgram, records: Iterable[Partition]) -> Iterator[Diagnostic]:
    """Yield one ``pass-failed`` per region and pass whose result was not used, and why."""
    parts = [(part, made) for part in records if (made := program.store.artifacts.get(part.artifact or ""))]
    left_out = grouped(
        ((part.region, run.name, run.problem), part) for part, made in parts for run in made.passes if run.problem
    )
    for (region, name, problem), of_pass in left_out.items():
        first = of_pass[0]
        nodes = evidence_of(program).nodes[first.graph]
        yield DiagnosticCode.PASS_FAILED.finding(
            f"Region {region!r} is compiled without pass {name!r} ({listing(part.id for part in of_pass)})",
            f": {problem}.",
            region=region,
            graph=first.graph,
            at=[nodes[node] for node in first.nodes],
            remedy="Mend the pass, or leave it out.",
        )


def _unfrozen_diagnostics(program: CutProgram) -> Iterator[Diagnostic]:
    """Yield one ``config-inert`` per region with pieces whose weights cannot be constants."""
    pieces = [switch.piece for switch in program.switches]
    pieces = [piece for piece in pieces if piece.prepared is not None and piece.prepared.frozen]
    others = grouped((piece.claim.region, str(node.target)) for piece in pieces for node in ops_not_plain(piece.gm))
    for region, ops in others.items():
        yield DiagnosticCode.CONFIG_INERT.finding(
            f"frozen=True has no effect in a part of region {region!r}",
            f": Inductor takes {listing(dict.fromkeys(ops))} through AOTAutograd, which keeps weights as inputs.",
            region=region,
            remedy="Leave these ops out of the region.",
            upstream="",
        )


def preview_of(program: CutProgram, plan: Plan) -> Preview:
    """Return the partitions and diagnostics that another plan would give; the graphs stay as they are."""
    recorded = evidence_of(program, plan=plan)
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
    evidence = replace(recorded, assignment=assignment, partitions=records, cyclic=cyclic)
    return Preview(records, tuple(check(evidence)))


def environment_of(graphs: Sequence[Graph]) -> Environment:
    """Return the environment of graphs: torch, Python, the device of their values, and the present settings."""
    devices = {value.device for graph in graphs for node in graph.nodes for value in node.values}
    device = next((name for name in sorted(devices) if not name.startswith(("cpu", "meta"))), "cpu")
    device_name = f"{device} ({torch.cuda.get_device_name(device)})" if device.startswith("cuda") else device
    return present_environment(Environment(torch.__version__, platform.python_version(), device_name, 1))


def present_environment(traced: Environment, mode: str = "") -> Environment:
    """Return the environment of a trace with the present settings of torch, and the ``mode`` of the call's modules."""
    settings = Settings.now().as_texts()
    return structs.replace(traced, threads=int(settings.pop("threads")), mode=mode, settings=settings)


def inert_config_diagnostics(
    program: CutProgram, records: Sequence[Partition], device_type: str
) -> Iterator[Diagnostic]:
    """Yield one ``config-inert`` per config key that has no effect in its region by rule.

    After these come the keys that were observed to have none, alone or several together.
    """
    for region in program.plan.regions:
        for direction, config in region.configs if region.enabled else ():
            region_records = [
                record
                for record in records
                if record.region == region.name and direction in (None, Direction.of_graph(record.graph))
            ]
            if not region_records:
                continue
            reasons: dict[tuple[str, ...], str] = {
                (key,): reason
                for key, value in config.items()
                if value != catalogue()[key].default and (reason := inert_reason(key, device_type))
            }
            for keys in keys_of_same_code(region_records):
                observed = tuple(key for key in keys if (key,) not in reasons)
                # CUDA graphs are recorded around the generated code.
                if observed and not any("cudagraph" in key for key in observed):
                    pronoun = "it" if len(observed) == 1 else "them"
                    reasons[observed] = f"the generated code is the same with {pronoun} and without"
            for keys, reason in reasons.items():
                yield _inert_config_diagnostic(region, direction, keys, reason, region_records[0].graph)


def _inert_config_diagnostic(
    region: Region, direction: Direction | None, keys: Sequence[str], reason: str, graph: str
) -> Diagnostic:
    config = config_of(region, direction or Direction.FORWARD)
    where = "" if direction is None else f" ({direction})"
    without = configure_action(region.name, {}, direction, unset=tuple(keys))
    return DiagnosticCode.CONFIG_INERT.finding(
        f"{' and '.join(config_texts({key: config[key] for key in keys}))} {'has' if len(keys) == 1 else 'have'} no "
        f"effect in region {region.name!r}{where}",
        f": {reason}.",
        region=region.name,
        graph=graph,
        remedy=(f"Leave {'it' if len(keys) == 1 else 'them'} out: ", without, "."),
    )
