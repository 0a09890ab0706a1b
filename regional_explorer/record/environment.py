"""The environment that figures are measured in, and how it differs from an earlier one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from regional_explorer.errors import count
from regional_explorer.record import Count, Record


class Environment(Record, frozen=True):
    """The torch, Python, machine and settings in which a call is traced and measured."""

    torch: str
    python: str
    device: str
    """The device of the call."""
    threads: Count
    mode: str = ""
    """The mode of the call's modules, such as ``training mode``; empty if there are none, or in an older file."""
    settings: Mapping[str, str] = {}
    """The other settings of torch that change compiled code, by name."""

    @property
    def device_type(self) -> str:
        """The type of the device: ``cuda`` for ``cuda:0 (NVIDIA H100)``."""
        return self.device.partition(" ")[0].partition(":")[0]

    def changes_since(self, measured: Environment | None) -> tuple[str, ...]:
        """Return what differs from the environment of figures: ``1 thread (measured with 2)``; empty if nothing."""
        return () if measured is None or measured == self else tuple(self._changes_since(measured))

    def _changes_since(self, measured: Environment) -> Iterator[str]:
        if self.threads != measured.threads:
            yield f"{count(self.threads, 'thread')} (measured with {measured.threads})"
        if self.mode != measured.mode:
            yield f"{self.mode or 'no modules'} (measured in {measured.mode or 'no modules'})"
        for name in sorted(self.settings.keys() | measured.settings.keys()):
            now, before = (each.settings.get(name, "default") for each in (self, measured))
            if now != before:
                yield f"{name} {now} (measured with {before})"
