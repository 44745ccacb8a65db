"""Runs cleanup methods in a forked child before any other code.

A child inherits descriptors and buffers, but not threads. Objects with either register a method,
which is referenced weakly and runs in the child right after the fork, in the order of registration.
It must not unlock anything (the lock belongs to the parent too), wait, or access the disk.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count

_methods: dict[int, tuple[weakref.ref[object], Callable[[object], None]]] = {}
_numbers = count()
_forks = 0


def after_fork_in_child(method: Callable[[], None]) -> None:
    """Call the bound ``method`` in every child forked from now on, while its object lives."""
    number = next(_numbers)
    forget = partial(_methods.pop, number)  # in C: a Python callback drops a handler's exception
    _methods[number] = weakref.ref(method.__self__, forget), method.__func__  # type: ignore[attr-defined]


def forks() -> int:
    """Counts forks of this process and its ancestors, twice each; a change means a fork."""
    return _forks


def _count() -> None:
    global _forks  # noqa: PLW0603 - there is one process
    _forks += 1


def _run() -> None:
    for reference, function in list(_methods.values()):
        owner = reference()
        if owner is not None:  # pragma: no branch - freed during this loop, at most
            function(owner)


if hasattr(os, "register_at_fork"):  # pragma: no branch - the system's own
    os.register_at_fork(before=_count, after_in_parent=_count, after_in_child=_run)
