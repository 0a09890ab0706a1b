"""Cleans and escapes text of the user's program before it is shown."""

from __future__ import annotations

import unicodedata
from html import escape

SHORT = 40
"""Characters kept of a name inside a picture."""
LONG = 240
"""Characters kept of a name or value inside a table."""
LONG_TEXT = 4000
"""Characters kept of an error or another long text."""


def clean(text: object, limit: int = LONG) -> str:
    """Return ``text`` on one line, without invisible characters, cut to ``limit`` characters.

    Control characters, marks that change the writing direction and lone surrogates are dropped; every kind of white
    space becomes one space.
    """
    # Cut first, so that a text of many megabytes is cheap; twice the limit leaves room for dropped characters.
    line = " ".join(_without_invisible(str(text)[: 2 * limit + 2]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def clean_page(text: object, limit: int = LONG_TEXT) -> str:
    """Return ``text`` cleaned line by line: the line breaks stay."""
    page = str(text)
    cleaned = "\n".join(_without_invisible(line).rstrip() for line in page[:limit].splitlines())
    return cleaned if len(page) <= limit else cleaned + "\n…"


def markup(text: object, limit: int = LONG) -> str:
    """Return ``text`` cleaned and escaped for HTML and XML, in elements and in quoted attributes."""
    return escape(clean(text, limit), quote=True)


def _without_invisible(text: str) -> str:
    # Nearly all texts are plain ASCII, and need not be checked character by character.
    return text if text.isascii() and text.isprintable() else "".join(filter(_visible, text))


def _visible(character: str) -> bool:
    if character.isspace():
        return True
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Cn"}
