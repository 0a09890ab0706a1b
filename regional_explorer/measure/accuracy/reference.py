"""Finds the reference of a numerics check: eager and, if eager repeats and agrees with its trace, a float64 run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regional_explorer.capture.call import Call
from regional_explorer.capture.live_graph import LiveGraph
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run_context import never_cancelled
from regional_explorer.measure.accuracy.float64 import Float64
from regional_explorer.measure.accuracy.numerics import Reference, compare, in_words, repeats, run_once
from regional_explorer.measure.accuracy.rounded import Moves, Rounded
from regional_explorer.measure.accuracy.rounding import Arithmetic, arithmetic_of
from regional_explorer.measure.accuracy.trace_difference import trace_differs
from regional_explorer.measure.accuracy.values import Values
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.timing import Numerics, NumericsVerdict
from regional_explorer.torch_api import BoxedCall

TRACE_DIFFERS_NOTE = "the trace differs from eager (trace-differs): compared with eager directly"


@dataclass(frozen=True)
class Found:
    """The reference of a call, and diagnostics about it."""

    reference: Reference
    diagnostics: tuple[Diagnostic, ...] = ()


def find_reference(call: Call, program: Program, cancelled: Callable[[], bool] = never_cancelled) -> Found:
    """Run the call twice in eager mode, then its trace, and return what its variants are to be compared with.

    The float64 run follows the trace, so it is a reference for eager only if the trace agrees with eager. Comparing
    with the reference raises ``concurrent.futures.CancelledError`` once ``cancelled`` returns True.
    """
    eager = run_once(call)
    arithmetic = arithmetic_of(live.gm for live in program.capture.live)
    if (found := unless_repeating(call, eager, arithmetic)) is not None:
        return found
    moves = Moves(functools.partial(_rounded_values, call, program), cancelled)
    eager_reference = Reference(eager, None, arithmetic, TRACE_DIFFERS_NOTE, moves=moves)
    traced_values = _traced_values(call, program)
    wrong_rows = (
        [row for row in compare("captured", traced_values, eager_reference) if row.verdict == NumericsVerdict.FAILED]
        if traced_values is not None
        else []
    )
    if wrong_rows:
        if (found := unless_repeating(call, eager, arithmetic)) is not None:
            return found
        return Found(eager_reference, (trace_differs(program.capture, eager_reference, wrong_rows),))
    return Found(Reference(eager, _float64_values(program), arithmetic, moves=moves))


def unless_repeating(call: Call, eager: Values, arithmetic: Arithmetic) -> Found | None:
    """Return that nothing can be compared if the call, run once more in eager mode, differs from ``eager``."""
    eager_again = run_once(call)
    if repeats(eager, eager_again, arithmetic):
        return None
    rows = compare("eager", eager_again, Reference(eager, arithmetic=arithmetic))
    return Found(Reference(eager, arithmetic=arithmetic, nondeterministic=True), (_nondeterminism(rows),))


def _traced_values(call: Call, program: Program) -> Values | None:
    """Return the results of the graphs as captured, or None if they cannot run: some kernels need other strides."""
    program.select_regional(on=False)
    try:
        return run_once(call, program.capture.run)
    except Exception:  # noqa: BLE001 - an op may raise anything; the variants are still compared
        return None
    finally:
        program.select_regional(on=True)


def _float64_values(program: Program) -> Values | None:
    """Return the results in float64, or None if an operator has no float64 kernel."""
    program.select_regional(on=False)
    try:
        return Float64(program.capture).run()
    except Exception:  # noqa: BLE001 - any operator may refuse float64; eager is then compared with directly
        return None
    finally:
        program.select_regional(on=True)


def _rounded_values(call: Call, program: Program, number: int | None) -> Values:
    """Return the results of the graphs as captured, rounded in the way of ``number`` (see Moves)."""

    def implementation(live: LiveGraph) -> BoxedCall:
        return Rounded(live.gm, number).boxed_run

    with program.capture.running(implementation):
        return run_once(call, program.capture.run)


def _nondeterminism(rows: Sequence[Numerics]) -> Diagnostic:
    worst = next(row for row in rows if row.verdict == NumericsVerdict.FAILED)
    return Diagnostic(
        DiagnosticCode.CALL_NONDETERMINISTIC,
        f"Two calls in eager mode differ by more than rounding ({in_words(worst)}), "
        "with the same arguments and random states: no variant can be checked, and every row is not comparable.",
        upstream="the same, without a warning.",
        remedy="Let the call take its random numbers from torch, NumPy or Python's random, or as an argument; "
        "leave clocks out of it.",
    )
