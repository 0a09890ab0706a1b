"""Finds out what a cell does with a magic's value, from the bytecode instruction after the call."""

from __future__ import annotations

import dis
import sys
from types import FrameType

_DROPPING = {("POP_TOP", ""), ("PRINT_EXPR", ""), ("CALL_INTRINSIC_1", "INTRINSIC_PRINT")}
"""The instructions after a call whose value is dropped, or displayed as a cell's last value (Python 3.11; 3.12)."""
_NAMING = ("STORE_NAME", "STORE_GLOBAL")


def calling_frame() -> FrameType | None:
    """Return the frame of the code that runs the calling magic: the innermost frame outside of IPython."""
    frame = sys._getframe(1).f_back  # noqa: SLF001 - the documented way to a caller's frame
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("IPython."):
        frame = frame.f_back
    return frame


def value_use(frame: FrameType | None) -> tuple[bool, str]:
    """Return whether the value of the call that ``frame`` runs is used, and the global variable that it is bound to.

    The name is empty where it is bound to none, or to something else. What cannot be known counts as used: an
    expression that a magic such as ``%%time`` evaluates, for one.
    """
    if frame is None:
        return True, ""
    after = (one for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti and one.opname != "COPY")
    following = next(after)
    argument = following.argrepr if following.opname == "CALL_INTRINSIC_1" else ""
    if (following.opname, argument) in _DROPPING:
        return False, ""
    return True, following.argrepr if following.opname in _NAMING else ""
