"""``rx.explore``: traces one call and returns its Exploration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regional_explorer.capture.call import Call
from regional_explorer.capture.call_arguments import check_call, check_options
from regional_explorer.compiler.config.validate import check_plan
from regional_explorer.compiler.interrupt import Interrupts
from regional_explorer.exploration.dropped import collect_dropped
from regional_explorer.exploration.exploration import Exploration
from regional_explorer.exploration.live import Live
from regional_explorer.record.codec import load_plan_file
from regional_explorer.record.plan import Plan
from regional_explorer.record.plan_file import PlanFile


def explore(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    grad: bool | None = None,
    dynamic: bool | None = None,
    plan: Plan | str | Path | None = None,
    partitioner: str = "default",
) -> Exploration:
    """Trace one call and return an Exploration of it, without compiling or measuring.

    The call runs in eager mode once (twice if it assigns Python state) and once traced, with gradients if it has any.
    In-place changes and random generators are restored afterwards; arguments are kept by reference.

    Args:
        fn: the function or module.
        args: its positional arguments, a tuple or list.
        kwargs: its keyword arguments.
        grad: whether to take gradients; None as the call would, False to run under ``no_grad``.
        dynamic: as in ``torch.compile``.
        plan: a plan, or the path of a saved one, to use instead of the regions marked in the source.
        partitioner: how AOTAutograd splits forward from backward, ``"default"`` (as upstream's regional path) or
            ``"min_cut"``.

    Raises:
        InvalidArgumentError: an argument has the wrong type, or ``fn`` was made by torch.jit.
        CaptureError: the call raises, trains by itself, or cannot be traced.
        UnknownConfigKeyError, InvalidConfigValueError: a region marked in the source has an invalid config.
        SelectorError: a selector of the plan is malformed.
        UnsupportedTorchError: torch is too old.
        PlanError: the plan's file cannot be read.
    """
    check_options(grad, dynamic, partitioner)
    check_call(fn, args, kwargs)
    initial_plan = load_plan_file(plan) if isinstance(plan, (str, Path)) else plan
    if initial_plan is not None and not isinstance(initial_plan, PlanFile):
        check_plan(initial_plan)
    collect_dropped()
    title = getattr(fn, "__qualname__", type(fn).__name__).replace("<locals>.", "")
    with Interrupts().raised_at_the_end():
        call = Call(fn, args, kwargs, grad=grad)
        with call.undone_if_refused():
            return Exploration(Live(call, title, dynamic=dynamic, plan=initial_plan, partitioner=partitioner))
