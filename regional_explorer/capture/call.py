"""The user's call: checks it, runs it once eagerly, repeats it, and restores whatever it changed."""

from __future__ import annotations

import contextlib
import inspect
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from regional_explorer.capture.reachable import Reach, reach, tensor_names
from regional_explorer.capture.restore import AssignedState, RandomState, RestoreLog, silent, storages_of
from regional_explorer.capture.tensors import (
    GradientInput,
    gradient_inputs,
    next_sequence_number,
    nodes_behind,
    nodes_with_smaller_numbers,
    random_cotangents,
    requires_grad,
    runs_older_nodes,
    tensors_in,
)
from regional_explorer.capture.user_lines import at_user_line
from regional_explorer.errors import (
    CaptureError,
    ClosedError,
    InvalidArgumentError,
    RefusalCode,
    check_argument,
    check_flag,
)
from regional_explorer.torch_api.compile_lock import compile_lock_for_user_code
from regional_explorer.torch_api.dynamo import running_uncompiled, uncompiled
from regional_explorer.torch_api.graphs import AUTOCAST_DEVICES, is_in_backward
from regional_explorer.torch_api.hidden_state import (
    SavedTensorsHooks,
    current_saved_tensors_hooks,
    has_buffers,
    is_marked_dynamic,
    saving_tensors_with,
    unmark_dynamic,
)
from regional_explorer.torch_api.torch_config import TorchFlags

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_PATCHING = threading.RLock()


@contextlib.contextmanager
def refuse_training() -> Iterator[None]:
    """Raise CaptureError where the block takes gradients or steps an optimizer, before anything changes.

    Other threads may train meanwhile: they are not refused.
    """
    thread = threading.get_ident()

    def refuse(action: str) -> NoReturn:
        where = at_user_line(traceback.extract_stack())
        if is_in_backward():
            remedy = (
                "That is inside the backward of an autograd function: take these gradients with "
                "torch.autograd.grad(…), which leaves .grad alone (of torch.utils.checkpoint: pass "
                "use_reentrant=False), or explore the forward alone with grad=False."
            )
        else:
            remedy = (
                "Pass the function that returns the loss instead: the explorer takes the gradients, and leaves .grad "
                "and the optimizer alone."
            )
        raise CaptureError(RefusalCode.CALL_TRAINS, f"The call itself runs {action}{where}. {remedy}")

    def refusing(owner: Any, name: str, action: str) -> AbstractContextManager[Any]:
        original = getattr(owner, name)

        def replacement(*args: Any, **kwargs: Any) -> Any:
            return refuse(action) if threading.get_ident() == thread else original(*args, **kwargs)

        return mock.patch.object(owner, name, replacement)

    def before_step(*_: Any) -> None:
        if threading.get_ident() == thread:
            refuse("an optimizer step")

    # One thread at a time: each restores the functions that it found.
    with _PATCHING, ExitStack() as stack:
        for owner, name, action in (
            (torch.Tensor, "backward", "backward()"),
            (torch.autograd, "backward", "torch.autograd.backward()"),
            (torch.optim.Optimizer, "zero_grad", "zero_grad()"),
            (nn.Module, "zero_grad", "zero_grad()"),
        ):
            stack.enter_context(refusing(owner, name, action))
        stack.callback(register_optimizer_step_pre_hook(before_step).remove)
        yield


@dataclass(frozen=True)
class Modes:
    """The modes of a thread that decide what its code computes."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype, bool], ...]
    autocast_cache: bool
    default_device: torch.device
    saved_tensors_hooks: SavedTensorsHooks | None

    @classmethod
    def current(cls) -> Modes:
        """Return the modes of the calling thread."""
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(
                (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
                for device in AUTOCAST_DEVICES
            ),
            autocast_cache=torch.is_autocast_cache_enabled(),
            default_device=torch.get_default_device(),
            saved_tensors_hooks=current_saved_tensors_hooks(),
        )

    @property
    def has_autocast(self) -> bool:
        """Whether any autocast is enabled."""
        return any(enabled for _, _, enabled in self.autocast)

    @property
    def of_backward(self) -> Modes:
        """The modes of a user's own backward, which runs outside of the blocks around the call."""
        off = tuple((device, dtype, False) for device, dtype, _ in self.autocast)
        return replace(self, autocast=off, saved_tensors_hooks=None)

    @property
    def autocast_text(self) -> str:
        """The enabled autocasts, such as ``cpu: bfloat16``; empty if there are none."""
        enabled = [(device, str(dtype).removeprefix("torch.")) for device, dtype, is_on in self.autocast if is_on]
        return ", ".join(f"{device}: {dtype}" for device, dtype in enabled)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Context manager: run the block under these modes, on whichever thread."""
        with ExitStack() as stack:
            # Not torch.set_default_device: inside a `with torch.device(…)` of the user it leaves a context behind.
            if self.default_device != torch.get_default_device():
                stack.enter_context(self.default_device)
            if self.inference != torch.is_inference_mode_enabled():  # entering it sets other modes, too
                stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, dtype, enabled in self.autocast:
                if enabled or torch.is_autocast_enabled(device):
                    autocast = torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=self.autocast_cache)
                    stack.enter_context(autocast)
            if self.saved_tensors_hooks != current_saved_tensors_hooks():
                stack.enter_context(saving_tensors_with(self.saved_tensors_hooks))
            yield


class Call:
    """The user's call, which can be repeated as often as measuring needs.

    Construction runs it once in plain eager mode, with gradients if it has any. Compiled functions that it calls run
    uncompiled in this run, so that their writes are seen. The run shows what the call writes in place, which leaves its
    outputs depend on, and whether it can be measured at all. ``stateful`` says whether it changes tensors or draws
    random numbers, so that something has to be restored before each repetition; ``is_random`` whether it draws random
    numbers. Every repetition runs under ``modes``, those of the first run. ``not_restored`` names the values that the
    first run assigned and that stay.

    Args:
        fn: the function or module; a compiled one stands for its original.
        args: positional arguments, kept by reference.
        kwargs: keyword arguments, kept by reference.
        grad: whether to take gradients; None takes them if an output requires grad.

    Raises:
        CaptureError: the call or its backward raises; it runs ``backward()`` or an optimizer itself; ``grad=True``,
            but no output depends on anything that requires grad; it returns a coroutine or a generator; it attaches a
            tensor of the user's to its autograd graph for good.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        grad: bool | None = None,
    ) -> None:
        self.fn = uncompiled(fn)
        self.args = tuple(args)
        self.kwargs = dict(kwargs or {})
        modes = Modes.current()
        self.modes = modes if grad is None else replace(modes, grad=grad)
        self._leaves_modes = self.modes != self.modes.of_backward
        reachable = self._reach()
        self.modules = reachable.roots
        self._random, self._flags = RandomState(reachable.generators), TorchFlags()
        self._restore_log, self._before_first = RestoreLog(reachable.tensors), RestoreLog()
        self._state = AssignedState(reachable)
        self._dynamic = {id(tensor): tensor for tensor in reachable.tensors if is_marked_dynamic(tensor)}
        self._gradient_inputs: list[GradientInput] = []
        self._cotangents: dict[str, torch.Tensor] = {}
        self._written_names: list[str] = []
        if unclear := self._first_run(reachable.tensors):
            with silent():
                self._first_run(reachable.tensors, unclear)
        self.stateful = self._restore_log.has_written or self._state.has_changes or self.is_random or self._sets_flags
        self.not_restored = (*self._state.not_restored, *self._kept_names())
        self.grad = bool(self._gradient_inputs)
        if grad and not self.grad:
            raise CaptureError(
                RefusalCode.NO_GRADIENT,
                "grad=True, but no output depends on a tensor that requires grad. Make a parameter or an argument "
                "require grad (x.requires_grad_()), or leave grad out for inference.",
            )
        names = tensor_names(self._reach(), self.modules, self.args, self.kwargs)
        self.gradient_names = [
            f"grad {names.get(id(leaf), f'of leaf {index}')}" for index, leaf in enumerate(self._gradient_inputs)
        ]

    @property
    def training(self) -> tuple[bool, ...]:
        """Whether each module of the call is in training mode."""
        return tuple(module.training for _, root in self.modules for module in root.modules())

    @property
    def mode(self) -> str:
        """The mode of the call's modules in words; empty without modules."""
        flags = self.training
        if not flags or all(flags):
            return "training mode" if flags else ""
        evaluated = flags.count(False)
        return "evaluation mode" + (f" in {evaluated} of {len(flags)} modules" if any(flags) else "")

    def _reach(self) -> Reach:
        return reach(self.fn, self.args, self.kwargs)

    def _run_eagerly(self) -> Any:
        """Run the call while no other thread traces, because marks in eager code change state that all threads share.

        ``torch.fx.traceback.current_meta`` is global to the process (torch 2.13).
        """
        with compile_lock_for_user_code():
            return self.fn(*self.args, **self.kwargs)

    def _one_argument_remedy(self) -> str:
        """Return how to give all arguments as one list, if the function takes them in no other way."""
        try:
            signature = inspect.signature(self.fn.forward if isinstance(self.fn, nn.Module) else self.fn)
            signature.bind(self.args, **self.kwargs)
        except (TypeError, ValueError):
            return ""
        try:
            signature.bind(*self.args[:2], **self.kwargs)
        except TypeError:
            return f". To give these {len(self.args)} values as one argument, write rx.explore(fn, (args,))."
        return ""

    def _first_run(
        self, tensors_before: Sequence[torch.Tensor], seen_before: AbstractSet[Node] = frozenset()
    ) -> AbstractSet[Node]:
        """Run the call with its backward, and record its changes.

        If its outputs lead to autograd nodes that may be older than the call, but that a thread of the call may have
        made, restore everything and return these nodes. Found again in another run, which gets them as ``seen_before``,
        they can only be older.
        """
        storages_before, nodes_before = storages_of(tensors_before), nodes_behind(tensors_before) | seen_before
        first_number = next_sequence_number()
        try:
            with self._watching_writes():
                with _raising_capture_error("The call itself", self._one_argument_remedy):
                    outputs = self._run_eagerly()
                _refuse_unfinished(outputs)
                if self.modes.grad:
                    unclear = nodes_with_smaller_numbers(outputs, first_number) - nodes_before
                    if unclear and not seen_before:
                        return unclear
                    self._gradient_inputs = gradient_inputs(outputs, nodes_before)
                    _refuse_continued(self._gradient_inputs)
                    self._cotangents = random_cotangents(outputs)
                if self._gradient_inputs:
                    with _raising_capture_error("The backward of the call"):
                        self.backward(outputs)
                self.is_random, self._sets_flags = not self._random.is_unchanged(), not self._flags.is_unchanged()
            after_first = self._restore_log.contents()
            self._restore_log.restore()  # before the state is read: see _restore_state
            if self._state.first_run_ended():
                self._second_run(nodes_before, after_first)
            elif self._restore_log.has_written or self._state.has_changes:
                self._record_written(storages_before)
        finally:
            self._restore_state()
        return frozenset()

    def _second_run(self, nodes_before: AbstractSet[Node], after_first: RestoreLog) -> None:
        """Run again from the Python state that the first run left, to see what every call assigns.

        If some of the Python state stays, so do the writes to tensors that only the first run makes: a cache, or
        parameters made from the first batch, behind a flag that says so. The outputs may differ from the first run's.
        No gradients are taken if they depend on what the first run made.
        """
        reachable = self._reach()
        self._state.record_first_run(reachable)
        storages_before = storages_of(reachable.tensors)
        with self._watching_writes(), silent(), _raising_capture_error("The call, run a second time,"):
            outputs = self._run_eagerly()
            if self._gradient_inputs:
                ends = gradient_inputs(outputs, nodes_before | nodes_behind(reachable.tensors))
                # Gradients would go through what the first run made, to the same leaves, but its buffers are freed.
                if all(isinstance(end, torch.Tensor) or end.node in nodes_before for end in ends):
                    self._gradients(outputs, ends, random_cotangents(outputs))
        self._state.record_second_run()
        if self._state.not_restored:
            self._before_first = self._restore_log.keep_first(after_first)
        self._record_written(storages_before)

    def _record_written(self, storages_before: AbstractSet[int]) -> None:
        """Record which tensors a run has written in place or assigned; assigned tensors have new storages."""
        self._written_names = [
            name
            for name, tensor in self._tensors_by_name().items()
            if (self._restore_log.has(tensor) and not self._before_first.has(tensor))
            or storages_of([tensor]) - storages_before
        ]

    def written_tensors(self) -> list[tuple[str, torch.Tensor, torch.Tensor | None]]:
        """Return the user's tensors that the call writes or assigns, as they are now; use it in a ``restoring`` block.

        Each tensor comes with its name and, if it was written in place, its content at the start of the block.
        """
        tensors = self._tensors_by_name()
        return [
            (f"written {name}", tensors[name], self._restore_log.content_before(tensors[name]))
            for name in self._written_names
            if name in tensors
        ]

    @contextlib.contextmanager
    def _watching_writes(self) -> Iterator[None]:
        """Context manager: record the call's writes in the block; restore random generators and flags afterwards."""
        try:
            with (
                self._random,
                refuse_training(),
                running_uncompiled(),
                torch.set_grad_enabled(self.modes.grad),
                self._restore_log,
            ):
                yield
        finally:
            self._flags.restore()

    def forward(self, fn: Callable[..., Any] | None = None) -> Any:
        """Run the call, with ``fn`` in place of the user's function if it is given, and return its outputs."""
        with torch.set_grad_enabled(self.modes.grad):
            return (self.fn if fn is None else fn)(*self.args, **self.kwargs)

    def backward(self, outputs: Any) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of ``outputs`` for the fixed cotangents; no ``.grad`` is changed.

        They belong to the tensors whose gradients the first run took; None for a tensor that did not contribute.
        """
        return self._gradients(outputs, self._gradient_inputs, self._cotangents)

    def _gradients(
        self, outputs: Any, inputs: Sequence[GradientInput], cotangents: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor | None, ...]:
        by_path = dict(tensors_in(outputs))
        pairs = [(by_path[path], grad) for path, grad in cotangents.items() if requires_grad(by_path.get(path))]
        if not pairs:
            return (None,) * len(inputs)
        tensors, grads = zip(*pairs, strict=True)
        with self.modes.of_backward.active() if self._leaves_modes else contextlib.nullcontext():  # this is timed
            return torch.autograd.grad(tensors, inputs, grads, allow_unused=True)  # type: ignore[arg-type]  # mixed lists work

    def run(self, fn: Callable[..., Any] | None = None) -> tuple[Any, tuple[torch.Tensor | None, ...]]:
        """Run the call as ``forward`` does, with its backward if it has one; return its outputs and its gradients.

        Raises:
            CaptureError: the user's function has no gradients any more.
        """
        outputs = self.forward(fn)
        gradients = self.backward(outputs) if self.grad else ()
        if fn is None and self.grad and all(gradient is None for gradient in gradients):
            raise CaptureError(
                RefusalCode.NO_GRADIENT,
                "The gradients cannot be computed again: in the repeated call, the outputs depend on none of the "
                "tensors whose gradients the first run took. The call creates these tensors itself, or they were "
                "replaced or frozen after that run. Pass the tensors that require grad as arguments, explore the call "
                "again, or leave the backward out with grad=False.",
            )
        return outputs, gradients

    def assigned_names(self) -> list[str]:
        """Return the names of the Python values that differ from those at the start of the ``restoring`` block."""
        return self._state.assigned_names()

    def restore(self) -> None:
        """Restore what the call changed in place or assigned, and the random generators."""
        self._restore_state()
        self._random.restore()

    def _restore_state(self) -> None:
        # In this order: reading a flag of a view attaches the view to the graph that its base is attached to, for good.
        self._restore_log.restore()
        self._state.restore()
        self._flags.restore()

    @contextlib.contextmanager
    def undone_if_refused(self) -> Iterator[None]:
        """Context manager: if the block raises, undo even what the first run made for later runs."""
        try:
            yield
        except BaseException:
            self._before_first.restore()
            self._state.restore_all()
            raise

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """Context manager: run the block with the random state and modes of the first run, then restore all state.

        ``restore`` restores the state at the start of the block: the user may have trained the model since the first
        run. The first run printed what the user's code prints; repetitions are silent.

        Raises:
            CaptureError: a tensor that the call writes has become part of an autograd graph of the user's.
        """
        reachable = self._reach()
        self._unmark_dynamic(reachable)
        outer_random, outer_state = RandomState(reachable.generators), (self._restore_log, self._state)
        self._restore_log, self._state = self._restore_log.as_now(self._state.to_copy(reachable)), self._state.as_now()
        self._random.restore()
        outer_flags = TorchFlags()
        try:
            with silent(), self.modes.active():
                self._flags = TorchFlags()  # the block may have another default device
                yield
        finally:
            self._flags = outer_flags
            self._restore_state()
            outer_random.restore()
            self._unmark_dynamic(reachable)
            self._restore_log, self._state = outer_state

    def _unmark_dynamic(self, reachable: Reach) -> None:
        """Remove the marks that a trace left on tensors for dynamic sizes: they would make later traces dynamic."""
        unmark_dynamic(tensor for tensor in reachable.tensors if id(tensor) not in self._dynamic)

    def close(self) -> None:
        """Drop all references to what belongs to the user."""
        self.fn, self.args, self.kwargs, self.modules = raise_closed, (), {}, []
        self._gradient_inputs, self._cotangents, self._restore_log, self._state = (
            [],
            {},
            RestoreLog(),
            AssignedState(Reach()),
        )
        self._before_first = RestoreLog()
        self._random, self._dynamic = RandomState(), {}

    def _kept_names(self) -> list[str]:
        """Return the names of the tensors that stay as the first run left them."""
        kept_ids = set(map(id, self._state.kept_tensors))
        tensors = self._tensors_by_name() if self._state.not_restored else {}
        return [name for name, tensor in tensors.items() if id(tensor) in kept_ids or self._before_first.has(tensor)]

    def _tensors_by_name(self) -> dict[str, torch.Tensor]:
        reachable = self._reach()
        names = tensor_names(reachable, self.modules, self.args, self.kwargs)
        return {names[id(tensor)]: tensor for tensor in reachable.tensors}


def raise_closed(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Raise ClosedError: replaces the user's function after ``close()``."""
    raise ClosedError("The exploration was closed. Make a new one with rx.explore(...).")


def raise_retraced(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Raise ClosedError: replaces the functions of an earlier trace after ``retrace()``."""
    raise ClosedError(
        "This function belongs to an earlier trace: ex.retrace() has traced the call again. Use ex.compiled to get the "
        "current one."
    )


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


def _refuse_continued(ends: Sequence[GradientInput]) -> None:
    """Raise CaptureError if the call's backward would run the user's own backward and free its saved tensors."""
    if runs_older_nodes(ends):
        raise CaptureError(
            RefusalCode.CALL_CONTINUES,
            "The backward of the call would continue into your own autograd graph, and free what your own backward "
            "needs: the call uses a result of that graph, and also a tensor from which it was computed. "
            "Give the call detached results (h.detach().requires_grad_()), or leave the backward out with grad=False.",
        )


@contextlib.contextmanager
def _raising_capture_error(subject: str, type_error_remedy: Callable[[], str] = str) -> Iterator[None]:
    """Context manager for the user's code: turn its exceptions into a CaptureError that names the line."""
    try:
        yield
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:  # a call that ends the program would end ours, and look successful
        where = at_user_line(traceback.extract_tb(error.__traceback__))
        message = f"{subject} raises {type(error).__name__}{where}: {error}"
        remedy = type_error_remedy() if isinstance(error, TypeError) else ""
        raise CaptureError(RefusalCode.CALL_RAISES, message + remedy) from error


def check_call(fn: Any, args: Any, kwargs: Any) -> None:
    """Raise InvalidArgumentError unless a function can be called with these arguments and traced."""
    for name in kwargs or {}:
        check_argument("a name in kwargs", name, str, "strings: the names of keyword arguments")
    called_ids = (id(fn), id(getattr(fn, "__self__", None)))
    for _, root in reach(fn, args, kwargs or {}).roots:
        for name, module in root.named_modules():
            # A scripted module that is called inside is a graph break; a traced one even lacks a module's attributes.
            is_called = id(module) in called_ids
            if isinstance(module, torch.jit.ScriptModule) and (is_called or not has_buffers(module)):
                raise InvalidArgumentError(
                    f"{f'The module {name!r}' if name else type(module).__name__} was made by torch.jit: TorchScript "
                    "runs it, so there is no Python to trace. Explore the module that it was made from."
                )


def check_options(grad: Any, dynamic: Any) -> None:
    """Raise InvalidArgumentError unless these are the options of a capture."""
    check_flag("grad", grad, optional=True)
    check_flag("dynamic", dynamic, optional=True)
