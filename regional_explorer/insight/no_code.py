"""The message that says why a region has no generated code, and what to do about it."""

from __future__ import annotations

from regional_explorer.record.partition import State
from regional_explorer.record.session import Session


def why_no_code(session: Session, region: str) -> str:
    """Return why ``session`` has no generated code of a region, and what to do."""
    named = repr(region)
    parts = [part for part in session.partitions if part.region == region]
    failed = next((part.error for part in parts if part.state is State.FAILED and part.error), None)
    if failed is not None:
        return f"Region {named} has no code: it could not be compiled: {failed}"
    if not session.plan[region].enabled:
        return (
            f"Region {named} has no code: it is disabled and runs eagerly. Call ex.enable({named}), then ex.compile()."
        )
    if not any(part.state is not State.EAGER for part in parts):
        return f"Region {named} has no code: nothing of it could be cut out. ex.diagnostics says why."
    if any(part.artifact is not None for part in parts):
        return f"The code of region {named} is not in this session: call ex.code({named}) before ex.save."
    return (
        f"Region {named} has no code yet: it has not been compiled as it stands. Call ex.compile(). "
        f"ex.code({named}, target='h100') needs none, and shows the code for a GPU that is not there."
    )
