"""Measures the floor of a call: the best time of each product on this machine, and the bytes of all other ops."""

from __future__ import annotations

import operator
import platform
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from msgspec.structs import replace
from torch import fx

from regional_explorer.capture.live_graph import LiveGraph
from regional_explorer.compiler.entry_file import EntryFile, path_beside_cache
from regional_explorer.compiler.passes import is_for_onednn
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run import Run
from regional_explorer.errors import MeasureError, count
from regional_explorer.measure.clock import CpuClock, TimedCall, clock_for
from regional_explorer.measure.profile import dense_tensors, tensor_bytes
from regional_explorer.measure.rates import rates_of, traffic_work
from regional_explorer.measure.rounds import run_rounds
from regional_explorer.record import Record, Seconds
from regional_explorer.record.benchmark import Phase
from regional_explorer.record.environment import Environment
from regional_explorer.record.floor import ATEN, ONEDNN, Floor, Product
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.grouping import grouped
from regional_explorer.torch_api.graphs import computes_nothing, is_only_kept, only_moves
from regional_explorer.torch_api.products import is_product_node, product_key, product_text, ways_of

PRODUCT_S = 0.25
"""The seconds for all ways to compute one product."""
RATES_S = 1.0
"""The seconds for the rates at which bytes move."""
CONSTANT = ", constant weights"
"""The end of the key of a product whose weights can be packed beforehand."""
TEMPLATE = "Inductor's template"
FORMAT = 1


class ProductEntry(Record, frozen=True):
    """The least seconds of a product by library, on one machine under one torch with one number of threads.

    A product that was measured on a busy machine is measured again, and keeps its least times.
    """

    key: str
    machine: str
    seconds: Mapping[str, Seconds]
    busy: bool = False
    format: int = FORMAT

    @property
    def library(self) -> str:
        """The fastest library."""
        return min(self.seconds, key=lambda name: self.seconds[name])


class ProductFile(EntryFile[ProductEntry]):
    """The products that were measured, of all processes."""

    def __init__(self, path: Path | None = None) -> None:
        """Use the file at ``path``, by default the one beside Inductor's cache."""
        super().__init__(path or path_beside_cache("products.jsonl"), ProductEntry, FORMAT)

    @property
    def here(self) -> list[ProductEntry]:
        """The products that were measured on this machine, under this torch with this number of threads."""
        return [entry for entry in self.entries.values() if entry.machine == machine_text()]


def machine_text() -> str:
    """Return the processor, or the GPU, the number of threads and the torch that the time of a product depends on."""
    gpu = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    precision = torch.get_float32_matmul_precision()
    rounded = "" if precision == "highest" else f", float32 products at {precision} precision"
    threads = count(torch.get_num_threads(), "thread")
    return f"{gpu}{_processor()}, {threads}, torch {torch.__version__}{rounded}"


def _processor() -> str:
    """Return the name of the processor, with its numbers: several processors share a name in virtual machines."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    facts = dict(re.findall(r"^(model name|cpu family|model|stepping)\s*:\s*(.+)$", text, re.MULTILINE))
    numbers = ".".join(facts[name] for name in ("cpu family", "model", "stepping") if name in facts)
    name = facts.get("model name") or platform.processor() or platform.machine()
    return f"{name} ({numbers})" if numbers else name


def measure_floor(
    program: Program,
    environment: Environment,
    run: Run,
    limit_s: float,
    file: ProductFile,
    templates: Mapping[tuple[str, str], float] = {},
) -> Floor:
    """Return the floor of a call; products that ``file`` does not have yet are measured, until cancelled.

    The graphs are those of the first call as they were traced. No product begins after ``limit_s`` seconds.
    ``templates`` has the seconds of products by graph and node where code of Inductor's own computes them.
    """
    graphs = [live for live in program.capture.live if live.id not in program.capture.late_graphs]
    keyed = _by_key(graphs, constant_weights=not program.capture.call.grad)
    missing = [key for key in keyed if key not in file.entries or file.entries[key].busy]
    end_s = time.perf_counter() + limit_s
    for number, key in enumerate(missing):
        left_s = end_s - time.perf_counter()
        if run.cancelled() or left_s <= 0.0:
            break
        (_, node), *_ = keyed[key]
        run.estimate(min(PRODUCT_S * (len(missing) - number), left_s))
        run.progress(f"measuring the product {product_text(node)}", number / len(missing))
        _keep(file, _measured(key, node, run))
    for key, same in keyed.items():
        if seconds := [templates[live.id, node.name] for live, node in same if (live.id, node.name) in templates]:
            _keep(file, ProductEntry(key, machine_text(), {TEMPLATE: min(seconds)}))
    moved = Counter(size for live in graphs for size in bytes_between(live, graphs))
    works = {size: traffic_work(*size) for size in moved}
    rates = rates_of(environment.device)
    if works and not run.cancelled():
        run.progress("measuring how fast memory is read and written", 0.9)
        run.threads.run_timed(lambda: rates.measure(list(works.values()), min(limit_s, RATES_S)))
    entries = {key: file.entries[key] for key in keyed if key in file.entries}
    products = [_product(entry, [node for _, node in keyed[key]]) for key, entry in entries.items()]
    known = sum(product.times for product in products)
    return Floor(
        tuple(sorted(products, key=lambda product: -product.seconds)),
        sum(sum(size) * times for size, times in moved.items()),
        sum(rates.seconds(works[size]) * times for size, times in moved.items()) if rates.fastest else 0.0,
        environment,
        left_out=sum(is_product_node(node) for live in graphs for node in live.gm.graph.nodes) - known,
        busy=any(entry.busy for entry in entries.values()),
    )


def _by_key(graphs: Sequence[LiveGraph], *, constant_weights: bool) -> dict[str, list[tuple[LiveGraph, fx.Node]]]:
    """Return the products of graphs by the key of their entry, without those of unknown sizes."""
    machine, keyed = machine_text(), list[tuple[str, tuple[LiveGraph, fx.Node]]]()
    for live in graphs:
        for node in filter(is_product_node, live.gm.graph.nodes):
            constant = constant_weights and viewed_node(node.all_input_nodes[-1]).op == "placeholder"
            with suppress(ValueError):  # a size that is known only in a run
                key = f"{machine}: {product_key(node)}{CONSTANT if constant else ''}"
                keyed.append((key, (live, node)))
    return grouped(keyed)


def _keep(file: ProductFile, entry: ProductEntry) -> None:
    """Add an entry to the file, with the least seconds of each library so far, unless it has nothing new."""
    earlier = file.entries.get(entry.key)
    known = {} if earlier is None else earlier.seconds
    least = {**known, **{name: min(seconds, known.get(name, seconds)) for name, seconds in entry.seconds.items()}}
    if least != known or (earlier is not None and earlier.busy and not entry.busy):
        file.add(replace(entry, seconds=least))


def _product(entry: ProductEntry, nodes: Sequence[fx.Node]) -> Product:
    each_s = entry.seconds[entry.library]
    aten_s, has_pass = entry.seconds.get(ATEN, each_s), entry.library == ONEDNN and is_for_onednn(nodes[0])
    return Product(product_text(nodes[0]), len(nodes), each_s, entry.library, aten_s, has_pass)


def _measured(key: str, node: fx.Node, run: Run) -> ProductEntry:
    """Return the entry of a product with the least time of each way to compute it; without times if none runs."""
    entry = ProductEntry(key, machine_text(), {})
    try:
        ways = run.threads.run_untimed(lambda: ways_of(node, constant=key.endswith(CONSTANT)))
        clock = clock_for(str(node.all_input_nodes[0].meta["val"].device))
        calls = [TimedCall(name, way) for name, way in ways.items()]
        with torch.no_grad():
            rounds = run_rounds(calls, PRODUCT_S, baseline="", clock=clock, context=run.silent())
    except (MeasureError, RuntimeError, NotImplementedError, TypeError):  # a random operand that the op refuses
        return entry
    rounds.stopped.raise_interrupt()
    overhead_s = run.threads.run_timed(_overhead_s) if isinstance(clock, CpuClock) else 0.0
    seconds = {
        name: max(min(phases[Phase.FORWARD]) - overhead_s, 0.0)
        for name, phases in rounds.samples.items()
        if phases.get(Phase.FORWARD)
    }
    return replace(entry, seconds=seconds, busy=rounds.noise.is_busy or rounds.noise.has_kept)


def _overhead_s() -> float:
    """Return the seconds that calling an op from Python takes, which generated code saves."""
    one = torch.ones(1, 1)
    with torch.no_grad():
        call = TimedCall("overhead", lambda: torch.ops.aten.mm.default(one, one))
        return min(call.sample(clock_for("cpu"), 200)[Phase.FORWARD] for _ in range(3))


# -------------------------------------------------------------------------------------------------------------- bytes


def viewed_node(node: fx.Node) -> fx.Node:
    """Return the node whose memory a node is a view of; the node itself if it is no view."""
    while node.op == "call_function" and computes_nothing(node) and node.all_input_nodes:
        source = node.all_input_nodes[0]
        value, is_part = source.meta.get("val"), node.target is operator.getitem
        if not isinstance(value, torch.Tensor) and not (is_part and computes_nothing(source)):
            return node
        node = source
    return node


def bytes_between(live: LiveGraph, graphs: Sequence[LiveGraph]) -> Iterator[tuple[int, int]]:
    """Yield the bytes of each tensor that the ops between products have to read and to write, as a pair.

    They read the inputs of the call and the results of products, and write the operands of products and the results of
    the call, each once. Nothing between has to be in memory, and what a forward computes for its backward may be
    computed again there. A library may apply ops to the results of products in an inference, and on a GPU: these
    results need not be read.
    """
    read: dict[fx.Node, dict[fx.Node, int]] = {}
    written: dict[fx.Node, int] = {}
    forward = next((one for one in graphs if one.id == live.id.replace(GraphKind.BACKWARD, GraphKind.FORWARD)), live)
    recomputed = {node.name for node in forward.gm.graph.nodes if forward is not live and not _is_stored(node)}
    try:
        for node in live.gm.graph.nodes:
            if node.op == "output":
                for result in node.all_input_nodes:
                    if not is_only_kept(result) and not _is_stored(result):
                        written[viewed_node(result)] = _size(viewed_node(result))
            elif node.op != "call_function" or computes_nothing(node):
                continue
            elif is_product_node(node):
                operands = (viewed_node(operand) for operand in node.all_input_nodes)
                written.update((operand, _size(operand)) for operand in operands if not _is_stored(operand))
            elif hasattr(node.target, "overloadpacket") and not _only_takes_shape(node):
                most = _size(node) if only_moves(node) else None
                for source in node.all_input_nodes:
                    base = viewed_node(source)
                    if _is_stored(base) and base.name not in recomputed and not _may_be_fused(base, live):
                        size = min(_size(source), _size(base))
                        read.setdefault(base, {})[source] = size if most is None else min(size, most)
    except ValueError:  # a size that is known only in a run
        return
    yield from ((min(sum(views.values()), _size(base)), 0) for base, views in read.items())
    yield from ((0, size) for size in written.values())


def _is_stored(node: fx.Node) -> bool:
    """Return whether a tensor is an input of its graph or a product's result, so that it is in memory anyway."""
    base = viewed_node(node)
    source = base.all_input_nodes[0] if base.target is operator.getitem else base
    return base.op != "call_function" or is_product_node(source)


def _may_be_fused(base: fx.Node, live: LiveGraph) -> bool:
    """Return whether a library may apply ops to a product before it writes the result."""
    on_cpu = all(tensor.device.type == "cpu" for tensor in dense_tensors(base.meta.get("val")))
    return base.op == "call_function" and (live.kind is GraphKind.INFERENCE or not on_cpu)


def _only_takes_shape(node: fx.Node) -> bool:
    """Return whether an op takes only the shape and dtype of its input, such as ``zeros_like``."""
    name = str(node.target).partition(".")[2].partition(".")[0]
    return name.endswith("_like") or name.startswith("new_")


def _size(node: fx.Node) -> int:
    return sum(map(tensor_bytes, dense_tensors(node.meta.get("val"))))
