"""What must happen in a forked child before anything else runs there.

A child inherits descriptors and buffers but not threads. Objects with either register a method here; it is held
weakly and runs in the child, in the order of registration, right after the fork. It must not unlock anything (the lock
belongs to the parent too), wait for anything, or touch the disk.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

_methods: list[weakref.WeakMethod[Callable[[], None]]] = []
_forks = 0


def after_fork_in_child(method: Callable[[], None]) -> None:
    """Call the bound ``method`` in every child forked from now on, for as long as its object lives."""
    if len(_methods) % 64 == 0:
        _methods[:] = [reference for reference in _methods if reference() is not None]
    _methods.append(weakref.WeakMethod(method))


def forks() -> int:
    """Counts the forks of this process, and those it comes from, twice each: another number tells of one in between."""
    return _forks


def _count() -> None:
    global _forks  # noqa: PLW0603 - there is one process
    _forks += 1


def _run() -> None:
    for reference in list(_methods):
        method = reference()
        if method is not None:
            method()


if hasattr(os, "register_at_fork"):  # pragma: no branch - the system's own
    os.register_at_fork(before=_count, after_in_parent=_count, after_in_child=_run)
