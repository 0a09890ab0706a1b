"""What the searches through objects share: the slots of classes, and which objects cannot be looked at."""

from __future__ import annotations

import functools
import types

LRU_CACHE = type(functools.lru_cache(lambda: None))
"""The class of functions under ``functools.lru_cache``."""


def is_readable(value: object) -> bool:
    """Return whether a value says what it is; the proxy of an object that is gone raises, and some lazy objects do."""
    try:
        return value.__class__ is not None
    except Exception:  # noqa: BLE001 - whatever a property of the user's raises
        return False


def has_slots(cls: type) -> bool:
    """Return whether a class or one of its bases declares ``__slots__``, which may be empty."""
    return any("__slots__" in vars(base) for base in cls.__mro__)


def slot_names(cls: type) -> list[str]:
    """Return the names of the slots of a class and its bases, without those for the ``__dict__`` and weak references.

    They are read from the descriptors: ``__slots__`` has private names as they are written, ``__cache`` for
    ``_Model__cache``.
    """
    return [
        name
        for base in cls.__mro__
        if "__slots__" in vars(base)
        for name, attribute in vars(base).items()
        if isinstance(attribute, types.MemberDescriptorType)
    ]
