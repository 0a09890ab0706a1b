"""Run notebooks, each in a kernel of its own, save them as HTML, and print the tables of the quickstart.

The notebooks that were run go to ``build/``; the committed notebooks change only with ``--write``.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert.exporters.html import HTMLExporter
from nbconvert.filters.ansi import strip_ansi
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "notebooks" / "quickstart.ipynb"
CELL_TIMEOUT_S = 900
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

# nbconvert's own page, without the scripts it would load from other hosts.
OFFLINE_PAGE = """
{%- extends 'index.html.j2' -%}
{%- block html_head_js_requirejs -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
"""


class ThisPython(KernelSpecManager):
    """Knows one kernel: the Python that runs this script, whatever kernels are registered elsewhere."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002 - every name means this Python
        """Return the only kernel."""
        argv = [sys.executable, "-m", "ipykernel_launcher", "--log-level=ERROR", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python", language="python")


def print_tables(session: Any) -> None:
    """Print a session's regions, timings and diagnostics; runs in the kernel of the notebook."""
    from regional_explorer.page.report import diagnostics_text
    from regional_explorer.tables.benchmark import timings_table
    from regional_explorer.tables.regions import regions_alone_table, regions_table

    for table in (regions_table, timings_table, regions_alone_table):
        print(table(session).text(), end="\n\n")
    print(diagnostics_text(session), end="\n\n")


PRINT_TABLES = f"from typing import Any\n{inspect.getsource(print_tables)}\nprint_tables(ex.session)\nprint(found)"
"""Code that prints the tables of the quickstart's exploration ``ex``, and what its search found."""


def first_line(source: str) -> str:
    """Return the first line of a cell with content, for the progress line."""
    lines = [line.strip() for line in source.splitlines()]
    return next((line for line in lines if line and not line.startswith("#")), "")[:80]


def say(text: str) -> None:
    """Print now, even into a pipe."""
    print(text, flush=True)


def run(notebook: NotebookNode, folder: Path, after: str = "") -> str:
    """Run every cell of ``notebook`` in place, printing its first line; return what the code ``after`` them prints."""
    manager = AsyncKernelManager(kernel_spec_manager=ThisPython(), kernel_name="python3")
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=CELL_TIMEOUT_S,
        startup_timeout=120,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )
    cells = [(index, cell) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source]
    with client.setup_kernel(cleanup_kc=True):  # the kernel would outlive a manager that is passed in
        for number, (index, cell) in enumerate(cells, start=1):
            say(f"[{number}/{len(cells)}] {first_line(cell.source)}")
            began = time.perf_counter()
            client.execute_cell(cell, index)
            say(f"        {time.perf_counter() - began:.1f} s")
        last = nbformat.v4.new_code_cell(after)
        notebook.cells.append(last)  # for a moment: a client runs only the cells of its notebook
        try:
            client.execute_cell(last, len(notebook.cells) - 1)
        finally:
            notebook.cells.remove(last)
    return "".join(output.text for output in last.get("outputs", ()) if output.get("name") == "stdout")


def without_widgets(notebook: NotebookNode) -> NotebookNode:
    """Return a copy in which widgets, dead without a kernel, are left out; their static twins stay."""
    copy: NotebookNode = nbformat.from_dict(notebook)
    for cell in copy.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not is_bare_widget(output)]
            for output in cell.outputs:
                output.get("data", {}).pop(WIDGET_VIEW, None)
    return copy


def without_machine_paths(text: str) -> str:
    """Return a notebook's text without the temporary folder that cells lie in, and without the path of this clone."""
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/ipykernel_\d+/", "", text)
    return text.replace(f"{ROOT}/", "")


def is_bare_widget(output: NotebookNode) -> bool:
    """Return whether an output is a widget and nothing else worth showing."""
    data: dict[str, Any] = output.get("data", {})
    return WIDGET_VIEW in data and not {"text/html", "image/svg+xml", "image/png"} & data.keys()


def save(notebook: NotebookNode, name: str, build: Path) -> Path:
    """Write the notebook that was run, and its HTML, which loads nothing from the network."""
    build.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, build / f"{name}.ipynb")
    exporter = HTMLExporter(
        extra_loaders=[jinja2.DictLoader({"offline.html.j2": OFFLINE_PAGE})],
        template_name="lab",
        template_file="offline.html.j2",
        embed_images=True,
    )
    text, _ = exporter.from_notebook_node(without_widgets(notebook), {"metadata": {"name": name}})
    page = build / f"{name}.html"
    page.write_text(text, encoding="utf-8")
    return page


def run_and_save(path: Path, build: Path, *, write: bool) -> bool:
    """Run one notebook and save it; return whether all cells ran."""
    notebook = nbformat.read(path, as_version=4)
    say(f"Running {path.name}; the first compile takes a while.")
    failure, tables = "", ""
    try:
        tables = run(notebook, path.parent, PRINT_TABLES if path == QUICKSTART else "")
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        failure = str(error) if sys.stdout.isatty() else strip_ansi(str(error))
    page = save(notebook, path.stem, build)
    if failure:
        say(f"\n{failure}\nA cell failed; what ran until then is in {page}.")
        return False
    if write:
        path.write_text(without_machine_paths(nbformat.writes(without_widgets(notebook))) + "\n", encoding="utf-8")
    say(f"\n{tables}\nThe whole notebook, with its drawings: {page}")
    if tables:
        say("What the tables mean: docs/start.md, under 'Read the result'. To go on from here: make lab")
    return True


def main() -> int:
    """Run the notebooks; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("notebooks", nargs="*", type=Path, default=[QUICKSTART], help="the quickstart by default")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="where to write; build/ by default")
    parser.add_argument("--write", action="store_true", help="put the results into the notebooks themselves, too")
    options = parser.parse_args()
    paths = [path.resolve() for path in options.notebooks]
    for path in paths:
        if not path.is_file():
            say(f"There is no notebook {path}.")
            return 2
    ran = [run_and_save(path, options.build, write=options.write) for path in paths]
    return 0 if all(ran) else 1


if __name__ == "__main__":
    sys.exit(main())
