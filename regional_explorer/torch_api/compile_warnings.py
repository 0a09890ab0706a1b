"""The warnings of Inductor during a compile."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

INDUCTOR = "torch._inductor"
_SHOWN: set[str] = set()
"""The warnings that were shown to the user."""


class _Recorder(logging.Handler):
    """Records each warning of this thread once, by ``warnings`` or by ``logging``."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread = threading.get_ident()
        self.texts: dict[str, None] = {}

    def note(self, text: str) -> None:
        """Record the text of a warning, on one line."""
        if threading.get_ident() == self._thread:
            self.texts.setdefault(" ".join(text.split()))

    def emit(self, record: logging.LogRecord) -> None:
        """Record the message of a log record."""
        self.note(record.getMessage())


@contextlib.contextmanager
def recording_warnings() -> Iterator[dict[str, None]]:
    """Context manager around a compile: record Inductor's warnings; the compile lock must be held.

    Users see each warning once per process, as without this block.
    """
    recorder, warn, logger = _Recorder(), warnings.warn, logging.getLogger(INDUCTOR)

    def noting_warn(
        message: str | Warning, category: type[Warning] | None = None, stacklevel: int = 1, *args: Any, **kwargs: Any
    ) -> None:
        by_inductor = sys._getframe(1).f_globals.get("__name__", "").startswith(INDUCTOR)
        if by_inductor:
            recorder.note(str(message))
        if not by_inductor or str(message) not in _SHOWN:
            warn(message, category, stacklevel + 1, *args, **kwargs)
        if by_inductor:
            _SHOWN.add(str(message))

    _forget_warned()
    logger.addHandler(recorder)
    try:
        with mock.patch.object(warnings, "warn", noting_warn):
            yield recorder.texts
    finally:
        logger.removeHandler(recorder)


def _forget_warned() -> None:
    """Let Inductor repeat warnings that it gives once per process: they may be about another region now.

    Such warnings are in cached functions, ``_warn_complex_not_supported`` of ``lowering`` for one (torch 2.11 to 2.15).
    """
    # Copies, because other threads may import meanwhile.
    modules = [module for name, module in sys.modules.copy().items() if name.startswith(INDUCTOR)]
    for function in (fn for module in modules for name, fn in vars(module).copy().items() if name.startswith("_warn")):
        if hasattr(function, "cache_clear"):
            function.cache_clear()
