"""Opening what must be a regular file. What stands there instead is refused, and never waited for as a FIFO would be."""

from __future__ import annotations

import os
import stat

from pylog.errors import StorageError

_NEVER_WAIT = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: str, flags: int) -> int:
    """A descriptor of the file at ``path``. ``StorageError`` where it is no regular file; else the system's own error."""
    descriptor = os.open(path, flags | _NEVER_WAIT, 0o666)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise StorageError(
            f"{path!r} is {kind}, expected a regular file; move it away, and put the file back from a copy if there was one",
            path=path,
            kind=kind,
            expected="a regular file",
        )
    except BaseException:
        os.close(descriptor)
        raise
