"""Writes a file atomically: a failed write leaves the file as it was, and nothing beside it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path, permissions: int) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of ``path`` when the block ends; if it raises, the old one stays.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, name = tempfile.mkstemp(prefix=".regional-explorer-", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        temporary.chmod(permissions)
        temporary.replace(path)
    except BaseException:  # an interrupt too leaves no half-written file behind
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
