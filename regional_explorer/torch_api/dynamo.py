"""Compiles with Dynamo and AOTAutograd apart from the user's compiles; recompile reasons and graph breaks."""

from __future__ import annotations

import contextlib
import functools
import traceback
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch._dynamo.config as dynamo_config
from torch import fx, nn
from torch._C._dynamo import eval_frame as frame_evaluation
from torch._dynamo import symbolic_convert
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.external_utils import wrap_inline
from torch._dynamo.utils import get_metrics_context, get_traced_code
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._guards import TracingContext

from regional_explorer.torch_api.folding import Folded, folding
from regional_explorer.torch_api.marks import OpenMark, open_marks
from regional_explorer.torch_api.release import forget_metric_edits, release_when_dropped
from regional_explorer.torch_api.versions import BoxedCall


ISOLATES = "isolate_recompiles" in (torch.compile.__kwdefaults__ or {})
"""Whether ``torch.compile`` can isolate the cache entries of a compile: 2.12 and newer."""


def compile_isolated(
    fn: Callable[..., Any], backend: Any, *, dynamic: bool | None = None, fullgraph: bool = False
) -> Callable[..., Any]:
    """Return ``torch.compile(fn)`` that shares no cache entries with any other compile of ``fn``.

    Dynamo counts recompiles per code object and silently gives up after eight; ``torch._dynamo.reset()`` would throw
    away the user's own compiled functions. ``isolate_recompiles`` (2.12 and newer) isolates our entries; on 2.11 a
    fresh code object does, except behind graph breaks. What Dynamo keeps for the result is released with it.
    """
    if backend == "inductor":
        # Isolated or not, a compile runs what was compiled before for an equal backend, under whatever config that was
        # (torch 2.13 and 2.15, docs/upstream.md). This object is wrapped once more, so it is equal to none.
        backend = torch._TorchCompileInductorWrapper(None, None, dynamic)
    if ISOLATES:
        options: dict[str, Any] = {"isolate_recompiles": True}
    else:
        fn, options = _with_fresh_code(fn), {}
    compiled: Callable[..., Any] = torch.compile(fn, backend=backend, dynamic=dynamic, fullgraph=fullgraph, **options)
    release_when_dropped(compiled, backend)
    return compiled


@contextlib.contextmanager
def as_first_call(fn: Callable[..., Any]) -> Iterator[None]:
    """A block in which Dynamo traces ``fn`` as if it had never seen it.

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
    method = fn.forward if isinstance(fn, nn.Module) else fn
    default_strategy = frame_evaluation._FrameExecStrategy(
        frame_evaluation._FrameAction.DEFAULT, frame_evaluation._FrameAction.DEFAULT
    )
    for function in (getattr(method, "__func__", method), wrap_inline(fn)):
        code = getattr(function, "__code__", None)
        if isinstance(code, types.CodeType):
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
    *,
    partitioner: str = "default",
    on_fold: Callable[[list[Folded]], None] = lambda _folds: None,
) -> Any:
    """Return a Dynamo backend: AOTAutograd, handing each graph to ``compile_graph(kind, graph_module)``.

    ``partitioner`` is ``"default"``, which upstream's regional path uses, or ``"min_cut"``. The min-cut partitioner
    folds equal ops into one, which is reported to ``on_fold``; the default one switches to it if there is a checkpoint
    policy.
    """
    partitions: dict[str, Any] = {"default": default_partition, "min_cut": min_cut_rematerialization_partition}

    def partition(*args: Any, **kwargs: Any) -> Any:
        with folding(on_fold):
            return partitions[partitioner](*args, **kwargs)

    return aot_autograd(
        fw_compiler=lambda gm, _inputs: compile_graph("forward", gm),
        bw_compiler=lambda gm, _inputs: compile_graph("backward", gm),
        inference_compiler=lambda gm, _inputs: compile_graph("inference", gm),
        partition_fn=partition,
        keep_inference_input_mutations=True,
    )


def recompile_reason() -> str:
    """Return which guard failed, when called inside the resulting compile; empty if Dynamo did not say."""
    reason = getattr(get_metrics_context(), "_metrics", {}).get("recompile_reason")
    return str(reason or "").partition(": ")[2] or str(reason or "")


def frame_module() -> nn.Module | None:
    """Return the module whose method is being compiled, when called inside that compile, or None."""
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
    the ids of the modules.
    """

    reason: str
    frames: tuple[tuple[str, int, str], ...]
    marks: tuple[OpenMark, ...] = ()
    modules: tuple[int, ...] = ()


def _modules_around(translator: Any, error: BaseException | None) -> Iterator[int]:
    """Yield the ids of the modules that Dynamo was in when ``error`` was raised, outermost first.

    It reports the break for the frame that can go on, and has left those of the modules below: they are in the
    traceback.
    """
    if (module := frame_module()) is not None:
        yield id(module)
    for frame, _ in traceback.walk_tb(error.__traceback__ if error is not None else None):
        inner = frame.f_locals.get("self")
        translator = inner if isinstance(inner, symbolic_convert.InstructionTranslatorBase) else translator
    for key in translator.nn_module_stack:
        module_id = str(key).partition("@")[0]  # "<id(module)>", or "<id>@k" for a later call
        if module_id.isdigit():
            yield int(module_id)


@contextlib.contextmanager
def graph_breaks() -> Iterator[list[Break]]:
    """Collect the graph breaks of everything Dynamo traces inside.

    ``counters["graph_break"]`` has no locations, and a break inside ``annotate`` drops the whole frame without a log
    line (torch 2.13); the method that writes the log sees every one.
    """
    breaks: list[Break] = []
    translator = symbolic_convert.InstructionTranslatorBase
    original = translator.log_graph_break

    @functools.wraps(original)
    def note_break(self: Any, *args: Any, **kwargs: Any) -> Any:
        errors = [argument for argument in (*args, *kwargs.values()) if isinstance(argument, BaseException)]
        reasons = [argument for argument in (kwargs.get("reason"), *args) if isinstance(argument, str)]
        stack = getattr(errors[0], "real_stack", None) if errors else None
        frames = tuple((f.filename, f.lineno or 0, f.name) for f in stack or TracingContext.extract_stack())
        reason = str(errors[0]) if errors else (reasons[0] if reasons else "unknown")
        breaks.append(Break(reason, frames, open_marks(), tuple(_modules_around(self, errors[0] if errors else None))))
        return original(self, *args, **kwargs)

    with mock.patch.object(translator, "log_graph_break", note_break):
        yield breaks
