"""A directory of compiled partitions, from which other processes start without compiling: one file per artifact."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regional_explorer.compiler.artifacts.artifact_file import (
    SUFFIX,
    DamagedError,
    Label,
    Packed,
    opened,
    read_contents,
    read_label,
    write_archive,
)
from regional_explorer.compiler.artifacts.file_lock import is_held, locked
from regional_explorer.errors import ArtifactError
from regional_explorer.errors.arguments import shown_value
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.torch_api import ShipmentError

LOCK = ".lock"
PATIENCE_S = 600.0
"""How long to wait for another process that compiles the same artifact."""


def folder_at(path: str | Path) -> ArtifactFolder:
    """Return the directory of artifacts at ``path``, which need not exist yet.

    Raises:
        ArtifactError: it is not a directory.
    """
    if not isinstance(path, (str, Path)) or not str(path):
        raise ArtifactError(f"artifacts={shown_value(path)}: give the path of a directory.")
    if "\0" in str(path):
        raise ArtifactError(f"artifacts={shown_value(path)}: a path cannot contain a null character.")
    target = Path(path)
    try:
        os.fsencode(target)
        is_file = target.exists() and not target.is_dir()
    except (OSError, ValueError) as problem:
        raise ArtifactError(
            f"artifacts={shown_value(path)}: this cannot be the path of a directory: {problem}."
        ) from problem
    if is_file:
        raise ArtifactError(f"Artifacts are kept in a directory, and {target} is a file. Give another path.")
    return ArtifactFolder(target)


@dataclass
class ArtifactFolder:
    """The directory ``path``; ``findings`` are the diagnostics of what did not fit, was damaged or was not saved.

    Only files that existed when this object was made can be the reason for an ``artifact-differs``: files written later
    are from processes like this one. While another process compiles for the directory nothing is reported either,
    because a missing artifact is then one that it has not reached yet.
    """

    path: Path
    findings: list[Diagnostic] = field(default_factory=list)
    _initial_paths: tuple[Path, ...] = ()
    _damaged: set[str] = field(default_factory=set)
    _others_seen: bool = False

    def __post_init__(self) -> None:
        """Note which files exist, and whether other processes compile for the directory."""
        self._initial_paths = tuple(sorted(self.path.glob(f"*{SUFFIX}")))
        self._others_seen = self._others_compile()

    def load(self, wanted: Label, use: Callable[[bytes, Mapping[str, Path], Any], Any]) -> Any | None:
        """Return what ``use`` makes of code, shared objects and extra of the saved artifact that is ``wanted``.

        None if none fits, or if it cannot be loaded; what is wrong with a file is added to ``findings``.
        """
        for path in sorted(self.path.glob(f"{wanted.key}-*{SUFFIX}")):
            try:
                with opened(path) as archive:
                    if read_label(archive).machine.mismatch(wanted.machine):
                        continue
                    code, libraries, extra = read_contents(archive)
                return use(code, libraries, extra)
            except FileNotFoundError:
                continue
            except (DamagedError, ShipmentError) as problem:
                self._damaged.add(wanted.key)
                self._note_damaged(path, str(problem), wanted.region)
        return None

    def note_missing(self, wanted: Label) -> None:
        """Add a finding that says why none of the initial artifacts, if there are any, is the ``wanted`` one."""
        labels = self._initial_labels
        self._others_seen = self._others_seen or self._others_compile(wanted.key)
        if not labels or wanted.key in self._damaged or self._others_seen:
            return
        labels = sorted(labels, key=lambda label: label.distance(wanted))
        near = [
            *(label for label in labels if label.key == wanted.key),
            *(label for label in labels if label.fingerprint == wanted.fingerprint),
            *(label for label in labels if label.region == wanted.region),
        ]
        why = near[0].mismatch(wanted) if near else f"there is none for region {wanted.region!r}"
        self._note(
            DiagnosticCode.ARTIFACT_DIFFERS,
            f"Region {wanted.region!r} is compiled again: no artifact in {self.path} fits, {why}.",
            wanted.region,
            "Let rx.compile(…, artifacts=…) or ex.save_artifacts(…) write them where the program runs, and the way it "
            "runs.",
        )

    @contextlib.contextmanager
    def claimed(self, wanted: Label) -> Iterator[None]:
        """A block in which no other process that uses this directory compiles the ``wanted`` artifact."""
        with contextlib.suppress(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self._locks / f"{wanted.key}{LOCK}", PATIENCE_S):
            yield

    @property
    def _locks(self) -> Path:
        return self.path / "locks"

    def _others_compile(self, mine: str = "") -> bool:
        """Return whether other processes compile for this directory now; ``mine`` is the key this process compiles."""
        return any(is_held(path) for path in self._locks.glob(f"*{LOCK}") if path.stem != mine)

    def save(self, label: Label, pack: Callable[[], Packed]) -> None:
        """Write an artifact; if that fails, add a finding and go on."""
        try:
            self.write(label, pack())
        except (ShipmentError, OSError) as problem:
            self._note(
                DiagnosticCode.ARTIFACT_UNSAVED,
                f"An artifact of region {label.region!r} is not saved in {self.path}: {problem}. It is compiled again "
                "in each process.",
                label.region,
                "Make the directory writable; what torch cannot serialize runs compiled here, but cannot be saved.",
            )

    def write(self, label: Label, packed: Packed) -> None:
        """Write an artifact.

        Raises:
            OSError: it cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=self.path)
        try:
            with os.fdopen(number, "wb") as file:
                write_archive(file, label, packed)
                file.flush()
                os.fsync(number)
            Path(name).chmod(0o644)
            Path(name).replace(self.path / label.name)
        except BaseException:  # no half-written file stays behind, not even after an interrupt
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise

    @functools.cached_property
    def _initial_labels(self) -> list[Label]:
        labels = []
        for path in self._initial_paths:
            try:
                with opened(path) as archive:
                    labels.append(read_label(archive))
            except FileNotFoundError:
                continue
            except DamagedError as problem:
                self._note_damaged(path, str(problem), None)
        return labels

    def _note_damaged(self, path: Path, why: str, region: str | None) -> None:
        self._note(
            DiagnosticCode.ARTIFACT_DAMAGED,
            f"{path} cannot be used: {why}. Its partition is compiled again.",
            region,
            "Remove the file; it is written again if the directory can be written.",
        )

    def _note(self, code: DiagnosticCode, message: str, region: str | None, remedy: str) -> None:
        found = Diagnostic(
            code, message, Severity.WARNING, region=region, upstream="it has no artifacts.", remedy=remedy
        )
        if found not in self.findings:
            self.findings.append(found)
