"""The record of what a program's partitions are and how they stand."""

from __future__ import annotations

from regional_explorer.compiler.artifact import Artifact, asked_config
from regional_explorer.compiler.program import Program, frame_inputs, numbered, partition_ids
from regional_explorer.compiler.switch import Switch
from regional_explorer.record.diagnostic import Diagnostic, Severity
from regional_explorer.record.region import Partition, Region, State


def partitions(program: Program) -> tuple[Partition, ...]:
    """Return the record of all partitions."""
    ids, keys = partition_ids(program.switches), program.keys()
    first: dict[str, str] = {}
    found = []
    for switch, instance in numbered(program.switches):
        name, key = ids[id(switch)], keys.get(id(switch), "")
        found.append(_partition(program, switch, instance, name, key, first.setdefault(key, name)))
    return tuple(found)


def _partition(program: Program, switch: Switch, instance: int, name: str, key: str, first: str) -> Partition:
    region = program.plan[switch.piece.claim.region]
    artifact = program.store.artifacts.get(key)
    refused = artifact is not None and switch.refused is artifact
    problem = program.store.failures.get(key) or (switch.refusal if refused else None)
    mine = artifact is not None and first == name
    return Partition(
        id=name,
        region=region.name,
        instance=instance,
        graph=switch.piece.graph_id,
        nodes=switch.piece.nodes,
        state=_state(region, artifact, problem),
        config_asked=asked_config(region.config),
        config_applied=artifact.config if artifact is not None else None,
        artifact=artifact.key if artifact is not None else None,
        shared_with=first if artifact is not None and not mine else None,
        compile_s=artifact.seconds if artifact is not None and mine else None,
        cache=artifact.cache if artifact is not None and mine else None,
        error=problem,
    )


def _state(region: Region, artifact: Artifact | None, problem: str | None) -> State:
    if not region.enabled:
        return State.EAGER
    if problem is not None:
        return State.FAILED
    return State.FRESH if artifact is not None else State.STALE


def late_diagnostics(program: Program) -> list[Diagnostic]:
    """Return a ``recompiled`` per graph that a later call brought."""
    late = [frame for frame in program.capture.frames if frame.late]
    return [
        Diagnostic(
            "recompiled",
            f"A later call made Dynamo trace again (graph {frame.index}: {', '.join(frame_inputs(frame))}).",
            Severity.INFO,
            graph=frame.dynamo[0].id,
            upstream="it would compile all its regions anew at that moment.",
            remedy="Its partitions run eagerly until the next ex.compile().",
        )
        for frame in late
    ]
