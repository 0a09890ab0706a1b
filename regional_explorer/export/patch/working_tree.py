"""Writes patched files, only where git has their previous content committed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from regional_explorer.errors import SourcePatchError
from regional_explorer.export.files import write_bytes


def root_of(path: Path) -> Path | None:
    """Return the root of the git working tree that contains ``path``, or None."""
    return next((folder for folder in path.parents if (folder / ".git").exists()), None)


def require_clean(path: Path) -> None:
    """Raise SourcePatchError unless git tracks ``path`` and it has no uncommitted changes."""
    if _git_output(path, "ls-files", "--error-unmatch", "--", path.name) is None:
        raise SourcePatchError(
            f"{path} is not under version control, so it is left alone; nothing was written. Take the diff that "
            "ex.to_source() returns and apply it by hand, or `git add` and commit the file first."
        )
    if changed := _git_output(path, "status", "--porcelain", "--", path.name):
        raise SourcePatchError(
            f"{path} has changes that are not committed ({changed.strip()}), so it is left alone; nothing was written. "
            "Commit or stash them first."
        )


def _git_output(path: Path, *arguments: str) -> str | None:
    """Return the output of git in the folder of ``path``; None if git fails or is not installed."""
    try:
        process = subprocess.run(  # noqa: S603 - fixed arguments, and a path that is not an option
            ["git", "-C", str(path.parent), *arguments],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return process.stdout if process.returncode == 0 else None


def write_all(texts: Mapping[Path, tuple[bytes, bytes]]) -> None:
    """Write each file, given its content before and after; if one cannot be written, restore all of them.

    Raises:
        SourcePatchError: a file is not tracked by git, is not clean, or cannot be written.
    """
    for path, (before, _) in texts.items():
        require_clean(path)
        if path.read_bytes() != before:
            raise SourcePatchError(f"{path} has changed meanwhile; nothing was written. Call ex.to_source again.")
    written: list[Path] = []
    try:
        for path, (_, after) in texts.items():
            write_bytes(path, after, SourcePatchError)
            written.append(path)
    except BaseException:
        for path in written:
            write_bytes(path, texts[path][0], SourcePatchError)
        raise
