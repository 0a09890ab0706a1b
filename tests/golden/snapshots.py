"""The types of snapshots in text files, by ending."""

from __future__ import annotations

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode


def snapshot_file(ending: str) -> type[SingleFileSnapshotExtension]:
    """Return the type of a snapshot in a text file with this ending."""
    return type(ending, (SingleFileSnapshotExtension,), {"_write_mode": WriteMode.TEXT, "file_extension": ending})


SNAPSHOT_FILES = {ending: snapshot_file(ending) for ending in ("txt", "html", "svg", "dot", "csv")}
