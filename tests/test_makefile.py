"""Which environment ``make`` builds and which it only uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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


def test_nothing_is_installed_into_an_environment_that_was_not_made_here(venv: Path) -> None:
    planned = commands(f"VENV={venv}")
    assert f"{venv}/bin/python -m pytest" in planned
    assert "install.sh" not in planned


def test_what_was_made_here_is_brought_up_to_date(venv: Path) -> None:
    (venv / "install.log").touch()
    assert f"scripts/install.sh {venv}" in commands(f"VENV={venv}")
    assert f"scripts/install.sh {venv}/new" in commands(f"VENV={venv}/new"), "one that does not exist is made"
