"""The command line ``regional-explorer`` (``run``, ``show``, ``compare``, ``check``, …): parser and exit codes."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from regional_explorer.command.command import Command
from regional_explorer.command.expression import read_call
from regional_explorer.command.options import NOTEBOOK_ONLY, CommandError, add_options
from regional_explorer.command.program_file import execute, read_source
from regional_explorer.errors import (
    InvalidConfigKeyError,
    InvalidConfigValueError,
    RegionalExplorerError,
    SelectorError,
    UnknownConfigKeyError,
    UnknownRegionError,
)
from regional_explorer.record.codec import dump_session, load_plan_file, load_session
from regional_explorer.record.session import Session
from regional_explorer.render.report.text import session_text
from regional_explorer.render.style.untrusted import sendable
from regional_explorer.ui.threads.progress import StreamProgress, Throttle

DONE, FAILED, MISUSED, NO = 0, 1, 2, 3
"""Exit codes: success; the call or the measurement failed, or a saved file cannot be read; the command was invalid; a
check was negative."""

INVALID_COMMAND = (
    CommandError,
    SelectorError,
    UnknownRegionError,
    UnknownConfigKeyError,
    InvalidConfigKeyError,
    InvalidConfigValueError,
)
"""What makes a command invalid: also a pattern of ``-r`` that matches nothing, and a wrong name or value in ``-c``."""

EXIT_CODES = (
    "Exit codes: 0 success; 1 the call or the measurement failed, or a saved file cannot be read; 2 the command was "
    "invalid; 3 the answer is no: slower than allowed (compare), the plan does not hold (check), something needed is "
    "missing (doctor)."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except RegionalExplorerError as error:
        if options.verbose:
            traceback.print_exc()
        else:
            _print_error(f"regional-explorer: {error}")
        return MISUSED if isinstance(error, INVALID_COMMAND) else FAILED
    except KeyboardInterrupt:
        _print_error("regional-explorer: interrupted.")
        return FAILED
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        sys.stdout = None  # else Python flushes stdout at exit and reports the error again
        return DONE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="regional-explorer",
        description="See, compile and measure regions of a PyTorch function.",
        epilog=EXIT_CODES,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="explore a call made in a Python file",
        description="Execute FILE as a module, then explore CALL in its namespace. Tables go to stdout, progress to "
        "stderr.",
        epilog='Example: regional-explorer run model.py "step(x)" -r mlp=modules:layers.*.mlp --save out.html',
        allow_abbrev=False,
    )
    _add_call(run)
    add_options(run, leave_out=NOTEBOOK_ONLY)
    run.add_argument("--json", action="store_true", help="print the session as JSON instead of tables")
    run.set_defaults(run=_run)
    show = commands.add_parser(
        "show", help="print a saved session; torch is not needed", description="Print a session saved as JSON."
    )
    show.add_argument("file", metavar="FILE", type=Path, help="a .json file written by --save or ex.save()")
    show.add_argument("--json", action="store_true", help="print the session as JSON instead of tables")
    show.set_defaults(run=_show, verbose=False)
    _add_compare(commands)
    _add_check(commands)
    _add_source(commands)
    doctor = commands.add_parser(
        "doctor",
        help="what works on this machine, and what to install",
        description="Check what works on this machine.",
    )
    doctor.add_argument("--json", action="store_true", help="print a list of findings")
    doctor.set_defaults(run=_doctor, verbose=False)
    return parser


def _add_call(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a Python file that defines everything the call uses")
    parser.add_argument("call", metavar="CALL", help='the call, such as "step(x)"')


def _add_call_under_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="a plan saved with ex.save_plan()")
    _add_call(parser)
    parser.add_argument("--grad", action=argparse.BooleanOptionalAction, help="take gradients, or run under no_grad")
    parser.add_argument("--dynamic", action=argparse.BooleanOptionalAction, help="dynamic shapes, as in torch.compile")
    parser.add_argument("--verbose", action="store_true", help="show the whole traceback of an error")


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        help="compare the speedups of two saved sessions",
        description="Compare the speedup over eager of two sessions, each against eager in its own session.",
        epilog=f"Example: regional-explorer compare main.json branch.json --fail-if-slower 3%. {EXIT_CODES}",
        allow_abbrev=False,
    )
    compare.add_argument("before", metavar="A", type=Path, help="the earlier session, saved as JSON")
    compare.add_argument("after", metavar="B", type=Path, help="the later session")
    compare.add_argument(
        "--fail-if-slower",
        metavar="LIMIT",
        help="exit with 3 if B is slower by more than this, such as 3%%, with all of the 99 %% interval beyond it",
    )
    compare.add_argument("--json", action="store_true", help="print the comparison as JSON")
    compare.set_defaults(run=_compare, verbose=False)


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="check whether a saved plan still holds for a call",
        description="Explore CALL under PLAN, compile its regions and check the numerics.",
        epilog=f'Example: regional-explorer check plan.json model.py "step(x)". {EXIT_CODES}',
        allow_abbrev=False,
    )
    _add_call_under_plan(check)
    check.add_argument("--json", action="store_true", help="print what was found as JSON")
    check.set_defaults(run=_check)


def _add_source(commands: Any) -> None:
    source = commands.add_parser(
        "source",
        help="show a saved plan as a change of the source, or apply it",
        description="Trace CALL, and print PLAN as a diff of the files it runs through; nothing is compiled.",
        epilog='Example: regional-explorer source plan.json model.py "step(x)" --apply.',
        allow_abbrev=False,
    )
    _add_call_under_plan(source)
    source.add_argument(
        "--apply", action="store_true", help="also write the files, if git tracks them and they have no changes"
    )
    source.set_defaults(run=_source)


def _run(options: argparse.Namespace) -> int:
    command = Command.of(options)
    call = read_call(options.call)
    source = read_source(options.file)
    command.check()
    fn, args, kwargs = call.evaluate(execute(options.file, source))
    with closing(StreamProgress(sys.stderr)) as stream:
        progress = Throttle(stream)
        progress("capturing the call", 0.0)
        exploration = command.explore(fn, args, kwargs)
        complete = command.measure(exploration, progress=progress)
    _print_session(exploration.session, options)
    if not complete:
        _print_error("regional-explorer: interrupted; the results so far are shown.")
    if (saved := command.finish(exploration)) is not None:
        _print_error(f"Saved to {saved}.")
    return DONE if complete else FAILED


def _show(options: argparse.Namespace) -> int:
    _print_session(load_session(options.file), options)
    return DONE


def _compare(options: argparse.Namespace) -> int:
    from regional_explorer.command.speed_comparison import compare_speed, read_limit

    limit = None if options.fail_if_slower is None else read_limit(options.fail_if_slower)
    found = compare_speed(load_session(options.before), load_session(options.after))
    failed = limit is not None and (bool(found.problem) or found.is_slower(limit))
    _print((json.dumps({**found.as_json(), "limit": limit, "failed": failed}) if options.json else str(found)) + "\n")
    if failed and not found.problem:
        _print_error(f"regional-explorer: B is slower than A by more than {limit:.1%}.")
    return NO if failed else DONE


def _check(options: argparse.Namespace) -> int:
    from regional_explorer.command.plan_check import check_saved_plan

    fn, args, kwargs = _call_under_plan(options)
    with closing(StreamProgress(sys.stderr)) as stream:
        found = check_saved_plan(
            options.plan, fn, args, kwargs, grad=options.grad, dynamic=options.dynamic, progress=Throttle(stream)
        )
    _print((json.dumps(found.as_json()) if options.json else str(found)) + "\n")
    return DONE if found.holds else NO


def _source(options: argparse.Namespace) -> int:
    fn, args, kwargs = _call_under_plan(options)

    from regional_explorer.exploration.explore import explore  # imports torch: only after errors are reported

    exploration = explore(fn, args, kwargs, grad=options.grad, dynamic=options.dynamic, plan=options.plan)
    with closing(exploration):
        _print(exploration.to_source(apply=options.apply))
    return DONE


def _doctor(options: argparse.Namespace) -> int:
    from regional_explorer.command.doctor import examine

    findings = list(examine())
    shown = json.dumps([found.as_json() for found in findings]) if options.json else "\n".join(map(str, findings))
    _print(f"{shown}\n")
    return NO if any(found.needed and not found.works for found in findings) else DONE


def _call_under_plan(options: argparse.Namespace) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    """Return the call to explore; the plan is read first, because executing the file may take long."""
    call = read_call(options.call)
    source = read_source(options.file)
    load_plan_file(options.plan)
    return call.evaluate(execute(options.file, source))


def _print_session(session: Session, options: argparse.Namespace) -> None:
    _print(dump_session(session) + "\n" if options.json else session_text(session))


def _print(text: str) -> None:
    """Print to stdout, replacing characters that its encoding lacks."""
    coding = sys.stdout.encoding or "utf-8"
    print(text.encode(coding, "replace").decode(coding), end="", flush=True)  # noqa: T201 - the output of the command


def _print_error(text: str) -> None:
    print(sendable(text), file=sys.stderr)  # noqa: T201 - messages of a command


if __name__ == "__main__":
    sys.exit(main())
