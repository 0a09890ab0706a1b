"""Checks the numerics of one compiled partition against eager and float64, with a twin where it draws randomly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from regional_explorer.capture.restore.random_state import RandomState
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run_context import never_cancelled
from regional_explorer.compiler.switch import Switch
from regional_explorer.errors import RegionCompileError
from regional_explorer.measure.accuracy.float64 import LOW, to_float64
from regional_explorer.measure.accuracy.numerics import Reference, compare, not_comparable, repeats, verdict
from regional_explorer.measure.accuracy.rounding import arithmetic_of
from regional_explorer.measure.accuracy.steps import Shifted, Steps, has_steps
from regional_explorer.measure.accuracy.values import Values
from regional_explorer.record.timing import Numerics, NumericsVerdict

VARIANT = "compiled"

CURES: Mapping[str, Any] = {"emulate_precision_casts": True, "fallback_random": True}
"""Configs that make compiled code round, or draw random numbers, as eager code does."""


@dataclass(frozen=True)
class Check:
    """The result of checking one partition. ``cure`` is a config under which it passes, None if none was found."""

    rows: tuple[Numerics, ...]
    cure: Mapping[str, Any] | None = None

    @property
    def verdict(self) -> NumericsVerdict:
        """The verdict of all rows together."""
        return verdict(self.rows)

    @property
    def bitwise(self) -> bool:
        """Whether all outputs are bitwise those of the eager piece."""
        return all(row.bitwise for row in self.rows)

    @property
    def worst(self) -> Numerics | None:
        """The output that uses the largest share of its tolerance; outputs that failed come first."""
        return max(self.rows, key=lambda row: (row.verdict == NumericsVerdict.FAILED, row.share), default=None)


def check_partition(
    program: Program,
    switch: Switch,
    args: Sequence[Any],
    partition: str,
    cancelled: Callable[[], bool] = never_cancelled,
) -> Check:
    """Compare the artifact of ``switch`` with its eager piece on ``args``.

    A piece that draws random numbers is compared under ``fallback_random``, so that it draws what eager draws. If the
    check fails, it is repeated on twins compiled under configs that may cure it.

    Raises:
        concurrent.futures.CancelledError: ``cancelled`` returned True.
    """
    random = RandomState()

    def run(function: Callable[..., Any]) -> Values:
        random.restore()
        return _named(switch, function(list(args)))

    try:
        gm, eager = switch.piece.gm, run(switch.eager)
        arithmetic = arithmetic_of([gm])
        steady = repeats(eager, run(switch.eager), arithmetic)
        exact = _exact(switch, args, random) if steady else None
        steps = (
            Steps(lambda shift: run(Shifted(gm, shift).boxed_run), eager, arithmetic.eps, cancelled)
            if has_steps([gm])
            else None
        )
        reference = Reference(eager, exact, arithmetic, nondeterministic=not steady, steps=steps)

        def rows(config: Mapping[str, Any], note: str = "") -> tuple[Numerics, ...]:
            with _twin(program, switch, config):
                found = compare(VARIANT, run(switch.as_function()), reference, note)
            return tuple(replace(row, partition=partition) for row in found)

        drawing = {"fallback_random": True} if switch.draws else {}
        try:
            found = rows(drawing, "checked on a twin compiled with fallback_random" if drawing else "")
        except RegionCompileError as error:
            return Check(
                not_comparable(rows({}), f"draws random numbers, and no twin with fallback_random compiles: {error}")
            )
        return Check(found, _cure(rows, drawing) if verdict(found) == NumericsVerdict.FAILED else None)
    finally:
        random.restore()


def _cure(
    rows: Callable[[Mapping[str, Any]], Sequence[Numerics]], drawing: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the first config under which the check passes: each of ``CURES`` alone, then all together."""
    single = [{key: value} for key, value in CURES.items() if key not in drawing]
    for config in (*single, dict(CURES)):
        try:
            if verdict(rows({**drawing, **config})) != NumericsVerdict.FAILED:
                return config
        except RegionCompileError:
            continue
    return None


@contextmanager
def _twin(program: Program, switch: Switch, config: Mapping[str, Any]) -> Iterator[None]:
    """Context manager: make ``switch`` use its artifact, or a twin compiled under its config updated by ``config``.

    Raises:
        RegionCompileError: the twin does not compile.
    """
    before = switch.artifact
    if not config:
        yield
        return
    switch.use(program.twin(switch, config))
    try:
        yield
    finally:
        if before is None:
            switch.use_eager()
        else:
            switch.use(before)


def _named(switch: Switch, results: Any) -> Values:
    tensors = (
        (name, value.detach().clone())
        for index, (name, value) in enumerate(zip(switch.piece.outputs, results, strict=True))
        if isinstance(value, torch.Tensor) and index not in switch.output_tokens
    )
    return Values(tuple(tensors), ())


def _exact(switch: Switch, args: Sequence[Any], random: RandomState) -> Values | None:
    """Return the outputs in float64, or None if an operator has no float64 kernel."""
    random.restore()
    low = [value.double() if isinstance(value, torch.Tensor) and value.dtype in LOW else value for value in args]
    try:
        return _named(switch, to_float64(switch.piece.gm)(*low))
    except Exception:  # noqa: BLE001 - any operator may refuse float64; the check then falls back on tolerances
        return None
