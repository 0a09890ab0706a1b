"""The ``fusion-refused`` diagnostic: pairs of kernels that Inductor did not fuse, why, and a config that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from regional_explorer.errors.texts import count
from regional_explorer.insight.why import Cured, Remedy, remedy_text
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.kernels import ArtifactCode, RefusedFusion
from regional_explorer.record.region_code import PartitionCode
from regional_explorer.record.timing import Timing
from regional_explorer.render.style.formats import size

TOO_MANY_SIDE_BY_SIDE = "cpp.max_horizontal_fusion_size"

REMEDIES: Mapping[str, Mapping[str, Any]] = {
    "exceeds max fusion": {"max_fusion_size": 512},
    TOO_MANY_SIDE_BY_SIDE: {TOO_MANY_SIDE_BY_SIDE: 512},
    "score_fusion_memory_threshold": {"score_fusion_memory_threshold": 1},
    "indexing mismatch": {"loop_ordering_after_fusion": True},
    "memory deps did not match": {"loop_ordering_after_fusion": True},
}
"""Configs under which Inductor fuses what it refused, by words of its reason; other reasons have no config."""


@dataclass(frozen=True)
class Fused(Cured):
    """The refused fusion that shares the most data, and the number of ``pairs`` refused for such a reason."""

    refused: RefusedFusion
    pairs: int


def fusion_remedies(parts: Sequence[PartitionCode]) -> list[Remedy[Fused]]:
    """Return the configs that may fuse what was refused in these partitions."""
    reasons = {refused.reason for part in parts for refused in part.code.refused}
    configs = [config for words, config in REMEDIES.items() if any(words in reason for reason in reasons)]
    distinct = [config for number, config in enumerate(configs) if config not in configs[:number]]
    return [Remedy(config, partial(fused, config), partial(fusion_refused, config)) for config in distinct]


def fused(config: Mapping[str, Any], part: PartitionCode, after: ArtifactCode) -> Fused | None:
    """Return the refused fusion that shares the most data, if the refusals in ``after`` share less."""
    pairs = [pair for pair in part.code.refused if any(REMEDIES[w] == config for w in REMEDIES if w in pair.reason)]
    now_bytes, then_bytes = (sum(pair.shared_bytes for pair in code.refused) for code in (part.code, after))
    if not pairs or after.problem is not None or then_bytes >= now_bytes:
        return None
    return Fused(part, max(pairs, key=lambda pair: pair.shared_bytes), len(pairs))


def fusion_refused(config: Mapping[str, Any], region: str, cured: Fused, timing: Timing) -> Diagnostic:
    """Return the diagnostic of a refused fusion whose remedy was measured to be faster."""
    refused = cured.refused
    pair = [cured.part.kernels[position] for position in dict.fromkeys((refused.first, refused.second))]
    names = " and ".join(linked.kernel.name for linked in pair)
    which = f"{names} apart" if len(pair) > 1 else f"two loops of {names} one after the other"
    more_pairs = f", and {count(cured.pairs - 1, 'more pair')} for such a reason" if cured.pairs > 1 else ""
    return Diagnostic(
        DiagnosticCode.FUSION_REFUSED,
        f"Region {region!r} runs {which}, though they touch the same {size(refused.shared_bytes)}: "
        f"Inductor refused to fuse them ({refused.reason}){more_pairs}.",
        Severity.INFO,
        region=region,
        graph=cured.part.partition.graph,
        nodes=tuple(dict.fromkeys(node.name for linked in pair for node in linked.nodes)),
        where=tuple(dict.fromkeys(line for linked in pair for line in linked.lines)),
        upstream="the same, without a warning.",
        remedy=remedy_text(region, config, cured.part, timing),
    )
