"""The ledger: a file with an entry for each try, that a later search goes on from."""

from __future__ import annotations

from pathlib import Path

from regional_explorer.compiler.entry_file import EntryFile, path_beside_cache
from regional_explorer.errors import InvalidArgumentError, shown_value
from regional_explorer.record import Record, Seconds
from regional_explorer.record.figure import Figure
from regional_explorer.record.tuning import Outcome

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


class Ledger(EntryFile[LedgerEntry]):
    """The entries of all tries; a search goes on without its file if ``problem`` says that it cannot be written."""

    def __init__(self, path: str | Path) -> None:
        """Use the file at ``path``, which need not exist yet.

        Raises:
            InvalidArgumentError: ``path`` is not a path, or the file cannot be read.
        """
        if not isinstance(path, (str, Path)) or not str(path):
            raise InvalidArgumentError(f"ledger={shown_value(path)}: give the path of a file.")
        super().__init__(Path(path), LedgerEntry, FORMAT)


def default_path() -> Path:
    """Return the path of the ledger, beside Inductor's cache, which has the compiled code of its tries."""
    return path_beside_cache("tries.jsonl")
