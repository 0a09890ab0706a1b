"""The contents of artifact files, and the label by which one is found: what it is of, and what it was compiled on.

An artifact is a ZIP archive of the code as torch pickles it, the dynamic sizes, and the shared objects; no class of
this package is pickled. Its file is named by the SHA-256 of its content. A manifest is JSON: the artifacts of one graph
by label and SHA-256.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regional_explorer.record.atomic_file import replacing
from regional_explorer.record.decode import from_json
from regional_explorer.torch_api import Machine, Settings, inductor_cache_directory

ARTIFACT_FORMAT = 2
MANIFEST_KIND = "regional-explorer artifacts"
_LIBRARIES = "libraries/"


class DamagedError(Exception):
    """A file is not what this package wrote, or others may have changed it."""


@dataclass(frozen=True)
class Label:
    """What identifies an artifact: its partition's fingerprint, its config, the global settings and the machine.

    ``region`` and ``graph`` are those of the first partition that has it.
    """

    key: str
    region: str
    graph: str
    fingerprint: str
    config: Mapping[str, str]
    settings: Mapping[str, str]
    machine: Machine

    @classmethod
    def here(
        cls, key: str, region: str, graph: str, fingerprint: str, config: Mapping[str, Any], devices: set[str]
    ) -> Label:
        """Return the label that an artifact has when it is compiled in this process, under its current settings."""
        config_texts = {name: repr(value) for name, value in sorted(config.items())}
        return cls(key, region, graph, fingerprint, config_texts, Settings.now().facts(), Machine.here(devices))

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


@dataclass(frozen=True)
class Packed:
    """An artifact as bytes: its code as torch pickles it, its dynamic sizes, its shared objects by name."""

    code: bytes
    sizes: bytes
    libraries: Mapping[str, bytes]


def archive_of(key: str, packed: Packed) -> bytes:
    """Return the content of the file of an artifact: equal ones have equal content."""
    libraries = {f"{_LIBRARIES}{name}": library for name, library in sorted(packed.libraries.items())}
    members = {"key": key.encode(), "code": packed.code, "sizes": packed.sizes, **libraries}
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # a ZipInfo has a fixed date
        return file.getvalue()


def read_archive(content: bytes, key: str) -> Packed:
    """Return the artifact in a file.

    Raises:
        Exception: of some kind, if it is not an archive of this package.
        DamagedError: it is that of another artifact.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if members["key"] != key.encode():
        raise DamagedError("it is that of another artifact")
    libraries = {
        name.removeprefix(_LIBRARIES): library for name, library in members.items() if name.startswith(_LIBRARIES)
    }
    return Packed(members["code"], members["sizes"], libraries)


def library_path(content: bytes) -> Path:
    """Return the path of a shared object in Inductor's cache directory; it is written there if it is missing."""
    path = Path(inductor_cache_directory(), "regional_explorer", f"x{sha256_of(content)[:32]}.so")
    if path.exists() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, 0o600) as file:
        file.write(content)
    return path
