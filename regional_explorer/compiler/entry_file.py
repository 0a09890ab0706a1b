"""Files of entries beside Inductor's cache: a line of JSON each, appended under a lock, that later processes read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar

import msgspec

from regional_explorer.errors import InvalidArgumentError, shown_value
from regional_explorer.torch_api.inductor import inductor_cache_directory

try:
    import fcntl
except ImportError:  # Windows: appends of one short line are rarely torn there, and a torn line is left out
    fcntl = None  # type: ignore[assignment]


class _Entry(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def format(self) -> int: ...


E = TypeVar("E", bound=_Entry)


class EntryFile(Generic[E]):
    """A file of entries of one type, which several processes may append to; the last entry of a key holds.

    ``problem`` says why the file could not be written, if so. Lines of another format are left out.
    """

    def __init__(self, path: Path, entry: type[E], form: int) -> None:
        """Use the file at ``path``, which need not exist yet.

        Raises:
            InvalidArgumentError: the file cannot be read.
        """
        self.path = path
        self.problem = ""
        try:
            lines = path.read_bytes().splitlines() if path.exists() else []
        except OSError as problem:
            raise InvalidArgumentError(
                f"{shown_value(str(path))}: it cannot be read: {problem.strerror or problem}. Give another path."
            ) from problem
        decoded = (_decoded(line, entry) for line in lines)
        self.entries = {one.key: one for one in decoded if one is not None and one.format == form}

    def add(self, entry: E) -> None:
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
            self.problem = f"{self.path} cannot be written: {problem.strerror or problem}"


def path_beside_cache(name: str) -> Path:
    """Return the path of a file of this package beside Inductor's cache."""
    return Path(inductor_cache_directory(), "regional_explorer", name)


def _decoded(line: bytes, entry: type[E]) -> E | None:
    """Return the entry of a line; None if the line is torn or foreign."""
    try:
        return msgspec.json.decode(line, type=entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


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
