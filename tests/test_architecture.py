"""The rules of the house that a linter does not see: what loads what, where private names stand."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "regional_explorer"
PRIVATE_TORCH = re.compile(r"torch\._(inductor|dynamo|functorch|guards|subclasses|logging)(\.\w+)*")

BLOCKED = ("torch", "IPython", "ipywidgets", "anywidget")
IMPORT_BLOCKED = """
import importlib, pkgutil, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ImportError("blocked: " + name)

sys.meta_path.insert(0, Blocker())
room = importlib.import_module({room!r})
names = [module.name for module in pkgutil.walk_packages(room.__path__, room.__name__ + ".")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""

LOADED = """
import sys
before = set(sys.modules)
import {module}
print("\\n".join(sorted(set(sys.modules) - before)))
"""


def run_python(source: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=PACKAGE.parent, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(module: str) -> set[str]:
    return set(run_python(LOADED.format(module=module)).split())


def package_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("room", ["record", "style", "tables", "picture", "page"])
def test_room_imports_without_torch_and_notebook_packages(room: str) -> None:
    found = run_python(IMPORT_BLOCKED.format(blocked=BLOCKED, room=f"regional_explorer.{room}"))
    assert int(found) > 0


def test_importing_the_package_loads_nothing_heavy() -> None:
    tops = {name.partition(".")[0] for name in loaded_by("regional_explorer")}
    assert "regional_explorer" in tops
    assert not tops & {"torch", "pandas", "numpy", "IPython", "ipywidgets", "anywidget", "graphviz", "pygraphviz"}


def test_production_backend_loads_no_pandas_and_measures_nothing() -> None:
    if importlib.util.find_spec("regional_explorer.backend") is None:
        pytest.skip("there is no backend")
    loaded = loaded_by("regional_explorer.backend")
    assert not {name.partition(".")[0] for name in loaded} & {"pandas", "IPython", "ipywidgets", "anywidget"}
    assert not [name for name in loaded if name.startswith("regional_explorer.measure")]


def test_every_public_name_exists() -> None:
    import regional_explorer

    assert {name for name in regional_explorer.__all__ if not hasattr(regional_explorer, name)} == set()
    assert set(regional_explorer.__all__) <= set(dir(regional_explorer))


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import regional_explorer

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = regional_explorer.nonsense


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield what the code names with dots, strings that are nothing but such a name included; prose is free."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def test_private_torch_names_stand_in_torch_api_only() -> None:
    strays = {
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in package_files()
        if path.relative_to(PACKAGE).parts[0] not in {"torch_api.py", "torch_api"}
        for line, name in names_in(ast.parse(path.read_text(encoding="utf-8")))
        if PRIVATE_TORCH.fullmatch(name)
    }
    assert strays == set()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import torch._dynamo.config", True),
        ("from torch import _guards", True),
        ("from torch._inductor import config", True),
        ("torch._inductor.config.patch({})", True),
        ("import_module('torch._functorch.config')", True),
        ("raise KeyError('torch._inductor.config has no such key')", False),
        ("torch.compile(f)", False),
    ],
)
def test_private_torch_names_are_found(code: str, *, found: bool) -> None:
    assert any(PRIVATE_TORCH.fullmatch(name) for _, name in names_in(ast.parse(code))) is found
