"""Artifacts on disk: files named by their content, manifests, and the machine that each was made for."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import platform
import re
import stat
import sys
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import torch

from regional_explorer.errors import ArtifactError, shown_value
from regional_explorer.record.diagnostic import Diagnostic, DiagnosticCode
from regional_explorer.record.files import from_json, replacing_file
from regional_explorer.torch_api.inductor import inductor_cache_directory
from regional_explorer.torch_api.shipping import PackedCode, ShipmentError

ARTIFACT_FORMAT = 2
MANIFEST_KIND = "regional-explorer artifacts"
_LIBRARIES = "libraries/"


class DamagedError(Exception):
    """A file was not written by this package."""


class UntrustedError(DamagedError):
    """Others may have changed a file."""


_INSTRUCTION_FLAGS = re.compile(
    r"^(ss?se|avx|amx|fma|f16c|bmi|abm|lzcnt|movbe|popcnt|v?aes|v?pclmul|gfni|sha|adx|xop|tbm|asimd|sve|sme|neon|i8mm|bf16)"
)
"""The processor flags for instructions that a compiler may use; other flags only matter to the operating system."""


@dataclass(frozen=True)
class Machine:
    """The machine on which code was compiled; ``cpu`` are the instruction sets of the processor."""

    system: str
    python: str
    torch: str
    cpu: tuple[str, ...]
    gpu: str = ""

    @classmethod
    def here(cls, devices: Collection[str] = ()) -> Machine:
        """Return this machine, with the GPUs among ``devices``, such as ``cuda:0``."""
        return cls(
            system=f"{platform.system()} {platform.machine()}",
            python=str(sys.implementation.cache_tag),
            torch=f"{torch.__version__} ({(torch.version.git_version or 'unknown')[:10]})",
            cpu=_instruction_sets(),
            gpu=_gpu_text(devices),
        )

    def mismatch(self, here: Machine) -> str:
        """Return why code compiled on this machine cannot run on ``here``; an empty text if it can."""
        for what, then, now in (
            ("torch", self.torch, here.torch),
            ("Python", self.python, here.python),
            ("", self.system, here.system),
            ("GPU", self.gpu, here.gpu),
        ):
            if then != now:
                return f"they were made with {what} {then or 'none'}, here is {now or 'none'}".replace("  ", " ")
        if lacking := [flag for flag in self.cpu if flag not in here.cpu]:
            return f"they were made for a processor with {', '.join(lacking[:6])}, which this one lacks"
        return ""


@functools.cache
def _instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets of this processor: code is compiled for all of them ("-march=native")."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        cpuinfo = ""
    line = next((line for line in cpuinfo.splitlines() if line.startswith(("flags", "Features"))), "")
    flags = {flag for flag in line.partition(":")[2].split() if _INSTRUCTION_FLAGS.match(flag)}
    return tuple(sorted(flags or {torch.backends.cpu.get_cpu_capability(), platform.processor()} - {""}))


def _gpu_text(devices: Collection[str]) -> str:
    gpu_devices = [device for device in map(torch.device, devices) if device.type == "cuda"]
    if not gpu_devices or not torch.cuda.is_available():
        return ""
    gpus = map(torch.cuda.get_device_properties, gpu_devices)
    names = sorted({f"{gpu.name} ({gpu.major}.{gpu.minor})" for gpu in gpus})
    return f"{' and '.join(names)}, runtime {torch.version.cuda or torch.version.hip}"


@dataclass(frozen=True)
class Label:
    """The identity of an artifact: its partition's fingerprint, its config, the global settings and the machine.

    ``weights`` is a hash of the weights that are constants.
    ``region`` and ``graph`` are those of the first partition with this artifact.
    """

    key: str
    region: str
    graph: str
    fingerprint: str
    config: Mapping[str, str]
    settings: Mapping[str, str]
    machine: Machine
    weights: str = ""

    def mismatch(self, needed: Label) -> str:
        """Return why an artifact with this label cannot replace one with the label ``needed``."""
        if why := self.machine.mismatch(needed.machine):
            return why
        if self.fingerprint != needed.fingerprint:
            return "they are for another graph, or for inputs of other sizes"
        if self.weights != needed.weights:
            return "they have other weights as constants"
        changed = _changed_values(self.config, needed.config) or _changed_values(self.settings, needed.settings)
        if not changed:
            return "they are from another version of this package"
        return f"they were compiled under {', '.join(changed)}"

    def distance(self, needed: Label) -> int:
        """Return how many keys of the config and how many settings differ."""
        return len(_changed_values(self.config, needed.config)) + len(_changed_values(self.settings, needed.settings))


def _changed_values(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    names = [name for name in (*then, *(set(now) - set(then))) if then.get(name) != now.get(name)]
    return [f"{name}={then.get(name, 'the default')}, here {now.get(name, 'the default')}" for name in names]


@dataclass(frozen=True)
class Entry:
    """An artifact as a manifest lists it: its label, and the SHA-256 of its file."""

    label: Label
    sha256: str


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def manifest_content(entries: Sequence[Entry]) -> bytes:
    """Return the content of a manifest."""
    manifest = {"kind": MANIFEST_KIND, "format": ARTIFACT_FORMAT, "artifacts": [asdict(entry) for entry in entries]}
    return json.dumps(manifest, indent=1).encode()


def read_manifest(content: bytes) -> tuple[Entry, ...]:
    """Return the artifacts that a manifest lists.

    Raises:
        DamagedError: it is not a manifest of this format.
    """
    try:
        manifest = json.loads(content)
        if not isinstance(manifest, dict) or manifest.get("kind") != MANIFEST_KIND:
            raise DamagedError("it was not written by this package")
        if manifest["format"] != ARTIFACT_FORMAT:
            raise DamagedError(f"it has format {manifest['format']}; this version reads format {ARTIFACT_FORMAT}")
        return from_json(tuple[Entry, ...], manifest["artifacts"])
    except (ValueError, KeyError, RecursionError) as problem:
        raise DamagedError(f"it was not written by this package ({type(problem).__name__}: {problem})") from problem


def archive_of(key: str, packed: PackedCode) -> bytes:
    """Return the content of an artifact's file; equal artifacts have equal content."""
    libraries = {f"{_LIBRARIES}{name}": library for name, library in sorted(packed.libraries.items())}
    members = {"key": key.encode(), "code": packed.code, "sizes": packed.sizes, **libraries}
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # a ZipInfo has a fixed date
        return file.getvalue()


def read_archive(content: bytes, key: str) -> PackedCode:
    """Return the artifact in a file.

    Raises:
        Exception: of any kind, if it is not an archive of this package.
        DamagedError: it is the file of another artifact.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if members["key"] != key.encode():
        raise DamagedError("it is the file of another artifact")
    libraries = {
        name.removeprefix(_LIBRARIES): library for name, library in members.items() if name.startswith(_LIBRARIES)
    }
    return PackedCode(members["code"], libraries, members["sizes"])


def library_path(content: bytes) -> Path:
    """Return the path of a shared object in Inductor's cache directory; it is written there if it is missing."""
    path = Path(inductor_cache_directory(), "regional_explorer", f"x{sha256_of(content)[:32]}.so")
    if path.exists() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing_file(path, 0o600) as file:
        file.write(content)
    return path


T = TypeVar("T")

ARTIFACT_SUFFIX = ".artifact"


def folder_at(path: str | Path, *, listed: Collection[str] | None = None, is_trusted: bool = False) -> ArtifactFolder:
    """Return the directory of artifacts at ``path``, which need not exist yet.

    Raises:
        ArtifactError: it is not a directory, or others may write to it and ``is_trusted`` is False.
    """
    if not isinstance(path, (str, Path)) or not str(path):
        raise ArtifactError(f"artifacts={shown_value(path)}: give the path of a directory.")
    if "\0" in str(path):
        raise ArtifactError(f"artifacts={shown_value(path)}: a path cannot contain a null character.")
    target = Path(path)
    try:
        os.fsencode(target)
        status = target.stat() if target.exists() else None
    except (OSError, ValueError) as problem:
        raise ArtifactError(
            f"artifacts={shown_value(path)}: this cannot be the path of a directory: {problem}."
        ) from problem
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise ArtifactError(f"Artifacts are kept in a directory, and {target} is a file. Give another path.")
    if status is not None and not is_trusted and (why := _permission_problem(status)):
        raise ArtifactError(
            f"Artifacts are code, and {target} {why}: it is not used. Give a directory that only you and root may "
            "write (chmod go-w, or a copy of your own). If you trust all who may write there, load from it with "
            "rx.compile(…, trust_artifacts=True)."
        )
    return ArtifactFolder(target, listed, is_trusted)


def _permission_problem(status: os.stat_result) -> str:
    """Return why others than this user and root may write a file or directory, else an empty text: ssh's rule for keys.

    Windows has no such permissions.
    """
    if not hasattr(os, "getuid"):
        return ""
    if status.st_uid not in (0, os.getuid()):
        return "belongs to another user"
    return f"may be written by others ({stat.filemode(status.st_mode)})" if status.st_mode & 0o022 else ""


def _artifact_name(sha256: str) -> str:
    return f"{sha256}{ARTIFACT_SUFFIX}"


def _manifest_name(sha256: str) -> str:
    return f"manifest-{sha256[:16]}.json"


@dataclass
class ArtifactFolder:
    """The directory ``path``; ``findings`` are the diagnostics of what did not fit, was damaged or was not saved.

    Only artifacts whose SHA-256 is ``listed`` are loaded; None: all. Files that others may write are loaded only if the
    directory ``is_trusted``. Only manifests that existed when this object was made can be the reason for an
    ``artifact-differs``, and only those of the same graph: a process like this one may be at work on the others.
    """

    path: Path
    listed: Collection[str] | None = None
    is_trusted: bool = False
    findings: list[Diagnostic] = field(default_factory=list)
    _manifests: dict[str, tuple[Entry, ...]] = field(default_factory=dict)
    _initial: tuple[Entry, ...] = ()
    _damaged_keys: set[str] = field(default_factory=set)
    _unusable: set[str] = field(default_factory=set)
    _written: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Read the manifests."""
        self._initial = tuple(self._entries())

    @property
    def has_artifacts(self) -> bool:
        """Whether there were artifacts when this object was made."""
        return bool(self._initial)

    def load(self, wanted: Label, assemble: Callable[[PackedCode], T]) -> T | None:
        """Return the result of ``assemble`` on the saved artifact labelled ``wanted``.

        Return None if no artifact fits or can be loaded; a problem with a file is added to ``findings``.
        """
        problems: dict[Path, Exception] = {}
        for entry in self._fitting_entries(wanted):
            if self.listed is not None and entry.sha256 not in self.listed:
                continue
            path = self.path / _artifact_name(entry.sha256)
            try:
                return assemble(read_archive(self._read(path), wanted.key))
            except Exception as error:  # noqa: BLE001 - its content may be anything; the artifact is compiled again
                problems[path] = error
            self._unusable.add(entry.sha256)
        for path, problem in problems.items():
            self._damaged_keys.add(wanted.key)
            self._add_damaged_finding(path, problem, wanted.region)
        return None

    def add_missing_finding(self, wanted: Label) -> None:
        """Add a finding that says why no initial artifact fits ``wanted``; none if there were no artifacts."""
        labels = [entry.label for entry in self._initial if entry.label.graph == wanted.graph]
        if wanted.key in self._damaged_keys:
            return
        if any(entry in self._initial for entry in self._fitting_entries(wanted)):
            self._add_finding(
                DiagnosticCode.ARTIFACT_DIFFERS,
                f"Region {wanted.region!r} is compiled again",
                f": {self.path} has artifacts for it that the plan does not list, so they may be anyone's.",
                wanted.region,
                "Save the plan after its artifacts: it then lists them. If you trust all who may write there, load "
                "whatever fits with rx.compile(…, trust_artifacts=True).",
            )
        elif labels:
            labels.sort(key=lambda label: label.distance(wanted))
            nearest = [
                *(label for label in labels if label.fingerprint == wanted.fingerprint),
                *(label for label in labels if label.region == wanted.region),
            ]
            why = nearest[0].mismatch(wanted) if nearest else f"there is none for region {wanted.region!r}"
            self._add_finding(
                DiagnosticCode.ARTIFACT_DIFFERS,
                f"Region {wanted.region!r} is compiled again",
                f": no artifact in {self.path} fits, {why}.",
                wanted.region,
                "Run the program once with rx.compile(…, artifacts=…), on its machine and under its settings: "
                "what it compiles is saved for the next run.",
            )
        elif self.listed is not None and not any(entry.sha256 in self.listed for entry in self._initial):
            fact = "has none of the artifacts that the plan lists" if self.path.exists() else "does not exist"
            self._add_finding(
                DiagnosticCode.ARTIFACT_DIFFERS,
                f"The directory of artifacts {fact}",
                f": {self.path.absolute()}. All regions are compiled again.",
                None,
                "Give rx.compile(…, artifacts=…) the directory that ex.save_artifacts wrote before the plan was saved.",
            )

    def save(self, label: Label, pack: Callable[[], PackedCode]) -> str | None:
        """Write an artifact, unless it is there already, and return the SHA-256 of its file.

        Other processes see it after ``write_manifest``. If it cannot be written, a finding is added and None returned.
        A directory from which a plan lists artifacts is not made: it exists, so this is the path of another.
        """
        if self.listed is not None and not self.path.exists():
            return None
        for entry in self._fitting_entries(label):
            if entry.sha256 not in self._unusable:
                with contextlib.suppress(DamagedError):
                    self._read(self.path / _artifact_name(entry.sha256))
                    return entry.sha256
        try:
            content = archive_of(label.key, pack())
            entry = Entry(label, sha256_of(content))
            self._put(self.path / _artifact_name(entry.sha256), content)
        except (ShipmentError, OSError) as problem:
            self._add_unsaved_finding(f"An artifact of region {label.region!r} is", label.region, problem)
            return None
        self._written.append(entry)
        return entry.sha256

    def write_manifest(self) -> None:
        """Write the manifest by which other processes find the artifacts saved since the last call.

        Call it after the last artifact of a graph.
        """
        if not self._written:
            return
        content = manifest_content(self._written)
        try:
            self._put(self.path / _manifest_name(sha256_of(content)), content)
        except OSError as problem:
            self._add_unsaved_finding("The list of artifacts is", None, problem)
        self._written.clear()

    def _entries(self) -> Iterator[Entry]:
        """Yield the entries of all manifests, including manifests written since the folder was opened."""
        for path in sorted(self.path.glob("manifest-*.json")):
            if path.name not in self._manifests:
                self._manifests[path.name] = ()
                try:
                    self._manifests[path.name] = read_manifest(self._read(path))
                except DamagedError as problem:
                    self._add_damaged_finding(path, problem, None)
        for entries in self._manifests.values():
            yield from entries

    def _fitting_entries(self, wanted: Label) -> list[Entry]:
        return [
            entry
            for entry in self._entries()
            if entry.label.key == wanted.key and not entry.label.machine.mismatch(wanted.machine)
        ]

    def _read(self, path: Path) -> bytes:
        """Return the content of a file that is named by its content.

        Raises:
            DamagedError: it has another content, or cannot be read.
            UntrustedError: others may write it.
        """
        try:
            with path.open("rb") as file:
                why = "" if self.is_trusted else _permission_problem(os.fstat(file.fileno()))
                content = file.read()
        except (OSError, ValueError) as problem:  # a ValueError: not a valid file name
            raise DamagedError(f"it cannot be read: {getattr(problem, 'strerror', None) or problem}") from problem
        sha256 = sha256_of(content)
        if path.name not in (_artifact_name(sha256), _manifest_name(sha256)):
            raise DamagedError("its content does not match its name")
        if why:
            raise UntrustedError(f"it {why}")
        return content

    def _put(self, path: Path, content: bytes) -> None:
        self.path.mkdir(0o755, parents=True, exist_ok=True)
        with replacing_file(path, 0o644) as file:
            file.write(content)

    def _add_damaged_finding(self, path: Path, problem: Exception, region: str | None) -> None:
        if isinstance(problem, UntrustedError):  # one finding for all files: they were written in the same way
            self._add_finding(
                DiagnosticCode.ARTIFACT_DIFFERS,
                f"Files in {self.path} are not used, because artifacts are code",
                ": others may have written them.",
                None,
                f"If only people whose code you run could: chmod go-w {self.path}/*, or a copy of your own if they "
                "belong to another user. rx.compile(…, trust_artifacts=True) uses them as they are.",
            )
            return
        known = isinstance(problem, DamagedError)
        why = str(problem) if known else f"it cannot be loaded: {type(problem).__name__}: {problem}"
        self._add_finding(
            DiagnosticCode.ARTIFACT_DAMAGED,
            f"{path} cannot be used",
            f": {why}. The partition is compiled again.",
            region,
            "Remove the file; it is written again if the directory can be written.",
        )

    def _add_unsaved_finding(self, subject: str, region: str | None, problem: Exception) -> None:
        self._add_finding(
            DiagnosticCode.ARTIFACT_UNSAVED,
            f"{subject} not saved in {self.path}",
            f": {problem}. It is compiled again in each process.",
            region,
            "Make the directory writable; what torch cannot serialize runs compiled here, but cannot be saved.",
        )

    def _add_finding(self, code: DiagnosticCode, title: str, details: str, region: str | None, remedy: str) -> None:
        finding = code.finding(title, details, region=region, remedy=remedy)
        if finding not in self.findings:
            self.findings.append(finding)
