"""The cost of edits, cold compiles, captures and imports, beside the alternatives without us.

Both sides of a row take turns. Except for the import they run in one process under an Inductor
cache directory of their own. Compiles that must be cold get a config value that was never used before.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._inductor.utils import fresh_cache
from torch.fx.passes.regional_inductor import regional_inductor

import regional_explorer as rx
from benchmarks.row import Row, elapsed_s, in_process, turns
from regional_explorer.torch_api.inductor import CompileOutput, compile_piece, start_compile
from tests.shared.models import Block, Chain, inputs

UNUSED = iter(range(1000, 100_000))
"""Values of max_fusion_size that no compile has seen: the code is the same, the cache key is not."""


def step(fn: Callable[..., Any], x: torch.Tensor, leaves: list[torch.Tensor]) -> None:
    """Run forward and backward once."""
    torch.autograd.grad(fn(x), leaves)


def build_toolchain() -> None:
    """Have Inductor build the files of a cache directory that it builds once, by a compile outside of all rows."""
    torch._dynamo.reset()
    x, compiled = torch.randn(7, requires_grad=True), torch.compile(nn.Tanh())
    step(lambda x: compiled(x).sum(), x, [x])


def upstream_call(model: nn.Module) -> Callable[..., Any]:
    """Return the model under upstream's regional Inductor, not yet traced."""
    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=regional_inductor, bw_compiler=regional_inductor)
    compiled: Callable[..., Any] = torch.compile(model, backend=backend)
    return compiled


def edit_rows(regions: int, goal: float, repeats: int) -> Iterator[Row]:
    """Edit one of ``regions`` until it can be called, beside its own two compiles and upstream from the start."""
    model, x = Chain(regions, equal=False), inputs()
    leaves = [x, *model.parameters()]
    with fresh_cache():
        ex = rx.explore(model, (x,))
        ex.compile()
        name = f"r{regions // 2:02}"
        switches = [switch for switch in ex.live.program.switches if switch.piece.claim.region == name]
        pieces = [(_unboxed_copy(switch.piece.gm), switch.known_workpiece.inputs) for switch in switches]
        edited = next(block for block in model.blocks if isinstance(block, Block) and block.region == name)
        step(upstream_call(model), x, leaves)

        def edit() -> Callable[..., Any]:
            ex.configure(name, {"max_fusion_size": next(UNUSED)})
            return ex.compiled

        def again() -> None:
            edited.config = {"max_fusion_size": next(UNUSED)}
            step(upstream_call(model), x, leaves)

        ours, floor, theirs = turns(
            repeats,
            lambda: elapsed_s(edit),
            lambda: elapsed_s(lambda: _compile_alone(pieces, {"max_fusion_size": next(UNUSED)})),
            lambda: elapsed_s(again),
        )
    what = f"edit one of {regions} regions, forward and backward, until it can be called"
    yield Row(what, "its own two standalone_compile calls", ours, floor, 1.15)
    yield Row(what, "upstream: reset and run again", ours, theirs, goal)


def _unboxed_copy(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a copy that takes its arguments one by one, not as one list: ``standalone_compile`` expects that."""
    plain = copy.deepcopy(gm)
    plain.graph.set_codegen(fx.graph.CodeGen())
    plain.recompile()
    return plain


def _compile_alone(pieces: Sequence[tuple[fx.GraphModule, Any]], config: dict[str, Any]) -> None:
    """Compile pieces with nothing around them: the work that no tool can avoid."""
    for gm, layouts in pieces:
        with torch._subclasses.FakeTensorMode(shape_env=torch.fx.experimental.symbolic_shapes.ShapeEnv()) as mode:
            fakes: list[Any] = [
                torch.empty_strided(
                    layout.size, layout.stride, dtype=getattr(torch, layout.dtype.removeprefix("torch."))
                )
                for layout in layouts
            ]
        context = torch._guards.TracingContext(mode)
        with inductor_config.patch(config), torch._guards.tracing(context), torch.no_grad():
            torch._inductor.standalone_compile(gm, fakes, dynamic_shapes="from_tracing_context", aot=True)


def cold_rows(blocks: int = 24, repeats: int = 3) -> Iterator[Row]:
    """Compile the regions of equal blocks, nothing cached; capture is not counted on either side."""
    model, x = Chain(blocks, equal=True), inputs()
    leaves = [x, *model.parameters()]

    def theirs() -> float:
        spent: list[float] = []

        def compiling(gm: fx.GraphModule, *example: Any) -> Any:
            started = time.perf_counter()
            try:
                return regional_inductor(gm, *example)
            finally:
                spent.append(time.perf_counter() - started)

        with fresh_cache():
            build_toolchain()
            backend = aot_autograd(fw_compiler=compiling, bw_compiler=compiling)
            step(torch.compile(model, backend=backend), x, leaves)
        return sum(spent)

    what = f"cold compile of the regions of {blocks} equal blocks, forward and backward"
    took, took_theirs = turns(repeats, partial(_cold_s, model, x), theirs)
    yield Row(what, "upstream regional_inductor", took, took_theirs, 0.15)


def distinct_rows(regions: int = 12, repeats: int = 3) -> Iterator[Row]:
    """Compile distinct regions, nothing cached, side by side and one after the other, in turns."""
    model, x = Chain(regions, equal=False), inputs()
    ours, theirs = turns(repeats, *(partial(_cold_s, model, x, start) for start in (start_compile, compile_piece)))
    what = f"cold compile of {regions} distinct regions, forward and backward"
    yield Row(what, "the same one after the other", ours, theirs, 0.65)


def _cold_s(model: nn.Module, x: torch.Tensor, start: Callable[..., CompileOutput] = start_compile) -> float:
    """Return the seconds of compiling all regions; only the files that Inductor builds once are cached."""
    with fresh_cache():
        build_toolchain()
        ex = rx.explore(model, (x,))
        ex.live.program.store.run_inductor = start
        return elapsed_s(ex.compile)


def capture_rows(repeats: int = 9) -> Iterator[Row]:
    """Capture, beside torch.compile with an AOTAutograd backend that records nothing."""
    model, x = Chain(12, equal=False), inputs()
    leaves = [x, *model.parameters()]

    def bare() -> None:
        torch._dynamo.reset()
        step(torch.compile(model, backend=aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop)), x, leaves)

    bare()  # the first trace of a process builds more
    rx.explore(model, (x,))
    ours, theirs = turns(repeats, lambda: elapsed_s(lambda: rx.explore(model, (x,))), lambda: elapsed_s(bare))
    against = "torch.compile with an aot_autograd backend that records nothing"
    yield Row("capture: rx.explore", against, ours, theirs, 1.15)


def import_rows(repeats: int = 5) -> Iterator[Row]:
    """Import both, each in fresh processes; the interpreter's own start is subtracted."""
    codes = ("pass", "import regional_explorer", "import torch")
    start, ours, theirs = turns(repeats, *(partial(elapsed_s, partial(in_process, code)) for code in codes))
    ours, theirs = ([took - empty for took, empty in zip(side, start, strict=True)] for side in (ours, theirs))
    yield Row("import regional_explorer", "import torch", ours, theirs, 0.1)
