"""Programs for the diagnostics: those of the page, one per code, and clean ones."""

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import regional_explorer as rx
from regional_explorer.exploration.exploration import Exploration
from tests.shared import programs

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "diagnostics.md"
QUICKSTART = ROOT / "notebooks" / "quickstart.ipynb"


def page_sections() -> dict[str, str]:
    """Return the text of each section of the page that explains a code."""
    return _sections(_parts()[0])


def _parts() -> tuple[str, str]:
    """Return the text of the page about diagnostics, and that about refusals."""
    diagnostics, _, refusals = PAGE.read_text(encoding="utf-8").partition("\n# Calls that are refused\n")
    return diagnostics, refusals


def _sections(text: str) -> dict[str, str]:
    _, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def page_programs() -> dict[str, str]:
    """Return the program of each code."""
    return _programs(page_sections(), "python")


def measured_programs() -> dict[str, str]:
    """Return the program of each code that a measurement finds, which the page marks as ``py``."""
    return _programs(page_sections(), "py")


def refused_programs() -> dict[str, str]:
    """Return the program of each call that is refused, by code."""
    return _programs(_sections(_parts()[1]), "python")


def _programs(sections: dict[str, str], language: str) -> dict[str, str]:
    """Return the first block in this language of each section, after the imports that the page names once."""
    first_block = re.compile(rf"```{language}\n(.*?)```", re.DOTALL)
    blocks = {code: first_block.search(section) for code, section in sections.items()}
    imports = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert imports is not None
    return {code: f"{imports[1]}\n{block[1]}" for code, block in blocks.items() if block}


def run_page_program(source: str, folder: Path) -> Exploration:
    """Run a program of the page as a module with lines of its own; return its exploration."""
    path = folder / "program.py"
    path.write_text(source, encoding="utf-8")
    ex: Exploration = runpy.run_path(str(path), run_name="program")["ex"]
    return ex


def quickstart_definition(name: str) -> Callable[..., Any]:
    """Return the function or class of this name that a cell of the quickstart defines."""
    cells = json.loads(QUICKSTART.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = "\n".join(source for source in sources[:3] if f"{name}(" in source or "import" in source).splitlines()
    defined: dict[str, Any] = {}
    exec("\n".join(line for line in lines if not line.startswith("%")), defined)  # noqa: S102 - the notebook is ours
    found: Callable[..., Any] = defined[name]
    return found


def gpt(blocks: int = 4) -> Any:
    """Return the model of the quickstart, narrower."""
    return quickstart_definition("GPT")(blocks, width=32, heads=4, tokens=8, vocabulary=64)


def norms_apart(block: Any, x: torch.Tensor) -> Any:
    with rx.region("norm"):
        y = block.norm1(x)
    with rx.region("attention", max_fusion_size=32):
        y = block.attention(y)
    x = x + y
    with rx.region("norm"):
        y = block.norm2(x)
    with rx.region("mlp", **{"cpp.simdlen": 256}):
        y = block.down(F.gelu(block.up(y)))
    return x + y


def gpt_of_neighbours(blocks: int = 4) -> Any:
    """Return that model with its norms as another region, which feeds the others directly and is fed by them."""
    model = gpt(blocks)
    type(model.blocks[0]).forward = norms_apart  # the class is of this model alone
    return model


def explore_on_tokens(model: Any) -> Exploration:
    return rx.explore(model, tuple(torch.randint(0, 64, (2, 2, 8))))


CLEAN: dict[str, Callable[[], Exploration]] = {
    "quickstart": lambda: explore_on_tokens(gpt()),
    "quickstart, gated": lambda: rx.explore(quickstart_definition("gated"), (*programs.pair(), torch.randn(8))),
    "textbook": lambda: rx.explore(programs.textbook, programs.pair()),
    "textbook, inference": lambda: rx.explore(programs.textbook, programs.pair(grad=False)),
    "with_dropout": lambda: rx.explore(programs.dropout_between_blocks, programs.pair()),
    "twelve": lambda: rx.explore(programs.twelve_regions, (torch.randn(4, requires_grad=True),)),
    "no region": lambda: rx.explore(programs.Stack(), (torch.randn(4, 16),)),
    "stack by module": lambda: rx.explore(programs.Stack(), (torch.randn(4, 16),)).mark("layers", modules="layers.*"),
    "mlps by module": lambda: rx.explore(programs.Stack(), (torch.randn(4, 16),)).mark("up", modules="layers.*.up"),
}
"""Programs without any diagnostic, with and without regions."""
