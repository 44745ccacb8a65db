"""Translates errors of the system into ``StorageFull`` (space ran out) and ``StorageError``."""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType

from pylog.errors import StorageError, StorageFull
from pylog.interrupts import is_foreign, own
from pylog.storage.descriptor_pool import remedy_for

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class translated:  # noqa: N801  (reads as a phrase: with translated("open", path))
    """Turn an ``OSError`` of the block into ``StorageFull`` or ``StorageError``.

    ``FileNotFoundError`` passes unchanged, and so does every exception of a signal handler.
    """

    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: str) -> None:
        self._action = action
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if (
            isinstance(error, OSError)
            and not isinstance(error, FileNotFoundError | StorageError)
            and not is_foreign(error)
        ):
            raise storage_error(self._action, self._path, error) from error


def storage_error(action: str, path: str, error: OSError) -> StorageError:
    """The typed error if the system refused to ``action`` the file at ``path``."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _FULL:
        return StorageFull(
            f"cannot {action} {path!r}: {reason}; free space and try again", path=path, errno=error.errno
        )
    why = why_denied(path) if error.errno == errno.EACCES else remedy_for(error.errno)
    return StorageError(f"cannot {action} {path!r}: {reason}{why}", path=path, errno=error.errno)


def why_denied(path: str) -> str:
    """Names the directory above ``path``, or ``path`` itself, that denies access; "" if unknown."""
    me, at = os.geteuid(), 0
    try:
        while (at := path.find("/", at) + 1) > 0:
            above = path[: at - 1] or "/"
            if not _allows(above, os.X_OK):
                return f", since user {me} may not enter {above!r} ({_whose(above)}): change the user, or allow it (chmod +x)"
        if os.path.lexists(path):
            return f" to user {me} ({_whose(path)})"
        above = path.rpartition("/")[0] or "."
        return "" if _allows(above, os.W_OK) else f", since user {me} may not write in {above!r} ({_whose(above)})"
    except own(OSError):
        return ""


def _allows(path: str, what: int) -> bool:
    return os.access(path, what, effective_ids=os.access in os.supports_effective_ids)


def _whose(path: str) -> str:
    found = os.lstat(path)
    return f"owner {found.st_uid}, group {found.st_gid}, mode {stat.S_IMODE(found.st_mode):o}"
