"""Writes a file atomically: a failed write leaves the file as it was, and nothing beside it."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

NEW_FILE = 0o666
"""The permissions of a new file, from which the system takes those of the umask."""


@contextlib.contextmanager
def replacing(path: Path, permissions: int | None = None) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of ``path`` when the block ends; if it raises, the old one stays.

    Without ``permissions`` it gets those of the file that it replaces, or the usual ones of a new file.

    Raises:
        OSError: it cannot be written.
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
