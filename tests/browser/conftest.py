"""Fixtures for tests in a real JupyterLab and Notebook 7, driven in a real Chromium.

One page of each is open, with one kernel, for all tests: each replaces the notebook by cells of its own, in an emptied
kernel. A test that ends its kernel or closes its page has both for itself.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from regional_explorer.ui.widget import SessionView
from tests.browser.lab import Lab, Notebook7
from tests.browser.server import LabServer
from tests.shared.lone_view import CHROMIUM, in_page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The project needs no network, and requests to other hosts fail.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# A busy machine may be slow: a test fails by what the page says, or because the page says nothing for this long.
expect.set_options(timeout=60_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs tests in another order."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run tests in a random order, the same for each seed")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark every test of this folder as a browser test, before tests are selected by marks; shuffle what is left."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
    yield
    if (seed := config.getoption("--shuffle")) is not None:
        random.Random(seed).shuffle(items)  # noqa: S311 - an order, not a secret


def find_chromium() -> str | None:
    """Return the executable named by $CHROMIUM, else the first Chromium on the PATH."""
    named = os.environ.get("CHROMIUM")
    return next(filter(None, map(shutil.which, (named,) if named else CHROMIUM)), None)


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


@pytest.fixture(scope="session")
def jupyterlab(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    with lab_page(browser, lab_server) as lab:
        lab.write_notebook("lab.ipynb", ["pass"])
        lab.open_and_run("lab.ipynb")
        yield lab


@pytest.fixture(scope="session")
def notebook7(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    with lab_page(browser, lab_server, Notebook7) as lab:
        lab.write_notebook("notebook7.ipynb", ["pass"])
        lab.open_notebook("notebook7.ipynb")
        yield lab


@pytest.fixture(params=["jupyterlab", "notebook7"])
def host(request: pytest.FixtureRequest) -> Lab:
    """JupyterLab, then Notebook 7."""
    found: Lab = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def open_view(browser: Browser) -> Iterator[Callable[[SessionView], Page]]:
    """A function that opens a page with only one view, as a notebook would show it."""
    with ExitStack() as pages:
        yield lambda view: pages.enter_context(in_page(view, browser.new_page))


@contextmanager
def lab_page(browser: Browser, server: LabServer, kind: type[Lab] = Lab, *, height: int = 900) -> Iterator[Lab]:
    """Context manager: a new page, whose kernels are ended afterwards."""
    context = browser.new_context(viewport={"width": 1280, "height": height})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = kind(context.new_page(), server)
    try:
        page.start()
        yield page
    finally:
        context.close()
        server.end_sessions(page.paths)
