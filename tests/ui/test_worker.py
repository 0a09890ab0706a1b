from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from regional_explorer.ui.jobs import ThreadModes

MARK: contextvars.ContextVar[str] = contextvars.ContextVar("MARK", default="nobody's")


def seen_on_a_thread(modes: ThreadModes, read_modes: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=modes.run, args=(lambda: found.append(read_modes()),))
    thread.start()
    thread.join(10)
    return found[0]


def test_modes_are_those_of_the_making_not_of_now() -> None:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        modes = ThreadModes.current()

    def read_modes() -> tuple[bool, bool, torch.dtype, bool]:
        cpu = "cpu"
        return (
            torch.is_grad_enabled(),
            torch.is_autocast_enabled(cpu),
            torch.get_autocast_dtype(cpu),
            torch.is_inference_mode_enabled(),
        )

    assert seen_on_a_thread(modes, read_modes) == (False, True, torch.bfloat16, False)
    assert seen_on_a_thread(ThreadModes.current(), read_modes)[:2] == (True, False)
    assert torch.is_grad_enabled()


def test_inference_mode_and_default_device_are_carried() -> None:
    with torch.inference_mode(), torch.device("meta"):
        modes = ThreadModes.current()
    assert seen_on_a_thread(modes, lambda: (torch.is_inference_mode_enabled(), torch.ones(1).device.type)) == (
        True,
        "meta",
    )
    assert torch.ones(1).device.type == "cpu"


def test_the_context_is_a_copy_of_the_makers() -> None:
    token = MARK.set("the maker's")
    modes = ThreadModes.current()
    MARK.reset(token)
    assert seen_on_a_thread(modes, MARK.get) == "the maker's"
    assert seen_on_a_thread(modes, lambda: MARK.set("changed") and MARK.get()) == "changed"
    assert seen_on_a_thread(modes, MARK.get) == "the maker's"
    assert MARK.get() == "nobody's"


def test_settings_of_inductor_are_carried() -> None:
    import torch._inductor.config as inductor
    from torch.utils import _config_module

    if not hasattr(_config_module, "ContextVar"):
        pytest.skip("in torch 2.11 a setting is that of the process, for all threads alike")
    with inductor.patch(max_fusion_size=3):
        modes = ThreadModes.current()
    assert seen_on_a_thread(modes, lambda: inductor.max_fusion_size) == 3
    assert inductor.max_fusion_size != 3
