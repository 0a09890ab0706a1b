"""The allowed values of config keys (choices, numbers, words), parsed from the comments in torch's source.

They are read from the running torch; a key without such a comment takes any value of its type, but for the few whose
numbers are listed here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from regional_explorer.errors import did_you_mean
from regional_explorer.record.decode import LARGEST
from regional_explorer.torch_api import config_comments, config_entries

_QUOTED_CHOICES = re.compile(r'(?:[Oo]ptions|[Vv]alid values|choices are): ((?:(?:or )?"\w+"(?: \([^)]*\))?,? ?)+)')
_NUMBERED_CHOICES = re.compile(r"(?<![\w.])(\d+) - [a-z]")
_COMBINED_WORDS = re.compile(r"combinations of: (\w+(?:, \w+)+)")
_BACKENDS_KEY = re.compile(r"max_autotune_\w+_backends")
MOST_THREADS = 1024

_NUMBERS: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "cpp.simdlen": (
        lambda bits: bits in (0, 1, 128, 256, 512),
        "it takes the bits of a vector register, 128, 256 or 512, or 0 for code without SIMD",
    ),
    "cpp.threads": (
        lambda threads: threads == -1 or 1 <= threads <= MOST_THREADS,
        f"it takes 1 to {MOST_THREADS:,}, or -1 for as many as torch has",
    ),
    "cpp.min_chunk_size": (lambda size: size >= 1, "it takes no number below 1"),
}
"""Which numbers keys take of which torch takes any, as it means something else by the others.

A ``simdlen`` that no vector register has turns SIMD off (``pick_vec_isa`` in torch's cpu_vec_isa.py), and a number of
threads below 1 is torch's own.
"""


def choices(key: str) -> tuple[Any, ...]:
    """Return the values that the comment of ``key`` lists; none if it lists none."""
    comment, default = config_comments().get(key, ""), config_entries()[key].default
    if (quoted := _QUOTED_CHOICES.search(comment)) and (default is None or isinstance(default, str)):
        words = tuple(re.findall(r'"(\w+)"', quoted[1]))
        return (*words, *(() if default in words else (default,)))
    numbered = tuple(dict.fromkeys(map(int, _NUMBERED_CHOICES.findall(comment))))
    return numbered if len(numbered) > 1 and type(default) is int and default in numbered else ()


def combined(key: str) -> tuple[str, ...]:
    """Return the words that ``key`` takes as a comma-separated list; none if torch does not list them."""
    comment = config_comments().get(key, "")
    if _BACKENDS_KEY.fullmatch(key):  # the others say "as above"
        comment = config_comments().get("max_autotune_gemm_backends", "")
    match = _COMBINED_WORDS.search(comment)
    return tuple(match[1].split(", ")) if match and isinstance(config_entries()[key].default, str) else ()


def problem(key: str, value: Any) -> str | None:
    """Return what is wrong with a value of the right type and what to give instead, or None."""
    if isinstance(value, str) and (known_words := combined(key)):
        words = [word.strip() for word in value.split(",") if word.strip()]
        unknown = [word for word in words if word.upper() not in map(str.upper, known_words)]
        if unknown:
            hint = did_you_mean(unknown[0].upper(), map(str.upper, known_words))
            return f"there is no {unknown[0]!r}.{hint} It takes some of {', '.join(known_words)}, with commas between"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "it takes no infinity or NaN"
    if not -LARGEST <= value < LARGEST:
        return "that number has more than 64 bits"
    if key in _NUMBERS and not _NUMBERS[key][0](value):
        return _NUMBERS[key][1]
    return "it takes no number below 0" if value < 0 and not _may_be_negative(key) else None


def _may_be_negative(key: str) -> bool:
    """Return whether ``key`` takes negative numbers: its default is one, or its comment mentions them."""
    default = config_entries()[key].default
    mentioned = re.search(r"-1\b|negative", config_comments().get(key, ""))
    return bool(mentioned) or (isinstance(default, (int, float)) and default < 0)
