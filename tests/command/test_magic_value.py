"""The value of the magic, by what the code that runs it does with the value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regional_explorer.exploration.exploration import Exploration
from tests.command.conftest import CALL, MADE, Output, Outputs, Run

DISPLAYED = "graph breaks"
"""A text that the display of an exploration has once."""


@pytest.mark.parametrize(
    "cell",
    [
        f"%%time\nex = {MADE}",
        f"%%capture\nex = {MADE}",
        f"def made():\n    ex = {MADE}\n    return ex\n# %%\nex = made()",
        f"def made():\n    def inner():\n        ex = {MADE}\n        return ex\n    return inner()\n# %%\nex = made()",
        f"for turn in range(2):\n    ex = {MADE}",
        f"with torch.no_grad():\n    if True:\n        ex = {MADE}",
        f"import asyncio\nawait asyncio.sleep(0)\nex = {MADE}",
        f"async def made():\n    ex = {MADE}\n    return ex\n# %%\nex = await made()",
        f"ex: object = {MADE}",
        "pair = 1, get_ipython().run_line_magic('regional_compile', '--no-bench f(x)')\n_one, ex = pair",
        "ex = [get_ipython().run_line_magic('regional_compile', '--no-bench f(x)')].pop()",
        "(ex := get_ipython().run_line_magic('regional_compile', '--no-bench f(x)'))",
        "%alias_magic rc regional_compile\nex = %rc --no-bench f(x)",
        "ex = get_ipython().run_cell_magic('regional_compile', '--no-bench', 'f(x)')",
        f"ex = %time {MADE}",
    ],
)
def test_the_value_is_the_exploration_wherever_it_is_used(run: Run, shell: Any, cell: str) -> None:
    for part in cell.split("\n# %%\n"):
        run(part)
    assert isinstance(shell.user_ns["ex"], Exploration)


def test_the_value_does_not_depend_on_the_history(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "made.ipy").write_text(f"by_file = {MADE}\n")
    for name, cell in (("unstored", f"unstored = {MADE}"), ("by_file", f"%run {tmp_path / 'made.ipy'}")):
        shell.run_cell(cell, store_history=False).raise_error()
        assert isinstance(shell.user_ns.get(name), Exploration), cell


@pytest.mark.parametrize(
    "cell",
    [
        MADE,
        f"{MADE}\nNone",
        f"if True:\n    {MADE}",
        f"%%time\n{MADE}",
        "%%regional_compile --no-bench\nf(x)",
        "%%regional_compile --no-bench -o ex\nf(x)",
        f"ex = {MADE}\nex",
        f"def made():\n    ex = {MADE}\n    return ex\nmade()",
        "get_ipython().run_line_magic('regional_compile', '--no-bench f(x)')",
        "%alias_magic rc regional_compile\n%rc --no-bench f(x)",
    ],
)
def test_displayed_value_is_not_displayed_again(run: Run, capsys: Output, cell: str) -> None:
    capsys.readouterr()
    run(cell)
    assert capsys.readouterr().out.count(DISPLAYED) == 1


def test_changed_value_is_displayed(run: Run, capsys: Output) -> None:
    capsys.readouterr()
    run(f"ex = {MADE}\nex.mark('act', ops='aten.relu*')")
    assert "1 piece is not compiled yet" in capsys.readouterr().out
    run("ex")
    assert "1 piece is not compiled yet" in capsys.readouterr().out, "another cell displays it"


def test_a_notebook_displays_the_value_of_a_cell_once(run: Run, outputs: Outputs) -> None:
    run(f"made = {CALL}\nmade")
    assert len(outputs.shown) == 2


def test_misplaced_arguments_give_the_right_form(shell: Any, capsys: Output) -> None:
    shell.run_cell("import regional_explorer as rx\ny = 3\nrx.explore(f, x, k=y)", store_history=True)
    out, err = capsys.readouterr()
    assert "rx.explore(fn, (x,), {'k': …}) for fn(x, k=…)" in out + err
    assert "errors.py" not in out + err
