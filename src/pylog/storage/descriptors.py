"""Descriptors that always have an owner, which closes them when nothing refers to it any more.

What ``os.open`` returns is a number that nobody owns until it is stored, and a signal handler may raise right after the call.
So here the call of the system and the making of the owner are one call into C. The owner is an object of C as well: Python
drops an exception that a handler raises inside a ``__del__``. Its class is that of epoll objects, the one in Python's library
that takes any descriptor and closes it silently. Systems without it have an owner in Python.
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
        """Its number. ``ValueError`` once it is closed."""

    def close(self) -> None:
        """Close it; nothing where that has been done. ``OSError``."""


class PythonDescriptor:
    """The owner where C has none: a handler's exception in ``__del__`` is lost, and one right after the opening leaks."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        if self._number < 0:
            raise ValueError("the descriptor has been closed")
        return self._number

    def close(self) -> None:
        number, self._number = getattr(self, "_number", -1), -1  # it may have been interrupted before it was anything
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        give_back(self)


_OWNER: Callable[[int], Descriptor] = select.epoll.fromfd if hasattr(select, "epoll") else PythonDescriptor
_IS_ONE = (-1).__ne__  # what a function of C answers that failed must not reach epoll, to which it means a new one


def open_descriptor(name: str, flags: int, mode: int = 0o777, directory: int | None = None) -> Descriptor:
    """``os.open``. ``OSError``."""
    return next(owned(map(partial(os.open, dir_fd=directory), (name,), (flags,), (mode,))))


def owned(numbers: Iterable[int]) -> Iterator[Descriptor]:
    """An owner for each descriptor as it is opened by ``numbers``, an iterator in C; none for -1."""
    return map(_OWNER, filter(_IS_ONE, numbers))


def give_back(descriptor: Descriptor) -> None:
    """Close what nothing was written through. Linux has closed it whatever it answers, so that is not told."""
    try:
        descriptor.close()
    except own(OSError):
        return
