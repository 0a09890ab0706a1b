"""Refuses a call that runs ``backward()`` or an optimizer itself."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NoReturn
from unittest import mock

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from regional_explorer.capture.source_lines import at_line, innermost_user_line
from regional_explorer.errors import CaptureError, RefusalCode
from regional_explorer.torch_api import is_in_backward

_PATCHING = threading.RLock()


@contextlib.contextmanager
def refuse_training() -> Iterator[None]:
    """Raise CaptureError where the block takes gradients or steps an optimizer, before anything changes.

    Other threads may train meanwhile: they are not refused.
    """
    thread = threading.get_ident()

    def refuse(what: str) -> NoReturn:
        where = at_line(innermost_user_line(traceback.extract_stack()))
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
        raise CaptureError(RefusalCode.CALL_TRAINS, f"The call itself runs {what}{where}. {remedy}")

    def refusing(owner: Any, name: str, what: str) -> AbstractContextManager[Any]:
        original = getattr(owner, name)

        def replacement(*args: Any, **kwargs: Any) -> Any:
            return refuse(what) if threading.get_ident() == thread else original(*args, **kwargs)

        return mock.patch.object(owner, name, replacement)

    def before_step(*_: Any) -> None:
        if threading.get_ident() == thread:
            refuse("an optimizer step")

    # One thread at a time: each restores the functions that it found.
    with _PATCHING, ExitStack() as stack:
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
