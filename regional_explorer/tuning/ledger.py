"""The ledger of tries on disk, one line of JSON each, so that no search repeats a finished try."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from regional_explorer.errors import InvalidArgumentError, shown_value
from regional_explorer.record.figure import Figure
from regional_explorer.record.record import Record, Seconds
from regional_explorer.record.tuning import Outcome
from regional_explorer.torch_api.inductor import inductor_cache_directory

try:
    import fcntl
except ImportError:  # Windows: appending one short line is whole there as a rule, and a torn one is left out
    fcntl = None  # type: ignore[assignment]

FORMAT = 1


class LedgerEntry(Record, frozen=True):
    """The result of one try.

    ``key`` identifies what was tried: the graphs with their layouts, configs, settings and the machine, never names of
    nodes. Timings are those of the machine that is a part of it.
    """

    key: str
    title: str
    outcome: Outcome
    why: str = ""
    code: str = ""
    over_full: Figure | None = None
    compile_s: Seconds | None = None
    bitwise: bool = False
    format: int = FORMAT


class Ledger:
    """A file of entries, which several processes may append to; the last entry of a key holds.

    ``problem`` says why it could not be written, if so: a search goes on without it.
    """

    def __init__(self, path: str | Path) -> None:
        """Take the file at ``path``, which need not exist yet.

        Raises:
            InvalidArgumentError: that is no path, or the file cannot be read.
        """
        if not isinstance(path, (str, Path)) or not str(path):
            raise InvalidArgumentError(f"ledger={shown_value(path)}: give the path of a file.")
        self.path = Path(path)
        self.problem = ""
        try:
            lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        except OSError as problem:
            raise InvalidArgumentError(
                f"ledger={shown_value(path)}: it cannot be read: {problem.strerror or problem}. Give another path."
            ) from problem
        self.entries = {entry.key: entry for line in lines if (entry := _entry(line)) is not None}

    def add(self, entry: LedgerEntry) -> None:
        """Append an entry; it is on disk when this returns."""
        self.entries[entry.key] = entry
        line = msgspec.json.encode(entry) + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path) as file:
                # A process that was killed may have left the beginning of a line.
                file.write(line if _ends_a_line(file) else b"\n" + line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            self.problem = f"the ledger {self.path} cannot be written: {problem.strerror or problem}"


def default_path() -> Path:
    """Return the path of the ledger, beside Inductor's cache, which has the compiled code of its tries."""
    return Path(inductor_cache_directory(), "regional_explorer", "tries.jsonl")


def _entry(line: bytes) -> LedgerEntry | None:
    """Return the entry of a line; None if the line is torn or of another format."""
    try:
        entry = msgspec.json.decode(line, type=LedgerEntry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return entry if entry.format == FORMAT else None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """Context manager: open a file to append to, while no other process appends."""
    with path.open("ab+") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)  # freed with the file, and if the process is killed
        yield file


def _ends_a_line(file: BinaryIO) -> bool:
    if not file.seek(0, os.SEEK_END):
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"
