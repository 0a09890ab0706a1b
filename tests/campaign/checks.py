"""What must hold of every exploration of the campaign."""

from regional_explorer.measure.accuracy.float64 import Float64
from regional_explorer.measure.accuracy.numerics import Values, compare, run_once, same, verdict


def assert_eager_pieces_are_bitwise(ex):
    """Cut, with eager pieces, the call gives bitwise what it gives uncut."""
    program, call = ex._program, ex._call
    program.select_regional(on=False)
    whole = run_once(call, program.capture.run)
    program.select_regional(on=True)
    assert same(whole, run_once(call, program.capture.run))


def assert_compiled_is_right(ex):
    """Everything compiles, takes its inputs, and outputs and gradients are as near to the truth as eager's.

    Returns:
        The rows of the comparison.
    """
    call, program = ex._call, ex._program
    eager = run_once(call)
    program.select_regional(on=False)
    outputs, gradients = Float64(program.capture).run()
    program.select_regional(on=True)
    exact = Values(
        tuple(zip(call.output_names, outputs, strict=True)), tuple(zip(call.gradient_names, gradients, strict=True))
    )
    ex.compile()
    with program.drawing_as_eager():
        for _ in range(2):  # the first call of an artifact checks what it returns, later ones trust it
            rows = compare("regional", run_once(call, program.capture.run), eager, exact)
            assert verdict(rows) == "ok", [row for row in rows if row.verdict != "ok"]
    assert (ex.partitions.state == "fresh").all(), ex.partitions[["partition", "state", "error"]].to_string()
    return rows
