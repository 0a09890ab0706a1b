"""Makes golden sessions again: ``python -m tests.golden.make [NAME …]``, under the torch that the project pins.

A session is a measurement on the machine that made it, with neutral paths. Make one only when its program or the format
of files changes, and read the changes of the snapshots.
"""

from __future__ import annotations

import linecache
import sys
import types
from pathlib import Path

import torch

from regional_explorer.record.files import dump_session

HERE = Path(__file__).parent
SESSIONS = HERE / "sessions"
NEUTRAL = "/home/someone/model.py"


def programs() -> types.ModuleType:
    """Return the module of the programs, loaded as if from a file of a user."""
    text = (HERE / "programs.py").read_text(encoding="utf-8")
    linecache.cache[NEUTRAL] = (len(text), None, text.splitlines(keepends=True), NEUTRAL)
    module = types.ModuleType("model")
    module.__file__ = NEUTRAL
    sys.modules["model"] = module
    exec(compile(text, NEUTRAL, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - our own file, under another name
    return module


def make_session(name: str) -> None:
    torch.manual_seed(0)
    text = dump_session(programs().PROGRAMS[name]())
    for folder, neutral in ((sys.prefix, "/home/someone/venv"), (str(HERE.parents[1]), "/home/someone/project")):
        text = text.replace(folder, neutral)
    SESSIONS.mkdir(exist_ok=True)
    (SESSIONS / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or programs().PROGRAMS:
        make_session(chosen)
