"""The ledger: one line of JSON for each try, appended under a lock, that a later search goes on from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from regional_explorer.errors import InvalidArgumentError, shown_value
from regional_explorer.record import Record, Seconds
from regional_explorer.record.figure import Figure
from regional_explorer.record.tuning import Outcome
from regional_explorer.torch_api.inductor import inductor_cache_directory

try:
    import fcntl
except ImportError:  # Windows: appends of one short line are rarely torn there, and a torn line is left out
    fcntl = None  # type: ignore[assignment]

FORMAT = 2


class LedgerEntry(Record, frozen=True):
    """The speed of one try, or that its code is another's.

    ``key`` identifies the tried plan by its graphs, layouts, configs, settings and machine, never by names of nodes.
    The timings were taken on that machine. Whether results are right depends on values, and a failure may pass: neither
    is in the key, so neither is kept.
    """

    key: str
    title: str
    outcome: Outcome
    code: str = ""
    over_full: Figure | None = None
    compile_s: Seconds | None = None
    format: int = FORMAT


class Ledger:
    """A file of entries, which several processes may append to; the last entry of a key holds.

    ``problem`` says why the file could not be written, if so; the search goes on without it.
    """

    def __init__(self, path: str | Path) -> None:
        """Use the file at ``path``, which need not exist yet.

        Raises:
            InvalidArgumentError: ``path`` is not a path, or the file cannot be read.
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
            with _locked_file(self.path) as file:
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
def _locked_file(path: Path) -> Iterator[BinaryIO]:
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
