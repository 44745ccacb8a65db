"""What must happen in a forked child before anything else runs there.

A child inherits descriptors and buffers but not threads. Objects with either register a method here; it is held
weakly and runs in the child, in the order of registration, right after the fork. It must not unlock anything (the lock
belongs to the parent too), wait for anything, or touch the disk.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count

_methods: dict[int, tuple[weakref.ref[object], Callable[[object], None]]] = {}  # in the order of registration
_numbers = count()
_forks = 0


def after_fork_in_child(method: Callable[[], None]) -> None:
    """Call the bound ``method`` in every child forked from now on, for as long as its object lives."""
    number = next(_numbers)
    forget = partial(_methods.pop, number)  # all in C: Python drops a signal handler's exception in such a callback
    _methods[number] = weakref.ref(method.__self__, forget), method.__func__  # type: ignore[attr-defined]


def forks() -> int:
    """Counts the forks of this process, and those it comes from, twice each: another number tells of one in between."""
    return _forks


def _count() -> None:
    global _forks  # noqa: PLW0603 - there is one process
    _forks += 1


def _run() -> None:
    for reference, function in list(_methods.values()):
        owner = reference()
        if owner is not None:  # pragma: no branch - what goes in this very loop, at most
            function(owner)


if hasattr(os, "register_at_fork"):  # pragma: no branch - the system's own
    os.register_at_fork(before=_count, after_in_parent=_count, after_in_child=_run)
