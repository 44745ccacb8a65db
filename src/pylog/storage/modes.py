"""Who may read and write what pylog makes: whoever may do so with the directory it is made in, whatever the umask says.

So the one who administers the root decides with ``chmod``, every process makes the same modes, and nothing that others
may write comes into being. Whoever may only read must not be able to lock: a shared lock takes no more than a
descriptor open for reading, and keeps the writers out. Modes are set before anything is written.
"""

from __future__ import annotations

import errno
import os
import stat

from pylog.interrupts import own

PRIVATE = 0o700
SHARED_GROUP = 0o2770

_NO_MODES_HERE = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


def of_file(directory: int) -> int:
    """The mode of a file in a directory of this mode."""
    return directory & 0o664


def of_lock(directory: int) -> int:
    """The mode of a lock in a directory of this mode, or of one that has this mode: for those who may write."""
    return directory & (0o660 if directory & 0o020 else 0o600)


def keep_readers_out(descriptor: int) -> None:
    """Take back what a ``chmod -R`` may have given to those who may only read. Only a lock's owner can."""
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode != of_lock(mode):
        give(descriptor, of_lock(mode))


def of_directory(above: int) -> int:
    """The mode of a directory in one of this mode."""
    return above & 0o2775


def give(descriptor: int, mode: int) -> None:
    """Set a mode; on what was just made with it, since the umask may have taken something away."""
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        try:
            os.fchmod(descriptor, mode)
        except own(OSError) as error:
            if error.errno not in _NO_MODES_HERE:  # vfat and the like: who mounted it decides
                raise
