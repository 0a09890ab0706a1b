"""Splits code into comments, keywords, strings and numbers, if Pygments is installed, as it is with Jupyter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Tokens = list[tuple[str, str]]
"""The parts of one line: a letter for the kind (``c`` comment, ``k`` keyword, ``s`` string, ``m`` number), the text."""


def tokens_by_line(lines: Sequence[str], language: str) -> list[Tokens]:
    """Return the parts of each line of code; without Pygments each line is one part."""
    plain: list[Tokens] = [[("", line)] for line in lines]
    try:
        from pygments.lexers import get_lexer_by_name
    except ImportError:
        return plain
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    found: list[Tokens] = [[]]
    for kind, text in lexer.get_tokens("\n".join(lines)):
        first, *rest = text.split("\n")
        found[-1].append((_letter(kind), first))
        found += [[(_letter(kind), line)] for line in rest]
    return found if len(found) == len(lines) else plain


def _letter(kind: Any) -> str:
    """Return the letter of a kind of token, which Pygments names, for example, ``Token.Literal.String.Double``."""
    name = str(kind)
    known = {"Token.Comment": "c", "Token.Keyword": "k", "Token.Literal.String": "s", "Token.Literal.Number": "m"}
    return next((letter for start, letter in known.items() if name.startswith(start)), "")
