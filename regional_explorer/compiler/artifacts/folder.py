"""A directory of compiled partitions, from which other processes start without compiling: one file per artifact."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regional_explorer.compiler.artifacts.artifact_file import (
    ARTIFACT_SUFFIX,
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
from regional_explorer.record.atomic_file import replacing
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.torch_api import ShipmentError

LOCK_SUFFIX = ".lock"
LOCK_PATIENCE_S = 600.0
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
        self._initial_paths = tuple(sorted(self.path.glob(f"*{ARTIFACT_SUFFIX}")))
        self._others_seen = self._others_compile()

    def load(self, wanted_label: Label, assemble: Callable[[bytes, Mapping[str, Path], Any], Any]) -> Any | None:
        """Return what ``assemble`` makes of code, shared objects and extra of the saved artifact of ``wanted_label``.

        None if none fits, or if it cannot be loaded; what is wrong with a file is added to ``findings``.
        """
        for path in sorted(self.path.glob(f"{wanted_label.key}-*{ARTIFACT_SUFFIX}")):
            try:
                with opened(path) as archive:
                    if read_label(archive).machine.mismatch(wanted_label.machine):
                        continue
                    code, libraries, extra = read_contents(archive)
                return assemble(code, libraries, extra)
            except FileNotFoundError:
                continue
            except (DamagedError, ShipmentError) as problem:
                self._damaged.add(wanted_label.key)
                self._note_damaged(path, str(problem), wanted_label.region)
        return None

    def note_missing(self, wanted_label: Label) -> None:
        """Add a finding that says why none of the initial artifacts, if there are any, is that of ``wanted_label``."""
        labels = self._initial_labels
        self._others_seen = self._others_seen or self._others_compile(wanted_label.key)
        if not labels or wanted_label.key in self._damaged or self._others_seen:
            return
        labels = sorted(labels, key=lambda label: label.distance(wanted_label))
        nearest = [
            *(label for label in labels if label.key == wanted_label.key),
            *(label for label in labels if label.fingerprint == wanted_label.fingerprint),
            *(label for label in labels if label.region == wanted_label.region),
        ]
        why = nearest[0].mismatch(wanted_label) if nearest else f"there is none for region {wanted_label.region!r}"
        self._add_finding(
            DiagnosticCode.ARTIFACT_DIFFERS,
            f"Region {wanted_label.region!r} is compiled again: no artifact in {self.path} fits, {why}.",
            wanted_label.region,
            "Let rx.compile(…, artifacts=…) or ex.save_artifacts(…) write them where the program runs, and the way it "
            "runs.",
        )

    @contextlib.contextmanager
    def claimed(self, wanted_label: Label) -> Iterator[None]:
        """A block in which no other process that uses this directory compiles the artifact of ``wanted_label``."""
        with contextlib.suppress(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self._lock_folder / f"{wanted_label.key}{LOCK_SUFFIX}", LOCK_PATIENCE_S):
            yield

    @property
    def _lock_folder(self) -> Path:
        return self.path / "locks"

    def _others_compile(self, own_key: str = "") -> bool:
        """Return whether other processes compile for this directory now; ``own_key`` is what this process compiles."""
        return any(is_held(path) for path in self._lock_folder.glob(f"*{LOCK_SUFFIX}") if path.stem != own_key)

    def save(self, label: Label, pack: Callable[[], Packed]) -> None:
        """Write an artifact; if that fails, add a finding and go on."""
        try:
            self.write(label, pack())
        except (ShipmentError, OSError) as problem:
            self._add_finding(
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
        with replacing(self.path / label.name, 0o644) as file:
            write_archive(file, label, packed)

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
        self._add_finding(
            DiagnosticCode.ARTIFACT_DAMAGED,
            f"{path} cannot be used: {why}. Its partition is compiled again.",
            region,
            "Remove the file; it is written again if the directory can be written.",
        )

    def _add_finding(self, code: DiagnosticCode, message: str, region: str | None, remedy: str) -> None:
        finding = Diagnostic(
            code, message, Severity.WARNING, region=region, upstream="it has no artifacts.", remedy=remedy
        )
        if finding not in self.findings:
            self.findings.append(finding)
