"""One artifact as a file: its label (what it is of, and what it was compiled on), its code and its shared objects.

A ZIP archive of ``artifact.json``, which is the label, the code as torch pickles it, and the shared objects. Only
``artifact.json`` is read until it is clear that all of it fits; then code is run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from regional_explorer.record.atomic_file import replacing
from regional_explorer.record.decode import from_json
from regional_explorer.torch_api import Machine, Settings, Shipment, inductor_cache_directory

ARTIFACT_FORMAT = 1
FILE_KIND = "regional-explorer artifact"
ARTIFACT_SUFFIX = ".artifact"


class DamagedError(Exception):
    """A file is not an artifact of this package, or is incomplete."""


@dataclass(frozen=True)
class Label:
    """What identifies an artifact: its partition's fingerprint, its config, the global settings and the machine."""

    key: str
    region: str
    fingerprint: str
    config: Mapping[str, str]
    settings: Mapping[str, str]
    machine: Machine

    @classmethod
    def here(cls, key: str, region: str, fingerprint: str, config: Mapping[str, Any], device_types: set[str]) -> Label:
        """Return the label that an artifact has when it is compiled in this process, under its current settings."""
        config_texts = {name: repr(value) for name, value in sorted(config.items())}
        return cls(key, region, fingerprint, config_texts, Settings.now().facts(), Machine.here(device_types))

    @property
    def name(self) -> str:
        """The name of its file; each kind of machine has files of its own."""
        machine = hashlib.sha256(repr(self.machine).encode()).hexdigest()[:8]
        return f"{self.key}-{machine}{ARTIFACT_SUFFIX}"

    def mismatch(self, needed: Label) -> str:
        """Return why an artifact with this label cannot be used where the ``needed`` one is."""
        if why := self.machine.mismatch(needed.machine):
            return why
        if self.fingerprint != needed.fingerprint:
            return "they are for another graph, or for inputs of other sizes"
        changed = _changed_values(self.config, needed.config) or _changed_values(self.settings, needed.settings)
        if not changed:
            return "they are from another version of this package"
        return f"they were compiled under {', '.join(changed)}"

    def distance(self, needed: Label) -> int:
        """Return how many keys of the config and how many settings are other ones."""
        return len(_changed_values(self.config, needed.config)) + len(_changed_values(self.settings, needed.settings))


def _changed_values(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    names = [name for name in (*then, *(set(now) - set(then))) if then.get(name) != now.get(name)]
    return [f"{name}={then.get(name, 'the default')}, here {now.get(name, 'the default')}" for name in names]


@dataclass(frozen=True)
class Packed:
    """An artifact as it is saved: its code with the shared objects, and ``extra``, which is pickled with them."""

    shipment: Shipment
    extra: Any


@contextlib.contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """A block with an archive open for reading.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedError: it cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise DamagedError(f"it cannot be read: {problem.strerror or problem}") from problem
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, EOFError, NotImplementedError) as problem:
        raise DamagedError(f"it is truncated, or was not written by this package ({problem})") from problem


def read_label(archive: zipfile.ZipFile) -> Label:
    """Return the label of an archive; whatever is wrong with it is a DamagedError inside ``opened``."""
    head = json.loads(archive.read("artifact.json"))
    if not isinstance(head, dict) or head.get("kind") != FILE_KIND:
        raise ValueError("it was not written by this package")
    if head["format"] != ARTIFACT_FORMAT:
        raise ValueError(f"it has format {head['format']}; this version reads format {ARTIFACT_FORMAT}")
    return from_json(Label, {field.name: head[field.name] for field in fields(Label)})


def write_archive(file: Any, label: Label, packed: Packed) -> None:
    """Write the archive of an artifact to an open file."""
    shipment = packed.shipment
    head = {"kind": FILE_KIND, "format": ARTIFACT_FORMAT, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("artifact.json", json.dumps({**head, **asdict(label)}, indent=2))
        archive.writestr("code", shipment.code)
        archive.writestr("extra", pickle.dumps(packed.extra))
        for name, library in shipment.libraries.items():
            archive.writestr(f"libraries/{name}", library)


def read_contents(archive: zipfile.ZipFile) -> tuple[bytes, dict[str, Path], Any]:
    """Return code, shared objects and extra of an archive; its checksums are verified before anything is run."""
    members = {name: archive.read(name) for name in archive.namelist()}
    libraries = {
        name.removeprefix("libraries/"): _library_path(content)
        for name, content in members.items()
        if name.startswith("libraries/")
    }
    try:
        extra = pickle.loads(members["extra"])  # noqa: S301 - artifacts are code, and the user named their directory
    except Exception as problem:
        raise DamagedError(f"{type(problem).__name__}: {problem}") from problem
    return members["code"], libraries, extra


def _library_path(content: bytes) -> Path:
    """Return the path of a shared object in Inductor's cache directory; it is written there if it is missing."""
    path = Path(inductor_cache_directory(), "regional_explorer", f"x{hashlib.sha256(content).hexdigest()[:32]}.so")
    if path.exists() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, 0o600) as file:
        file.write(content)
    return path
