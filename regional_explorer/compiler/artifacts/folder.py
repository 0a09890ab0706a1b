"""A directory of compiled partitions, which other processes start from without compiling.

A file per artifact, written in one go: a ZIP archive of ``artifact.json`` (what it is of, and what it was made on), the
code as torch pickles it, and its shared objects. Only ``artifact.json`` is looked at before it is clear that all of it
fits; then code is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regional_explorer.compiler.artifacts.locked import is_held, locked
from regional_explorer.errors import ArtifactError
from regional_explorer.errors.arguments import shown_value
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode, Severity
from regional_explorer.torch_api import Machine, Settings, Shipment, ShipmentError, inductor_cache_directory

FORMAT = 1
KIND = "regional-explorer artifact"
SUFFIX = ".artifact"
LOCK = ".lock"
PATIENCE_S = 600.0
"""So long another process that compiles the same artifact is waited for."""


def folder_at(path: str | Path) -> ArtifactFolder:
    """Return the directory of artifacts at ``path``, which need not be there yet.

    Raises:
        ArtifactError: it is no directory.
    """
    if not isinstance(path, (str, Path)) or not str(path):
        raise ArtifactError(f"artifacts={shown_value(path)}: give the path of a directory.")
    target = Path(path)
    try:
        os.fsencode(target)
        is_file = "\0" not in str(target) and target.exists() and not target.is_dir()
    except (OSError, ValueError) as problem:
        raise ArtifactError(f"artifacts={shown_value(path)}: no directory can be called so: {problem}.") from problem
    if "\0" in str(target):
        raise ArtifactError(f"artifacts={shown_value(path)}: no path can have a null character in it.")
    if is_file:
        raise ArtifactError(f"Artifacts are kept in a directory, and {target} is a file. Give another path.")
    return ArtifactFolder(target)


class DamagedError(Exception):
    """A file is no artifact of ours, or not all of one."""


@dataclass(frozen=True)
class Label:
    """What an artifact is of: the partition by its fingerprint, and what it was compiled under."""

    key: str
    region: str
    fingerprint: str
    config: Mapping[str, str]
    settings: Mapping[str, str]
    machine: Machine

    @classmethod
    def here(cls, key: str, region: str, fingerprint: str, config: Mapping[str, Any], device_types: set[str]) -> Label:
        """Return the label of what is compiled in this process and context."""
        values = {name: repr(value) for name, value in sorted(config.items())}
        return cls(key, region, fingerprint, values, Settings.now().facts(), Machine.here(device_types))

    @property
    def name(self) -> str:
        """The name of its file: machines that are not alike have files of their own."""
        machine = hashlib.sha256(repr(self.machine).encode()).hexdigest()[:8]
        return f"{self.key}-{machine}{SUFFIX}"

    def unfit(self, here: Label) -> str:
        """Return why what has this label is not what is wanted ``here``."""
        if why := self.machine.unfit(here.machine):
            return why
        if self.fingerprint != here.fingerprint:
            return "they are of another graph, or of inputs of other sizes"
        changed = _changes(self.config, here.config) or _changes(self.settings, here.settings)
        return f"they were compiled under {changed}" if changed else "they are of another version of this package"


def _changes(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    names = [name for name in (*then, *(set(now) - set(then))) if then.get(name) != now.get(name)]
    return ", ".join(f"{name}={then.get(name, 'the default')}, here {now.get(name, 'the default')}" for name in names)


@dataclass(frozen=True)
class Packed:
    """An artifact as it is saved: its code with the shared objects, and what is asked before it is called.

    ``extra`` is pickled with the code.
    """

    shipment: Shipment
    extra: Any


@dataclass
class ArtifactFolder:
    """The directory ``path``. ``findings`` are what did not fit, was damaged or could not be written.

    What was there when this object was made may not fit, which is told; what comes later is of processes like this one.
    So is what was there already where another process is at work: what is missing is what it has not come to.
    """

    path: Path
    findings: list[Diagnostic] = field(default_factory=list)
    _before: tuple[Path, ...] = ()
    _labels: list[Label] | None = None
    _damaged: set[str] = field(default_factory=set)
    _in_company: bool = False

    def __post_init__(self) -> None:
        """Note what is there."""
        self._before = tuple(sorted(self.path.glob(f"*{SUFFIX}")))
        self._in_company = self._others_compile()

    def load(self, wanted: Label, use: Callable[[bytes, Mapping[str, Path], Any], Any]) -> Any | None:
        """Return what ``use`` makes of the saved artifact that is ``wanted``: of code, shared objects and extra.

        None where there is none that fits, or it cannot be loaded; what is wrong is noted.
        """
        for path in sorted(self.path.glob(f"{wanted.key}-*{SUFFIX}")):
            try:
                with _opened(path) as archive:
                    label = _label(archive)
                    if label.machine.unfit(wanted.machine):
                        continue
                    code, libraries, extra = _unpacked(archive)
                return use(code, libraries, extra)
            except FileNotFoundError:
                continue
            except (DamagedError, ShipmentError) as problem:
                self._damaged.add(wanted.key)
                self._note_damaged(path, str(problem), wanted.region)
        return None

    def note_missing(self, wanted: Label) -> None:
        """Note why nothing that was here at the beginning is what is ``wanted``; nothing where nothing was."""
        labels = self._known_labels()
        self._in_company = self._in_company or self._others_compile(wanted.key)
        if not labels or wanted.key in self._damaged or self._in_company:
            return
        near = [
            *(label for label in labels if label.key == wanted.key),
            *(label for label in labels if label.fingerprint == wanted.fingerprint),
            *(label for label in labels if label.region == wanted.region),
        ]
        why = near[0].unfit(wanted) if near else f"there is none of region {wanted.region!r}"
        self._note(
            DiagnosticCode.ARTIFACT_DIFFERS,
            f"Region {wanted.region!r} is compiled anew: no artifact in {self.path} fits, {why}.",
            wanted.region,
            "Let rx.compile(…, artifacts=…) or ex.save_artifacts(…) write them where, and as, the program runs.",
        )

    @contextlib.contextmanager
    def claimed(self, wanted: Label) -> Iterator[None]:
        """A block in which no other process that uses this directory compiles what is ``wanted``."""
        with contextlib.suppress(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self._locks / f"{wanted.key}{LOCK}", PATIENCE_S):
            yield

    @property
    def _locks(self) -> Path:
        return self.path / "locks"

    def _others_compile(self, mine: str = "") -> bool:
        """Return whether other processes compile for this directory now; ``mine`` is the key that this one compiles."""
        return any(is_held(path) for path in self._locks.glob(f"*{LOCK}") if path.stem != mine)

    def save(self, label: Label, pack: Callable[[], Packed]) -> None:
        """Write an artifact; where that cannot be done it is noted, and the program goes on without."""
        try:
            self.write(label, pack())
        except (ShipmentError, OSError) as problem:
            self._note(
                DiagnosticCode.ARTIFACT_UNSAVED,
                f"An artifact of region {label.region!r} is not saved in {self.path}: {problem}. It is compiled anew "
                "in each process.",
                label.region,
                "Make the directory writable; what torch cannot serialize runs compiled here, but cannot be shipped.",
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
                _write(file, label, packed)
                file.flush()
                os.fsync(number)
            Path(name).chmod(0o644)
            Path(name).replace(self.path / label.name)
        except BaseException:  # an interrupt too leaves no half-written file behind
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise

    def _known_labels(self) -> Sequence[Label]:
        if self._labels is None:
            self._labels = []
            for path in self._before:
                try:
                    with _opened(path) as archive:
                        self._labels.append(_label(archive))
                except FileNotFoundError:
                    continue
                except DamagedError as problem:
                    self._note_damaged(path, str(problem), None)
        return self._labels

    def _note_damaged(self, path: Path, why: str, region: str | None) -> None:
        self._note(
            DiagnosticCode.ARTIFACT_DAMAGED,
            f"{path} cannot be used: {why}. What it is of is compiled anew.",
            region,
            "Remove the file; it is written again where the directory can be written.",
        )

    def _note(self, code: DiagnosticCode, message: str, region: str | None, remedy: str) -> None:
        found = Diagnostic(
            code, message, Severity.WARNING, region=region, upstream="it has no artifacts.", remedy=remedy
        )
        if found not in self.findings:
            self.findings.append(found)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """A block with an archive open to be read; whatever is wrong with it is a DamagedError."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise DamagedError(f"it cannot be read: {problem.strerror or problem}") from problem
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, EOFError, NotImplementedError) as problem:
        raise DamagedError(f"it is truncated, or no artifact of ours ({problem})") from problem


def _label(archive: zipfile.ZipFile) -> Label:
    data = json.loads(archive.read("artifact.json"))
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise ValueError("it was not written by this package")
    if data["format"] != FORMAT:
        raise ValueError(f"it is of format {data['format']}; this version reads format {FORMAT}")
    texts = {name: str(data[name]) for name in ("key", "region", "fingerprint")}
    return Label(**texts, config=data["config"], settings=data["settings"], machine=Machine.from_json(data["machine"]))


def _write(file: Any, label: Label, packed: Packed) -> None:
    shipment = packed.shipment
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    data = {"kind": KIND, "format": FORMAT, "made": made, **asdict(label)}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("artifact.json", json.dumps(data, indent=2))
        archive.writestr("code", shipment.code)
        archive.writestr("extra", pickle.dumps(packed.extra))
        for name, library in shipment.libraries.items():
            archive.writestr(f"libraries/{name}", library)


def _unpacked(archive: zipfile.ZipFile) -> tuple[bytes, dict[str, Path], Any]:
    """Return code, shared objects and extra of an archive; its check sums are compared before anything is run."""
    members = {name: archive.read(name) for name in archive.namelist()}
    libraries = {
        name.removeprefix("libraries/"): _placed(content)
        for name, content in members.items()
        if name.startswith("libraries/")
    }
    try:
        extra = pickle.loads(members["extra"])  # noqa: S301 - artifacts are code, and were asked for by path
    except Exception as problem:
        raise DamagedError(f"{type(problem).__name__}: {problem}") from problem
    return members["code"], libraries, extra


def _placed(content: bytes) -> Path:
    """Return the path of a shared object in Inductor's cache directory, where it is put if it is not there."""
    digest = hashlib.sha256(content).hexdigest()
    path = Path(inductor_cache_directory(), "regional_explorer", f"x{digest[:32]}.so")
    if path.exists() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    with os.fdopen(number, "wb") as file:
        file.write(content)
    Path(name).replace(path)
    return path
