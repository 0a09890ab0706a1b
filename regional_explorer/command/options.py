"""The table of options of the magic and the command line, their parsing, help and completion."""

from __future__ import annotations

import argparse
import keyword
import math
import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from regional_explorer.errors import RegionalExplorerError, did_you_mean
from regional_explorer.record.benchmark import VariantName
from regional_explorer.record.graph import equal_layers
from regional_explorer.record.plan import Direction, Plan


class CommandError(RegionalExplorerError):
    """The command is invalid; the message shows the right form."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its names, help and example, and its arguments for ``argparse``.

    ``metavar`` names the option's value in the help; it is empty for a switch, which takes no value.
    """

    names: tuple[str, ...]
    metavar: str
    help: str
    example: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def _parse_mark(text: str) -> tuple[str, str]:
    name, equals, selector = text.partition("=")
    kind, colon, patterns = selector.strip().lstrip("-&").partition(":")
    if not (equals and colon and name.strip() and patterns.strip()):
        raise ArgumentTypeError(
            f"-r marks a region as NAME=KIND:PATTERN, such as -r attn=modules:layers.*.attn; got {text!r}"
        )
    if kind not in MARK_KINDS:
        raise ArgumentTypeError(
            f"-r {text}: no kind {kind!r}.{did_you_mean(kind, MARK_KINDS)} Kinds: {', '.join(MARK_KINDS)}"
        )
    return name.strip(), selector.strip()


def _parse_setting(text: str) -> tuple[str, str, str]:
    # The region ends at the last colon before the first "=": the name of a region may have colons, a key has none.
    target, equals, value = text.partition("=")
    region, colon, key = target.rpartition(":")
    if not (equals and colon and region.strip() and key.strip()):
        raise ArgumentTypeError(f"-c sets a config as REGION:KEY=VALUE, such as -c mlp:max_fusion_size=8; got {text!r}")
    return region.strip(), key.strip(), value.strip()


def _parse_variants(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ArgumentTypeError("--variants takes names separated by commas, such as --variants eager,regional")
    return names


def parse_seconds(text: str) -> float:
    """Return ``text`` as seconds.

    Raises:
        ArgumentTypeError: it is no number above 0.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ArgumentTypeError(f"--budget and --tune take seconds above 0, such as --budget 5; got {text!r}")
    return seconds


def _parse_variable_name(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise ArgumentTypeError(f"-o takes the name of a variable, such as -o ex; got {text!r}")
    return text


MARK_KINDS = ("modules", "lines", "ops", "nodes", "subgraphs")
"""The kinds of selector that ``-r`` accepts."""

_BOOLEAN_ACTION = argparse.BooleanOptionalAction

OPTIONS = (
    Option(
        ("-r", "--region"),
        "NAME=KIND:PATTERN",
        "mark a region by modules, lines, ops, nodes or subgraphs, with commas between patterns; repeatable; a further "
        "-ops:PATTERN leaves these ops out, &modules:PATTERN keeps only the ops of these modules",
        '-r attn=modules:layers.*.attn -r loss=lines:step:4-9 -r "mlp=modules:layers.*.mlp -ops:aten.gelu*"',
        {"action": "append", "type": _parse_mark, "dest": "marks"},
    ),
    Option(
        ("-c", "--config"),
        "REGION:KEY=VALUE",
        "set an Inductor config key for one region, or only for its forward or backward; the value is a Python "
        "literal, else text; repeatable",
        "-c mlp:max_fusion_size=8 -c mlp.backward:cpp.simdlen=None",
        {"action": "append", "type": _parse_setting, "dest": "settings"},
    ),
    Option(
        ("--grad", "--no-grad"),
        "",
        "take gradients or run under no_grad; by default, what the call would do",
        "--no-grad",
        {"action": _BOOLEAN_ACTION},
    ),
    Option(
        ("--dynamic", "--no-dynamic"),
        "",
        "dynamic or static shapes, as in torch.compile; automatic by default",
        "--dynamic",
        {"action": _BOOLEAN_ACTION},
    ),
    Option(
        ("--variants",),
        "A,B,C",
        "the variants to compare; by default eager, aot_eager, regional and full, which in a panel comes behind the "
        "others; on request upstream and lite",
        "--variants eager,regional",
        {"type": _parse_variants},
    ),
    Option(
        ("--budget",),
        "SECONDS",
        "seconds to measure the variants; compile time comes on top; 5 by default",
        "--budget 2.5",
        {"type": parse_seconds},
    ),
    Option(
        ("--tune",),
        "SECONDS",
        "search for the fastest plan first, and measure it; the seconds include compiles",
        "--tune 120",
        {"type": parse_seconds},
    ),
    Option(
        ("--plan",),
        "FILE",
        "use the regions of a saved plan, or of a plan copied from the panel, instead of the marks in the source",
        "--plan plan.json",
        {"type": lambda text: text if text.startswith("{") else Path(text)},
    ),
    Option(
        ("-o", "--output"),
        "NAME",
        "assign the Exploration to a variable",
        "-o ex",
        {"type": _parse_variable_name},
    ),
    Option(
        ("--save",),
        "FILE",
        "write the session (.json, .html), its graph (.svg) or its timings (.csv) to a file",
        "--save report.html",
        {"type": Path},
    ),
    Option(
        ("--cold",),
        "",
        "compile with empty caches, to see the cost of the first compile",
        "--cold",
        {"action": "store_true"},
    ),
    Option(
        ("--no-bench",),
        "",
        "capture and draw only: compile nothing, measure nothing",
        "--no-bench",
        {"action": "store_false", "dest": "bench"},
    ),
    Option(
        ("--no-widget",),
        "",
        "show only tables and picture, not the panel",
        "--no-widget",
        {"action": "store_false", "dest": "widget"},
    ),
    Option(
        ("--verbose",),
        "",
        "show the whole traceback of an error",
        "--verbose",
        {"action": "store_true"},
    ),
)


def add_options(
    parser: argparse.ArgumentParser, *, only: Collection[str] = (), leave_out: Collection[str] = ()
) -> None:
    """Add the options to ``parser``: all of them, or those whose destination is in ``only``, without ``leave_out``."""
    for option in OPTIONS:
        arguments = {**option.arguments, **({"metavar": option.metavar} if option.metavar else {})}
        # argparse derives the second name of a switch itself.
        names = option.names[:1] if arguments.get("action") is _BOOLEAN_ACTION else option.names
        destination = arguments.get("dest", option.names[-1].lstrip("-"))
        if destination not in leave_out and (not only or destination in only):
            parser.add_argument(*names, help=f"{option.help}, e.g. {option.example}".replace("%", "%%"), **arguments)


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Parse the options before the call, as split by ``split_line``; return the options that were given.

    Raises:
        CommandError: the value of an option is invalid.
    """
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS, exit_on_error=False
    )
    add_options(parser)
    try:
        return vars(parser.parse_args(list(words)))
    except argparse.ArgumentError as error:
        raise CommandError(error.message) from error


_OPTION_WORD = re.compile(r"""\s*((?:'[^']*'|"[^"]*"|[^\s'"])+)""")
_OPTIONS_BY_NAME = {name: option for option in OPTIONS for name in option.names}


def split_line(line: str) -> tuple[list[str], str]:
    """Split a line into the words of its options and the raw text after them.

    Raises:
        CommandError: an option is unknown, or its value is missing.
    """
    words: list[str] = []
    position = 0
    while (match := _OPTION_WORD.match(line, position)) and match[1].startswith("-"):
        word = match[1]
        name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:], word[2:])
        option = _OPTIONS_BY_NAME.get(name)
        if option is None:
            suggestion = did_you_mean(name, _OPTIONS_BY_NAME) or f" Options: {', '.join(_OPTIONS_BY_NAME)}."
            raise CommandError(f"Unknown option {name}.{suggestion}")
        position = match.end()
        if option.metavar and not equals:
            match = _OPTION_WORD.match(line, position)
            if match is None:
                raise CommandError(f"{name} needs a value: {option.example}.")
            value, position = match[1], match.end()
        elif equals and not option.metavar:
            raise CommandError(f"{name} takes no value: write {option.example}.")
        words += [f"{name}={_unquote(value)}" if name.startswith("--") else name + _unquote(value)] if value else [name]
    return words, line[position:].strip()


def _unquote(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and text.count(text[0]) == 2  # noqa: PLR2004
    return text[1:-1] if quoted else text


def option_after(text: str) -> str | None:
    """Return the first option name among the words of ``text``, or None."""
    words = (word.partition("=")[0] for word in text.split()[1:])
    return next((word for word in words if word in _OPTIONS_BY_NAME), None)


def help_text() -> str:
    """Return the help: every option with its meaning and an example."""
    return "\n\n".join(
        f"{', '.join(option.names)} {option.metavar}".rstrip() + f"\n    {option.help}\n    {option.example}"
        for option in OPTIONS
    )


# ---------------------------------------------------------------------------------------------------------- completion


T = TypeVar("T")

MAX_MODULE_PATHS = 400
"""The maximum number of module paths to offer."""


def completions(variables: Mapping[str, Any], line_before: str, line: str) -> list[str]:
    """Return the completions at the cursor, the most likely first.

    Args:
        variables: the user's variables.
        line_before: the line up to the cursor.
        line: the whole line; the modules called in it give the paths.
    """
    words = line_before.split()
    word = "" if line_before.endswith((" ", "\t")) else words[-1]
    previous_word = words[-1 if not word else -2] if len(words) > bool(word) else ""
    if previous_word in {"-c", "--config"}:
        return _config_words(variables, line_before, word)
    if previous_word == "--variants":
        return [str(name) for name in VariantName]
    if previous_word in {"-r", "--region"}:
        return _region_words(variables, line, word)
    if word.startswith("-") or not word:
        return [name for option in OPTIONS for name in option.names]
    return []


def _region_words(variables: Mapping[str, Any], line: str, word: str) -> list[str]:
    _, equals, selector = word.partition("=")
    kind, colon, _ = selector.partition(":")
    if colon:
        return _path_words(variables, line) if kind == "modules" else []
    return [f"{name}:" for name in MARK_KINDS] if equals else []


def _path_words(variables: Mapping[str, Any], line: str) -> list[str]:
    """Return the paths below the modules named in ``line``, else below all modules; globs over equal modules first."""
    from torch import nn

    modules = _variables_of(nn.Module, variables)
    roots = [modules[name] for name in dict.fromkeys(re.findall(r"\w+", line)) if name in modules]
    submodules = {path: module for root in roots or modules.values() for path, module in root.named_modules() if path}
    globs = equal_layers({path: type(module) for path, module in submodules.items()})
    return [*(glob for glob in globs if glob not in submodules), *submodules][:MAX_MODULE_PATHS]


def _config_words(variables: Mapping[str, Any], line_before: str, word: str) -> list[str]:
    target, equals, _ = word.partition("=")
    _, colon, key = target.rpartition(":")
    if equals:
        return list(_value_words(key)) if colon else []
    if not colon:
        names_in_line = re.findall(r"(?:-r|--region)[= ]?([^\s=]+)=", line_before)
        names_in_plans = [region.name for plan in _plans(variables) for region in plan.regions]
        names = dict.fromkeys([*names_in_line, *names_in_plans])
        return [*(f"{name}:" for name in names), *(f"{name}.{direction}:" for direction in Direction for name in names)]
    from regional_explorer.compiler.region_config import catalogue

    return [f"{name}=" for name, entry in catalogue().items() if entry.refused is None]


def _plans(variables: Mapping[str, Any]) -> list[Plan]:
    module = sys.modules.get("regional_explorer.exploration.exploration")  # if not imported, no exploration exists
    explorations = {} if module is None else _variables_of(module.Exploration, variables)
    return [exploration.plan for exploration in explorations.values()]


def _variables_of(kind: type[T], variables: Mapping[str, Any]) -> dict[str, T]:
    """Return the variables of a type; read no attribute of other variables, since the user's properties may raise."""
    return {
        name: value for name, value in variables.items() if not name.startswith("_") and issubclass(type(value), kind)
    }


def _value_words(key: str) -> Iterator[str]:
    """Yield the values that a config key takes: its choices, or for a bool first the value that is not the default."""
    from regional_explorer.compiler.region_config import catalogue

    entry = catalogue().get(key)
    if entry is None:
        return
    if entry.choices:
        yield from map(str, entry.choices)
    elif isinstance(entry.default, bool):
        yield from (str(not entry.default), str(entry.default))
    else:
        yield str(entry.default)
