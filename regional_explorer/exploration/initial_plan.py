"""The plan that an exploration begins with: given, saved, or marked in the source."""

from __future__ import annotations

from regional_explorer.capture.trace import Capture
from regional_explorer.compiler.config.validate import check_plan, source_plan, without_unknown_configs
from regional_explorer.compiler.partition_records import partitions
from regional_explorer.compiler.program import Program
from regional_explorer.record.diagnostic import Diagnostic
from regional_explorer.record.plan import Plan
from regional_explorer.record.plan_file import PlanFile, environment_difference, mode_differences, partition_differences
from regional_explorer.record.session import Environment


def initial_program(
    capture: Capture, plan: Plan | PlanFile | None, environment: Environment
) -> tuple[Program, tuple[Diagnostic, ...]]:
    """Return the program under ``plan``, or under the marks in the source, and diagnostics about that plan.

    Raises:
        UnknownConfigKeyError, InvalidConfigKeyError, InvalidConfigValueError: a config is invalid; for the plan of a
            file there are diagnostics instead.
    """
    marked_plan, diagnostics = source_plan(capture.graphs)
    if not isinstance(plan, PlanFile):
        check_plan(marked_plan if plan is None else plan)
        return Program(capture, marked_plan if plan is None else plan), tuple(diagnostics)
    valid_plan, unknown_configs = without_unknown_configs(plan.plan)
    program = Program(capture, valid_plan)
    if plan.explored is None:
        return program, (*diagnostics, *unknown_configs)
    differences = (
        *partition_differences(plan.explored, partitions(program)),
        *environment_difference(plan.explored, environment),
        *mode_differences(plan.explored, capture.modes_of_calls()),
    )
    return program, (*diagnostics, *unknown_configs, *differences)
