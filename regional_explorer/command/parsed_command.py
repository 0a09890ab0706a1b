"""The parsed input of the magic and of ``run``: the call, the source before it, and the command with its steps."""

from __future__ import annotations

import ast
import builtins
import io
import tokenize
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regional_explorer.command.options import CommandError, option_after
from regional_explorer.errors import MeasureError, did_you_mean, shown_value
from regional_explorer.record.benchmark import BY_DEFAULT, DEFAULT_BUDGET_S, checked_variants
from regional_explorer.record.plan import Direction, Plan, Region, Selector, SelectorKind

if TYPE_CHECKING:
    from regional_explorer.compiler.run import Run
    from regional_explorer.exploration.exploration import Exploration


EXAMPLE = "model(x)"

_COLLECTOR = "regional_explorer collects the call"  # no identifier, so the user cannot have a variable of this name


@dataclass(frozen=True, slots=True)
class CallText:
    """A call expression. ``quiet`` is True if it ends in a semicolon, which suppresses output."""

    text: str
    call: ast.Call
    quiet: bool

    def evaluate(
        self, names: dict[str, Any], local: Mapping[str, Any] | None = None
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """Evaluate and return the function, the positional and the keyword arguments, without making the call.

        Raises:
            CommandError: a name in it does not exist, evaluating a part of it raises, or it calls a built-in.
        """
        # Evaluate the call with ``_collect_call`` as its function, so that Python handles stars, keywords and order.
        collecting = ast.Call(ast.Name(_COLLECTOR, ast.Load()), [self.call.func, *self.call.args], self.call.keywords)
        tree = ast.fix_missing_locations(ast.Expression(ast.copy_location(collecting, self.call)))
        try:
            fn, args, kwargs = eval(  # noqa: S307 - the user's own expression, in their own namespace
                compile(tree, "<call>", "eval"), names, {**(local or {}), _COLLECTOR: _collect_call}
            )
        except NameError as error:
            known_names = {*names, *(local or {}), *vars(builtins)}
            raise CommandError(f"{str(error).rstrip('.')}.{did_you_mean(error.name or '', known_names)}") from error
        except Exception as error:
            raise CommandError(
                f"Evaluating {self.text} raised {type(error).__name__} before the call: {error}"
            ) from error
        if getattr(fn, "__module__", None) == "builtins":
            raise CommandError(
                f"{self.text} calls Python's own {fn.__name__}, which has nothing to compile. Give only the call of "
                f"your function: {EXAMPLE}"
            )
        return fn, args, kwargs


def _collect_call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return fn, args, kwargs


def read_call(text: str) -> CallText:
    """Parse the text of one call.

    Raises:
        CommandError: the text is not one call expression, or options follow it.
    """
    text = text.strip()
    if not text:
        raise CommandError(f"The call is missing. Example: {EXAMPLE}")
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        _check_no_options_after(text)
        raise CommandError(f"{shown_value(text)} is not Python: {error.msg}. Give one call: {EXAMPLE}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # a null character, or brackets without end
        raise CommandError(f"{shown_value(text)} cannot be read as Python. Give one call: {EXAMPLE}") from error
    match body:
        case [ast.Expr(value=ast.Call() as call)]:
            return CallText(ast.get_source_segment(text, call) or text, call, _ends_in_semicolon(text))
    _check_no_options_after(text)
    raise CommandError(f"{shown_value(text)} is not one call. Give a function with its arguments: {EXAMPLE}")


def split_cell(cell: str) -> tuple[str, str]:
    """Split a cell into the source before its last expression, and that expression.

    Raises:
        CommandError: the last statement is not a call.
        SyntaxError: the cell is not Python.
    """
    body = ast.parse(cell).body
    if not body or not isinstance(body[-1], ast.Expr) or not isinstance(body[-1].value, ast.Call):
        last_lines = (ast.get_source_segment(cell, body[-1]) or "").splitlines()[:1] if body else []
        actual = f"; here the last line is {last_lines[0]!r}" if last_lines else ", but the cell has no statement"
        raise CommandError(f"The last line of the cell must be the call{actual}. Example: model(x)")
    last_statement = body[-1]
    lines = cell.encode().splitlines(keepends=True)
    row, column = last_statement.lineno - 1, last_statement.col_offset
    before = b"".join(lines[:row]) + lines[row][:column]
    after = lines[row][column:] + b"".join(lines[row + 1 :])
    return before.decode(), after.decode()


def _check_no_options_after(text: str) -> None:
    if (name := option_after(text)) is not None:
        call = text.partition(f" {name}")[0].strip()
        raise CommandError(f"Options go before the call: {name} … {call}")


def _ends_in_semicolon(text: str) -> bool:
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in skipped]
    return bool(tokens) and tokens[-1].string == ";"


# --------------------------------------------------------------------------------------------------------- the command


@dataclass(frozen=True, slots=True)
class Command:
    """The options of one command. ``marks`` are (name, selector), ``settings`` (region, key, value as text)."""

    marks: Sequence[tuple[str, str]] = ()
    settings: Sequence[tuple[str, str, str]] = ()
    grad: bool | None = None
    dynamic: bool | None = None
    variants: tuple[str, ...] = ()
    budget: float = DEFAULT_BUDGET_S
    tune: float | None = None
    plan: Path | str | None = None
    output: str | None = None
    save: Path | None = None
    cold: bool = False
    bench: bool = True
    widget: bool = True
    verbose: bool = False

    def check(self) -> None:
        """Validate everything that can be validated before the call runs.

        Raises:
            RegionalExplorerError: a variant or config key is unknown, a value does not fit, a pattern is malformed, a
                file cannot be written or the plan cannot be read; or with a plan, ``-c`` names no region of the plan or
                of ``-r``. Without a plan, ``-c`` may name a region that is marked in the source.
        """
        from regional_explorer.compiler.region_config import check_value, parse_value
        from regional_explorer.exploration.results import ENDINGS
        from regional_explorer.record.files import load_plan, writable_path
        from regional_explorer.regions.select import LineRange

        try:
            checked_variants(self.variants)
        except MeasureError as error:
            raise CommandError(str(error)) from error
        if self.tune is not None and not self.bench:
            raise CommandError("--tune measures plans, and --no-bench measures nothing: leave one of them out.")
        for _, key, value in self.settings:
            check_value(key, parse_value(key, value))
        regions = {}
        for name, text in self.marks:
            selector = Selector.parse(text)
            regions[name] = Region(name, (selector,))
            for one in (selector, *selector.within, *selector.without):
                for lines in one.patterns if one.kind is SelectorKind.LINES else ():
                    LineRange.parse(lines)
        if self.plan is not None:
            plan = load_plan(self.plan)
            plan = Plan((*plan.regions, *(region for name, region in regions.items() if name not in plan)))
            for target, _, _ in self.settings:
                plan[_region_and_direction(plan, target)[0]]  # or the error names the regions
        if self.save is not None:
            if self.save.suffix.lower() not in ENDINGS:
                raise CommandError(
                    f"--save {self.save}: the file extension selects the format, one of {', '.join(ENDINGS)}."
                )
            writable_path(self.save, CommandError)

    def explore(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exploration:
        """Trace the call, then mark and configure its regions.

        Raises:
            RegionalExplorerError: as ``rx.explore``, ``mark`` and ``configure``.
        """
        from regional_explorer.compiler.region_config import parse_value
        from regional_explorer.exploration.exploration import explore

        exploration = explore(fn, tuple(args), kwargs, grad=self.grad, dynamic=self.dynamic, plan=self.plan)
        try:
            for name, selector in self.marks:
                exploration.mark(name, selector)
            for target, key, value in self.settings:
                _warn_of_another_meaning(exploration.plan, target)
                region, direction = _region_and_direction(exploration.plan, target)
                exploration.configure(region, {key: parse_value(key, value)}, direction=direction)
        except BaseException:
            exploration.close()
            raise
        return exploration

    def only_profiles(self, exploration: Exploration) -> bool:
        """Return whether there is nothing to compile: no region, no variant, and no cold compile."""
        return not exploration.plan.regions and not self.variants and not self.cold

    def measure(
        self, exploration: Exploration, run: Run, *, only_profile: bool = False, default: Sequence[str] = BY_DEFAULT
    ) -> bool:
        """Compile and measure, or only profile, unless ``bench`` is False; with ``tune`` search for a plan.

        The final comparison of a search has measured its plan: only with ``variants`` these are measured too. Without
        them the variants of ``default`` are compared. Return False if interrupted.

        Raises:
            RegionalExplorerError: nothing could be measured.
        """
        if not self.bench:
            return True
        try:
            if self.tune is not None:
                exploration.tune(self.tune, apply=True, run=run)
            elif only_profile:
                exploration.profile(self.budget, run=run)
                return True
            if self.cold:
                exploration.compile(cold=True, run=run)
            session = exploration.session
            if self.tune is None or self.variants or session.is_outdated or not session.timings:
                exploration.benchmark(variants=self.variants or default, budget_s=self.budget, run=run)
        except KeyboardInterrupt:
            return False
        return True

    def finish(self, exploration: Exploration) -> Path | None:
        """Save the session if ``save`` is set, and return the path.

        Raises:
            SessionError: the file cannot be written.
        """
        return exploration.save(self.save) if self.save is not None else None


def _region_and_direction(plan: Plan, target: str) -> tuple[str, Direction | None]:
    """Parse a ``-c`` target: ``mlp.backward`` is the backward of ``mlp``, unless a region has that very name."""
    name, _, direction = target.rpartition(".")
    if target in plan or name not in plan or direction not in tuple(Direction):
        return target, None
    return name, Direction(direction)


def _warn_of_another_meaning(plan: Plan, target: str) -> None:
    name, _, direction = target.rpartition(".")
    if target in plan and name in plan and direction in tuple(Direction):
        warnings.warn(
            f"-c {target}:… sets the config of the region called {target!r}, not the {direction} config of {name!r}. "
            f"For that, use ex.configure({name!r}, {{…}}, direction={direction!r}), or rename a region.",
            stacklevel=3,
        )
