"""Writes files atomically: a failed write leaves the file as it was."""

from __future__ import annotations

import os
from pathlib import Path

from regional_explorer.errors import RegionalExplorerError
from regional_explorer.errors.arguments import shown_value
from regional_explorer.errors.texts import sendable
from regional_explorer.record.atomic_file import replacing


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
            with replacing(destination) as file:
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
