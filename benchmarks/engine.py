"""What an edit, a cold compile, a capture, a call and an import cost, each beside what one would do without us.

Both sides of a row run in one process, in turn, under an Inductor cache directory of their own; compiles that must be
cold get a config value that was never used before.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.utils import fresh_cache
from torch.fx.graph import _BoxedCodeGen
from torch.fx.passes.regional_inductor import regional_inductor

import regional_explorer as rx
from benchmarks import first, insight, production, whole
from benchmarks.model import Block, Chain, inputs
from benchmarks.row import Row, timed, turns
from regional_explorer.torch_api.inductor import Compiled, compile_piece, start_compile

UNUSED = iter(range(1000, 100_000))
"""Values of max_fusion_size that no compile has seen: the code is the same, the cache key is not."""


def step(fn: Callable[..., Any], x: torch.Tensor, leaves: list[torch.Tensor]) -> None:
    """Run forward and backward once."""
    torch.autograd.grad(fn(x), leaves)


def toolchain() -> None:
    """Have Inductor build what it builds once per cache directory, by a compile that no row is about."""
    torch._dynamo.reset()
    x, compiled = torch.randn(7, requires_grad=True), torch.compile(nn.Tanh())
    step(lambda x: compiled(x).sum(), x, [x])


def upstream(model: Chain) -> Callable[..., Any]:
    """Return the model under upstream's regional Inductor, not yet traced."""
    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=regional_inductor, bw_compiler=regional_inductor)
    compiled: Callable[..., Any] = torch.compile(model, backend=backend)
    return compiled


def edit_rows(regions: int, goal: float, repeats: int) -> list[Row]:
    """Edit one of ``regions`` until it can be called: beside its own two compiles, and upstream from the start."""
    model, x = Chain(regions, equal=False), inputs()
    leaves = [x, *model.parameters()]
    with fresh_cache():
        ex = rx.explore(model, (x,))
        ex.compile()
        name = f"r{regions // 2:02}"
        switches = [switch for switch in ex.live.program.switches if switch.piece.claim.region == name]
        pieces = [(_plain(switch.piece.gm), switch.inputs) for switch in switches]
        edited = next(block for block in model.blocks if isinstance(block, Block) and block.region == name)
        step(upstream(model), x, leaves)

        def edit() -> Callable[..., Any]:
            ex.configure(name, {"max_fusion_size": next(UNUSED)})
            return ex.compiled

        def again() -> None:
            edited.config = {"max_fusion_size": next(UNUSED)}
            step(upstream(model), x, leaves)

        ours, floor, theirs = turns(
            repeats,
            lambda: timed(edit),
            lambda: timed(lambda: _compile_alone(pieces, {"max_fusion_size": next(UNUSED)})),
            lambda: timed(again),
        )
    what = f"edit one of {regions} regions, forward and backward, until it can be called"
    return [
        Row(what, "its own two standalone_compile calls", ours, floor, 1.15),
        Row(what, "upstream: reset and run again", ours, theirs, goal),
    ]


def _plain(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a copy that takes its arguments one by one, as ``standalone_compile`` expects it."""
    plain = copy.deepcopy(gm)
    plain.graph.set_codegen(fx.graph.CodeGen())
    plain.recompile()
    return plain


def _compile_alone(pieces: Sequence[tuple[fx.GraphModule, Any]], config: dict[str, Any]) -> None:
    """Compile pieces with nothing around them: what no tool could do without."""
    for gm, layouts in pieces:
        _compile_piece_alone(gm, layouts, config)


def _compile_piece_alone(gm: fx.GraphModule, layouts: Any, config: dict[str, Any]) -> None:
    mode = torch._subclasses.FakeTensorMode(shape_env=torch.fx.experimental.symbolic_shapes.ShapeEnv())
    with mode:
        fakes: list[Any] = [
            torch.empty_strided(layout.size, layout.stride, dtype=getattr(torch, layout.dtype.removeprefix("torch.")))
            for layout in layouts
        ]
    context = torch._guards.TracingContext(mode)
    with inductor_config.patch(config), torch._guards.tracing(context), torch.no_grad():
        torch._inductor.standalone_compile(gm, fakes, dynamic_shapes="from_tracing_context", aot=True)


def cold_rows(blocks: int = 24, repeats: int = 3) -> list[Row]:
    """Compile the regions of equal blocks, nothing cached; capture is not counted on either side."""
    model, x = Chain(blocks, equal=True), inputs()
    leaves = [x, *model.parameters()]

    def ours() -> float:
        with fresh_cache():
            toolchain()
            ex = rx.explore(model, (x,))
            return timed(ex.compile)

    def theirs() -> float:
        spent: list[float] = []

        def compiling(gm: fx.GraphModule, *example: Any) -> Any:
            started = time.perf_counter()
            try:
                return regional_inductor(gm, *example)
            finally:
                spent.append(time.perf_counter() - started)

        with fresh_cache():
            toolchain()
            backend = aot_autograd(fw_compiler=compiling, bw_compiler=compiling)
            step(torch.compile(model, backend=backend), x, leaves)
        return sum(spent)

    what = f"cold compile of the regions of {blocks} equal blocks, forward and backward"
    took, took_theirs = turns(repeats, ours, theirs)
    return [Row(what, "upstream regional_inductor", took, took_theirs, 0.15)]


def distinct_rows(regions: int = 12, repeats: int = 3) -> list[Row]:
    """Compile distinct regions, nothing cached, beside each other and one after the other, in turn."""
    model, x = Chain(regions, equal=False), inputs()

    def seconds(start: Callable[..., Compiled]) -> float:
        with fresh_cache():
            toolchain()
            ex = rx.explore(model, (x,))
            ex.live.program.store.run_inductor = start
            return timed(ex.compile)

    ours, theirs = turns(repeats, partial(seconds, start_compile), partial(seconds, compile_piece))
    what = f"cold compile of {regions} distinct regions, forward and backward"
    return [Row(what, "the same one after the other", ours, theirs, 0.65)]


def capture_rows(repeats: int = 9) -> list[Row]:
    """Capture, beside torch.compile with an AOTAutograd backend that records nothing."""
    model, x = Chain(12, equal=False), inputs()
    leaves = [x, *model.parameters()]

    def plain(gm: fx.GraphModule, _inputs: Any) -> Callable[[list[Any]], Any]:
        gm.graph.set_codegen(_BoxedCodeGen())
        gm.recompile()

        def run(args: list[Any]) -> Any:
            return gm.forward(args)

        run._boxed_call = True  # type: ignore[attr-defined]  # how AOTAutograd tells boxed functions
        return run

    def bare() -> None:
        torch._dynamo.reset()
        step(torch.compile(model, backend=aot_autograd(fw_compiler=plain, bw_compiler=plain)), x, leaves)

    bare()  # what is built at the first trace of a process
    rx.explore(model, (x,))
    ours, theirs = turns(repeats, lambda: timed(lambda: rx.explore(model, (x,))), lambda: timed(bare))
    against = "torch.compile with an aot_autograd backend that records nothing"
    return [Row("capture: rx.explore", against, ours, theirs, 1.15)]


def call_rows(budget_s: float = 10.0) -> list[Row]:
    """Call the finished callable, small regions and large, beside upstream's; interleaved rounds."""
    from regional_explorer.measure.clock import TimedCall
    from regional_explorer.measure.rounds import run_rounds
    from regional_explorer.record.timing import Phase

    found = []
    for size, rows in (("small", 8), ("large", 2048)):
        model, x = Chain(6, equal=False), inputs(rows)
        leaves = [x, *model.parameters()]
        theirs = upstream(model)  # first: it has Dynamo forget what it traced
        functions = {"upstream": theirs, "ours": rx.explore(model, (x,)).compiled}
        timed_calls = [TimedCall(name, partial(fn, x), partial(_gradients, leaves)) for name, fn in functions.items()]
        result = run_rounds(timed_calls, budget_s, baseline="upstream")
        steps = {name: phases[Phase.STEP] for name, phases in result.samples.items()}
        what = f"a step through ex.compiled, {size} regions"
        found.append(Row(what, "upstream's compiled function", steps["ours"], steps["upstream"], 1.02))
    return found


def _gradients(leaves: list[torch.Tensor], loss: Any) -> object:
    return torch.autograd.grad(loss, leaves)


def import_rows(repeats: int = 5) -> list[Row]:
    """Import, each in fresh processes; the interpreter's own start is taken off."""

    def seconds(code: str) -> float:
        return timed(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    start, ours, theirs = turns(
        repeats, *(partial(seconds, code) for code in ("pass", "import regional_explorer", "import torch"))
    )
    ours, theirs = ([took - empty for took, empty in zip(side, start, strict=True)] for side in (ours, theirs))
    return [Row("import regional_explorer", "import torch", ours, theirs, 0.1)]


ROWS: dict[str, Callable[[], list[Row]]] = {
    "edit": lambda: edit_rows(12, 0.6, repeats=7),
    "edit48": lambda: edit_rows(48, 0.35, repeats=3),
    "cold": cold_rows,
    "distinct": distinct_rows,
    "capture": capture_rows,
    "call": call_rows,
    "insight": insight.rows,
    "whole": whole.rows,
    "production": production.step_rows,
    "production-start": production.start_rows,
    "chain": production.chain_rows,
    "import": import_rows,
    "first": lambda: first.rows(warm=False),
    "first-warm": lambda: first.rows(warm=True),
}
"""The rows by the name that ``make bench ROWS=…`` takes."""
