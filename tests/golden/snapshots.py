"""The types of snapshots in text files, by ending; programs as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import torch
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from regional_explorer.record.session import Session


def snapshot_file(ending: str) -> type[SingleFileSnapshotExtension]:
    """Return the type of a snapshot in a text file with this ending."""
    return type(ending, (SingleFileSnapshotExtension,), {"_write_mode": WriteMode.TEXT, "file_extension": ending})


SNAPSHOT_FILES = {ending: snapshot_file(ending) for ending in ("txt", "html", "svg", "dot", "csv")}

PINNED = torch.__version__.startswith("2.13.")
"""Whether this is the torch of the snapshots: nodes have other names under another."""


def session_lines(session: Session) -> Iterator[str]:
    for graph in session.graphs:
        yield f"graph {graph.id}"
        for node in graph.nodes:
            yield f"    {node.name} = {node.role} {node.target}({', '.join(node.inputs)})"
    for part in session.partitions:
        yield f"partition {part.id} of {part.region!r}, {part.state}: {', '.join(part.nodes)}"
    for found in session.diagnostics:
        lines = ", ".join(f"{Path(line.file).name}:{line.line}" for line in found.where)
        yield f"{found.severity} {found.code}: {found.message} ({lines}) {found.remedy}"


def without_random_parts(text: str) -> str:
    """Return a text without addresses, and without the size of a difference, which is random."""
    return re.sub(r"\b0x[0-9a-f]{6,}|(?<=off by up to )[\d.e-]+", "…", text)


def program_text(name: str, session: Session) -> str:
    return f"{name}\n" + indent("\n".join(session_lines(session)), "    ") + "\n"


def assert_matches_snapshot(texts: list[str], snapshot: SnapshotAssertion) -> None:
    if PINNED:
        assert without_random_parts("\n".join(texts)) == snapshot(extension_class=SNAPSHOT_FILES["txt"])
