"""The one module that names private torch APIs and knows how torch versions differ.

Everything here is a thin, named door; what it is good for stands in the rooms that use it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import shutil
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import fx
from torch._dynamo import symbolic_convert
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._guards import TracingContext, tracing
from torch._inductor.graph import GraphLowering
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.fx.graph import _BoxedCodeGen
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from regional_explorer.errors import NoCompilerError, RegionCompileError, UnsupportedTorchError

OLDEST_TORCH = (2, 11)

ANNOTATION = "compile_with_inductor"
"""The key under which ``torch.fx.passes.regional_inductor`` looks for a mark."""

FALLBACK = "fallback_to_eager"
"""The key that carves an op out of a region; Inductor itself honours it too (pytorch #166339)."""

ORIGIN = "regional_explorer_origin"
"""Our own key in ``node.meta["custom"]``: the id of the Dynamo node a node descends from."""

BoxedCall = Callable[[list[Any]], Any]


def require_supported_torch() -> None:
    """Raise UnsupportedTorchError unless the running torch is one this package supports."""
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release < OLDEST_TORCH:
        raise UnsupportedTorchError(
            f"torch {torch.__version__} is too old: regional_explorer needs torch "
            f"{OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer. Upgrade with `pip install -U torch`."
        )


# ---------------------------------------------------------------------------------------------------------------- trace


def compile_isolated(fn: Callable[..., Any], backend: Any, *, dynamic: bool | None = None) -> Callable[..., Any]:
    """Return ``torch.compile(fn)`` that shares no cache entries with any other compile of ``fn``.

    Dynamo counts recompiles per code object and silently gives up after eight; ``torch._dynamo.reset()`` would throw
    away the user's own compiled functions. ``isolate_recompiles`` (2.12 and newer) keeps our entries apart; on 2.11 a
    fresh code object does, except behind graph breaks.
    """
    if "isolate_recompiles" in (torch.compile.__kwdefaults__ or {}):
        return torch.compile(fn, backend=backend, dynamic=dynamic, isolate_recompiles=True)
    return torch.compile(_with_fresh_code(fn), backend=backend, dynamic=dynamic)


def _with_fresh_code(fn: Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(fn, types.FunctionType):
        return fn
    fresh = types.FunctionType(
        fn.__code__.replace(co_name=fn.__code__.co_name), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    fresh.__kwdefaults__ = fn.__kwdefaults__
    return fresh


def aot_backend(compile_graph: Callable[[str, fx.GraphModule], BoxedCall], *, partitioner: str = "default") -> Any:
    """Return a Dynamo backend: AOTAutograd, handing each graph to ``compile_graph(kind, graph_module)``.

    ``partitioner`` is ``"default"``, which upstream's regional path uses, or ``"min_cut"``.
    """
    partitions = {"default": default_partition, "min_cut": min_cut_rematerialization_partition}
    return aot_autograd(
        fw_compiler=lambda gm, _inputs: compile_graph("forward", gm),
        bw_compiler=lambda gm, _inputs: compile_graph("backward", gm),
        inference_compiler=lambda gm, _inputs: compile_graph("inference", gm),
        partition_fn=partitions[partitioner],
        keep_inference_input_mutations=True,
    )


def boxed(gm: fx.GraphModule) -> BoxedCall:
    """Return ``gm`` as a function of one argument list, which it empties so that activations can be freed."""
    gm.graph.set_codegen(_BoxedCodeGen())
    gm.recompile()
    return gm.forward


def bodies(gm: fx.GraphModule) -> Iterator[tuple[fx.Node, fx.GraphModule]]:
    """Yield the bodies of the higher-order ops of ``gm`` with the ``get_attr`` node that names them, each body once."""
    seen: set[int] = set()
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            body = resolve(gm, node)
            if isinstance(body, fx.GraphModule) and id(body) not in seen:
                seen.add(id(body))
                yield node, body


def resolve(gm: fx.GraphModule, node: fx.Node) -> Any:
    """Return what a ``get_attr`` node stands for."""
    return functools.reduce(getattr, str(node.target).split("."), gm)


def is_operator(target: Any) -> bool:
    """Tell whether a node's target is one of torch's operators, whose ``str`` is its full name."""
    return isinstance(target, torch._ops.OpOverload | torch._ops.HigherOrderOperator)


def target_key(node: fx.Node) -> str:
    """Return what a node calls as a text that is equal for equal code."""
    target = node.target
    if isinstance(target, str) or is_operator(target):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)}"


@dataclass(frozen=True)
class Break:
    """A graph break as Dynamo reports it: the reason, and ``(file, line, function)`` of the frames, outermost first."""

    reason: str
    frames: tuple[tuple[str, int, str], ...]


@contextlib.contextmanager
def graph_breaks() -> Iterator[list[Break]]:
    """Collect the graph breaks of everything Dynamo traces inside.

    ``counters["graph_break"]`` has no places, and a break inside ``annotate`` drops the whole frame without a log line
    (torch 2.13); the method that writes the log sees every one.
    """
    seen: list[Break] = []
    translator = symbolic_convert.InstructionTranslatorBase
    original = translator.log_graph_break

    @functools.wraps(original)
    def note(self: Any, *args: Any, **kwargs: Any) -> Any:
        errors = [value for value in (*args, *kwargs.values()) if isinstance(value, BaseException)]
        reasons = [value for value in (kwargs.get("reason"), *args) if isinstance(value, str)]
        stack = getattr(errors[0], "real_stack", None) if errors else None
        frames = tuple((f.filename, f.lineno or 0, f.name) for f in stack or TracingContext.extract_stack())
        reason = str(errors[0]) if errors else (reasons[0] if reasons else "unknown")
        seen.append(Break(reason, frames))
        return original(self, *args, **kwargs)

    with mock.patch.object(translator, "log_graph_break", note):
        yield seen


def is_compiling() -> bool:
    """Tell whether the caller is being traced by Dynamo."""
    return torch.compiler.is_compiling()


def set_versions(versions: Iterable[tuple[torch.Tensor, int]]) -> None:
    """Set version counters back to what they were, for tensors whose content was put back too."""
    tensors, numbers = zip(*versions, strict=True) if (versions := list(versions)) else ((), ())
    if tensors:
        torch._C._autograd._unsafe_set_version_counter(tensors, numbers)


def propose_partitions(gm: fx.GraphModule, wanted: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """Return how upstream's partitioner groups the ``wanted`` nodes, each group in the order of the graph."""
    chosen = set(wanted)
    support = create_op_support(lambda _submodules, node: node in chosen)
    partitioner = CapabilityBasedPartitioner(gm, support, allows_single_node_partition=True)
    position = {node: index for index, node in enumerate(gm.graph.nodes)}
    return [sorted(part.nodes, key=position.__getitem__) for part in partitioner.propose_partitions()]


# --------------------------------------------------------------------------------------------------------------- config


@dataclass(frozen=True)
class ConfigEntry:
    """One key of ``torch._inductor.config`` as the running torch declares it."""

    key: str
    value_type: Any
    default: Any


@functools.cache
def config_entries() -> Mapping[str, ConfigEntry]:
    """Return every Inductor config of the running torch, keyed by its dotted name."""
    entries = {}
    for key, entry in inductor_config._config.items():
        entries[key] = ConfigEntry(key, entry.value_type, entry.default)
    return entries


@functools.cache
def config_comments() -> Mapping[str, str]:
    """Return the comment above each config key in torch's source, keyed by dotted name; the only doc there is."""
    try:
        source = inspect.getsource(inductor_config)
    except (OSError, TypeError):
        return {}
    lines = source.splitlines()
    found: dict[str, str] = {}

    def read(body: Sequence[ast.stmt], prefix: str) -> None:
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                read(statement.body, f"{prefix}{statement.name}.")
                continue
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            for target in targets:
                if isinstance(target, ast.Name):
                    found[prefix + target.id] = _comment_above(lines, statement.lineno - 1)

    read(ast.parse(source).body, "")
    return {key: text for key, text in found.items() if text}


def _comment_above(lines: Sequence[str], index: int) -> str:
    start = index
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return " ".join(line.strip().lstrip("# ").strip() for line in lines[start:index]).strip()


def read_config(keys: Sequence[str]) -> dict[str, Any]:
    """Return the values that hold right now, read from Inductor itself."""
    return {key: _read(key) for key in keys}


def _read(key: str) -> Any:
    value: Any = inductor_config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def changed_config() -> dict[str, Any]:
    """Return the Inductor configs that differ from their default in this context, as the cache key sees them."""
    current = inductor_config.get_config_copy()
    return {key: value for key, value in current.items() if value != config_entries()[key].default}


# -------------------------------------------------------------------------------------------------------------- compile


@dataclass(frozen=True)
class Compiled:
    """What one run of Inductor over one piece gave.

    ``config`` maps every key asked for to the value read inside the compile, at the moment code was produced or
    loaded; it is None if that moment never came. ``seconds`` is wall time.
    """

    call: Callable[..., Any]
    code: str
    config: Mapping[str, Any] | None
    seconds: float
    cache: str


def fake_mode_with_symbols() -> FakeTensorMode:
    """Return a fresh fake mode with a ShapeEnv of its own.

    The mode of the trace cannot serve: its ShapeEnv is frozen, and guards a later compile adds to it are never
    checked; and two compiles must not share one.
    """
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=False)


def new_symbol(mode: FakeTensorMode, hint: int, name: str) -> torch.SymInt:
    """Return a new dynamic size with value ``hint`` in the ShapeEnv of ``mode``."""
    from torch._dynamo.source import ConstantSource  # noqa: PLC0415 - needed for dynamic shapes only

    env = mode.shape_env
    assert env is not None  # noqa: S101 - made by fake_mode_with_symbols
    source = ConstantSource(name)
    symbol = env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
    size = env.create_symintnode(symbol, hint=hint, source=source)
    assert isinstance(size, torch.SymInt)  # noqa: S101 - a dynamic dimension of a hint above 1 is never specialised
    return size


def substitute(size: torch.SymInt, known: Mapping[Any, torch.SymInt], mode: FakeTensorMode) -> torch.SymInt | int | None:
    """Return ``size`` rewritten in the symbols of ``known`` (old sympy symbol to new size), or None if one lacks."""
    expr = size.node.expr
    if not expr.free_symbols <= set(known):
        return None
    env = mode.shape_env
    assert env is not None  # noqa: S101 - made by fake_mode_with_symbols
    hint = int(expr.xreplace({old: new.node.hint for old, new in known.items()}))
    return env.create_symintnode(expr.xreplace({old: new.node.expr for old, new in known.items()}), hint=hint)


def symbols_of(size: Any) -> Any | None:
    """Return the sympy expression behind a symbolic size, or None for a plain int."""
    return size.node.expr if isinstance(size, torch.SymInt) and not size.node.expr.is_number else None


def guard_check(mode: FakeTensorMode, symbols: Sequence[torch.SymInt]) -> Callable[[Sequence[int]], bool] | None:
    """Return a test of the guards that a compile left in the ShapeEnv of ``mode``, or None when there are none.

    The test takes the current values of ``symbols``. Dynamo never learns of these guards (2.13), so whoever calls the
    artifact has to ask.
    """
    import sympy  # noqa: PLC0415 - needed for dynamic shapes only

    env = mode.shape_env
    if env is None or not symbols:
        return None
    names = [symbol.node.expr for symbol in symbols]
    conditions = [guard.expr for guard in env.guards]
    for name in names:
        bounds = env.var_to_range.get(name)
        if bounds is not None:
            conditions.append(sympy.Ge(name, bounds.lower))
            if bounds.upper.is_number and bounds.upper < 2**62:
                conditions.append(sympy.Le(name, bounds.upper))
    conditions = [condition for condition in conditions if condition is not sympy.true]
    if not conditions:
        return None
    return _Guard(tuple(names), tuple(conditions))


class _Guard:
    """A conjunction of sympy conditions, evaluated once per distinct tuple of sizes."""

    def __init__(self, names: tuple[Any, ...], conditions: tuple[Any, ...]) -> None:
        self._names = names
        self._conditions = conditions
        self._known: dict[tuple[int, ...], bool] = {}

    def __call__(self, values: Sequence[int]) -> bool:
        key = tuple(values)
        if key not in self._known:
            at = dict(zip(self._names, key, strict=True))
            self._known[key] = all(bool(condition.xreplace(at)) for condition in self._conditions)
        return self._known[key]


def compile_piece(
    gm: fx.GraphModule, inputs: Sequence[Any], mode: FakeTensorMode, config: Mapping[str, Any]
) -> Compiled:
    """Run Inductor over ``gm`` under ``config`` and nobody else's, with fake ``inputs`` of ``mode``.

    Raises:
        NoCompilerError: there is no working C++ compiler.
        RegionCompileError: Inductor failed; the text is its own, trimmed.
    """
    seen: list[dict[str, Any]] = []
    codes: list[str] = []

    def at_code(code: str) -> None:
        seen.append(read_config(list(config)))
        codes.append(code)

    hits = counters["aot_autograd"]["autograd_cache_hit"]
    started = time.perf_counter()
    try:
        with (
            torch.fx.traceback.preserve_node_meta(enable=False),
            inductor_config.patch(dict(config)),
            # Graph rematerialisation ran before the pieces were cut and must not run again (pytorch #180251).
            functorch_config.patch(_known_functorch({"remat_using_tags_for_fwd_loss_bwd_graph": False})),
            mock.patch.object(GraphLowering, "save_output_code", staticmethod(at_code)),
            tracing(TracingContext(mode)),
            torch.no_grad(),
        ):
            artifact = torch._inductor.standalone_compile(
                gm, list(inputs), dynamic_shapes="from_tracing_context", aot=True
            )
    except Exception as error:
        raise _compile_error(error) from error
    seconds = time.perf_counter() - started
    warm = counters["aot_autograd"]["autograd_cache_hit"] > hits
    return Compiled(
        # Two layers of Python calls below the artifact: they do nothing but pass the arguments on.
        call=getattr(getattr(artifact, "inner_fn", None), "compiled_fn", artifact),
        code="\n".join(codes),
        config=seen[-1] if seen else None,
        seconds=seconds,
        cache="warm" if warm else "cold",
    )


def _known_functorch(patches: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in patches.items() if key in functorch_config._config}


def _compile_error(error: Exception) -> RegionCompileError:
    text = f"{type(error).__name__}: {error}"
    if "InvalidCxxCompiler" in text or ("FileNotFoundError" in text and "'g++'" in text):
        return NoCompilerError(NO_COMPILER)
    lines = [line for line in str(error).splitlines() if line.strip()]
    shown = "\n".join(lines[:12]) + ("\n…" if len(lines) > 12 else "")  # noqa: PLR2004 - lines shown
    return RegionCompileError(f"Inductor raised {type(error).__name__}: {shown}")


NO_COMPILER = (
    "Inductor needs a C++ compiler for CPU code and found none. Install one (Debian/Ubuntu: `apt-get install g++`, "
    "conda: `conda install cxx-compiler`, macOS: `xcode-select --install`) or set CXX to its path. Capture, drawing "
    "and eager timings work without."
)


def has_cxx_compiler() -> bool:
    """Tell whether Inductor would find a C++ compiler; Inductor looks where we look, in ``cpp.cxx``."""
    candidates = inductor_config.cpp.cxx
    names = candidates if isinstance(candidates, (tuple, list)) else (candidates,)
    return any(name and shutil.which(str(name)) for name in names)


def full_compile_is_warm() -> int:
    """Return how many whole-graph compiles were answered from Inductor's caches so far in this process."""
    return int(counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"])
