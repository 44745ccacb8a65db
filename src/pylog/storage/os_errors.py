"""The system's errors, translated once: space that ran out, and everything else."""

from __future__ import annotations

import errno
import os
from types import TracebackType

from pylog.errors import StorageError, StorageFull
from pylog.storage.descriptor_pool import remedy_for

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class translated:  # noqa: N801  (reads as a phrase: with translated("open", path))
    """Turn an ``OSError`` of the block into ``StorageFull`` or ``StorageError``; ``FileNotFoundError`` passes."""

    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: str) -> None:
        self._action = action
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError | StorageError):
            raise storage_error(self._action, self._path, error) from error


def storage_error(action: str, path: str, error: OSError) -> StorageError:
    """The typed error for a refusal by the system while pylog wanted to ``action`` the file at ``path``."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _FULL:
        return StorageFull(
            f"cannot {action} {path!r}: {reason}; free space and try again", path=path, errno=error.errno
        )
    return StorageError(f"cannot {action} {path!r}: {reason}{remedy_for(error.errno)}", path=path, errno=error.errno)
