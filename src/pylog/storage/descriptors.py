"""Descriptors with an owner object, which closes them when no reference to it is left.

``os.open`` returns a number without an owner, and a signal handler may raise before it is stored.
So the system call and the creation of the owner are one call into C. The owner is a C object too:
Python drops a handler's exception in a ``__del__``. It is an epoll object, the only one in Python's
library that takes any descriptor and closes it silently; without epoll it is a Python object.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from pylog.interrupts import own


class Descriptor(Protocol):
    """An open descriptor, closed at the latest when the object is freed."""

    def fileno(self) -> int:
        """The descriptor's number. ``ValueError`` after ``close``."""

    def close(self) -> None:
        """Close the descriptor, if it is open. ``OSError``."""


class PythonDescriptor:
    """The owner without epoll; it may lose a handler's exception, or leak a descriptor."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        if self._number < 0:
            raise ValueError("the descriptor has been closed")
        return self._number

    def close(self) -> None:
        # ``__init__`` may have been interrupted
        number, self._number = getattr(self, "_number", -1), -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        give_back(self)


_OWNER: Callable[[int], Descriptor] = select.epoll.fromfd if hasattr(select, "epoll") else PythonDescriptor
_IS_OPEN = (-1).__ne__  # a failed C function returns -1, for which epoll opens a new descriptor


def open_descriptor(name: str, flags: int, mode: int = 0o777, directory: int | None = None) -> Descriptor:
    """``os.open``. ``OSError``."""
    return next(owned(map(partial(os.open, dir_fd=directory), (name,), (flags,), (mode,))))


def owned(numbers: Iterable[int]) -> Iterator[Descriptor]:
    """An owner for each descriptor that ``numbers``, an iterator in C, opens; -1 is skipped."""
    return map(_OWNER, filter(_IS_OPEN, numbers))


def give_back(descriptor: Descriptor) -> None:
    """Close a descriptor that was not written. Ignores errors: Linux closes it nevertheless."""
    try:
        descriptor.close()
    except own(OSError):
        return
