"""Splits code into comments, keywords, strings and numbers, if Pygments is installed, as it is with Jupyter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regional_explorer.render.style.css import PAGE

Tokens = list[tuple[str, str]]
"""The tokens of one line, each a letter (``c`` comment, ``k`` keyword, ``s`` string, ``m`` number) and a text."""
MOST_COLOURED = 100_000
"""How many characters of one partition's code are coloured at most; longer code is shown without colours."""
TOKEN_CSS = (
    f".{PAGE}.{PAGE} :is(code,.rx-code)"
    "{.c{color:var(--rx-quiet)}.k{font-weight:600}.s{color:var(--rx-good)}.m{color:var(--rx-warn)}}"
)
"""The colours of tokens; their letters are the classes of elements inside ``code``."""


def tokens_by_line(lines: Sequence[str], language: str) -> list[Tokens]:
    """Return the tokens of each line of code; without Pygments each line is one token."""
    plain: list[Tokens] = [[("", line)] for line in lines]
    try:
        from pygments.lexers import get_lexer_by_name
    except ImportError:
        return plain
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    token_lines: list[Tokens] = [[]]
    for kind, text in lexer.get_tokens("\n".join(lines)):
        first_line, *other_lines = text.split("\n")
        token_lines[-1].append((_token_letter(kind), first_line))
        token_lines += [[(_token_letter(kind), line)] for line in other_lines]
    return token_lines if len(token_lines) == len(lines) else plain


def _token_letter(kind: Any) -> str:
    """Return the letter of a kind of token, which Pygments names, for example, ``Token.Literal.String.Double``."""
    name = str(kind)
    letters = {"Token.Comment": "c", "Token.Keyword": "k", "Token.Literal.String": "s", "Token.Literal.Number": "m"}
    return next((letter for prefix, letter in letters.items() if name.startswith(prefix)), "")
