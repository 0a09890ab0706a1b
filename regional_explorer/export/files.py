"""Writes files atomically: a failed write leaves the file as it was."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from regional_explorer.errors import RegionalExplorerError
from regional_explorer.errors.arguments import shown_value
from regional_explorer.render.style.untrusted import sendable


def file_path(path: object, error: type[RegionalExplorerError]) -> Path:
    """Return ``path`` as a Path, or raise ``error`` where it is none."""
    if not isinstance(path, (str, Path)) or not str(path):
        raise error(f"Give the path of a file, such as 'x.json'; got {shown_value(path)}.")
    return Path(path)


def write_file(target: Path, text: str, error: type[RegionalExplorerError]) -> None:
    """Write ``text`` to ``target``: what was there stays until all of the new text is on the disk.

    Raises:
        RegionalExplorerError: of the class ``error``, where the file cannot be written.
    """
    content = sendable(text).encode()
    place = writable(target, error)
    try:
        if place.exists() and not place.is_file():
            place.write_bytes(content)  # a device or a pipe is written to, never replaced
        else:
            _replace(place, content)
    except OSError as problem:
        raise error(f"Cannot write {target}: {problem.strerror or problem}.") from problem


def writable(target: Path, error: type[RegionalExplorerError]) -> Path:
    """Return where ``target`` will be written, or raise ``error`` where that is no place for a file.

    A link stays one, and what it points at is replaced.
    """
    try:
        place = Path(os.path.realpath(target))
        if place.is_dir():
            raise error(f"Cannot write {target}: it is a directory. Give the name of a file in it.")
        if not place.parent.is_dir():
            raise error(f"Cannot write {target}: there is no directory {place.parent}. Make it first.")
    except (OSError, ValueError) as problem:  # a ValueError: no file can have such a name
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"Cannot write {sendable(str(target))!r}: {reason}.") from problem
    return place


def _replace(place: Path, content: bytes) -> None:
    number, name = tempfile.mkstemp(prefix=".regional-explorer-", dir=place.parent)
    beside = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(number)
        beside.chmod(_mode(place))
        beside.replace(place)
    except BaseException:  # an interrupt too leaves no half-written file behind
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def _mode(place: Path) -> int:
    """Return the permissions of the file that is replaced, or those that a new one gets."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_IMODE(place.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
