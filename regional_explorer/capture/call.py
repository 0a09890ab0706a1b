"""The user's call: runs it once eagerly, repeats it with its outputs and gradients, and restores what it changed."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch

from regional_explorer.capture.gradients import (
    GradientInput,
    draw_cotangents,
    gradient_inputs,
    next_sequence_number,
    requires_grad,
)
from regional_explorer.capture.reachable_modules import parameter_names, reachable_modules
from regional_explorer.capture.refuse_training import refuse_training
from regional_explorer.capture.restore.assigned_state import AssignedState
from regional_explorer.capture.restore.muted_output import silent
from regional_explorer.capture.restore.random_state import RandomState
from regional_explorer.capture.restore.reachable_state import Reach, reach
from regional_explorer.capture.restore.undo_log import UndoLog
from regional_explorer.capture.source_lines import at_line, user_line
from regional_explorer.capture.tensors import tensors_in
from regional_explorer.errors import CaptureError, ClosedError, RefusalCode
from regional_explorer.torch_api import compile_lock, is_marked_dynamic, unmark_dynamic


class Call:
    """The user's call, which can be repeated as often as measuring needs.

    Construction runs it once in plain eager mode, with gradients if it has any. That run shows what it writes in
    place, which leaves its outputs depend on, and whether it can be measured at all. ``stateful`` says whether it
    changes tensors or draws random numbers, so that something has to be restored before each repetition; ``draws``
    whether it draws random numbers.

    Args:
        fn: the function or module.
        args: positional arguments, kept by reference.
        kwargs: keyword arguments, kept by reference.
        grad: whether to take gradients; None takes them if an output requires grad.

    Raises:
        CaptureError: the call or its backward raises; it runs ``backward()`` or an optimizer itself; ``grad=True``,
            but no output depends on anything that requires grad; it returns a coroutine or a generator.
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
        reachable = self._reach()
        self._random = RandomState(reachable.generators)
        self._undo = UndoLog()
        self._state = AssignedState(reachable)
        self._dynamic = {id(tensor): tensor for tensor in reachable.tensors if is_marked_dynamic(tensor)}
        self._gradient_inputs: list[GradientInput] = []
        self._cotangents: dict[str, torch.Tensor] = {}
        outputs = self._first_run()
        self.stateful = self._undo.wrote or self._state.changes or self.draws
        self.kept_state = self._state.kept
        self.output_names = [name for name, _ in tensors_in(outputs, "output")]
        self.grad = bool(self._gradient_inputs)
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
        """Run the call while no other thread traces: marks in eager code change state that all threads share.

        ``torch.fx.traceback.current_meta`` is global to the process (torch 2.13).
        """
        with compile_lock():
            return self.fn(*self.args, **self.kwargs)

    def _first_run(self) -> Any:
        first_number = next_sequence_number()
        try:
            with self._watched():
                with _raising_capture_error("The call itself"):
                    outputs = self._run_eagerly()
                _refuse_unfinished(outputs)
                if self._grad_mode:
                    self._gradient_inputs = gradient_inputs(outputs, first_number)
                    self._cotangents = draw_cotangents(outputs)
                if self._gradient_inputs:
                    with _raising_capture_error("The backward of the call"):
                        self.backward(outputs)
                self.draws = not self._random.is_unchanged()
            if self._state.first_run_ended():
                self._second_run()
        finally:
            self._restore_state()
        return outputs

    def _second_run(self) -> None:
        """Run again from the Python state that the first run left, to see what every call assigns."""
        self._state.note_first_run(self._reach())
        self._undo.restore()
        with self._watched(), silent(), _raising_capture_error("The call, run a second time,"):
            outputs = self._run_eagerly()
            if self._gradient_inputs:
                self.backward(outputs)
        self._state.note_second_run()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Context manager: note what the call writes in the block, and restore the random generators afterwards."""
        with self._random, refuse_training(), torch.set_grad_enabled(self._grad_mode), self._undo:
            yield

    def forward(self, fn: Callable[..., Any] | None = None) -> Any:
        """Run the call, with ``fn`` in place of the user's function if it is given, and return its outputs."""
        with torch.set_grad_enabled(self._grad_mode):
            return (self.fn if fn is None else fn)(*self.args, **self.kwargs)

    def backward(self, outputs: Any) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of ``outputs`` for the fixed cotangents; no ``.grad`` is changed."""
        by_path = dict(tensors_in(outputs))
        pairs = [(by_path[path], grad) for path, grad in self._cotangents.items() if requires_grad(by_path.get(path))]
        tensors, cotangents = zip(*pairs, strict=True)
        return torch.autograd.grad(tensors, self._gradient_inputs, cotangents, allow_unused=True)  # type: ignore[arg-type]  # mixed lists work

    def run(self, fn: Callable[..., Any] | None = None) -> tuple[Any, tuple[torch.Tensor | None, ...]]:
        """Run the call as ``forward`` does, with its backward if it has one; return its outputs and its gradients."""
        outputs = self.forward(fn)
        return outputs, self.backward(outputs) if self.grad else ()

    def restore(self) -> None:
        """Restore what the call changed in place or assigned, and the random generators."""
        self._restore_state()
        self._random.restore()

    def _restore_state(self) -> None:
        self._state.restore()
        self._undo.restore()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Context manager for running the call: afterwards all of the user's state is as before.

        ``restore`` restores the state at the start of the block: the user may have trained the model since the first
        run. The first run printed what the user's code prints; repetitions are silent.
        """
        reachable = self._reach()
        self._unmark_dynamic(reachable)
        outer_random, outer_state = RandomState(reachable.generators), (self._undo, self._state)
        self._undo, self._state = self._undo.as_now(self._state.to_copy(reachable)), self._state.as_now()
        self._random.restore()
        try:
            with silent():
                yield
        finally:
            self._restore_state()
            outer_random.restore()
            self._unmark_dynamic(reachable)
            self._undo, self._state = outer_state

    def _unmark_dynamic(self, reachable: Reach) -> None:
        """Remove the marks that traces with dynamic sizes left on tensors: with them later traces would be dynamic."""
        unmark_dynamic(tensor for tensor in reachable.tensors if id(tensor) not in self._dynamic)

    def close(self) -> None:
        """Drop all references to what belongs to the user."""
        self.fn, self.args, self.kwargs, self.modules = closed, (), {}, []
        self._gradient_inputs, self._cotangents, self._undo, self._state = [], {}, UndoLog(), AssignedState(Reach())
        self._random, self._dynamic = RandomState(), {}

    def _name_gradients(self) -> list[str]:
        names = parameter_names(self.modules)
        for name, tensor in (*tensors_in(self.args, "args"), *tensors_in(self.kwargs, "kwargs")):
            names.setdefault(id(tensor), name)
        return [f"grad {names.get(id(leaf), f'of leaf {index}')}" for index, leaf in enumerate(self._gradient_inputs)]


def closed(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Raise ClosedError: replaces the user's function after ``close()``."""
    raise ClosedError("The exploration was closed. Make a new one with rx.explore(...).")


def traced_again(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Raise ClosedError: replaces the functions of an earlier trace after ``retrace()``."""
    raise ClosedError("This belongs to an earlier trace; the call was traced again. Take ex.compiled again.")


def _refuse_unfinished(outputs: Any) -> None:
    """Raise CaptureError if the call returned a coroutine or a generator, whose body has not run."""
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
def _raising_capture_error(what: str) -> Iterator[None]:
    """Context manager for the user's code: what it raises becomes a CaptureError with the line."""
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        where = at_line(user_line(error))
        raise CaptureError(RefusalCode.CALL_RAISES, f"{what} raises {type(error).__name__}{where}: {error}") from error
