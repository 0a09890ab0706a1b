"""The user's call: function, arguments (by reference), what it writes, and its gradients."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.optim.optimizer import register_optimizer_step_pre_hook

from regional_explorer.capture.modules import parameter_names, reachable_modules
from regional_explorer.capture.restore.assigned_state import AssignedState
from regional_explorer.capture.restore.muted_output import silent
from regional_explorer.capture.restore.random_state import RandomState
from regional_explorer.capture.restore.reach import Reach, reach
from regional_explorer.capture.restore.undo_log import UndoLog
from regional_explorer.capture.tensors import tensors_in
from regional_explorer.errors import CaptureError, ClosedError, RefusalCode
from regional_explorer.record.graph import SourceLine
from regional_explorer.torch_api import compile_lock

COTANGENT_SEED = 20_251_016
"""Seed of the generator that draws the fixed random cotangents."""

_REFUSING = threading.RLock()

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"  # torchvision is not torch
_OURS = f"{Path(__file__).parent.parent}{os.sep}"


class Call:
    """One call of the user's, ready to be repeated as often as measuring needs.

    Construction runs it once in plain eager mode, with gradients if it has any. That one run says what it writes in
    place, which leaves its outputs depend on, and whether it can be measured at all. ``stateful`` says whether it
    changes tensors or draws random numbers, so that something has to be put back before each repetition; ``draws``
    tells the latter alone.

    Args:
        fn: the function or module.
        args: positional arguments, kept by reference.
        kwargs: keyword arguments, kept by reference.
        grad: whether to take gradients; None means as the call would: if an output requires grad.

    Raises:
        CaptureError: the call or its backward raises, it runs ``backward()`` or an optimizer itself, or ``grad=True``
            was asked for and no output depends on anything that requires grad; it returns a coroutine or a generator.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        grad: bool | None = None,
    ) -> None:
        self.fn = fn
        self.args = tuple(args)
        self.kwargs = dict(kwargs or {})
        self.modules = reachable_modules(fn, self.args, self.kwargs)
        self._grad_mode = torch.is_grad_enabled() if grad is None else grad
        found = self._reach()
        self._random = RandomState(found.generators)
        self._undo = UndoLog()
        self._state = AssignedState(found)
        self._edges: list[GradientEdge] = []
        self._cotangents: dict[str, torch.Tensor] = {}
        outputs = self._first_run()
        self.stateful = self._undo.wrote or self._state.changes or self.draws
        self.kept_state = self._state.kept
        self.output_names = [name for name, _ in tensors_in(outputs, "output")]
        self.grad = bool(self._edges)
        if grad and not self.grad:
            raise CaptureError(
                RefusalCode.NO_GRADIENT,
                "grad=True, but no output depends on a tensor that requires grad. Make a parameter or an argument "
                "require grad (x.requires_grad_()), or leave grad out for inference.",
            )
        self.gradient_names = self._name_gradients()

    def _reach(self) -> Reach:
        return reach(self.fn, self.args, self.kwargs)

    def _run_eagerly(self) -> Any:
        """Run the call while no other thread traces: eager code writes its marks where all threads share them.

        ``torch.fx.traceback.current_meta`` is one for the process (torch 2.13).
        """
        with compile_lock():
            return self.fn(*self.args, **self.kwargs)

    def _first_run(self) -> Any:
        started = _sequence_number()
        try:
            with self._watched():
                with _blaming("The call itself"):
                    outputs = self._run_eagerly()
                _refuse_unfinished(outputs)
                if self._grad_mode:
                    self._edges = _frontier(outputs, started)
                    self._cotangents = _draw_cotangents(outputs)
                if self._edges:
                    with _blaming("The backward of the call"):
                        self.backward(outputs)
                self.draws = not self._random.holds()
            if self._state.first_run_ended():
                self._second_run()
        finally:
            self._put_back()
        return outputs

    def _second_run(self) -> None:
        """Run again from the Python state that the first run left, to see what every call assigns."""
        self._state.note_first_run(self._reach())
        self._undo.restore()
        with self._watched(), silent(), _blaming("The call, run a second time,"):
            outputs = self._run_eagerly()
            if self._edges:
                self.backward(outputs)
        self._state.note_second_run()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """A block that runs the call and notes what it writes; the random generators stand afterwards as before."""
        with self._random, _refusing_training_loops(), torch.set_grad_enabled(self._grad_mode), self._undo:
            yield

    def forward(self, fn: Callable[..., Any] | None = None) -> Any:
        """Run the call, through ``fn`` instead of the user's function where one is given, and return its outputs."""
        with torch.set_grad_enabled(self._grad_mode):
            return (self.fn if fn is None else fn)(*self.args, **self.kwargs)

    def backward(self, outputs: Any) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of ``outputs`` for the fixed cotangents; nobody's ``.grad`` is touched."""
        found = dict(tensors_in(outputs))
        pairs = [(found[path], given) for path, given in self._cotangents.items() if _requires_grad(found.get(path))]
        tensors, cotangents = zip(*pairs, strict=True)
        return torch.autograd.grad(tensors, self._edges, cotangents, allow_unused=True)

    def restore(self) -> None:
        """Put back what the call changed in place or assigned anew, and the random generators."""
        self._put_back()
        self._random.restore()

    def _put_back(self) -> None:
        self._state.restore()
        self._undo.restore()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """A block that runs the call; afterwards everything of the user's is as before.

        ``restore`` goes back to where the block began: since the first run the user may have trained the model. What
        the user's code prints was shown by the first run; repetitions are silent.
        """
        found = self._reach()
        before, around = RandomState(found.generators), (self._undo, self._state)
        self._undo, self._state = self._undo.as_now(self._state.to_copy(found)), self._state.as_now()
        self._random.restore()
        try:
            with silent():
                yield
        finally:
            self._put_back()
            before.restore()
            self._undo, self._state = around

    def close(self) -> None:
        """Drop all references to what belongs to the user."""
        self.fn, self.args, self.kwargs, self.modules = closed, (), {}, []
        self._edges, self._cotangents, self._undo, self._state = [], {}, UndoLog(), AssignedState(Reach())
        self._random = RandomState()

    def _name_gradients(self) -> list[str]:
        names = parameter_names(self.modules)
        for name, tensor in (*tensors_in(self.args, "args"), *tensors_in(self.kwargs, "kwargs")):
            names.setdefault(id(tensor), name)
        found = []
        for index, edge in enumerate(self._edges):
            variable = getattr(edge.node, "variable", None)
            found.append(f"grad {names.get(id(variable), f'of leaf {index}')}")
        return found


def closed(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Raise ClosedError: replaces the user's function after ``close()``."""
    raise ClosedError("The exploration was closed. Make a new one with rx.explore(...).")


def _refuse_unfinished(outputs: Any) -> None:
    """Refuse a call that has only begun: of ``async def``, or with ``yield`` in it; nothing of its body has run."""
    if inspect.iscoroutine(outputs) or inspect.isgenerator(outputs) or inspect.isasyncgen(outputs):
        name, kind = outputs.__qualname__, type(outputs).__name__.replace("_", " ")
        if inspect.iscoroutine(outputs):
            outputs.close()  # or Python warns that it was never awaited
        raise CaptureError(
            RefusalCode.CALL_UNFINISHED,
            f"The call returns a {kind} of {name}, whose body has not run. Give a plain function that does the work "
            "and returns tensors: torch.compile does not trace async functions, and runs generators in plain Python.",
        )


@contextlib.contextmanager
def _blaming(what: str) -> Iterator[None]:
    """A block that runs the user's code: what it raises becomes a CaptureError with the line."""
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        line = user_line(error)
        place = f" at {line}: {line.text}" if line else ""
        raise CaptureError(RefusalCode.CALL_RAISES, f"{what} raises {type(error).__name__}{place}: {error}") from error


def _sequence_number() -> int:
    """Return the number the autograd engine gives to the next node; whatever is older was there before the call."""
    with torch.enable_grad(), torch.inference_mode(mode=False):
        probe = torch.zeros((), requires_grad=True).view(())
    assert probe.grad_fn is not None  # noqa: S101 - grad mode is on
    return int(probe.grad_fn._sequence_nr())


def _requires_grad(tensor: torch.Tensor | None) -> bool:
    """Return whether gradients can be taken of an output."""
    if tensor is None or not tensor.requires_grad or not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    # A view of a leaf made under no_grad says that it requires grad, and there is no way back from it (torch 2.13).
    return tensor.grad_fn is not None or not tensor._is_view()  # noqa: SLF001 - there is no public way to ask


def _differentiable(outputs: Any) -> dict[str, torch.Tensor]:
    """Return the distinct output tensors that gradients can be taken of, by their paths."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for path, tensor in tensors_in(outputs):
        if _requires_grad(tensor):
            found.setdefault(id(tensor), (path, tensor))
    return dict(found.values())


def _frontier(outputs: Any, started: int) -> list[GradientEdge]:
    """Return the edges at which the call's part of the autograd graph ends.

    These are its leaves, and nodes of the user's own that are older than the call: gradients stop there, so their
    buffers stay for the user's own backward. As edges they are the same for every variant.
    """
    queue = [get_gradient_edge(tensor) for tensor in _differentiable(outputs).values()]
    seen: set[tuple[Any, int]] = set()
    ends: list[GradientEdge] = []
    for edge in queue:
        if (edge.node, edge.output_nr) in seen:
            continue
        seen.add((edge.node, edge.output_nr))
        if hasattr(edge.node, "variable") or edge.node._sequence_nr() < started:
            ends.append(edge)
        else:
            queue.extend(GradientEdge(node, nr) for node, nr in edge.node.next_functions if node is not None)
    return ends


def _draw_cotangents(outputs: Any) -> dict[str, torch.Tensor]:
    """Draw one fixed cotangent per differentiable output; ``sum()`` would hide wrong gradients of a softmax."""
    drawn = {}
    for path, tensor in _differentiable(outputs).items():
        if tensor.dim() == 0:
            drawn[path] = torch.ones_like(tensor, requires_grad=False)
            continue
        generator = torch.Generator(device=tensor.device).manual_seed(COTANGENT_SEED)
        drawn[path] = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype, device=tensor.device)
    return drawn


@contextlib.contextmanager
def _refusing_training_loops() -> Iterator[None]:
    """Refuse a call that takes gradients or steps an optimizer itself, before it changes anything.

    Other threads may train meanwhile: they are let through.
    """
    thread = threading.get_ident()

    def refuse(what: str) -> NoReturn:
        line = _innermost(traceback.extract_stack())
        place = f" at {line}: {line.text}" if line else ""
        raise CaptureError(
            RefusalCode.CALL_TRAINS,
            f"The call itself runs {what}{place}. Pass the function that returns the loss instead: the explorer takes "
            "the gradients, and leaves .grad and the optimizer alone.",
        )

    def refusing(owner: Any, name: str, what: str) -> AbstractContextManager[Any]:
        original = getattr(owner, name)

        def instead(*args: Any, **kwargs: Any) -> Any:
            return refuse(what) if threading.get_ident() == thread else original(*args, **kwargs)

        return mock.patch.object(owner, name, instead)

    def before_step(*_: Any) -> None:
        if threading.get_ident() == thread:
            refuse("an optimizer step")

    # One at a time: each puts back what it found.
    with _REFUSING, ExitStack() as stack:
        for owner, name, what in (
            (torch.Tensor, "backward", "backward()"),
            (torch.autograd, "backward", "torch.autograd.backward()"),
            (torch.optim.Optimizer, "zero_grad", "zero_grad()"),
            (nn.Module, "zero_grad", "zero_grad()"),
        ):
            stack.enter_context(refusing(owner, name, what))
        handle = register_optimizer_step_pre_hook(before_step)
        try:
            yield
        finally:
            handle.remove()


def user_line(error: BaseException) -> SourceLine | None:
    """Return the innermost line of the user's program in the traceback of ``error``, or None."""
    return _innermost(traceback.extract_tb(error.__traceback__))


def _innermost(frames: traceback.StackSummary) -> SourceLine | None:
    for frame in reversed(frames):
        if not is_internal(frame.filename):
            return SourceLine(frame.filename, frame.lineno or 0, frame.name, (frame.line or "").strip())
    return None


def is_internal(file: str) -> bool:
    """Return whether a file belongs to torch, to this package or to the interpreter, rather than to the user."""
    if file.startswith("<ipython-input"):
        return False
    return file.startswith((_TORCH, _OURS, "<")) or "/unittest/mock.py" in file or file.endswith("/contextlib.py")
