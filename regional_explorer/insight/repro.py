"""Writes one partition as a stand-alone script."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any

import torch
from torch import fx

from regional_explorer.compiler.fingerprint import TOKEN, Layout, Symbols, canonical
from regional_explorer.errors import ReproError
from regional_explorer.record.graph import GraphKind
from regional_explorer.record.grouping import grouped
from regional_explorer.record.plan import Preparation
from regional_explorer.regions.cut import Piece
from regional_explorer.torch_api.graphs import (
    FALLBACK,
    bodies,
    fake_mode_with_symbols,
    is_carved,
    is_operator,
    resolve,
    symbols_of,
)
from regional_explorer.torch_api.prepared import is_lowered_as_it_is
from regional_explorer.torch_api.torch_config import Settings


def literal(value: Any, what: str) -> str:
    """Return a value as source code, with its nodes as names.

    Raises:
        ReproError: the value cannot be written as code; the message says ``what`` it is.
    """
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, slice):
        return f"slice({', '.join(literal(part, what) for part in (value.start, value.stop, value.step))})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str):
        return repr(value)
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    if isinstance(value, (tuple, list)):
        items = ", ".join(literal(item, what) for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items},)" if value else "()"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {literal(item, what)}' for key, item in value.items())}}}"
    raise ReproError(f"{what} is a {type(value).__name__}, which has no Python literal.")


def real_inputs(inputs: Sequence[Layout], symbols: Symbols) -> Iterator[str]:
    """Yield the lines that create real inputs: the sizes first, as the graph takes them, then one per input."""
    shared = _shared_storages(inputs)
    yield "inputs = []"
    for storage, views in shared.items():
        yield f"storage_{storage} = tensor(({max(map(_extent, views))},), (1,), {views[0].dtype}, {views[0].device!r})"
    for number, layout in enumerate(inputs):
        view = f"storage_{layout.storage}.as_strided({layout.size}, {layout.stride}, {layout.offset})"
        yield f"inputs.append({view if layout.storage in shared else _real_input_code(number, layout)})"
    sizes = [
        f"(*inputs[{argument}].shape, *inputs[{argument}].stride())[{place}]"
        for _, (argument, place) in symbols
        if place >= 0
    ]
    yield f"return [{''.join(f'{size}, ' for size in sizes)}*inputs]"


def _shared_storages(inputs: Sequence[Layout]) -> dict[int, list[Layout]]:
    """Return the inputs that share a storage, by the storage's number."""
    storages = grouped((layout.storage, layout) for layout in inputs if layout.storage >= 0)
    shared = {storage: views for storage, views in storages.items() if len(views) > 1}
    for views in shared.values():
        if len({view.dtype for view in views}) > 1:
            raise ReproError("inputs of several dtypes share a storage, which the script cannot create.")
    return shared


def _extent(layout: Layout) -> int:
    """Return the number of elements that a storage needs for a view."""
    if 0 in layout.size:
        return layout.offset
    steps = zip(layout.size, layout.stride, strict=True)
    return layout.offset + 1 + sum((size - 1) * stride for size, stride in steps)


def _real_input_code(number: int, layout: Layout) -> str:
    if layout == TOKEN:
        return "torch.empty(0)"
    if not layout.dtype.startswith("torch."):
        return literal(layout.value, f"input {number}")
    if isinstance(layout.value, str):
        raise ReproError(f"input {number} is a tensor of layout {layout.value}, which the script cannot create.")
    offset = "" if layout.aligned else ", offset=1"
    return f"tensor({layout.size}, {layout.stride}, {layout.dtype}, {layout.device!r}{offset})"


def fake_inputs(fakes: Sequence[Any], symbols: Symbols, names: Mapping[Any, str]) -> Iterator[str]:
    """Yield the lines that create the fake inputs that the graph is compiled for."""
    for symbol, _ in symbols:
        if isinstance(symbol, torch.SymInt):
            name, create = (
                names[symbol.node.expr],
                "" if symbol.node.expr.is_positive else ", env.create_unspecified_symbol",
            )
            yield f"{name} = size({int(symbol.node.hint)}, {name!r}{create})"
    yield "return ["
    for fake in fakes:
        if isinstance(fake, torch.Tensor):
            size, stride = (_sizes_code(sizes, names) for sizes in (fake.shape, fake.stride()))
            yield f"    fake({size}, {stride}, {fake.dtype}, {str(fake.device)!r}),"
        else:
            yield f"    {_size_code(fake, names)},"
    yield "]"


def _sizes_code(sizes: Sequence[Any], names: Mapping[Any, str]) -> str:
    return f"({''.join(f'{_size_code(size, names)}, ' for size in sizes)})"


def _size_code(size: Any, names: Mapping[Any, str]) -> str:
    expression = symbols_of(size)
    if expression is None:
        return literal(int(size) if isinstance(size, torch.SymInt) else size, "an input")
    text = re.sub(r"[a-z]+\d+", lambda match: next(n for s, n in names.items() if str(s) == match[0]), str(expression))
    if not re.fullmatch(r"[s\d+*/() -]+", text):
        raise ReproError(f"the size {expression} of an input cannot be written as Python.")
    return text


TORCH_LIBRARIES = ("aten", "prims", "higher_order", "quantized", "inductor", "rngprims", "_c10d_functional")
"""The namespaces of operators that every torch has."""

MOST_ELEMENTS = 4096
"""Constants of more elements are not written into the script."""

_KNOB_SETTERS = {
    "threads": "torch.set_num_threads",
    "default dtype": "torch.set_default_dtype",
    "float32 precision": "torch.set_float32_matmul_precision",
}

_SCRIPT = '''"""{title}

Written by regional_explorer. Compiles one graph with Inductor, calls it and the same graph run op by op, and prints how
far their results are apart and how long each takes. The inputs are made up: floats are random, integers zero.
"""

import math
import operator
import time

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
{imports}
# {versions}
{settings}
CONFIG = {config}


{graphs}


def tensor(size, stride, dtype, device, offset=0):
    """Return a tensor of this layout; ``offset`` shifts it within its storage."""
    needed = offset + 1 + sum((n - 1) * step for n, step in zip(size, stride)) if all(size) else offset
    if dtype.is_floating_point or dtype.is_complex:
        data = torch.randn(needed, device=device).to(dtype)
    else:
        data = torch.zeros(needed, dtype=dtype, device=device)
    return data.as_strided(size, stride, offset)


def real_inputs():
    """Return inputs as the program had them."""
{inputs}


def fake_inputs(mode):
    """Return the same inputs as Inductor sees them."""
    env = mode.shape_env

    def size(hint, name, create=env.create_symbol):
        source = ConstantSource(name)
        symbol = create(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        return env.create_symintnode(symbol, hint=hint, source=source)

    def fake(size, stride, dtype, device):
        with mode:
            return torch.empty_strided(size, stride, dtype=dtype, device=device)

{fakes}


def compiled():
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=False)
    remat = "remat_using_tags_for_fwd_loss_bwd_graph"
    known = {{remat: False}} if hasattr(functorch_config, remat) else {{}}
    inputs = fake_inputs(mode)
    with (
        torch.fx.traceback.preserve_node_meta(enable=False),
        inductor_config.patch(CONFIG),
        functorch_config.patch(known),
        tracing(TracingContext(mode)),
    ):
{compile}


def seconds(call):
    times = []
    for _ in range(7):
        started = time.perf_counter()
        for _ in range({repeats}):
            call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started) / {repeats})
    return sorted(times)[len(times) // 2]


def apart(left, right):
    if not isinstance(left, torch.Tensor) or left.numel() == 0:
        return 0.0
    wide = torch.complex128 if left.is_complex() else torch.float64
    return (left.to(wide) - right.to(wide)).abs().max().item()


if __name__ == "__main__":
    torch.manual_seed(0)
    with torch.no_grad():
        inputs, eager, fast = real_inputs(), graph(), compiled()
        torch.manual_seed(1)
        expected = eager(*inputs)
        torch.manual_seed(1)
        results = fast(*inputs)
        for index, (left, right) in enumerate(zip(expected, results)):
            print(f"output {{index}}: {{apart(left, right):.3g}} apart at most")
        eager_s, fast_s = seconds(lambda: eager(*inputs)), seconds(lambda: fast(*inputs))
        print(f"op by op {{eager_s * 1e6:.1f}} us, compiled {{fast_s * 1e6:.1f}} us")
'''


_ALONE = """
return torch._inductor.standalone_compile(graph(), inputs, dynamic_shapes="from_tracing_context", aot=True)
"""

_AS_IT_IS = """
# Its ops are decomposed, so that Inductor alone compiles it, as torch.compile does its graphs.
with V.set_fake_mode(mode), enable_python_dispatcher():
    gm = graph()
    compile_fx.fake_tensor_prop(gm, inputs){joint_passes}
    outputs = gm.graph.output_node()
    outputs.meta["user_visible_output_idxs"] = list(range(len(outputs.args[0])))
    in_cpp = {{"cpp_wrapper": True}} if inductor_config.cpp_wrapper else {{}}
    with inductor_config.patch(compile_fx.get_cpp_wrapper_config() if in_cpp else {{}}), V.set_real_inputs(inputs):
        fast = compile_fx.compile_fx_inner(
            gm, inputs, is_inference={inference}, is_backward={backward}, cudagraphs=BoxedBool(False), **in_cpp
        )
return lambda *args: fast(list(args))
"""

_IMPORTS_AS_IT_IS = """
from torch._dispatch.python import enable_python_dispatcher
from torch._inductor import compile_fx
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.utils import BoxedBool
from torch._inductor.virtualized import V
"""


def _compile_source(gm: fx.GraphModule, config: Mapping[str, Any], prepared: Preparation | None) -> tuple[str, str]:
    """Return the imports and the lines that compile the graph in the way that its partition is compiled."""
    if prepared is None or not is_lowered_as_it_is(gm, config):
        return "", _ALONE.strip()
    code = _AS_IT_IS.strip().format(
        joint_passes="" if prepared.joint_passes else "\n    gm = joint_graph_passes(gm)",
        inference=prepared.kind is GraphKind.INFERENCE,
        backward=prepared.kind is GraphKind.BACKWARD,
    )
    return _IMPORTS_AS_IT_IS.strip(), code


def repro_script(title: str, piece: Piece, inputs: Sequence[Layout], config: Mapping[str, Any]) -> str:
    """Return the script for one partition whose inputs have these layouts.

    Raises:
        ReproError: a part of the script cannot be written as code; the message names it.
    """
    gm, fakes, symbols = canonical(piece, inputs, fake_mode_with_symbols())
    names = {
        symbol.node.expr: f"s{number}" for number, (symbol, _) in enumerate(symbols) if isinstance(symbol, torch.SymInt)
    }
    settings = Settings.now()
    config = {**settings.inductor, **config}
    imports, compiling = _compile_source(gm, config, piece.prepared)
    if piece.unwritten:
        compiling = (
            f"# In the plan, weights are constants, which Inductor folds and packs. Here they are inputs.\n{compiling}"
        )
    return _SCRIPT.format(
        title=title,
        versions=f"torch {torch.__version__}",
        settings="\n".join(_setting_lines(settings)),
        config=_dictionary_code(config),
        imports=imports + "\n" * bool(imports),
        compile=indent(compiling, " " * 8),
        graphs="\n\n\n".join(_graph_functions(gm)),
        inputs="\n".join(f"    {line}" for line in real_inputs(inputs, symbols)),
        fakes="\n".join(f"    {line}" for line in fake_inputs(fakes, symbols, names)),
        repeats=20,
    )


def _setting_lines(settings: Settings) -> Iterator[str]:
    for name, function in _KNOB_SETTERS.items():
        value = settings.knobs.get(name)
        if isinstance(value, (int, str, torch.dtype)):
            yield f"{function}({literal(value, f'the setting {name}')})"
    deterministic, warn_only = settings.knobs.get("deterministic", (False, False))
    if deterministic:
        yield f"torch.use_deterministic_algorithms(True, warn_only={warn_only})"


def _dictionary_code(values: Mapping[str, Any]) -> str:
    lines = [f"    {key!r}: {literal(value, f'the config {key!r}')}," for key, value in sorted(values.items())]
    return "\n".join(["{", *lines, "}"]) if lines else "{}"


# ----------------------------------------------------------------------------------------------------------- the graph


def _graph_functions(gm: fx.GraphModule) -> Iterator[str]:
    """Yield a function for the graph, after the functions of the bodies of its higher-order ops."""
    body_names: dict[int, str] = {}
    functions: list[str] = []

    def write(body: fx.GraphModule, name: str) -> None:
        for _, inner in bodies(body):
            if id(inner) not in body_names:
                body_names[id(inner)] = f"body_{len(body_names)}"
                write(inner, body_names[id(inner)])
        functions.append("\n".join(_function_lines(body, name, body_names)))

    write(gm, "graph")
    yield from functions


def _function_lines(gm: fx.GraphModule, name: str, body_names: Mapping[int, str]) -> Iterator[str]:
    yield f"def {name}():"
    attributes = {str(node.target): resolve(gm, node) for node in gm.graph.find_nodes(op="get_attr")}
    yield "    held = {"
    for target, attribute in attributes.items():
        yield f"        {target!r}: {_constant_code(target, attribute, body_names)},"
    yield "    }"
    yield "    graph = fx.Graph()"
    for node in gm.graph.nodes:
        yield f"    {_node_code(node)}"
        if is_carved(node):
            yield f"    {node.name}.meta['custom'] = {{{FALLBACK!r}: True}}"
    yield "    return fx.GraphModule(held, graph)"


def _constant_code(target: str, value: Any, body_names: Mapping[int, str]) -> str:
    if isinstance(value, fx.GraphModule):
        return f"{body_names[id(value)]}()"
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        raise ReproError(f"the constant {target!r} is a {type(value).__name__}, which has no Python literal.")
    if value.numel() > MOST_ELEMENTS:
        raise ReproError(
            f"the constant {target!r} has {value.numel()} elements; a repro contains at most {MOST_ELEMENTS}."
        )
    # float64 holds every bit of the smaller floats.
    wide = value.detach().cpu().flatten()
    numbers = (wide.double() if value.dtype.is_floating_point else wide).tolist()
    items = ", ".join(literal(number, f"the constant {target!r}") for number in numbers)
    return f"torch.tensor([{items}], dtype={value.dtype}, device={str(value.device)!r}).reshape({tuple(value.shape)})"


def _node_code(node: fx.Node) -> str:
    if node.op == "placeholder":
        return f"{node.name} = graph.placeholder({node.name!r})"
    if node.op == "get_attr":
        return f"{node.name} = graph.get_attr({str(node.target)!r})"
    subject = f"an argument of {node.name} ({node.target})"
    if node.op == "output":
        return f"graph.output({literal(node.args[0], subject)})"
    if node.op != "call_function":
        raise ReproError(f"node {node.name} is a {node.op}, which the script cannot contain.")
    kwargs = f", {literal(node.kwargs, subject)}" if node.kwargs else ""
    return f"{node.name} = graph.call_function({_target_code(node)}, {literal(node.args, subject)}{kwargs})"


def _target_code(node: fx.Node) -> str:
    target: Any = node.target
    if is_operator(target):
        library, _, op_name = str(target).partition(".") if "." in str(target) else ("higher_order", "", str(target))
        if library not in TORCH_LIBRARIES:
            raise ReproError(
                f"it calls the custom operator {target}, which a self-contained script cannot define. "
                "Carve the operator out of the region first, with ex.carve."
            )
        return f"torch.ops.{library}.{op_name}"
    module = str(getattr(target, "__module__", ""))
    name = getattr(target, "__qualname__", "")
    if module == "_operator" and hasattr(operator, name):
        return f"operator.{name}"
    if module in ("math", "torch") or (module.startswith("torch.") and "<" not in name):
        return f"{module}.{name}"
    raise ReproError(f"it calls {target}, which a self-contained script does not have.")
