"""Exchanges two names in one step: Linux's ``renameat2``, macOS's ``renameatx_np``."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from pylog.interrupts import own

_CALLS = (("renameat2", 2), ("renameatx_np", 2))  # RENAME_EXCHANGE, RENAME_SWAP
_HERE = {"Linux": -100, "Darwin": -2}  # AT_FDCWD


def exchange(first: str, of_first: int | None, second: str, of_second: int | None) -> None:
    """Each name leads to the other's file or directory. ``OSError``: ``ENOSYS`` if the system can't
    do it."""
    import ctypes  # only for a backup

    here = _HERE.get(os.uname().sysname, -100)
    library = ctypes.CDLL(None, use_errno=True)
    call, flag = _call_of(library)
    before, after = (here if at is None else at for at in (of_first, of_second))
    if call(before, os.fsencode(first), after, os.fsencode(second), ctypes.c_uint(flag)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _call_of(library: object) -> tuple[Callable[..., int], int]:
    for name, flag in _CALLS:
        try:
            return getattr(library, name), flag
        except own(AttributeError):
            continue
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
