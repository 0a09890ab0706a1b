"""A page of JupyterLab or Notebook 7, as tests use it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import ConsoleMessage, Dialog, Locator, Page, Request

from tests.browser.server import LabServer

# Tests use JupyterLab's own commands and models: clicking its menus would test JupyterLab.
OPEN = """
async ({path, kernel}) => {
    const app = window.jupyterapp;
    const factory = app.docRegistry.getWidgetFactory('notebook');
    const before = factory._preferKernel;
    factory._preferKernel = kernel;
    try {
        const panel = await app.commands.execute('docmanager:open', {path, factory: 'Notebook'});
        app.shell.activateById(panel.id);
        await panel.context.ready;
        await panel.revealed;
        await panel.context.sessionContext.ready;
        if (kernel) await panel.context.sessionContext.session.kernel.info;
    } finally {
        factory._preferKernel = before;
    }
}
"""
READY = """
async () => {
    const app = window.jupyterapp;
    await app.restored;
    while (!app.shell.currentWidget?.context) await new Promise((done) => setTimeout(done, 50));
    const {context, revealed} = app.shell.currentWidget;
    await context.ready;
    await revealed;
    await context.sessionContext.ready;
    await context.sessionContext.session.kernel.info;
}
"""
IDLE = """
() => {
    const panel = window.jupyterapp.shell.currentWidget;
    const kernel = panel.context.sessionContext.session?.kernel;
    const running = panel.content.widgets.some(cell => cell.model.executionState === 'running');
    return !window.pendingCommands && !running && !kernel?.hasPendingInput && kernel?.status === 'idle';
}
"""
REPLACE_CELLS = """
(cells) => {
    const notebook = window.jupyterapp.shell.currentWidget.content, model = notebook.model.sharedModel;
    model.deleteCellRange(0, model.cells.length);
    model.insertCells(0, cells.map((source) => ({cell_type: 'code', source})));
    notebook.activeCellIndex = 0;
}
"""
ADD = """
async (code) => {
    const {commands, shell} = window.jupyterapp;
    const notebook = shell.currentWidget.content;
    notebook.activeCellIndex = notebook.widgets.length - 1;
    await commands.execute('notebook:insert-cell-below');
    notebook.activeCell.model.sharedModel.setSource(code);
    return notebook.activeCellIndex;
}
"""
ERRORS = """
() => window.jupyterapp.shell.currentWidget.content.widgets
    .flatMap((cell) => cell.model.outputs?.toJSON() ?? [])
    .filter((output) => output.output_type === 'error').map(({ename, evalue}) => `${ename}: ${evalue}`)
"""
TYPES = "() => window.jupyterapp.shell.currentWidget.content.widgets.map((cell) => cell.model.type)"
RUN_CODE = """
async (code) => {
    const {kernel} = window.jupyterapp.shell.currentWidget.context.sessionContext.session;
    const future = kernel.requestExecute({code, store_history: false});
    let printed = '';
    future.onIOPub = ({content}) => { printed += content.text ?? ''; };
    const {content} = await future.done;
    if (content.status !== 'ok') throw new Error(`${content.ename}: ${content.evalue}`);
    return printed;
}
"""
EXECUTE = """
([command, options]) => {
    window.pendingCommands = (window.pendingCommands ?? 0) + 1;
    window.jupyterapp.commands.execute(command, options).finally(() => { window.pendingCommands -= 1; });
}
"""
EXECUTE_AND_WAIT = "async ([command, options]) => { await window.jupyterapp.commands.execute(command, options); }"
FORGET = "__import__('ipywidgets').Widget.close_all()\n%reset -f"
"""Closes the widgets of earlier tests, and drops their variables."""

PICTURES = Path(__file__).resolve().parents[2] / "build" / "screenshots"
SPLASH = "#jupyterlab-splash"
THEMES = {"dark": "JupyterLab Dark", "light": "JupyterLab Light"}


class Lab:
    """One page of JupyterLab; ``page`` is Playwright's, for everything else.

    ``errors`` has the errors that the page logs and the dialogs it opens, ``foreign_requests`` its requests to other
    hosts, ``paths`` the notebooks that were opened.
    """

    def __init__(self, page: Page, server: LabServer) -> None:
        self.page = page
        self.server = server
        self.errors: list[str] = []
        self.foreign_requests: list[str] = []
        self.paths: list[str] = []
        page.on("console", self._record_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", self._record_dialog)
        page.on("request", self._record_request)

    def start(self) -> None:
        """Load JupyterLab with an empty workspace."""
        self.page.goto(f"{self.server.url}/lab?reset")
        self.page.wait_for_function("() => window.jupyterapp !== undefined")
        # A promise that is awaited here may be lost to Chromium's garbage collector.
        self.page.evaluate("() => { window.jupyterapp.restored.then(() => { window.restored = true; }); }")
        self.page.wait_for_function("() => window.restored")
        self.page.wait_for_selector(SPLASH, state="detached")

    def write_notebook(self, path: str, cells: Sequence[str]) -> None:
        """Write a notebook of code cells, one per text, into the server's folder."""
        notebook = {
            "cells": [
                {"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None}
                for cell in cells
            ],
            # Without it JupyterLab opens a dialog and asks for a kernel.
            "metadata": {
                "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
            },
            "nbformat": 4,
            "nbformat_minor": 4,  # cells have ids from 5 on
        }
        (self.server.folder / path).write_text(json.dumps(notebook), encoding="utf-8")

    def open_notebook(self, path: str, *, kernel: bool = True) -> None:
        """Open a notebook, and start its kernel unless ``kernel`` is False."""
        self.paths.append(path)
        self.page.evaluate(OPEN, {"path": path, "kernel": kernel})

    def open_and_run(self, path: str, *, timeout_s: float = 300) -> None:
        """Open a notebook without the file browser beside it, and run all of its cells."""
        self.open_notebook(path)
        self.execute("application:toggle-left-area")
        self.run_all(timeout_s=timeout_s)

    @contextmanager
    def running(self, cells: Sequence[str], *, width: int = 1280, height: int = 900) -> Iterator[Lab]:
        """Context manager: replace the notebook by ``cells`` and run them in the emptied kernel.

        Theme, window and pointer are those of a new page. Assert at the end that the page logged no error and made no
        request to other hosts.
        """
        self.errors.clear()
        self.foreign_requests.clear()
        self.set_theme("light")
        self.set_viewport(width, height)
        self.page.mouse.move(0, 0)
        self.run_code(FORGET)
        self.page.evaluate(REPLACE_CELLS, cells)
        self.run_all()
        yield self
        assert self.errors == []
        assert self.foreign_requests == []

    def save(self) -> None:
        self.execute("docmanager:save")

    def run_all(self, *, timeout_s: float = 300) -> None:
        """Run all cells, wait until they are done, and assert that none failed."""
        self.execute("notebook:run-all-cells", wait=False)
        self.wait_idle(timeout_s=timeout_s)
        assert self.page.evaluate(ERRORS) == []

    def add_cell_and_run(self, code: str) -> int:
        """Append a cell, run it, and return its index once it is done."""
        index = self.add_cell_and_start(code)
        self.wait_idle()
        assert self.page.evaluate(ERRORS) == []
        return index

    def add_cell_and_start(self, code: str) -> int:
        """Append a cell, begin to run it, and return its index."""
        index: int = self.page.evaluate(ADD, code)
        self.execute("notebook:run-cell", wait=False)
        return index

    def run_code(self, code: str) -> str:
        """Run code in the kernel without a cell; return what it prints."""
        printed: str = self.page.evaluate(RUN_CODE, code)
        return printed.strip()

    def kernel_value(self, expression: str) -> str:
        """Return the value of an expression in the kernel, as it is printed."""
        return self.run_code(f"print({expression})")

    def wait_idle(self, *, timeout_s: float = 300) -> None:
        """Wait until the kernel stays idle, with no cell waiting."""
        calm = 0
        while calm < 3:
            self.page.wait_for_function(IDLE, timeout=timeout_s * 1000)
            self.page.wait_for_timeout(100)
            calm = calm + 1 if self.page.evaluate(IDLE) else 0

    def execute(self, command: str, options: dict[str, Any] | None = None, *, wait: bool = True) -> None:
        """Execute one of JupyterLab's commands."""
        self.page.evaluate(EXECUTE_AND_WAIT if wait else EXECUTE, [command, options or {}])

    def cell_types(self) -> list[str]:
        types: list[str] = self.page.evaluate(TYPES)
        return types

    def cell(self, index: int) -> Locator:
        return self.page.locator(f".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell[data-windowed-list-index='{index}']")

    def output(self, index: int) -> Locator:
        """Return the output of the cell at ``index``."""
        return self.cell(index).locator(".jp-Cell-outputArea")

    def set_theme(self, theme: Literal["dark", "light"]) -> None:
        """Change the theme and wait until the page has it."""
        has_theme = f"body[data-jp-theme-light='{'true' if theme == 'light' else 'false'}']"
        if self.page.locator(has_theme).count():
            return
        self.execute("apputils:change-theme", {"theme": THEMES[theme]})
        self.page.wait_for_selector(has_theme, state="attached")
        self.page.wait_for_selector(SPLASH, state="detached")

    def set_viewport(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})

    def screenshot(self, name: str) -> None:
        """Save a picture of the window for people to look at."""
        self.page.screenshot(path=PICTURES / f"{name}.png")

    def _record_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def _record_dialog(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload":
            dialog.accept()
        else:
            self.errors.append(dialog.message)
            dialog.dismiss()

    def _record_request(self, request: Request) -> None:
        own = (self.server.url, self.server.url.replace("http", "ws", 1), "data:", "blob:")
        if not request.url.startswith(own):
            self.foreign_requests.append(request.url)


class Notebook7(Lab):
    """One page of Notebook 7, which has the commands and models of JupyterLab and opens a notebook per page."""

    def start(self) -> None:
        """Do nothing: there is no page without a notebook."""

    def open_notebook(self, path: str, *, kernel: bool = True) -> None:
        assert kernel, "Notebook 7 always starts a kernel"
        self.paths.append(path)
        self.page.goto(f"{self.server.url}/notebooks/{path}")
        self.page.wait_for_function("() => window.jupyterapp !== undefined")
        self.page.evaluate(READY)
        self.errors.clear()  # Notebook 7 logs an error about a plugin without settings while it loads
