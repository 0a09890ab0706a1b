"""The message that says why a region has no generated code, and what to do about it."""

from __future__ import annotations

from regional_explorer.record.partition import State
from regional_explorer.record.session import Session


def why_no_code(session: Session, region: str) -> str:
    """Return why ``session`` has no generated code of a region, and what to do."""
    name = repr(region)
    partitions = [part for part in session.partitions if part.region == region]
    error = next((part.error for part in partitions if part.state is State.FAILED and part.error), None)
    if error is not None:
        return (
            f"Region {name} has no code: it could not be compiled: {error} "
            f"Try another config with ex.configure({name}, …), or see ex.repro({name})."
        )
    if not session.plan[region].enabled:
        return f"Region {name} has no code: it is disabled and runs eagerly. Call ex.enable({name}), then ex.compile()."
    if not any(part.state is not State.EAGER for part in partitions):
        return f"Region {name} has no code: nothing of it could be cut out. ex.diagnostics says why."
    if any(part.artifact is not None for part in partitions):
        return f"The code of region {name} is not in this session: call ex.code({name}) before ex.save."
    return (
        f"Region {name} has no code yet: it has not been compiled in its current form. Call ex.compile(). "
        f"ex.code({name}, target='h100') needs no compile, and shows the code for a GPU that need not be here."
    )
