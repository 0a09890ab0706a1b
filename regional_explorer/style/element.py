"""Elements of HTML and SVG; they escape all text, because some of it comes from users."""

from __future__ import annotations

import functools
import re
import unicodedata
from html import escape
from typing import Any

from regional_explorer.errors import sendable

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
    return _clean(str(text)[: 2 * limit + 2], limit)


@functools.lru_cache(4096)
def _clean(text: str, limit: int) -> str:
    """Return a cleaned text, cached: a panel cleans the same texts at every edit."""
    line = " ".join(_without_invisible(text).split())
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
    # Nearly all texts are plain ASCII, so they need no check of each character.
    if text.isascii() and text.isprintable():
        return text
    return "".join(one for one in text if one.isspace() or unicodedata.category(one) not in _INVISIBLE)


_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})

Node = list[Any]
"""An element: its tag, its attributes, then its children (elements or texts). It is sent to the page as JSON."""

VOID = frozenset({"input", "path", "circle"})
"""Elements without children."""
TAGS = VOID | {
    *("b", "button", "canvas", "code", "datalist", "dd", "details", "div", "dl", "dt", "h1", "h3", "h4", "i", "label"),
    *("li", "option", "p", "progress", "s", "select", "small", "span", "style", "summary", "svg", "table", "tbody"),
    *("td", "th", "thead", "tr", "ul"),
}
_ALLOWED_ATTRIBUTES = re.compile(
    r"(aria|data)-[a-z-]+|autocomplete|checked|class|cx|cy|d|disabled|draggable|fill|for|height|hidden|id|inputmode|label"
    r"|list|max|min|name|open|placeholder|r|role|selected|spellcheck|step|stroke(-[a-z]+)?|style|tabindex|title|type"
    r"|value|viewBox|width"
)


def node(tag: str, /, *children: object, **attributes: object) -> Node:
    """Return an element with cleaned texts; ``_`` in attribute names becomes ``-``, a trailing ``_`` is dropped.

    Attributes that are None or False are left out, and so are None and empty texts among the children.

    Raises:
        ValueError: the tag or an attribute is not allowed.
    """
    if tag not in TAGS:
        raise ValueError(f"<{tag}> is not among the elements of a page.")
    html_attributes = {
        _attribute_name(name): sendable(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if value not in (None, False)
    }
    element: Node = [tag, html_attributes]
    for child in children:
        if isinstance(child, list):
            element.append(child)
        elif child is not None and (text := _child_text(child)):
            element.append(text)
    return element


@functools.cache
def _attribute_name(name: str) -> str:
    """Return the attribute that a Python argument names."""
    attribute = name.rstrip("_").replace("_", "-")
    if not _ALLOWED_ATTRIBUTES.fullmatch(attribute):
        raise ValueError(f"An element with {attribute!r} is not among the elements of a page.")
    return attribute


def verbatim(tag: str, text: str, **attributes: object) -> Node:
    """Return an element with one text, which is already clean, and keeps its white space."""
    return [*node(tag, **attributes), sendable(text)]


def style_sheet(css: str) -> Node:
    """Return a ``style`` element; ``css`` must not contain text from the user's program."""
    return ["style", {}, css]


def to_html(*children: Node | str) -> str:
    """Return elements and texts as HTML."""
    return "".join(escape(child, quote=False) if isinstance(child, str) else _element_html(child) for child in children)


def words(element: Node | str) -> str:
    """Return the texts of an element, joined by spaces."""
    return element if isinstance(element, str) else " ".join(map(words, element[2:]))


def _child_text(child: object) -> str:
    """Return a cleaned text; a space at either end stays, because it separates the text from its neighbour."""
    text = str(child)
    cleaned = clean(text, LONG_TEXT)
    if not cleaned:
        return " " if text[:1] == " " else ""
    return f"{' ' if text[:1] == ' ' else ''}{cleaned}{' ' if text[-1:] == ' ' else ''}"


def _element_html(element: Node) -> str:
    tag, attributes, *children = element
    written = (f" {name}" if value is True else f' {name}="{escape(str(value))}"' for name, value in attributes.items())
    start_tag = f"<{tag}{''.join(written)}>"
    if tag in VOID:
        return f"{start_tag[:-1]}/>"
    # A style sheet is not markup and not escaped; only style_sheet() makes it, never from text of the user's program.
    content = "".join(children) if tag == "style" else to_html(*children)
    return f"{start_tag}{content}</{tag}>"
