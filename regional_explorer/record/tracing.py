"""How AOTAutograd makes the graphs of a call out of Dynamo's: a part of the plan, since other graphs have other ops."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict, replace

from regional_explorer.errors import InvalidArgumentError, check_flag, did_you_mean, shown_value
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.record import Record

PARTITIONERS = ("default", "min_cut")


class Prepared(Record, frozen=True):
    """How a trace has prepared the graph of a partition for Inductor: its ops are decomposed."""

    kind: GraphKind
    """The kind of the graph."""
    joint_passes: bool
    """Whether the joint-graph passes have run, too."""

    frozen: bool = False
    """Whether its weights are to be constants."""


class Tracing(Record, frozen=True):
    """How a call is traced: how AOTAutograd splits forward from backward, and what the graphs consist of."""

    partitioner: str = "default"
    """``"default"`` keeps what the backward reads, as upstream's regional path; ``"min_cut"`` recomputes cheap ops."""

    joint_passes: bool = False
    """Whether Inductor's joint-graph passes (attention patterns, constant folding) run before the split."""

    decompositions: bool = False
    """Whether ops are decomposed as Inductor does before autograd; otherwise each partition decomposes its own."""

    frozen: bool = False
    """Whether the weights of an inference are constants of the regions, which Inductor folds and packs."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidArgumentError: there is no such partitioner, an option is not True or False, or ``frozen`` is without
                ``decompositions``.
        """
        if not isinstance(self.partitioner, str) or self.partitioner not in PARTITIONERS:
            raise InvalidArgumentError(
                f"partitioner={shown_value(self.partitioner)}: give {' or '.join(map(repr, PARTITIONERS))}."
                f"{did_you_mean(self.partitioner, PARTITIONERS)}"
            )
        check_flag("joint_passes", self.joint_passes)
        check_flag("decompositions", self.decompositions)
        check_flag("frozen", self.frozen)
        if self.frozen and not self.decompositions:
            raise InvalidArgumentError(
                "frozen=True needs decompositions=True: Inductor folds constants in graphs of decomposed ops."
            )

    def changed(self, **options: Any) -> Tracing:
        """Return the tracing with the ``options`` that are not None; weights are frozen as in ``AS_TORCH_COMPILE``."""
        given = {name: value for name, value in options.items() if value is not None}
        if given.get("frozen") is True:
            given = {"joint_passes": True, "decompositions": True, **given}
        return replace(self, **given)

    def prepared(self, kind: GraphKind) -> Prepared | None:
        """Return how a graph of this kind is prepared for Inductor; None if partitions decompose their own ops."""
        if not self.decompositions:
            return None
        return Prepared(kind, self.joint_passes, frozen=self.frozen and kind is GraphKind.INFERENCE)

    @property
    def options(self) -> dict[str, Any]:
        """The options that are not the default, as ``rx.explore`` takes them."""
        default = asdict(AS_UPSTREAM)
        return {name: value for name, value in asdict(self).items() if value != default[name]}

    def __str__(self) -> str:
        """Return for example ``min_cut partitioner, joint passes, decompositions (as torch.compile)``."""
        parts = [f"{self.partitioner} partitioner"]
        parts += [
            name.replace("_", " ") for name in ("joint_passes", "decompositions", "frozen") if getattr(self, name)
        ]
        return f"{', '.join(parts)}{' (as torch.compile)' if self == AS_TORCH_COMPILE else ''}"


AS_UPSTREAM = Tracing()
"""How upstream's regional path traces: the default. Files leave it out by its identity."""

AS_TORCH_COMPILE = Tracing("min_cut", joint_passes=True, decompositions=True)
"""How plain ``torch.compile`` traces: with every op in one region, its generated code is the same."""

FROZEN = AS_TORCH_COMPILE.changed(frozen=True)
"""Like ``AS_TORCH_COMPILE``, with the weights of an inference as constants."""
