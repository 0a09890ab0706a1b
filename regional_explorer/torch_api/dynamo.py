"""Traces without touching the user's own compiles: marks, breaks, folds, subgraph options, the call being traced."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import re
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard
from unittest import mock

import torch
import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import fx, nn
from torch._C._dynamo import eval_frame as frame_evaluation
from torch._dynamo import eval_frame, external_utils, symbolic_convert
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.external_utils import wrap_inline
from torch._dynamo.utils import get_metrics_context, get_traced_code, guard_failures
from torch._dynamo.variables import ctx_manager
from torch._functorch import partitioners
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch._higher_order_ops.utils import _in_hop_compile
from torch._inductor.compile_fx import _recursive_joint_graph_passes, get_cuda_device_context
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.virtualized import V
from torch.fx.traceback import get_current_meta

from regional_explorer.record.files import json_safe
from regional_explorer.record.graph import SubgraphOptions
from regional_explorer.record.plan import Tracing
from regional_explorer.torch_api.compile_notes import counting_patterns
from regional_explorer.torch_api.graphs import ANNOTATION, MARKS, ORIGIN, BoxedCall, record_kept, runs_random_op
from regional_explorer.torch_api.releasing import forget_metric_edits, release_when_dropped


@dataclass(frozen=True)
class OpenMark:
    """One marked block that Dynamo entered: its unique number, its annotation, and ``(file, line, function)``."""

    block: int
    annotation: Any
    frame: tuple[str, int, str]


@contextlib.contextmanager
def recording_marks() -> Iterator[None]:
    """Context manager: record in traced nodes, under ``MARKS``, the marked blocks around them, outermost first.

    ``annotate`` alone keeps only the innermost mark, and equal marks of two blocks cannot be distinguished.
    """
    variable = ctx_manager.FxTracebackAnnotateVariable
    original = variable.enter
    numbers = itertools.count()

    @functools.wraps(original)
    def enter(self: Any, tx: Any, *args: Any) -> Any:
        outer = open_marks()
        entered = original(self, tx, *args)
        # Until 2.14 the annotation was called target_values, as in any other context manager.
        annotation = getattr(self, "annotation", self.target_values)
        custom = get_current_meta().get("custom")
        if custom is not None and ANNOTATION in annotation:
            summary = tx.frame_summary()
            frame = (summary.filename, summary.lineno or 0, summary.name)
            custom[MARKS] = (*outer, OpenMark(next(numbers), annotation[ANNOTATION], frame))
        return entered

    with mock.patch.object(variable, "enter", enter):
        yield


def open_marks() -> tuple[OpenMark, ...]:
    """Return the marked blocks around the code that Dynamo is tracing now."""
    marks: tuple[OpenMark, ...] = (get_current_meta().get("custom") or {}).get(MARKS, ())
    return marks


@dataclass(frozen=True)
class FoldedOp:
    """An op that common subexpression elimination replaced by an equal one: names and origins of both."""

    name: str
    origin: int | None
    into: str
    into_origin: int | None


@contextlib.contextmanager
def reporting_folds(on_fold: Callable[[list[FoldedOp]], None]) -> Iterator[None]:
    """Context manager: report every elimination of common subexpressions, graph by graph."""
    original = partitioners.fx_graph_cse  # type: ignore[attr-defined]  # a private module declares no exports

    def eliminate(graph: fx.Graph, *args: Any, **kwargs: Any) -> fx.Graph:
        result: fx.Graph = original(graph, *args, **kwargs)
        on_fold(_folded_nodes(graph, result))
        return result

    with mock.patch.object(partitioners, "fx_graph_cse", eliminate):
        yield


def _folded_nodes(before: fx.Graph, after: fx.Graph) -> list[FoldedOp]:
    """Return the folded nodes: those missing in ``after``. The arguments of their users name the replacement."""
    replacement = {node.name: node for node in after.nodes}
    kept_names = set(replacement)
    for node in reversed(list(before.nodes)):
        user = next((user for user in node.users if user.name in replacement), None)
        if node.name not in replacement and user is not None:
            replacement[node.name] = _argument_nodes(replacement[user.name])[_argument_nodes(user).index(node)]
    return [
        FoldedOp(node.name, _node_origin(node), replacement[node.name].name, _node_origin(replacement[node.name]))
        for node in before.nodes
        if node.name not in kept_names and node.name in replacement
    ]


def _argument_nodes(node: fx.Node) -> list[fx.Node]:
    nodes: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), nodes.append)
    return nodes


def _node_origin(node: fx.Node) -> int | None:
    origin: int | None = (node.meta.get("custom") or {}).get(ORIGIN)
    return origin


ISOLATES = "isolate_recompiles" in (torch.compile.__kwdefaults__ or {})
"""Whether ``torch.compile`` can isolate the cache entries of a compile: 2.12 and newer."""


_COMPILED = "_is_torch_compile"
"""The attribute that torch (2.13 to 2.15) sets on a result of torch.compile; for a module, on the module inside."""


def compile_isolated(
    fn: Callable[..., Any], backend: Any, *, dynamic: bool | None = None, fullgraph: bool = False
) -> Callable[..., Any]:
    """Return ``torch.compile(fn)`` that shares no cache entries with any other compile of ``fn``.

    Dynamo counts recompiles per code object and silently gives up after eight; ``torch._dynamo.reset()`` would throw
    away the user's own compiled functions. ``isolate_recompiles`` (2.12 and newer) isolates our entries; on 2.11 a
    fresh code object does, except behind graph breaks. What Dynamo keeps for the result is released with it.
    """
    if backend == "inductor":
        # Isolated or not, a compile runs the code compiled before for an equal backend, under whatever config that was
        # (torch 2.13 and 2.15, docs/upstream.md). This backend is wrapped once more, so that it equals no other.
        backend = torch._TorchCompileInductorWrapper(None, None, dynamic)
    if getattr(fn, "__name__", "") == "_call_impl":
        # ``fn`` is the call of a module that was compiled in place. Torch traces no method of its own from its first
        # frame (until 2.15).
        fn = wrap_inline(fn)
    if ISOLATES:
        options: dict[str, Any] = {"isolate_recompiles": True}
    else:
        fn, options = _with_fresh_code(fn), {}
    was_compiled = hasattr(fn, _COMPILED)
    compiled: Callable[..., Any] = torch.compile(fn, backend=backend, dynamic=dynamic, fullgraph=fullgraph, **options)
    if isinstance(fn, nn.Module) and not was_compiled:
        vars(fn).pop(_COMPILED, None)
    release_when_dropped(compiled, backend)
    return compiled


def original_module(value: Any) -> Any:
    """Return the module that ``torch.compile`` wrapped in another; any other object unchanged."""
    while isinstance(value, eval_frame.OptimizedModule):
        value = value._orig_mod
    return value


def uncompiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that ``torch.compile`` or ``Module.compile()`` made ``fn`` from; else ``fn``."""
    fn = original_module(fn)
    if isinstance(fn, nn.Module):
        return fn if fn._compiled_call_impl is None else fn._call_impl
    if isinstance(fn, types.MethodType):
        inner = eval_frame.innermost_fn(fn.__func__)
        return fn if inner is fn.__func__ else types.MethodType(inner, fn.__self__)
    return eval_frame.innermost_fn(fn)


def code_of(fn: Callable[..., Any]) -> types.CodeType | None:
    """Return the code of a function, a method, or the ``forward`` of a module; None if there is none in Python."""
    owner = getattr(fn, "__self__", fn)
    method = owner.forward if isinstance(owner, nn.Module) else fn
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    return code if isinstance(code, types.CodeType) else None


class _EagerStance:
    """The stance ``usual``, except that in the thread that made this object compiled functions run uncompiled.

    Operators such as flex_attention still compile what their own eager run needs: otherwise their gradient is wrong.
    What Dynamo traces for them runs op by op.
    """

    def __init__(self, usual: Any) -> None:
        self._usual, self._thread = usual, threading.get_ident()

    @property
    def stance(self) -> str:
        is_eager = threading.get_ident() == self._thread and not _in_hop_compile()
        return "force_eager" if is_eager else str(self._usual.stance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)


@contextlib.contextmanager
def running_uncompiled() -> Iterator[None]:
    """Context manager: let this thread run compiled functions uncompiled, op by op, backwards included.

    ``torch.compiler.set_stance`` would hold for all threads, and another thread may be tracing.
    """
    with (
        mock.patch.object(eval_frame, "_stance", _EagerStance(eval_frame._stance)),
        torch.autograd.set_multithreading_enabled(False),
    ):
        yield


@contextlib.contextmanager
def as_first_call(fn: Callable[..., Any]) -> Iterator[None]:
    """Context manager: let Dynamo trace ``fn`` as if it had never seen it.

    Dynamo keeps the shapes it has seen per code object, not per cache entry: without this, an exploration after one
    with other shapes would be dynamic. It also counts all traces per code object, isolated or not, and gives up without
    a warning after 256 (torch 2.13).
    """
    unlimited = dict.fromkeys(("recompile_limit", "accumulated_recompile_limit"), sys.maxsize)
    with dynamo_config.patch({"automatic_dynamic_shapes": False, **unlimited}):
        _forget_skip(fn)
        try:
            yield
        finally:
            _forget_skip(fn)
            forget_metric_edits()


def _forget_skip(fn: Callable[..., Any]) -> None:
    """Let Dynamo trace the code of ``fn`` again after a trace without ops; compiled code of it stays.

    Torch 2.11 skips such code from then on, whatever object it runs for. Torch's own modules all run in one function,
    so after an empty ``nn.Sequential`` every ``nn.Linear`` is skipped; ``torch.compile`` alone does so too. Later
    versions skip it only for the compile whose trace had no ops.
    """
    if ISOLATES:
        return
    default_strategy = frame_evaluation._FrameExecStrategy(
        frame_evaluation._FrameAction.DEFAULT, frame_evaluation._FrameAction.DEFAULT
    )
    for code in (code_of(fn), code_of(wrap_inline(fn))):
        if code is not None:
            frame_evaluation.set_code_exec_strategy(code, default_strategy)


def _with_fresh_code(fn: Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(fn, types.FunctionType):
        return fn
    fresh = types.FunctionType(
        fn.__code__.replace(co_name=fn.__code__.co_name), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    fresh.__kwdefaults__ = fn.__kwdefaults__
    return fresh


def aot_backend(
    compile_graph: Callable[[str, fx.GraphModule], BoxedCall],
    tracing: Tracing,
    *,
    on_fold: Callable[[list[FoldedOp]], None],
    on_patterns: Callable[[Mapping[str, int]], None],
    before_forward: Callable[[fx.GraphModule], None],
) -> Any:
    """Return a Dynamo backend: AOTAutograd, handing each graph to ``compile_graph(kind, graph_module)``.

    A backward is mostly handed over when it first runs. ``before_forward`` gets the backward before its forward is
    handed over, to read it and not to keep it.

    The min-cut partitioner folds equal ops into one, which is reported to ``on_fold``; the default one switches to it
    for a checkpoint in a graph that writes in place, and here for an unused dropout, which it cannot split
    (docs/upstream.md). ``on_patterns`` gets how often each pattern of the joint-graph passes matched.

    The backward computes as outside of the call's autocast, where users run it; AOTAutograd assumes that they run it
    inside unless its config says otherwise.
    """
    backward: fx.GraphModule | None = None

    def joint_passes(gm: fx.GraphModule, *, in_bodies: bool) -> fx.GraphModule:
        with counting_patterns() as matched:
            changed = after_joint_passes(gm, in_bodies=in_bodies)
        on_patterns(matched)
        return changed

    def partition(joint: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        nonlocal backward
        with reporting_folds(on_fold):
            if tracing.joint_passes:
                joint = joint_passes(joint, in_bodies=False)
            if tracing.partitioner == "min_cut" or any(map(_is_unused_dropout, joint.graph.nodes)):
                forward, backward = min_cut_rematerialization_partition(joint, *args, **kwargs)
            else:
                forward, backward = _without_repeated_random_ops(*default_partition(joint, *args, **kwargs))
        return forward, backward

    def compile_forward(gm: fx.GraphModule, _inputs: Sequence[Any]) -> BoxedCall:
        nonlocal backward
        # Bodies are partitioned before the graph around them, so this is the backward of the graph. Up to this point
        # AOTAutograd still changes the partitioner's results.
        if backward is not None:
            before_forward(backward)
            backward = None
        if metadata := TracingContext.get().fw_metadata:
            record_kept(gm, metadata.num_forward)
        return compile_graph("forward", gm)

    def compile_inference(gm: fx.GraphModule, _inputs: Sequence[Any]) -> BoxedCall:
        return compile_graph("inference", joint_passes(gm, in_bodies=True) if tracing.joint_passes else gm)

    compiler = aot_autograd(
        fw_compiler=compile_forward,
        bw_compiler=lambda gm, _inputs: compile_graph("backward", gm),
        inference_compiler=compile_inference,
        partition_fn=partition,
        keep_inference_input_mutations=True,
        **({"decompositions": _inductor_decompositions()} if tracing.decompositions else {}),
    )
    is_set = functorch_config.backward_pass_autocast != "same_as_forward"  # noqa: S105 - torch's default, no password
    return functorch_config.patch({} if is_set else {"backward_pass_autocast": "off"})(compiler)


def _inductor_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Return the decompositions that Inductor gives to AOTAutograd, without those that draw other random numbers."""
    with inductor_config.patch(fallback_random=True):
        return select_decomp_table()


def after_joint_passes(gm: fx.GraphModule, *, in_bodies: bool) -> fx.GraphModule:
    """Return a graph after the passes that Inductor runs on the joint graph; those draw no other random numbers.

    AOTAutograd partitions the bodies of higher-order ops of a joint graph on their own, which runs the passes too.
    """
    devices = (value.device for node in gm.graph.nodes if isinstance(value := node.meta.get("val"), torch.Tensor))
    before = set(gm.graph.nodes)
    with (
        inductor_config.patch(fallback_random=True),
        V.set_fake_mode(TracingContext.get().fake_mode),
        get_cuda_device_context(gm),
    ):
        changed = _recursive_joint_graph_passes(gm, not in_bodies, next(devices, None))
    # A replacement has no origin: it takes the origin of an op that reads it, or of an op that it reads.
    for node in (*reversed(changed.graph.nodes), *changed.graph.nodes):
        custom = node.meta.setdefault("custom", {})
        if node not in before and ORIGIN not in custom:
            around = (other.meta.get("custom") or {} for other in (*node.users, *node.all_input_nodes))
            node.meta["custom"] = {**custom, **next((neighbour for neighbour in around if ORIGIN in neighbour), {})}
    return changed


def _is_unused_dropout(node: fx.Node) -> bool:
    return runs_random_op(node) and not node.users and isinstance(node.meta.get("val"), tuple)


def _without_repeated_random_ops(
    forward: fx.GraphModule, backward: fx.GraphModule
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Remove unused random ops that the backward repeats from the forward: each would draw numbers again.

    The default partitioner leaves them there under ``fallback_random`` (docs/upstream.md).
    """
    names = {node.name for node in forward.graph.nodes}
    if backward.graph.eliminate_dead_code(lambda node: node.is_impure(impure_random=node.name not in names)):
        backward.recompile()
    return forward, backward


def recompile_reason() -> str:
    """Return which guard failed, when called inside the resulting compile; empty if Dynamo did not say.

    A guard of each earlier trace failed. The newest trace's guard says most: where sizes differ, it is the most
    general.
    """
    reason = str(getattr(get_metrics_context(), "_metrics", {}).get("recompile_reason") or "")
    reason = max(_reasons_since(reason), key=_number_of_trace)
    reason = reason.partition(": ")[2] or reason
    # A guard on a value is followed by its source, padded to a column, and by the user's stack.
    guards = reason.partition("\nUser stack trace:")[0].splitlines()
    return "\n".join(" ".join(guard.split()) for guard in guards)


def _reasons_since(first: str) -> list[str]:
    """Return ``first``, the reason that Dynamo reports, and the later reasons that it found for other traces."""
    reasons = [text for code in traced_code()[:1] for text in guard_failures.get(code, ())]
    return reasons[len(reasons) - 1 - reasons[::-1].index(first) :] if first in reasons else [first]


def _number_of_trace(reason: str) -> int:
    """Return the number of the trace that a reason is about, which begins with ``frame/trace:``."""
    match = re.match(r"\D*\d+/(\d+)", reason)
    return int(match[1]) if match else -1


def frame_module() -> nn.Module | None:
    """Return the module whose method is being compiled, when called inside the compile; else None."""
    translator = getattr(symbolic_convert.tls, "current_tx", None)
    holder = translator.output.root_tx.f_locals.get("self") if translator is not None else None
    return holder if isinstance(holder, nn.Module) else None


def traced_code() -> list[types.CodeType]:
    """Return the code of all functions that Dynamo traced for the graph which its backend gets now."""
    return get_traced_code() or []  # made for backends: pytorch #155249


@dataclass(frozen=True)
class Break:
    """A graph break as Dynamo reports it.

    ``frames`` are ``(file, line, function)``, outermost first; ``marks`` the marked blocks it happened in, ``modules``
    the ids and class names of the modules.
    """

    reason: str
    frames: tuple[tuple[str, int, str], ...]
    marks: tuple[OpenMark, ...] = ()
    modules: tuple[tuple[int, str], ...] = ()


def _modules_around(translator: Any, error: BaseException | None) -> Iterator[tuple[int, str]]:
    """Yield the ids and class names of the modules that Dynamo was in when ``error`` was raised, outermost first.

    Dynamo reports the break for the frame that can go on. It has left the frames of the modules below, which are in the
    traceback.
    """
    if (module := frame_module()) is not None:
        yield id(module), type(module).__name__
    for frame, _ in traceback.walk_tb(getattr(error, "__traceback__", None)):
        inner = frame.f_locals.get("self")
        translator = inner if isinstance(inner, symbolic_convert.InstructionTranslatorBase) else translator
    for key, (_, cls) in translator.nn_module_stack.items():
        module_id = str(key).partition("@")[0]  # "<id(module)>", or "<id>@k" for a later call
        if module_id.isdigit():
            yield int(module_id), cls if isinstance(cls, str) else cls.__name__


@contextlib.contextmanager
def graph_breaks() -> Iterator[list[Break]]:
    """Collect the graph breaks of everything Dynamo traces inside.

    ``counters["graph_break"]`` has no locations, and a break inside ``annotate`` drops the whole frame without a log
    line (torch 2.13); the method that writes the log sees every break.
    """
    breaks: list[Break] = []
    translator = symbolic_convert.InstructionTranslatorBase
    original = translator.log_graph_break

    @functools.wraps(original)
    def record_break(self: Any, *args: Any, **kwargs: Any) -> Any:
        error = next((argument for argument in (*args, *kwargs.values()) if isinstance(argument, BaseException)), None)
        reason = next((argument for argument in (kwargs.get("reason"), *args) if isinstance(argument, str)), "unknown")
        stack = getattr(error, "real_stack", None) or TracingContext.extract_stack()
        frames = tuple((f.filename, f.lineno or 0, f.name) for f in stack)
        reason = reason if error is None else str(error)
        breaks.append(Break(reason, frames, open_marks(), tuple(_modules_around(self, error))))
        return original(self, *args, **kwargs)

    with mock.patch.object(translator, "log_graph_break", record_break):
        yield breaks


@dataclass(frozen=True)
class TracedCall:
    """The call of a compiled function that Dynamo is tracing: the original function and the arguments.

    ``at_end`` takes a function to run at the end of the call, with whether it returned or raised.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    at_end: Callable[[Callable[[bool], object]], None]


def traced_call() -> TracedCall | None:
    """Return the call being traced, when called inside a backend; None if no ``torch.compile`` wrapper is running.

    A backend is given only a graph and its inputs. The wrapper's Python frame has the rest: it is on the stack as long
    as the call runs, and at the end runs the functions in its list ``cleanups`` (torch 2.13 to 2.15).
    """
    for frame, _ in traceback.walk_stack(sys._getframe()):
        if frame.f_code.co_filename == eval_frame.__file__:
            scope = frame.f_locals
            if isinstance(scope.get("cleanups"), list) and "fn" in scope:
                return TracedCall(
                    _compiled_function(scope["fn"]), scope["args"], scope["kwargs"], _registrar_at_end(scope)
                )
    return None


def _registrar_at_end(scope: Mapping[str, Any]) -> Callable[[Callable[[bool], object]], None]:
    cleanups = scope["cleanups"]
    return lambda function: cleanups.append(_cleanup_with_outcome(function))


def _cleanup_with_outcome(function: Callable[[bool], object]) -> Callable[[], None]:
    outer_error = sys.exc_info()[1]  # the error of an except block around the call

    def cleanup() -> None:
        raises = sys.exc_info()[1] is not outer_error  # torch 2.11 does not note whether the call succeeded
        function(sys._getframe(1).f_locals.get("call_succeeded", not raises))

    return cleanup


def run_at_end_of_calls(compiled: Callable[..., Any], function: Callable[[bool], object]) -> Callable[[], None]:
    """Call ``function`` after every call of ``compiled``, with whether that call succeeded; return a stop function.

    It also runs after a call in which Dynamo traces nothing, but not where compiled functions are to run eagerly. A
    copy of ``compiled`` does not run it.
    """
    hooks = getattr(_context_of(compiled), "enter_exit_hooks", [])  # none with TORCHDYNAMO_DISABLE

    def enter() -> Callable[[], object]:
        if eval_frame._stance.stance == "force_eager":  # by ``running_uncompiled``, or by torch.compiler.set_stance
            return lambda: None
        return _cleanup_with_outcome(function)

    def stop() -> None:
        with contextlib.suppress(ValueError):  # a call that ran meanwhile stopped it
            hooks.remove(enter)

    hooks.append(enter)
    return stop


def _compiled_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the module of a method that was given to Dynamo; for a function, the function.

    Torch's own modules are called through a closure (``wrap_inline``).
    """
    inner = fn
    if inspect.isfunction(fn) and fn.__code__.co_filename == external_utils.__file__:
        inner = inspect.getclosurevars(fn).nonlocals.get("fn", fn)
    owner = getattr(inner, "__self__", inner)
    return owner if isinstance(owner, nn.Module) else inner


def calling_wrapper() -> Any | None:
    """Return the object through which ``torch.compile`` calls its backend, when called inside the backend; else None.

    A backend given by name is one function for everything compiled with it; the wrapper identifies the compile.
    """
    code = torch._TorchCompileWrapper.__call__.__code__
    frames = traceback.walk_stack(sys._getframe())
    return next((frame.f_locals["self"] for frame, _ in frames if frame.f_code is code), None)


def backend_of(compiled: Any) -> Any | None:
    """Return the backend of a function that ``torch.compile`` returned, or of a compiled module; else None."""
    callback = getattr(_context_of(compiled), "callback", None)
    return None if callback is None else eval_frame.innermost_backend(callback)


def _context_of(compiled: Any) -> Any | None:
    """Return the object by which Dynamo calls a result of ``torch.compile``, or None."""
    compiled = getattr(compiled, "_compiled_call_impl", None) or compiled
    context = getattr(compiled, "dynamo_ctx", None)
    if context is None and inspect.isfunction(compiled):
        context = inspect.getclosurevars(compiled).nonlocals.get("self")
    return context


def named_backend(wrapper: Any) -> Any:
    """Return the backend that a wrapper of ``torch.compile`` calls; ``wrapper`` if it is no such wrapper."""
    return wrapper.compiler_fn if isinstance(wrapper, torch._TorchCompileWrapper) else wrapper


_DEFAULT_PATCHES = {"triton.autotune_at_compile_time": True}
"""The options that torch 2.13 sets if no config is given."""
_DEFAULT_PARTITIONER = "min_cut_rematerialization_partition"


def calls_subgraph(node: fx.Node) -> bool:
    """Return whether a node runs the body of a ``nested_compile_region``."""
    return node.op == "call_function" and str(node.target) == "invoke_subgraph"


def subgraph_options(node: fx.Node) -> SubgraphOptions | None:
    """Return the options of the body that ``node`` runs, or None if it has none.

    Dynamo keeps them with the call (torch 2.13 and newer). A config is an argument of the compiler in 2.13, and an
    option of its own since 2.15, one each for forward and backward.
    """
    options = (node.meta.get("custom") or {}).get("nested_region_config")
    if options is None:
        return None
    config = _config_patches(options, "fw_compiler", "inductor_config_patches") or {}
    backward = _config_patches(options, "bw_compiler", "bw_inductor_config_patches")
    return SubgraphOptions(
        config=config,
        backward_config=None if backward is None or backward == config else backward,
        followed=tuple(_tracing_options(options)),
        ignored=tuple(_other_compilers(options)),
    )


def _config_patches(options: Any, compiler: str, option: str) -> dict[str, Any] | None:
    compiler_fn, patches = getattr(options, compiler, None), getattr(options, option, None)
    if _is_inductor(compiler_fn):
        patches = compiler_fn.keywords.get("inductor_config_patches")
    if not isinstance(patches, Mapping):
        return None
    return {} if dict(patches) == _DEFAULT_PATCHES else json_safe(dict(patches))


def _is_inductor(compiler: Any) -> TypeGuard[functools.partial[Any]]:
    """Return whether torch made a compiler from options: it is then Inductor under some configs."""
    # A plain import would get the operator of the same name from the package.
    module = importlib.import_module("torch._higher_order_ops.invoke_subgraph")
    inductor_compile = getattr(module, "invoke_subgraph_inductor_compile", None)
    return isinstance(compiler, functools.partial) and compiler.func is inductor_compile


def _other_compilers(options: Any) -> Iterator[str]:
    compilers = {name: getattr(options, name, None) for name in ("fw_compiler", "bw_compiler")}
    if any(compiler is not None for compiler in compilers.values()):
        for name, compiler in compilers.items():
            if not _is_inductor(compiler):  # None leaves this direction to eager
                yield f"{name}={_qualified_name(compiler)} (it is compiled by Inductor here)"


def _tracing_options(options: Any) -> Iterator[str]:
    """Yield the options that AOTAutograd applies while it traces, whichever compiler runs afterwards."""
    if (partitioner := getattr(options, "partitioner", None)) not in (None, _DEFAULT_PARTITIONER):
        yield f"partitioner={_qualified_name(partitioner)}"
    if (decompositions := getattr(options, "decompositions", None)) is not None:
        yield f"decompositions of {', '.join(sorted(map(str, decompositions))) or 'nothing'}"


def _qualified_name(option: Any) -> str:
    return str(getattr(option, "__qualname__", None) or repr(option))
