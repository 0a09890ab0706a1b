"""The command line: its parser, its commands, their exit codes, and the user's file."""

from __future__ import annotations

import argparse
import contextlib
import json
import linecache
import sys
import tokenize
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regional_explorer import __version__
from regional_explorer.command.options import CommandError, add_options, parse_seconds
from regional_explorer.command.parsed_command import Command, read_call
from regional_explorer.compiler.progress_line import reporting_of_command
from regional_explorer.errors import (
    InvalidConfigKeyError,
    InvalidConfigValueError,
    NoVerdictError,
    RegionalExplorerError,
    SelectorError,
    UnknownConfigKeyError,
    UnknownRegionError,
    sendable,
)
from regional_explorer.page.answer import ShownAnswer
from regional_explorer.page.report import session_text
from regional_explorer.record.files import dump_session, load_plan_file, load_session, to_json, writable_path
from regional_explorer.record.session import Session
from regional_explorer.record.tuning import NumericsRequirement

EXPLORED_MODULE = "__explored__"
"""The name of the module that the file runs as; no other module has it."""


def read_source(path: Path) -> str:
    """Return the text of a Python file.

    Raises:
        CommandError: the file cannot be read.
    """
    try:
        with tokenize.open(path) as file:  # in the encoding that the file declares
            return file.read()
    except (OSError, ValueError, SyntaxError) as error:  # not text, not a valid file name; or no such encoding
        raise CommandError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error


def execute(path: Path, source: str) -> dict[str, Any]:
    """Execute a file as a module and return its namespace.

    The module's name is not ``__main__``, so ``if __name__ == "__main__"`` blocks do not run. ``sys.argv`` has only the
    file: the arguments of this command are not the file's.

    Raises:
        RegionalExplorerError: the file raises, or ends the program; the message has the line.
    """
    file = str(path.resolve())
    module = types.ModuleType(EXPLORED_MODULE)
    module.__file__ = file
    # Dataclasses look up their module, so it is registered; the file's folder is importable, as for scripts.
    sys.modules[EXPLORED_MODULE] = module
    sys.path.insert(0, str(path.resolve().parent))
    linecache.checkcache(file)
    arguments, sys.argv = sys.argv, [str(path)]
    try:
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))  # noqa: S102 - the user's file, which they asked to run
    except SystemExit as error:
        raise RegionalExplorerError(
            f"{path}{_line(error, file)}: the file exits here. Put code that only a script needs under "
            '`if __name__ == "__main__":`, which regional-explorer does not run.'
        ) from error
    except Exception as error:
        raise RegionalExplorerError(f"{path}{_line(error, file)}: {type(error).__name__}: {error}") from error
    finally:
        sys.argv = arguments
    return vars(module)


def _line(error: BaseException, file: str) -> str:
    """Return the last line of ``file`` in an error's traceback, such as ``, line 7``; empty if it has none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    return f", line {line}" if line else ""


EXIT_DONE, EXIT_FAILED, EXIT_MISUSED, EXIT_NO, EXIT_NO_VERDICT = range(5)
"""Exit codes: success; the call or the measurement failed, or a saved file cannot be read; the command was invalid; a
check was negative; a check has no verdict, because the machine was busy, for example."""

INVALID_COMMAND_ERRORS = (
    CommandError,
    SelectorError,
    UnknownRegionError,
    UnknownConfigKeyError,
    InvalidConfigKeyError,
    InvalidConfigValueError,
)
"""The errors of invalid commands: a pattern of ``-r`` that matches nothing, or a wrong name or value in ``-c``, too."""

EXIT_CODES_HELP = (
    "Exit codes: 0 success; 1 the call or the measurement failed, or a saved file cannot be read; 2 the command was "
    "invalid; 3 the answer is no: slower than allowed (compare, check), the plan does not hold (check), no plan is "
    "faster (tune), a needed component is missing (doctor); 4 no verdict: the machine was busy, or the samples are too "
    "few (compare, check)."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    try:
        return _run(**vars(_argument_parser().parse_args(arguments)))
    finally:
        _drop_unwritable_streams()


def _run(command: Callable[..., int], *, verbose: bool = False, **arguments: Any) -> int:
    try:
        return command(**arguments)
    except RegionalExplorerError as error:
        _print_error(traceback.format_exc() if verbose else f"regional-explorer: {error}")
        codes = {NoVerdictError: EXIT_NO_VERDICT, **dict.fromkeys(INVALID_COMMAND_ERRORS, EXIT_MISUSED)}
        return next((code for kind, code in codes.items() if isinstance(error, kind)), EXIT_FAILED)
    except KeyboardInterrupt:
        _print_error("regional-explorer: interrupted.")
        return EXIT_FAILED


def _argument_parser() -> argparse.ArgumentParser:
    """Return the parser; its result has the function of a command and the given arguments."""
    parser = argparse.ArgumentParser(
        prog="regional-explorer",
        description="See, compile and measure regions of a PyTorch function.",
        epilog=EXIT_CODES_HELP,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(command: Callable[..., Any], name: str, help: str, description: str, epilog: str = "") -> Any:  # noqa: A002
        parser = commands.add_parser(
            name,
            help=help,
            description=description,
            epilog=epilog,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        parser.set_defaults(command=command)
        return parser

    run_parser = add(
        _explore_call,
        "run",
        "explore a call made in a Python file",
        "Execute FILE as a module, then explore CALL in its namespace. Tables go to stdout, progress to stderr.",
        'Example: regional-explorer run model.py "step(x)" -r mlp=modules:layers.*.mlp --save out.html',
    )
    _add_call_arguments(run_parser)
    add_options(run_parser, leave_out={"output", "widget"})  # these are for notebooks
    _add_quiet(run_parser)
    _add_forms(run_parser)

    tune_parser = add(
        _tune_call,
        "tune",
        "search for the plan that makes a call fastest",
        "Execute FILE as a module, then search for the plan that makes CALL fastest; compare it with eager and "
        "torch.compile.",
        'Example: regional-explorer tune model.py "step(x)" --budget 300 --save plan.json',
    )
    _add_call_arguments(tune_parser)
    tune_parser.add_argument(
        "--budget", metavar="SECONDS", type=parse_seconds, help="seconds for everything; 120 by default"
    )
    tune_parser.add_argument(
        "--numerics", choices=tuple(map(str, NumericsRequirement)), help="how close results must be to eager"
    )
    tune_parser.add_argument("--save", metavar="FILE", type=Path, help="write the best plan, for rx.compile(fn, FILE)")
    add_options(tune_parser, only={"grad", "dynamic", "plan", "verbose"})
    _add_quiet(tune_parser)
    _add_json(tune_parser, "print the tries as JSON")

    show_parser = add(
        _show_session, "show", "print a saved session; torch is not needed", "Print a session saved as JSON."
    )
    show_parser.add_argument("file", metavar="FILE", type=Path, help="a .json file written by --save or ex.save()")
    _add_forms(show_parser)

    compare_parser = add(
        _compare_sessions,
        "compare",
        "compare the speedups of two saved sessions",
        "Compare the speedup over eager of two sessions, each against eager in its own session.",
        f"Example: regional-explorer compare main.json branch.json --fail-if-slower 3%. {EXIT_CODES_HELP}",
    )
    compare_parser.add_argument("before", metavar="A", type=Path, help="the earlier session, saved as JSON")
    compare_parser.add_argument("after", metavar="B", type=Path, help="the later session")
    compare_parser.add_argument(
        "--fail-if-slower",
        metavar="LIMIT",
        help="exit with 3 if the whole 99 %% interval says that B is slower by more than this, such as 3%%, and with 4 "
        "if that is unknown, as on a busy machine",
    )
    _add_json(compare_parser, "print the comparison as JSON")

    check_parser = add(
        _check_saved_plan,
        "check",
        "check whether a saved plan still holds for a call",
        "Explore CALL under PLAN, compile its regions, check the numerics and measure the plan.",
        f'Example: regional-explorer check plan.json model.py "step(x)" --against torch.compile. {EXIT_CODES_HELP}',
    )
    _add_plan_and_call_arguments(check_parser)
    check_parser.add_argument(
        "--against",
        choices=("eager", "torch.compile"),
        help="the variants that the plan must not be slower than: eager, or eager and torch.compile",
    )
    check_parser.add_argument("--allow-slower", action="store_true", help="exit with 0 although the plan may be slower")
    add_options(check_parser, only={"budget"})
    _add_quiet(check_parser)
    _add_json(check_parser, "print the results as JSON")

    source_parser = add(
        _print_source_diff,
        "source",
        "show a saved plan as a change of the source, or apply it",
        "Trace CALL, and print a diff that marks PLAN's regions in the source files of the call; nothing is compiled.",
        'Example: regional-explorer source plan.json model.py "step(x)" --apply.',
    )
    _add_plan_and_call_arguments(source_parser)
    source_parser.add_argument(
        "--apply", action="store_true", help="also write the files, if git tracks them and they have no changes"
    )

    doctor_parser = add(
        _print_findings,
        "doctor",
        "check what works on this machine, and what to install",
        "Check what works on this machine, and what to install.",
    )
    _add_json(doctor_parser, "print the findings as a JSON list")
    return parser


def _add_call_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a Python file that defines everything the call uses")
    parser.add_argument("call", metavar="CALL", help='the call, such as "step(x)"')


def _add_plan_and_call_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="a plan saved with ex.save_plan()")
    _add_call_arguments(parser)
    parser.add_argument("--grad", action=argparse.BooleanOptionalAction, help="take gradients or run under no_grad")
    parser.add_argument("--dynamic", action=argparse.BooleanOptionalAction, help="dynamic shapes, as in torch.compile")
    parser.add_argument("--verbose", action="store_true", help="show the whole traceback of an error")


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="print no progress to stderr, for logs")


def _add_forms(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--answer", action="store_true", dest="as_answer", help="print only the answer, as Markdown")
    _add_json(parser, "print the session, or the answer, as JSON instead of tables")


def _add_json(parser: argparse.ArgumentParser, help: str) -> None:  # noqa: A002 - as argparse calls it
    parser.add_argument("--json", action="store_true", dest="as_json", help=help)


def _explore_call(
    file: Path, call: str, *, quiet: bool = False, as_json: bool = False, as_answer: bool = False, **options: Any
) -> int:
    command = Command(**options)
    call_text, source = read_call(call), read_source(file)
    command.check()
    fn, args, kwargs = call_text.evaluate(execute(file, source))
    with reporting_of_command(sys.stderr, quiet=quiet) as run:
        run.progress("capturing the call", 0.0)
        exploration = command.explore(fn, args, kwargs)
        complete = command.measure(exploration, run)
    try:
        saved_path = command.finish(exploration)
    finally:  # results are shown even if they cannot be saved
        _print_session(exploration.session, as_json=as_json, as_answer=as_answer)
    if not complete:
        _print_error("regional-explorer: interrupted; the results so far are shown.")
    if saved_path is not None and not quiet:
        _print_error(f"Saved to {saved_path}.")
    return EXIT_DONE if complete else EXIT_FAILED


def _tune_call(
    file: Path,
    call: str,
    *,
    budget: float = 120.0,
    numerics: str = str(NumericsRequirement.CLOSE),
    save: Path | None = None,
    quiet: bool = False,
    as_json: bool = False,
    **options: Any,
) -> int:
    command = Command(**options)
    call_text, source = read_call(call), read_source(file)
    command.check()
    if save is not None:
        writable_path(save, CommandError)
    fn, args, kwargs = call_text.evaluate(execute(file, source))
    with reporting_of_command(sys.stderr, quiet=quiet) as run:
        run.progress("capturing the call", 0.0)
        with contextlib.closing(command.explore(fn, args, kwargs)) as exploration:
            found = exploration.tune(budget, numerics=numerics, apply=save is not None, run=run)
            _print(f"{json.dumps(to_json(found.record)) if as_json else found}\n")
            if found.plan is None:
                return EXIT_NO
            if save is not None:
                exploration.save_plan(save)
    return EXIT_DONE


def _show_session(file: Path, *, as_json: bool = False, as_answer: bool = False) -> int:
    _print_session(load_session(file), as_json=as_json, as_answer=as_answer)
    return EXIT_DONE


def _compare_sessions(before: Path, after: Path, *, fail_if_slower: str | None = None, as_json: bool = False) -> int:
    from regional_explorer.command.checks import compare_speed, json_fields, read_limit

    limit = None if fail_if_slower is None else read_limit(fail_if_slower)
    change = compare_speed(load_session(before), load_session(after))
    failed = limit is not None and (bool(change.problem) or change.is_slower(limit))
    no_verdict = "" if limit is None else change.why_no_verdict(limit)
    conclusion = {"limit": limit, "failed": failed, "no_verdict": no_verdict}
    _print((json.dumps({**json_fields(change), **conclusion}) if as_json else str(change)) + "\n")
    if no_verdict:
        _print_error(f"regional-explorer: no verdict on whether B is slower by more than {limit:.1%}: {no_verdict}")
        return EXIT_NO_VERDICT
    if failed and not change.problem:
        _print_error(f"regional-explorer: B is slower than A by more than {limit:.1%}.")
    return EXIT_NO if failed else EXIT_DONE


def _check_saved_plan(
    plan: Path,
    file: Path,
    call: str,
    *,
    allow_slower: bool = False,
    quiet: bool = False,
    as_json: bool = False,
    **options: Any,
) -> int:
    from regional_explorer.command.checks import check_saved_plan

    user_call = _call_under_plan(plan, file, call)
    with reporting_of_command(sys.stderr, quiet=quiet) as run:
        check = check_saved_plan(plan, user_call, run, **options)
    _print((json.dumps(check.as_json()) if as_json else str(check)) + "\n")
    too_slow = bool(check.slower_than) and not allow_slower
    if check.holds and too_slow:
        slower_than = " and ".join(check.slower_than)
        _print_error(f"regional-explorer: the plan is slower than {slower_than}; --allow-slower accepts that.")
    elif check.holds and check.not_compared and not allow_slower:
        variants = " and ".join(check.not_compared)
        _print_error(f"regional-explorer: {variants} could not be measured; --allow-slower accepts that.")
        return EXIT_FAILED
    elif check.holds and check.no_verdict and not allow_slower:
        variants = " and ".join(check.no_verdict)
        _print_error(
            f"regional-explorer: no verdict on whether the plan is slower than {variants}; measure longer, on a "
            "quiet machine, or accept it with --allow-slower."
        )
        return EXIT_NO_VERDICT
    return EXIT_NO if too_slow or not check.holds else EXIT_DONE


def _print_source_diff(plan: Path, file: Path, call: str, *, apply: bool = False, **options: Any) -> int:
    fn, args, kwargs = _call_under_plan(plan, file, call)

    from regional_explorer.exploration.exploration import explore  # imports torch: only after errors are reported

    with contextlib.closing(explore(fn, args, kwargs, plan=plan, **options)) as exploration:
        _print(exploration.to_source(apply=apply))
    return EXIT_DONE


def _print_findings(*, as_json: bool = False) -> int:
    from regional_explorer.command.checks import examine

    findings = list(examine())
    text = json.dumps([asdict(finding) for finding in findings]) if as_json else "\n".join(map(str, findings))
    _print(f"{text}\n")
    return EXIT_NO if any(finding.needed and not finding.works for finding in findings) else EXIT_DONE


def _call_under_plan(plan: Path, file: Path, call: str) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    """Return the call to explore; read the plan before, because executing the file may take long."""
    call_text, source = read_call(call), read_source(file)
    load_plan_file(plan)
    return call_text.evaluate(execute(file, source))


def _print_session(session: Session, *, as_json: bool, as_answer: bool) -> None:
    if as_answer:
        answer = ShownAnswer.of(session)
        _print(answer.json + "\n" if as_json else answer.markdown)
    else:
        _print(dump_session(session) + "\n" if as_json else session_text(session))


def _print(text: str) -> None:
    """Print to stdout, replacing characters that its encoding lacks.

    Raises:
        RegionalExplorerError: stdout cannot be written, because the disk is full, for example.
    """
    coding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(coding, "replace").decode(coding), end="", flush=True)  # noqa: T201 - the output
    except BrokenPipeError:
        pass  # a reader that leaves early, such as head, changes no exit code
    except OSError as error:
        raise RegionalExplorerError(f"Cannot write the output: {error.strerror or error}.") from error


def _print_error(text: str) -> None:
    with contextlib.suppress(OSError):
        print(sendable(text), file=sys.stderr)  # noqa: T201 - messages of a command


def _drop_unwritable_streams() -> None:
    """Drop output streams that cannot be written: Python would flush them at exit, and exit with 120."""
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except OSError:
            setattr(sys, name, None)


if __name__ == "__main__":
    sys.exit(main())
