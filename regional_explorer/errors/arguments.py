"""Checks arguments of public functions; the error says what to pass instead."""

from __future__ import annotations

from regional_explorer.errors import InvalidArgumentError, RegionalExplorerError

MAX_SHOWN_CHARS = 80
"""The maximum number of characters shown of a value."""


def shown_value(value: object) -> str:
    """Return the ``repr`` of a value on one short line, or its type if ``repr`` raises."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - the user's own __repr__ may raise anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"


def check_argument(
    name: str,
    value: object,
    expected_type: type | tuple[type, ...],
    what_to_give: str,
    error: type[RegionalExplorerError] = InvalidArgumentError,
) -> None:
    """Raise ``error`` unless ``value`` is an ``expected_type``; ``what_to_give`` says in words what to pass."""
    if not isinstance(value, expected_type):
        raise error(f"{name}={shown_value(value)}: give {what_to_give}.")


def check_flag(name: str, value: object, *, optional: bool = False) -> None:
    """Raise InvalidArgumentError unless ``value`` is True or False, or None where that is ``optional``."""
    if not isinstance(value, bool) and not (optional and value is None):
        raise InvalidArgumentError(
            f"{name}={shown_value(value)}: give True{', False or None' if optional else ' or False'}."
        )


def check_callable(name: str, value: object, what_to_give: str) -> None:
    """Raise InvalidArgumentError unless ``value`` can be called."""
    if not callable(value):
        raise InvalidArgumentError(f"{name}={shown_value(value)} is not callable: give {what_to_give}.")
