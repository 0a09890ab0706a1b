"""Finds the slots of classes, private ones under the names that Python gives them."""

from __future__ import annotations

import types


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
