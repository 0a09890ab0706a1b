"""A real shell with the magic, and the outputs of a notebook without a front end."""

from __future__ import annotations

import atexit
import importlib
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from regional_explorer.compiler import progress_line

Run = Callable[..., Any]
Output = pytest.CaptureFixture[str]

CALL = "%regional_compile --no-bench -r act=ops:aten.relu* -o ex f(x)"
MADE = "%regional_compile --no-bench f(x)"
ERASED = {"text/html": "<!-- progress was shown here -->"}
"""What an erased progress line leaves of its output."""

SETUP = """
import torch

def f(x, k=2):
    y = torch.sin(x) * k
    return torch.relu(y).sum()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.up(x))

    def half(self, x, *, by=2):
        return self.up(x) / by

def trains(x):
    loss = f(x)
    loss.backward()
    return loss

model, x, xs, key = Net(), torch.ones(8, 8), [torch.ones(8, 8)], "a"
"""


@pytest.fixture(scope="module")
def one_shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    config.BaseIPythonApplication.ipython_dir = str(tmp_path_factory.mktemp("ipython"))
    InteractiveShell.clear_instance()
    shell: Any = InteractiveShell.instance(config=config, ipython_dir=str(tmp_path_factory.mktemp("profile")))
    shell.run_cell("%load_ext regional_explorer")
    shell.run_cell(SETUP, store_history=True)
    yield shell
    # At exit it would empty its namespace, where Dynamo then looks in vain for what it put there.
    atexit.unregister(shell.atexit_operations)
    InteractiveShell.clear_instance()


@pytest.fixture
def shell(one_shell: Any) -> Iterator[Any]:
    """Yield a shell with the magic and some functions; names that a test binds are removed after it."""
    before = set(one_shell.user_ns)
    yield one_shell
    # Not reset(): it takes away what Dynamo put into the namespace and will look for there.
    for name in set(one_shell.user_ns) - before:
        if not name.startswith("__"):
            del one_shell.user_ns[name]


@pytest.fixture
def run(shell: Any) -> Run:
    """Return a function that runs a cell that has to work, and returns its value."""

    def run(cell: str) -> Any:
        done = shell.run_cell(cell, store_history=True)
        done.raise_error()
        return done.result

    return run


class Outputs:
    """Records the outputs below each cell, in place of a kernel and its front end."""

    def __init__(self, shell: Any) -> None:
        self.shown: list[dict[str, Any]] = []
        self.updates = 0
        self._by_id: dict[str, dict[str, Any]] = {}
        self.cell = "first"  # empty: the front end sends no ids
        self.run_number = 0
        self._notebook = uuid.uuid4().hex
        vars(shell)["kernel"] = SimpleNamespace(get_parent=self.parent)

    def parent(self) -> dict[str, Any]:
        cell_id = f"{self.cell} of {self._notebook}" if self.cell else ""
        return {"header": {"msg_id": f"run {self.run_number}"}, "metadata": {"cellId": cell_id}}

    def publish(
        self, data: dict[str, Any], metadata: Any = None, transient: Any = None, update: bool = False, **_: Any
    ) -> None:
        place = (transient or {}).get("display_id", "")
        if update:
            self.updates += 1
            self._by_id[place].clear()
            self._by_id[place].update(data)
            return
        self.shown.append(dict(data))
        self._by_id[place] = self.shown[-1]

    def wait_for_html(self, part: str) -> None:
        """Wait until the first output has ``part``: the static copy is drawn on another thread."""
        ends_s = time.monotonic() + 60
        while part not in self.static_copy:
            assert time.monotonic() < ends_s
            time.sleep(0.01)

    @property
    def static_copy(self) -> str:
        """The static copy of the first panel."""
        return str(self.shown[0].get("text/html", ""))


@pytest.fixture
def outputs(shell: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outputs]:
    """Yield the outputs of cells that begin after the first imports and end before a progress line is due."""
    importlib.import_module("regional_explorer.ui.display")
    outputs = Outputs(shell)
    monkeypatch.setattr(shell.display_pub, "publish", outputs.publish)
    monkeypatch.setattr(progress_line, "AFTER_S", 3600.0)
    yield outputs
    del vars(shell)["kernel"]
