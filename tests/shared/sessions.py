"""Sessions built by hand, and reads of their pictures and tables."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from regional_explorer.exploration.results import Results
from regional_explorer.record.artifact import ArtifactCode, ArtifactCompile, ArtifactRecord, CacheResult
from regional_explorer.record.benchmark import (
    CompileCost,
    Conditions,
    MemoryPeak,
    Numerics,
    NumericsVerdict,
    PartitionTiming,
    Phase,
    ReconciliationRow,
    Timing,
    Verdict,
)
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.record.environment import Environment
from regional_explorer.record.figure import Figure, exactly
from regional_explorer.record.graph import Graph, GraphBreak, GraphKind, ModuleCall, Node, Role, SourceLine, TensorSpec
from regional_explorer.record.partition import Partition, State
from regional_explorer.record.plan import LONGEST_PATTERN, Plan, Region, Selector, SelectorKind
from regional_explorer.record.profile import Bandwidth, OpTime, Profile
from regional_explorer.record.session import Session
from regional_explorer.record.statistics import median_figure, paired_ratios
from regional_explorer.tables.table import Table

FRAMES = tuple(
    name
    for name, value in vars(Results).items()
    if isinstance(value, property) and name not in ("session", "text", "answer", "plot")
)
"""The names of all tables of a session."""

ENVIRONMENT = Environment(torch="2.13.0", python="3.11.9", device="cpu", threads=2)
SPEC = TensorSpec("float32", (2, 128, 256), (32768, 256, 1), "cpu")

HOSTILE = (
    "</title></text></style><script>alert(1)</script>",
    'x" onload="alert(1)',
    "x' onclick='alert(1)",
    "]]><![CDATA[",
    "<img src=http://example.org/x.png>",
    "a\\",
    'end\\" ] evil [label="',
    "&#60;script&#62;",
    "&lt;b&gt;",
    "line\nbreak\r\ttab\x00\x1b[31m",
    "right\u202eto\u200fleft\u2066",
    "\\N \\G \\l \\n",
    "<b>html like</b>",
    "}; digraph { evil -> node",
    "日本語 ラベル 🙂",
    "lone \ud800 surrogate",
    "x" * 10_000,
)
"""Names that would break out of HTML, XML or DOT, cannot be seen, or are far too long."""


def source(line: int, text: str = "y = self.mlp(x)") -> SourceLine:
    return SourceLine("/home/someone/model.py", line, "forward", text)


def op(name: str, target: str, *inputs: str, module: str = "", line: int = 0, **fields: Any) -> Node:
    return Node(
        name,
        Role.OP,
        target,
        inputs,
        values=(SPEC,),
        stack=(source(line),) if line else (),
        modules=module_calls(module) if module else (),
        **fields,
    )


def module_calls(path: str) -> tuple[ModuleCall, ...]:
    """Return the module calls on the way to ``path``; a container of numbered modules is not called itself."""
    parts = path.split(".")
    called = [end for end, part in enumerate(parts, 1) if part.isdigit() or end == len(parts)]
    return tuple(ModuleCall(".".join(parts[:end]), "Layer" if parts[end - 1].isdigit() else "Module") for end in called)


def session(
    graphs: Iterable[Graph] = (),
    regions: Iterable[Region] = (),
    members: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None,
    **fields: Any,
) -> Session:
    return Session(
        title="model(x)",
        environment=ENVIRONMENT,
        grad=True,
        graphs=tuple(graphs),
        plan=Plan(tuple(regions)),
        members=members or {},
        **fields,
    )


def region(name: str, **config: Any) -> Region:
    return Region(name, (Selector(SelectorKind.MODULES, (f"layers.*.{name}",)),), config)


def layers_graph(count: int) -> Graph:
    """Return ``count`` layers, each a norm that gives a tuple, and a residual around ``t``, ``mm`` and ``gelu``."""
    nodes = [Node("x", Role.INPUT, "x", values=(SPEC,))]
    nodes += [Node(f"w{n}", Role.PARAMETER, f"w{n}") for n in range(count)]
    last = "x"
    for n in range(count):
        mlp = f"layers.{n}.mlp"
        nodes += [
            op(f"norm{n}", "aten.native_layer_norm.default", last, module=f"layers.{n}.norm", line=3),
            op(f"item{n}", "_operator.getitem", f"norm{n}", module=f"layers.{n}.norm", line=3),
            op(f"t{n}", "aten.t.default", f"w{n}", module=mlp, line=5),
            op(f"mm{n}", "aten.mm.default", f"item{n}", f"t{n}", module=mlp, line=5),
            op(f"gelu{n}", "aten.gelu.default", f"mm{n}", module=mlp, line=6),
            op(f"add{n}", "aten.add.Tensor", last, f"gelu{n}", module=f"layers.{n}", line=7),
        ]
        last = f"add{n}"
    nodes.append(Node("output", Role.OUTPUT, "output", (last, *(f"mm{n}" for n in range(count)))))
    return Graph("0/forward", GraphKind.FORWARD, 0, tuple(nodes))


def backward_graph(count: int) -> Graph:
    nodes = [
        Node("tangents_1", Role.TANGENT, "tangents_1"),
        *(Node(f"mm{n}", Role.SAVED, f"mm{n}") for n in range(count)),
    ]
    last = "tangents_1"
    for n in reversed(range(count)):
        mlp = f"layers.{n}.mlp"
        nodes += [
            op(f"tanh{n}", "aten.tanh.default", f"mm{n}", module=mlp, line=6, recompute=True),
            op(f"gelu_backward{n}", "aten.gelu_backward.default", last, f"tanh{n}", module=mlp, line=6),
            op(f"mm_back{n}", "aten.mm.default", f"gelu_backward{n}", module=mlp, line=5),
            op(f"sum{n}", "aten.add.Tensor", last, f"mm_back{n}"),
        ]
        last = f"sum{n}"
    nodes.append(Node("output", Role.OUTPUT, "output", (last,)))
    return Graph("0/backward", GraphKind.BACKWARD, 0, tuple(nodes))


def training_session(
    count: int = 4, *, state: State = State.COMPILED, error: str | None = None, **config: Any
) -> Session:
    """Return a training session of ``count`` layers whose MLPs are a region, one partition each and per graph."""
    asked = config or {"max_autotune": True}
    cut = {
        "0/forward": [(f"t{n}", f"mm{n}", f"gelu{n}") for n in range(count)],
        "0/backward": [(f"tanh{n}", f"gelu_backward{n}", f"mm_back{n}") for n in range(count)],
    }
    cuts = tuple(
        Partition(
            id=f"mlp/{n}/{graph}",
            region="mlp",
            instance=n,
            graph=graph,
            nodes=nodes,
            state=state,
            config_requested=asked,
            artifact=None if state is State.FAILED else f"artifact-{graph}",
            error=error,
        )
        for graph, pieces in cut.items()
        for n, nodes in enumerate(pieces)
    )
    made = ArtifactRecord(ArtifactCompile(1.5, CacheResult.MISS), dict(asked))
    return session(
        (layers_graph(count), backward_graph(count)),
        (region("mlp", **asked),),
        {"mlp": {graph: tuple(itertools.chain(*pieces)) for graph, pieces in cut.items()}},
        partitions=cuts,
        artifacts={part.artifact: made for part in cuts if part.artifact},
    )


def with_code(base: Session, code: ArtifactCode) -> Session:
    """Return a training session with this code of its forward."""
    artifact = replace(base.artifacts["artifact-0/forward"], code=code)
    return replace(base, artifacts={**base.artifacts, "artifact-0/forward": artifact})


def timing(variant: str, median_s: float, ratio: float | None, **fields: Any) -> Timing:
    withheld = getattr(fields.get("numerics"), "withholds_speedup", False)  # a hostile text has none
    base = Timing(
        variant=variant,
        phase=Phase.FORWARD,
        samples_s=(median_s,) * 40,
        median_s=Figure(median_s, median_s * 0.99, median_s * 1.01),
        iqr_s=median_s / 50,
        speedup=None if ratio is None else Figure(ratio, ratio - 0.03, ratio + 0.03),
        verdict=Verdict.WITHHELD if withheld else Verdict.FASTER,
    )
    return replace(base, **fields)


def measured(base: Session | None = None, *, numerics: NumericsVerdict = NumericsVerdict.OK) -> Session:
    """Return ``base`` with timings, conditions, numerics and compile costs."""
    variants = (
        timing("eager", 397e-6, None, speedup=exactly(1.0), verdict=Verdict.BASELINE),
        timing("aot_eager", 531e-6, 0.75, verdict=Verdict.SLOWER, numerics=NumericsVerdict.OK),
        timing("regional", 320e-6, 1.24, numerics=numerics),
        timing("full", 0.0024, 1.01, verdict=Verdict.SAME, numerics=NumericsVerdict.OK),
    )
    tensor = Numerics("regional", "output 0", "float32", False, 2.1e-7, 9e-7, 3e-7, 2e-7, 1.2e-6, numerics)
    return replace(
        base or training_session(),
        timings=variants,
        conditions=Conditions("cpu", "2.13.0", 2, 0.95, 40, "every CI is narrow enough", 5.0, 0.011),
        numerics=(tensor, replace(tensor, tensor="gradient of layers.0.w", error=5e-7)),
        variant_costs=(CompileCost("full", 0.4, "warm"),),
    )


PARTITION_FIELDS = ("runs", "measured_as", "bitwise", "worst_tensor")


def partition_timing(part: str, eager_s: float, compiled_s: float | None, **fields: Any) -> PartitionTiming:
    """Return the timing of a partition; ``fields`` are fields of it or of the timing of its artifact."""
    own = {name: fields.pop(name) for name in PARTITION_FIELDS if name in fields}
    phase = fields.pop("phase", Phase.FORWARD)
    eager = timing("eager", eager_s, None, phase=phase)
    if compiled_s is None:
        return PartitionTiming(part, eager, **own)
    fields = {"phase": phase, "numerics": NumericsVerdict.OK, **fields}
    return PartitionTiming(part, eager, timing("compiled", compiled_s, eager_s / compiled_s, **fields), **own)


def measured_alone(**changes: Any) -> Session:
    """Return a session of two layers of 100 µs forward and 200 µs backward, half of that compiled, measured once.

    ``changes`` are changed fields of the timing of each partition.
    """
    base = training_session(2)
    found = []
    for part in base.partitions:
        forward = part.graph == "0/forward"
        fields: dict[str, Any] = {
            "compiled_s": 5e-5 if forward else 1e-4,
            "speedup": Figure(2.0, 1.8, 2.2),
            "phase": Phase.FORWARD if forward else Phase.BACKWARD,
            "measured_as": None if part.instance == 0 else f"mlp/0/{part.graph}",
        }
        found.append(partition_timing(part.id, 1e-4 if forward else 2e-4, **fields | changes))
    return replace(base, partition_timings=tuple(found))


def measured_in_process(speedup: float, seed: int, *, machine: float = 1.0) -> Session:
    """Return a session as one process would measure it, on a machine that takes ``machine`` times as long.

    Its hundred rounds share the drift of the machine; one round in twenty is disturbed; the layout of memory, fixed for
    the life of a process, shifts the speedup.
    """
    chance = np.random.default_rng(seed)
    shared = machine * 1e-3 * (1.0 + 0.05 * np.sin(np.linspace(0.0, chance.uniform(1.0, 9.0), 100)))
    own = chance.normal(1.0, 0.04, (2, 100)) * np.where(chance.random((2, 100)) < 0.05, 1.8, 1.0)
    here = speedup * chance.normal(1.0, 0.0025)
    samples = {"eager": shared * own[0], "regional": shared * own[1] / here}
    timings = tuple(
        timing(
            variant,
            float(np.median(found)),
            None,
            speedup=median_figure(paired_ratios(samples["eager"], found)),
            samples_s=tuple(map(float, found)),
        )
        for variant, found in samples.items()
    )
    return replace(measured(training_session(2)), grad=False, timings=timings)


def profiled(base: Session) -> Session:
    """Return ``base`` with a profile in which each op of a graph takes a tenth longer than the one before."""
    ops = tuple(
        OpTime(graph.id, node.name, Figure(1e-6 * 1.1**number))
        for graph in base.graphs
        for number, node in enumerate(graph.ops)
    )
    whole = Figure(sum(op_time.seconds.value for op_time in ops))
    profile = Profile(
        ops=ops,
        rows=(),
        seconds=whole,
        step=whole,
        overhead_s=1e-7,
        rounds=9,
        stopped="budget",
        bandwidth=Bandwidth(Figure(1e10, 9e9, 1.1e10), "median of 15 copies"),
    )
    return replace(base, profile=profile)


def session_with_diagnostics() -> Session:
    return replace(
        training_session(),
        breaks=(GraphBreak("call to print", (source(12, "print(x.sum())"),)),),
        diagnostics=(
            Diagnostic(
                DiagnosticCode.REGION_SPLIT,
                "Region 'mlp' is cut into two pieces",
                where=(source(5),),
                upstream="would merge all four instances.",
                advice=("Mark the op between them too.",),
            ),
            Diagnostic(DiagnosticCode.CONFIG_INERT, "max_autotune does nothing here", severity=Severity.INFO),
        ),
    )


def hostile_session(text: str) -> Session:
    """Return a session with ``text`` wherever it can have text of the user's program.

    The name of its region has a space for each character that the name of a region cannot have.
    """
    name = "".join(character if character.isprintable() else " " for character in text)
    line = SourceLine(text, 3, text, text)
    spec = TensorSpec(text, (text,), (text,), text)
    nodes = (
        Node(text, Role.INPUT, text, values=(spec,)),
        Node(f"{text}1", Role.OP, f"aten.{text}.default", (text,), (spec,), (line,), (ModuleCall(text, text),)),
        Node(f"{text}2", Role.OP, text, (f"{text}1",), (spec,), (line,), (ModuleCall(text, text),)),
        Node(f"{text}3", Role.OP, text, (f"{text}2",), (spec,), (line,), (ModuleCall(text, text),)),
        Node(f"{text}4", Role.OUTPUT, "output", (f"{text}3",)),
    )
    cut = Partition(text, name, 0, text, (f"{text}1",), State.FAILED, {text: text}, text, error=text)
    base = Session(
        title=text,
        environment=Environment(text, text, text, 2),
        grad=True,
        graphs=(Graph(text, GraphKind.FORWARD, 0, nodes),),
        breaks=(GraphBreak(text, (line,)),),
        plan=Plan((Region(name, (Selector(SelectorKind.LINES, (text[:LONGEST_PATTERN],)),), {text: text}),)),
        members={name: {text: (f"{text}1",)}},
        partitions=(cut,),
        timings=(timing(text, 1.0, 1.5, numerics=NumericsVerdict.NOT_COMPARABLE, warnings=(text,)),),
        conditions=Conditions(text, text, 2, 0.95, 40, text, 5.0),
        artifacts={text: ArtifactRecord(ArtifactCompile(1.0, CacheResult.MISS, text), {text: text * 2})},
        variant_costs=(CompileCost(text, 1.0, text),),
        diagnostics=(
            Diagnostic(
                DiagnosticCode.REGION_SPLIT, text, text, Severity.ERROR, name, text, (text,), (line,), text, (text,)
            ),
        ),
    )
    found = Numerics(text, text, text, False, 1.0, 1.0, None, None, 0.5, NumericsVerdict.FAILED, text)
    fields = {"numerics": NumericsVerdict.NOT_COMPARABLE, "worst_tensor": text, "warnings": (text,)}
    return replace(
        base,
        numerics=(found,),
        partition_timings=(partition_timing(cut.id, 1.0, 0.5, **fields),),
        partition_numerics=(replace(found, partition=text),),
        reconciliation=(ReconciliationRow(Phase.STEP, text, Figure(1.0, 0.9, 1.1), region=name, note=text),),
        memory=(MemoryPeak(text, Figure(1 << 21, why=text), text),),
    )


def huge_session(count: int) -> Session:
    """Return a session of ``count`` unmarked ops in a row; every tenth also has an input from far back."""
    nodes = [Node("x", Role.INPUT, "x")]
    for n in range(count):
        before = f"op{n - 1}" if n else "x"
        far = (f"op{n - 977}",) if n % 10 == 0 and n > 977 else ()
        nodes.append(op(f"op{n}", f"aten.{'mul' if n % 3 else 'add'}.Tensor", before, *far))
    nodes.append(Node("output", Role.OUTPUT, "output", (f"op{count - 1}",)))
    return session((Graph("0/inference", GraphKind.INFERENCE, 0, tuple(nodes)),))


def parse_svg(svg: str | bytes) -> ET.Element:
    """Return the root of ``svg``; raise if it is not well formed."""
    return ET.fromstring(svg)  # noqa: S314 - our own output


def cells(table: Table[Any]) -> list[list[str]]:
    return [[str(column.shown_text(row)) for column in table.shown_columns] for row in table.shown_rows]


def notes_text(table: Table[Any]) -> str:
    return "\n".join(table.notes())
