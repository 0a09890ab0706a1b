"""Diagnostics about bodies of ``nested_compile_region``: those that run eagerly, and options that no plan can hold."""

from __future__ import annotations

from collections.abc import Iterator

from regional_explorer.errors.texts import count, listing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.graph import Graph
from regional_explorer.record.named_subgraphs import subgraphs
from regional_explorer.record.selector import SelectorKind
from regional_explorer.regions.checks.evidence import Evidence, lines
from regional_explorer.regions.subgraphs import calls_of, subgraph_key


def check_eager_subgraphs(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield at most one ``subgraph-eager``, for bodies without options that have no op or call in a region."""
    bodies = [body for body in subgraphs(evidence.graphs) if body.options is None and _is_eager_body(evidence, body)]
    if not bodies:
        return
    names = listing(dict.fromkeys(body.name for body in bodies))
    yield Diagnostic(
        DiagnosticCode.SUBGRAPH_EAGER,
        f"{count(len(bodies), 'subgraph')} of nested_compile_region ({names}) "
        f"{'is' if len(bodies) == 1 else 'are'} in no region and {'runs' if len(bodies) == 1 else 'run'} eagerly.",
        Severity.INFO,
        graph=bodies[0].id,
        where=lines(body.ops[0] for body in bodies if body.ops),
        upstream="regional_inductor_invoke_subgraph also runs bodies without options eagerly.",
        remedy='ex.mark("blocks", subgraphs="*") makes a region of them; "*" may be a function\'s name.',
    )


def _is_eager_body(evidence: Evidence, body: Graph) -> bool:
    owners = evidence.assignment.owners
    calls = calls_of(body, evidence.graphs)
    outer = evidence.by_id[body.parent[0]] if body.parent else None
    compiled = bool(calls) and all(call.origin in owners for call in calls)
    in_compiled = outer is not None and outer.name and not _is_eager_body(evidence, outer)
    return bool(body.ops) and not compiled and not in_compiled and not any(op.origin in owners for op in body.ops)


def check_subgraph_options(evidence: Evidence) -> Iterator[Diagnostic]:
    """Yield one ``subgraph-options`` per region with options that a plan cannot hold."""
    for region in evidence.plan.regions:
        keys = {key for sel in region.selectors if sel.kind is SelectorKind.SUBGRAPH for key in sel.patterns}
        bodies = [body for body in subgraphs(evidence.graphs) if body.options and subgraph_key(body) in keys]
        followed = dict.fromkeys(option for body in bodies if body.options for option in body.options.followed)
        ignored = dict.fromkeys(option for body in bodies if body.options for option in body.options.ignored)
        if not followed and not ignored:
            continue
        sentences = [f"Torch follows while tracing: {', '.join(followed)}."] if followed else []
        sentences += [f"Ignored: {', '.join(ignored)}."] if ignored else []
        yield Diagnostic(
            DiagnosticCode.SUBGRAPH_OPTIONS,
            f"The nested_compile_region of {region.name!r} has options that no plan can hold. {' '.join(sentences)}",
            Severity.WARNING if ignored else Severity.INFO,
            region=region.name,
            graph=bodies[0].id,
            where=lines(op for body in bodies for op in body.ops[:1]),
            upstream="each direction is compiled by the compiler in the options, and runs eagerly if there is none.",
            remedy="Leave them in the source: neither a plan file nor ex.to_source() contains them.",
        )
