"""What must hold of every exploration of the campaign."""

import regional_explorer as rx
from regional_explorer.measure.numerics import compare, run_once, same, verdict
from regional_explorer.measure.reference import find_reference


def assert_eager_pieces_are_bitwise(ex: rx.Exploration) -> None:
    """Cut, with eager pieces, the call gives bitwise what it gives uncut."""
    program, call = ex.live.program, ex.live.call
    assert call is not None
    program.select_regional(on=False)
    whole = run_once(call, program.capture.run)
    program.select_regional(on=True)
    assert same(whole, run_once(call, program.capture.run))


def assert_compiled_is_right(ex):
    """Everything compiles, takes its inputs, and outputs and gradients are as near to the truth as eager's.

    Returns:
        The rows of the comparison.
    """
    call, program = ex.live.call, ex.live.program
    found = find_reference(call, program)
    assert not found.diagnostics
    assert found.exact is not None
    ex.compile()
    with program.drawing_as_eager():
        for _ in range(2):  # the first call of an artifact checks what it returns, later ones trust it
            rows = compare("regional", run_once(call, program.capture.run), found)
            assert verdict(rows) == "ok", [row for row in rows if row.verdict != "ok"]
    assert (ex.partitions.state == "compiled").all(), ex.partitions[["partition", "state", "error"]].to_string()
    return rows
