"""Writes files completely or not at all, and never over a file by accident."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from regional_explorer.errors import RegionalExplorerError, sendable, shown_value

NEW_FILE = 0o666
"""The permissions of a new file, before the umask."""


@contextlib.contextmanager
def replacing_file(path: Path, permissions: int | None = None) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` when the block ends; if the block raises, the old file stays.

    Without ``permissions`` the new file has those of the old one, or the usual ones if there is no old file.

    Raises:
        OSError: the file cannot be written.
    """
    if permissions is None:
        with contextlib.suppress(FileNotFoundError):
            permissions = stat.S_IMODE(path.stat().st_mode)
    temporary = path.parent / f".regional-explorer-{secrets.token_hex(8)}.tmp"
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    descriptor = os.open(temporary, flags, NEW_FILE if permissions is None else permissions)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        if permissions is not None:
            temporary.chmod(permissions)
        temporary.replace(path)
    except BaseException:  # an interrupt too leaves no half-written file behind
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def file_path(path: object, error: type[RegionalExplorerError]) -> Path:
    """Return ``path`` as a Path; raise ``error`` if it is not a path."""
    if not isinstance(path, (str, Path)) or not str(path):
        raise error(f"Give the path of a file, such as 'x.json'; got {shown_value(path)}.")
    return Path(path)


def write_file(target: Path, text: str, error: type[RegionalExplorerError]) -> None:
    """Write ``text`` to ``target`` atomically: the old content stays until the new one is on disk.

    Raises:
        RegionalExplorerError: of class ``error``, if the file cannot be written.
    """
    write_bytes(target, sendable(text).encode(), error)


def write_bytes(target: Path, content: bytes, error: type[RegionalExplorerError]) -> None:
    """Write ``content`` to ``target`` as ``write_file`` does.

    Raises:
        RegionalExplorerError: of class ``error``, if the file cannot be written.
    """
    destination = writable_path(target, error)
    try:
        if destination.exists() and not destination.is_file():
            destination.write_bytes(content)  # a device or a pipe is written to, not replaced
        else:
            with replacing_file(destination) as file:
                file.write(content)
    except OSError as problem:
        raise error(f"Cannot write {target}: {problem.strerror or problem}.") from problem


def writable_path(target: Path, error: type[RegionalExplorerError]) -> Path:
    """Return the resolved path of ``target``, or raise ``error`` if no file can be written there.

    If it is a symbolic link, the file it points to is replaced.
    """
    try:
        destination = Path(os.path.realpath(target))
        if destination.is_dir():
            raise error(f"Cannot write {target}: it is a directory. Give the name of a file in it.")
        if not destination.parent.is_dir():
            raise error(f"Cannot write {target}: there is no directory {destination.parent}. Make it first.")
    except (OSError, ValueError) as problem:  # a ValueError: not a valid file name
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"Cannot write {sendable(str(target))!r}: {reason}.") from problem
    return destination
