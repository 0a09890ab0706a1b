"""Fixtures for tests in a real JupyterLab and Notebook 7, driven in a real Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.page import in_page
from regional_explorer.ui.widget import SessionView
from tests.browser.lab import Lab, Notebook7
from tests.browser.server import LabServer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Nothing of ours needs the network: what asks for another host gets none.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder as a browser test."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


def find_chromium() -> str | None:
    """Return the executable named by $CHROMIUM, or else the first one on the PATH."""
    named = os.environ.get("CHROMIUM")
    return next(filter(None, map(shutil.which, (named,) if named else NAMES)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = find_chromium()
    if executable is None:
        advice = "no Chromium found: install one, or point CHROMIUM at it (scripts/require_chromium.sh helps)"
        if os.environ.get("CI"):
            pytest.fail(advice)
        pytest.skip(advice)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """One JupyterLab for all tests; its folder holds copies of the project's notebooks."""
    home = tmp_path_factory.mktemp("lab")
    server = LabServer(home, package_root=ROOT)
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        shutil.copy(notebook, server.folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def lab(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    """A fresh page of JupyterLab; its kernels are ended after the test."""
    with a_page(browser, lab_server) as lab:
        yield lab


@pytest.fixture(params=[Lab, Notebook7], ids=["JupyterLab", "Notebook 7"])
def host(request: pytest.FixtureRequest, browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    """A fresh page of JupyterLab, then one of Notebook 7."""
    with a_page(browser, lab_server, request.param) as host:
        yield host


@pytest.fixture
def alone(browser: Browser) -> Iterator[Callable[[SessionView], Page]]:
    """Give a function that opens a page with one view and nothing else, as a notebook would show it."""
    with ExitStack() as pages:
        yield lambda view: pages.enter_context(in_page(view, browser.new_page))


@contextmanager
def a_page(
    browser: Browser, server: LabServer, kind: type[Lab] = Lab, *, width: int = 1280, height: int = 900
) -> Iterator[Lab]:
    """A fresh page of that size; its kernels are ended afterwards."""
    context = browser.new_context(viewport={"width": width, "height": height})
    try:
        page = kind(context.new_page(), server, screenshots=ROOT / "build" / "screenshots")
        page.start()
        yield page
    finally:
        context.close()
        server.end_sessions()
