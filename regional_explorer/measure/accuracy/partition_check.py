"""Checks the numerics of one compiled partition against eager and float64, with a twin where it draws randomly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch

from regional_explorer.capture.restore.random_state import RandomState
from regional_explorer.compiler.program import Program
from regional_explorer.compiler.run_context import never_cancelled
from regional_explorer.compiler.switch import Switch
from regional_explorer.errors import RegionCompileError
from regional_explorer.measure.accuracy.float64 import LOW_DTYPES, to_float64
from regional_explorer.measure.accuracy.numerics import (
    TWIN_NOTE,
    Reference,
    compare,
    failing_twice,
    repeats,
    verdict,
    without_twin,
)
from regional_explorer.measure.accuracy.rounded import Moves, Rounded
from regional_explorer.measure.accuracy.rounding import arithmetic_of
from regional_explorer.measure.accuracy.values import Values, dense
from regional_explorer.record.timing import Numerics, NumericsVerdict

COMPILED = "compiled"

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
    config: Mapping[str, Any] = MappingProxyType({}),
) -> Check:
    """Compare the artifact of ``switch`` with its eager piece on ``args``; with ``config``, a twin compiled under that.

    A piece that draws random numbers is compared under ``fallback_random``, so that it draws what eager draws. If the
    check of the artifact fails, it is repeated on twins compiled under configs that may cure it.

    Raises:
        concurrent.futures.CancelledError: ``cancelled`` returned True.
    """
    random_state = RandomState()

    def run_piece(function: Callable[..., Any]) -> Values:
        random_state.restore()
        return named_outputs(switch, function(list(args)))

    try:
        gm, eager = switch.piece.gm, run_piece(switch.eager)
        arithmetic = arithmetic_of([gm])
        repeatable = repeats(eager, run_piece(switch.eager), arithmetic)
        exact = _float64_outputs(switch, args, random_state) if repeatable else None
        moves = Moves(lambda number: run_piece(Rounded(gm, number).boxed_run), cancelled)
        reference = Reference(eager, exact, arithmetic, nondeterministic=not repeatable, moves=moves)

        def rows_of(config: Mapping[str, Any], note: str = "") -> tuple[Numerics, ...]:
            with _using_twin(program, switch, config):
                compiled = switch.as_function()
                partition_rows = failing_twice(lambda: compare(COMPILED, run_piece(compiled), reference, note))
            return tuple(replace(row, partition=partition) for row in partition_rows)

        draw_config = {"fallback_random": True} if switch.draws else {}
        try:
            rows = rows_of({**config, **draw_config}, TWIN_NOTE if draw_config else "")
        except RegionCompileError as error:
            return Check(without_twin(rows_of(config), error))
        may_be_cured = verdict(rows) == NumericsVerdict.FAILED and not config
        return Check(rows, _find_cure(rows_of, draw_config) if may_be_cured else None)
    finally:
        random_state.restore()


def _find_cure(
    rows_of: Callable[[Mapping[str, Any]], Sequence[Numerics]], draw_config: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the first config under which the check passes: each of ``CURES`` alone, then all together."""
    single_configs = [{key: value} for key, value in CURES.items() if key not in draw_config]
    for config in (*single_configs, dict(CURES)):
        try:
            if verdict(rows_of({**draw_config, **config})) != NumericsVerdict.FAILED:
                return config
        except RegionCompileError:
            continue
    return None


@contextmanager
def _using_twin(program: Program, switch: Switch, config: Mapping[str, Any]) -> Iterator[None]:
    """Context manager: make ``switch`` use its artifact, or a twin compiled under its config updated by ``config``.

    Raises:
        RegionCompileError: the twin does not compile.
    """
    artifact_before = switch.artifact
    if not config:
        yield
        return
    switch.use(program.twin(switch, config))
    try:
        yield
    finally:
        if artifact_before is None:
            switch.use_eager()
        else:
            switch.use(artifact_before)


def named_outputs(switch: Switch, results: Any) -> Values:
    """Return the tensors that a piece returned, by the names of its outputs."""
    tensors = (
        (name, dense(value).clone())
        for index, (name, value) in enumerate(zip(switch.piece.outputs, results, strict=True))
        if isinstance(value, torch.Tensor) and index not in switch.output_tokens
    )
    return Values(tuple(tensors), ())


def _float64_outputs(switch: Switch, args: Sequence[Any], random_state: RandomState) -> Values | None:
    """Return the outputs in float64, or None if an operator has no float64 kernel."""
    random_state.restore()
    exact_args = [arg.double() if isinstance(arg, torch.Tensor) and arg.dtype in LOW_DTYPES else arg for arg in args]
    try:
        return named_outputs(switch, to_float64(switch.piece.gm)(*exact_args))
    except Exception:  # noqa: BLE001 - any operator may refuse float64; the check then falls back on tolerances
        return None
