"""Reads errors of generated code: Inductor asserts the sizes and strides of inputs and of kernels' results."""

from __future__ import annotations

import re

_OP_LINE = re.compile(r"^Error in op: (?P<op>.+)$", re.MULTILINE)
_INPUT = "input"
"""The text in place of an op if an assert is about an input; torch up to 2.11 writes no such line."""


def op_of_assert(text: str) -> str:
    """Return the op that returned other sizes or strides than its fake kernel, or an empty text.

    ``text`` is that of an error of generated code, or contains its line about the op. An op is named as a node's target
    is, without ``torch.ops``.
    """
    found = _OP_LINE.search(text) or re.search(r"\(Error in op: (?P<op>.+?)\)", text)
    op = found["op"].strip() if found else ""
    return "" if op == _INPUT else op.removeprefix("torch.ops.")


def is_about_an_input(error: Exception) -> bool:
    """Return whether an error of generated code is an assert about an input. A C++ wrapper raises RuntimeErrors."""
    found = _OP_LINE.search(str(error))
    return found["op"].strip() == _INPUT if found else isinstance(error, AssertionError)


def in_one_line(error: Exception) -> str:
    """Return the first line of an error, with torch's line about the op behind it."""
    first = (str(error).strip().splitlines() or [""])[0]
    found = _OP_LINE.search(str(error))
    return f"{first} ({found[0].strip()})" if found and found["op"].strip() != _INPUT else first
