"""The rules of the house that no linter checks: imports, private names, and names in documents.

And the engine without the notebook packages: everything but the panel works, and the error names the pip command.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import regional_explorer
from regional_explorer.errors import RefusalCode
from regional_explorer.record.diagnostic import DiagnosticCode
from scripts import count
from tests.shared.processes import ROOT, python

PACKAGE = ROOT / "regional_explorer"


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


PRIVATE_TORCH = re.compile(
    r"torch(?!\.ops\.)(\.\w+)*\.(_(?!_)\w+|StorageWeakRef)(\.\w+)*"
    r"|_(parameters|buffers|modules|cdata|version|base|schema|sequence_nr|boxed_call|dynamo_\w+|\w*hooks)"
)
"""Private modules and names of torch, and texts that name private attributes of its objects: ruff finds the latter.

The names of operators below ``torch.ops`` are public, whatever they begin with.
"""

# ------------------------------------------------------------------------------------------------------ what loads what

IMPORT_PACKAGES = """
import importlib, pkgutil, sys

for name in ("torch", "IPython", "ipywidgets", "anywidget"):
    sys.modules[name] = None  # as if it were not installed
for package_name in sys.argv[1:]:
    package = importlib.import_module("regional_explorer." + package_name)
    names = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
    assert names
    for name in names:
        importlib.import_module(name)
"""
LOADED = """
import json, sys
before = set(sys.modules)
import regional_explorer
print(json.dumps(sorted(set(sys.modules) - before)))
"""
HEAVY = {"torch", "numpy", "pandas", "IPython", "ipywidgets", "anywidget", "graphviz", "pygraphviz"}


def test_records_and_views_import_without_torch() -> None:
    python(IMPORT_PACKAGES, "record", "style", "tables", "picture", "page")


def test_the_package_imports_nothing_heavy() -> None:
    """What its backend loads is in ``tests/backend``."""
    loaded = python(LOADED).json
    assert "regional_explorer" in loaded
    assert not {name.partition(".")[0] for name in loaded} & HEAVY


WITHOUT_PACKAGES = """
import json, sys

def error_of(call):
    try:
        call()
    except rx.MissingPackageError as error:
        return str(error)

sys.modules["pandas"] = None  # as if it were not installed
import regional_explorer as rx

entries = ("explore", "load", "compare")
print(json.dumps([[error_of(lambda: getattr(rx, name)) for name in entries], rx.compile.__name__, rx.status.__name__]))

del sys.modules["pandas"]
for name in ("IPython", "ipywidgets", "anywidget", "graphviz", "pygraphviz", "matplotlib"):
    sys.modules[name] = None
import torch

def f(x):
    with rx.region("r"):
        return x.sin().cos()

ex = rx.explore(f, (torch.ones(8),))
loads = lambda: rx.load_ipython_extension(None)
errors = [error_of(call) for call in (ex.show, ex.graph, loads, lambda: ex.plot)]
print(json.dumps([errors, ex.regions.region.tolist(), ex.save(sys.argv[1]).name, repr(ex)]))
"""


def test_the_error_about_a_missing_package_names_the_pip_command(tmp_path: Path) -> None:
    """Without pandas production works; without the notebook packages all but the panel and Graphviz's picture."""
    without_pandas, without_notebook = map(
        json.loads, python(WITHOUT_PACKAGES, tmp_path / "page.html").out.splitlines()
    )
    errors, *works = without_pandas
    assert len(errors) == 3
    assert all("need pandas" in error and "pip install pandas" in error for error in errors)
    assert works == ["compile", "status"]
    (show, graph, load, plot), regions, saved, text = without_notebook
    assert "pip install IPython ipywidgets anywidget" in show
    assert "pip install graphviz" in graph
    assert "pip install IPython" in load
    assert "ex.plot needs a package that is not installed: matplotlib. Install it: pip install matplotlib" in plot
    assert (regions, saved, bool(text)) == (["r"], "page.html", True)
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")


# --------------------------------------------------------------------------------------------------------------- names


def test_every_public_name_exists_and_no_other() -> None:
    assert {name for name in regional_explorer.__all__ if not hasattr(regional_explorer, name)} == set()
    assert set(regional_explorer.__all__) <= set(dir(regional_explorer))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = regional_explorer.nonsense  # type: ignore[attr-defined]  # that is the point


ENTRY_POINTS = ("main", "load_ipython_extension", "unload_ipython_extension")
"""Functions whose name is prescribed by what calls them."""


def test_public_names_of_classes_and_functions_are_unique() -> None:
    trees = [tree_of(path) for path in PACKAGE.rglob("*.py")]
    classes = [node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    functions = [node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    twins = [name for name, times in (Counter(classes) + Counter(functions)).items() if times > 1]
    assert [name for name in twins if not name.startswith("_") and name not in ENTRY_POINTS] == []


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the dotted names of the code, and strings that may be one; prose is free."""
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
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "torch_api"
        for line, name in names_in(tree_of(path))
        if PRIVATE_TORCH.fullmatch(name)
    }
    assert strays == set()


def test_private_torch_names_are_found_however_they_are_written() -> None:
    found = [
        [name for _, name in names_in(ast.parse(code)) if PRIVATE_TORCH.fullmatch(name)]
        for code in (
            "import torch._dynamo.config",
            "from torch import _guards",
            "from torch._inductor import config",
            "torch._inductor.config.patch({})",
            "import_module('torch._functorch.config')",
            "from torch.utils._python_dispatch import TorchDispatchMode",
            "from torch.multiprocessing.reductions import StorageWeakRef",
            "torch._C._current_graph_task_id()",
            "getattr(tensor, '_backward_hooks')",
            "torch.ops.aten._unsafe_view.default",
            "raise KeyError('torch._inductor.config has no such key'); torch.compile(f)",
        )
    ]
    assert list(map(bool, found)) == [True] * 9 + [False] * 2


# ------------------------------------------------------------------------------------------------ documents, makefile


_OF_TESTS = re.compile(r"^(?:from|import) (?:benchmarks\b|tests\.[\w.]*\btest_\w+).*$", re.MULTILINE)


def test_tests_import_no_tests_and_no_benchmarks() -> None:
    """What tests share stands in ``tests/shared`` or beside them; the campaign's programs stand with it."""
    imports = [
        (path.name, line)
        for path in (ROOT / "tests").rglob("*.py")
        for line in _OF_TESTS.findall(path.read_text(encoding="utf-8"))
        if path.name != "test_benchmarks.py" and path.stem not in line and "benchmarks.campaign.program" not in line
    ]
    assert imports == []


def test_every_package_has_its_paragraph() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\*\*`((?:\w+/)+)`\*\*", page))
    packages = {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.rglob("__init__.py")} - {"./"}
    assert packages == named


def test_packages_are_listed_from_the_lowest_layer_up() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\*\*`(\w+)(?:/|\.py)`\*\*", page, re.MULTILINE)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = [layer.split(" | ") for layer in reversed(contracts[0]["layers"])]
    rank = {package: number for number, layer in enumerate(layers) for package in layer}
    assert listed == sorted(listed, key=rank.__getitem__)
    assert set(listed) == set(rank)


def test_a_package_has_the_files_that_its_paragraph_names() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, *paragraphs = re.split(r"\*\*`((?:\w+/)+)`\*\*", page.partition("\n### ")[0])
    named = [
        f"{package}{name}"
        for package, text in zip(paragraphs[::2], paragraphs[1::2], strict=True)
        for name in re.findall(r"`(\w+\.(?:py|js))`", text)
    ]
    assert named
    assert [name for name in named if not (PACKAGE / name).exists()] == []


def test_files_that_find_diagnostics_are_listed() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("\n### Where a diagnostic is found\n")[2].partition("\n## ")[0]
    finding = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if ".finding(" in path.read_text(encoding="utf-8")
    }
    assert set(re.findall(r"`(\w+/\w+\.py)`", table)) == finding


def test_titles_of_findings_are_clauses() -> None:
    """A title takes no full stop: what follows it has one."""
    calls = (node for path in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    titles = [
        ast.unparse(node.args[0])
        for node in calls
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "finding"
    ]
    assert titles
    assert [title for title in titles if title.strip("\"'").endswith(".")] == []


def test_threads_that_the_architecture_names_are_started() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    code = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    named = set(re.findall(r"`(regional-explorer-[a-z]+)", page))
    started = set(re.findall(r"\"(regional-explorer-[a-z]+)[-\"]", code))
    assert named == started


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a Markdown text with their numbers, tables and code aside."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("|"):
            yield number, line


def test_lines_of_documents_are_at_most_120_characters_long() -> None:
    """Exceptions are lines that cannot be broken: an image, or a literal message of torch."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    unbroken = re.compile(r"!\[[^]]*\]\([^)]*\)|`[^`]*`\.?")
    long = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in pages
        for number, line in prose_lines(page.read_text(encoding="utf-8"))
        if len(line) > 120 and not unbroken.fullmatch(line)
    ]
    assert pages
    assert long == []


def names_of(file: Path) -> set[str]:
    """Return the functions, classes and constants of a file, methods with their class."""
    found: set[str] = set()

    def add(body: Sequence[ast.stmt], within: str) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(f"{within}{node.name}")
                add(node.body, f"{within}{node.name}.")
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(f"{within}{ast.unparse(target)}" for target in targets)

    add(ast.parse(file.read_text(encoding="utf-8")).body, "")
    return found


@pytest.mark.parametrize(
    "page",
    ["CONTRIBUTING.md", "docs/architecture.md", "docs/a-cell-followed.md", "docs/numerics.md", "docs/upstream.md"],
)
def test_files_and_names_that_a_page_gives_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    given = re.findall(r"\(`(\w+/\w+\.py)`(?:,\s+`([\w.]+)`)?\)", text)
    given += [(file, name) for name, file in re.findall(r"`(\w+)`\s+in\s+`(\w+/\w+\.py)`", text)]
    rooms = "|".join(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    files = re.findall(rf"`((?:{rooms})/\w+\.py)`", text)
    modules = [f"{name.replace('.', '/')}.py" for name in re.findall(rf"`((?:{rooms})\.(?!(?:py|js)`)[a-z_]+)", text)]
    assert [file for file in (*files, *modules) if not (PACKAGE / file).exists()] == []
    others = re.findall(r"`((?:regional_explorer|tests|docs)/[\w./-]+\.\w+)`", text)
    assert [file for file in others if not (ROOT / file).exists()] == []
    assert [(file, name) for file, name in given if name and name not in names_of(PACKAGE / file)] == []
    assert files or modules or others


def test_a_cell_followed_has_ten_stops_with_a_function_each() -> None:
    text = (ROOT / "docs" / "a-cell-followed.md").read_text(encoding="utf-8")
    stops = re.findall(r"^## \d+\. .+\n\n\(`\w+/\w+\.py`, `[\w.]+`\)$", text, re.MULTILINE)
    assert len(stops) == text.count("\n## ") == 10


def test_code_and_statements_are_counted() -> None:
    text = '"""Doc."""\n\n# comment\nx = (\n    1,\n)\n\n\ndef f():\n    """Doc."""\n    return x\n'
    assert (count.lines_of_code(text), count.statements(text)) == (5, 5)


def test_every_diagnostic_code_has_its_section() -> None:
    page = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")
    codes = [*map(str, DiagnosticCode), *map(str, RefusalCode)]
    assert re.findall(r"^## ([a-z-]+)$", page, re.MULTILINE) == codes


def test_the_readme_shows_both_commands_and_how_long_they_take() -> None:
    """Start lists each with its purpose and its time; the Makefile has them."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    start = page.partition("\n## Start\n")[2].partition("\n## ")[0]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("make demo", "make test"):
        line = re.search(rf"^{command} +# (?P<what>.+)$", start, re.MULTILINE)
        assert line, f"README.md, Start: no line for {command}"
        assert re.search(r"\d+ minutes", line["what"]), f"how long does {command} take?"
        assert re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE)


COMMANDS = re.compile(
    r"`make (?P<target>[a-z-]+)|^make (?P<line>[a-z-]+)(?= +#)|ROWS=(?P<row>[a-z0-9-]+)"
    r"|(?:^|`)regional-explorer (?P<command>[a-z]+)",
    re.MULTILINE,
)


def test_commands_that_documents_name_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    matches = [match for page in pages for match in COMMANDS.finditer(page.read_text(encoding="utf-8"))]
    named = {kind: {match[kind] for match in matches if match[kind]} for kind in COMMANDS.groupindex}
    defined = {
        kind: set(re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE))
        for kind, file, pattern in (
            ("target", "Makefile", r"^([a-z-]+):"),
            ("line", "Makefile", r"^([a-z-]+):"),
            ("row", "benchmarks/__main__.py", r'^    "([a-z0-9-]+)": '),
            ("command", "regional_explorer/command/cli.py", r'"([a-z]+)",'),
        )
    }
    assert all(named.values())
    assert [kind for kind, names in named.items() if names - defined[kind]] == []


def commands(*settings: str) -> str:
    """Return the commands that ``make test-fast`` would run."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VENV", "MAKEFLAGS", "MFLAGS")}
    command = ["make", "--dry-run", f"PYTHON={sys.executable}", *settings, "test-fast"]
    return subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Return an environment older than ``pyproject.toml``, with the stamp that an earlier ``make`` has left there."""
    (tmp_path / "bin").mkdir()
    for path in (tmp_path / "bin" / "python", tmp_path / ".stamp"):
        path.touch()
        os.utime(path, (0, 0))
    return tmp_path


def test_foreign_environment_is_not_updated(venv: Path) -> None:
    planned = commands(f"VENV={venv}")
    assert f"{venv}/bin/python -m pytest" in planned
    assert "install.sh" not in planned
    assert f"scripts/install.sh {venv}/new" in commands(f"VENV={venv}/new"), "one that does not exist is made"
    (venv / "install.log").touch()
    assert f"scripts/install.sh {venv}" in commands(f"VENV={venv}")
