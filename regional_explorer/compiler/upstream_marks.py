"""Marks the captured call for upstream's compilers (lite mode too), and reports where they differ from the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regional_explorer.compiler.program import CutProgram
from regional_explorer.errors import RegionalExplorerError
from regional_explorer.record.action import TO_SOURCE
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.graph import Graph, GraphKind, Node, marked_region
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Direction, Plan, Region, SelectorKind, config_of
from regional_explorer.regions.instances import Claim
from regional_explorer.regions.select import Assignment
from regional_explorer.torch_api.torch_config import read_config
from regional_explorer.torch_api.upstream_compilers import (
    all_graphs,
    annotation_of,
    lite_backend,
    mark_node,
    reporting_lite_ops,
    reporting_pieces,
    upstream_backend,
)

if TYPE_CHECKING:
    from torch import fx

LITE = "lite"
_COMPILERS = {"upstream": "Upstream's regional_inductor", LITE: "torch.compile(mode='lite')"}


@dataclass(frozen=True)
class CompiledPiece:
    """A piece as upstream compiled it: the origins of its ops, its direction, and the configs that were set."""

    origins: frozenset[int]
    direction: Direction
    config: Mapping[str, Any]


@dataclass
class Marks:
    """The marks of a plan on the nodes of Dynamo's graphs, and what upstream did with them.

    ``eager`` and ``compiled`` are the origins of the ops that lite mode left to eager kernels, and of those that it
    compiled; ``decided`` counts the ops of both kinds, including ops that lost their origin. ``usual`` are the configs
    outside of regions.
    """

    graphs: Sequence[Graph]
    plan: Plan
    assignment: Assignment
    pieces: list[CompiledPiece] = field(default_factory=list)
    eager: set[int] = field(default_factory=set)
    compiled: set[int] = field(default_factory=set)
    decided: int = 0
    usual: Mapping[str, Any] = field(default_factory=dict)
    _direction: Direction = Direction.FORWARD
    _used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, program: CutProgram) -> Marks:
        """Return the marks of a program's plan."""
        marks = cls(program.capture.graphs, program.plan, program.assignment)
        marks.usual = read_config(marks.keys)
        return marks

    @property
    def keys(self) -> list[str]:
        """The config keys that regions of the plan set."""
        regions = [region for region in self.plan.regions if region.enabled]
        return sorted({key for region in regions for direction in Direction for key in config_of(region, direction)})

    def content(self) -> Any:
        """Return a value that identifies the marks; marks with equal values need one compile."""
        return self.plan, len(self.graphs)

    def mark(self, gm: fx.GraphModule) -> None:
        """Mark the nodes of a graph that Dynamo traced, like the nodes of the equal captured graph."""
        records = self._captured_graphs(gm)
        for record, graph in zip(records, all_graphs(gm), strict=True):
            captured_nodes = record.by_name
            for node in graph.graph.nodes:
                captured = captured_nodes[node.name]
                if captured.origin is not None:
                    claim = self.assignment.claim(record.id, captured.name, with_carved=True)
                    mark_node(
                        node,
                        captured.origin,
                        self._annotation_value(claim, captured, node),
                        carved=self.assignment.is_carved(captured),
                    )

    def _captured_graphs(self, gm: fx.GraphModule) -> list[Graph]:
        names = [[node.name for node in graph.graph.nodes] for graph in all_graphs(gm)]
        frames = grouped((record.frame, record) for record in self.graphs if record.kind is GraphKind.DYNAMO)
        equal_frames = [
            graphs for graphs in frames.values() if [[node.name for node in graph.nodes] for graph in graphs] == names
        ]
        if not equal_frames:
            raise RegionalExplorerError(
                "Dynamo traced a different graph than the one that was explored, so the plan's marks do not fit it. "
                "Call ex.retrace(), or leave the variant out."
            )
        chosen = next((graphs for graphs in equal_frames if graphs[0].id not in self._used), equal_frames[0])
        self._used.add(chosen[0].id)
        return chosen

    def _annotation_value(self, claim: Claim | None, captured: Node, node: fx.Node) -> Any:
        """Return the value of a node's ``compile_with_inductor`` annotation; None outside of enabled regions."""
        region = self.plan[claim.region] if claim is not None else None
        if region is None or not region.enabled:
            return None
        config = config_of(region, Direction.FORWARD)
        if not (captured.annotated and region.patterns(SelectorKind.ANNOTATION)):
            return {"inductor_region": region.name, "inductor_configs": config}
        mark = {"inductor_region": annotation_of(node)["inductor_region"]} if marked_region(captured.annotation) else {}
        return {**mark, "inductor_configs": config}

    # -------------------------------------------------------------------------------------------------------- compiling

    def regional(self) -> Callable[..., Any]:
        """Return the backend that marks Dynamo's graphs and hands them to ``regional_inductor``."""
        return self._with_marks(upstream_backend(self._set_direction))

    def lite(self, *, dynamic: bool | None) -> Callable[..., Any]:
        """Return the backend that marks Dynamo's graphs and compiles them in lite mode."""
        return self._with_marks(lite_backend(dynamic=dynamic))

    def _with_marks(self, backend: Callable[..., Any]) -> Callable[..., Any]:
        def compile_marked(gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
            self.mark(gm)
            return backend(gm, inputs)

        return compile_marked

    def _set_direction(self, direction: str) -> None:
        self._direction = Direction(direction)

    def watching(self, variant: str) -> AbstractContextManager[None]:
        """Return a context manager that records what upstream compiles, and under which configs."""
        return reporting_lite_ops(self._record_op) if variant == LITE else reporting_pieces(self._record_piece)

    def _record_piece(self, origins: frozenset[int]) -> None:
        self.pieces.append(CompiledPiece(origins, self._direction, read_config(self.keys)))

    def _record_op(self, origin: int | None, compiled: bool) -> None:  # noqa: FBT001 - the signature of a callback
        self.decided += 1
        if origin is not None:
            (self.compiled if compiled else self.eager).add(origin)

    # --------------------------------------------------------------------------------------------------------- findings

    def findings(self, variant: str) -> Iterator[Diagnostic]:
        """Yield a diagnostic for each difference between the plan and what upstream did."""
        claims = {
            node.origin: claim
            for graph in self.graphs
            for node in graph.ops
            if node.origin is not None and (claim := self.assignment.claim(graph.id, node.name)) is not None
        }
        ops = [node for graph in self.graphs if graph.kind is GraphKind.DYNAMO for node in graph.ops]
        for region in self.plan.regions:
            region_origins = {origin for origin, claim in claims.items() if claim.region == region.name}
            if region.enabled:
                where = [node for node in ops if node.origin in region_origins]
                yield from self._merged_instances(region, claims, where)
                yield from self._config_differences(variant, region, claims, where)
                yield from self._ignored_ops(region, region_origins, where)

    def _merged_instances(
        self, region: Region, claims: Mapping[int, Claim], where: Sequence[Node]
    ) -> Iterator[Diagnostic]:
        most = max((len(_instances_in_piece(piece, region, claims)) for piece in self.pieces), default=0)
        if most > 1:
            yield DiagnosticCode.UPSTREAM_MERGED.finding(
                f"Upstream compiles {most} instances of region {region.name!r} as one piece",
                region=region.name,
                where=where,
                remedy=(
                    "Give each instance an id of its own in the source, as ",
                    TO_SOURCE,
                    f' does in loops: "inductor_region": ({region.name!r}, index).',
                ),
            )

    def _config_differences(
        self, variant: str, region: Region, claims: Mapping[int, Claim], where: Sequence[Node]
    ) -> Iterator[Diagnostic]:
        pieces = [piece for piece in self.pieces if _instances_in_piece(piece, region, claims)]
        if variant == LITE and self.compiled:  # lite mode sets no config of a region
            pieces = [CompiledPiece(frozenset(), direction, self.usual) for direction in Direction]
        differing: dict[str, tuple[Any, Any]] = {}
        for piece in pieces:
            requested, applied = {**self.usual, **config_of(region, piece.direction)}, piece.config
            differing |= {key: (applied[key], requested[key]) for key in self.keys if applied[key] != requested[key]}
        if differing:
            got = ", ".join(f"{key}={value!r}" for key, (value, _) in differing.items())
            planned = ", ".join(f"{key}={value!r}" for key, (_, value) in differing.items())
            yield DiagnosticCode.UPSTREAM_CONFIG.finding(
                f"{_COMPILERS[variant]} compiles ops of region {region.name!r} under {got}",
                f"; requested was {planned}.",
                region=region.name,
                where=where,
                remedy="rx.compile runs each region under its own config. With annotations alone, leave an op unmarked "
                "between the two regions, or give them one config.",
            )

    def _ignored_ops(self, region: Region, region_origins: set[int], where: Sequence[Node]) -> Iterator[Diagnostic]:
        ignored = region_origins & self.eager - self.compiled if region_origins & self.compiled else region_origins
        if self.decided and ignored:
            device = next(
                (value.device for graph in self.graphs for node in graph for value in node.values), "this device"
            )
            yield DiagnosticCode.UPSTREAM_IGNORED.finding(
                f"torch.compile(mode='lite') leaves {len(ignored)} of {len(region_origins)} ops of region "
                f"{region.name!r} to eager kernels on {device}",
                ": the marks do not reach them.",
                region=region.name,
                where=where,
                remedy="Run the marks under torch's regional_inductor, as the variant 'upstream' does, or the plan "
                "with rx.compile.",
            )


def _instances_in_piece(piece: CompiledPiece, region: Region, claims: Mapping[int, Claim]) -> set[Any]:
    piece_claims = (claims.get(origin) for origin in piece.origins)
    return {claim.instance for claim in piece_claims if claim is not None and claim.region == region.name}
