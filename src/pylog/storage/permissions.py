"""Modes and owners: new files inherit both from their directory, regardless of the umask.

So the administrator of the root decides with ``chmod``, every process makes the same modes, and no
file is writable by all users. Users who may only read must not be able to lock: a shared lock needs
only a descriptor open for reading, and excludes writers.

The owner of a log can use files that root, or a member of the owner's group, made in it. A new file
belongs to its maker; only root can give it to another user, others only to one of their groups.
Owners are changed by descriptor. The owner, then the mode, are set before any data is written.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from functools import cache

from pylog.interrupts import own

logger = logging.getLogger("pylog.storage")

PRIVATE_MODE = 0o700
SHARED_GROUP_MODE = 0o2770

_NO_MODES_HERE = _NO_TIMES_HERE = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
ROOT = 0
_NO_OWNERS_HERE = (errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
_FOR_THE_GROUP = 0o070


def file_mode(directory: int) -> int:
    return directory & 0o664


def lock_mode(directory: int) -> int:
    """The mode of a lock file, from its own or its directory's mode: only writers have access."""
    return directory & (0o660 if directory & 0o020 else 0o600)


def keep_readers_out(descriptor: int) -> None:
    """Revoke access that a ``chmod -R`` gave to mere readers. Only the lock's owner can do it."""
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode != lock_mode(mode):
        set_mode(descriptor, lock_mode(mode))


def directory_mode(above: int) -> int:
    return above & 0o2775


def set_mode(descriptor: int, mode: int) -> None:
    """Set a mode; also on a file just made with it, since the umask may have removed bits."""
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        try:
            os.fchmod(descriptor, mode)
        except own(OSError) as error:
            if error.errno not in _NO_MODES_HERE:  # vfat, for example: the mount decides
                raise


def give_to_owner(descriptor: int, above: os.stat_result, path: str) -> None:
    """Give what was just made at ``path`` to the owner and the group of ``above``, its directory.

    Call it before the mode is set: a new owner may cost mode bits. The system may refuse, for
    owners unknown in this user namespace or filesystems without owners. That is logged once.
    """
    found = os.fstat(descriptor)
    is_root = os.geteuid() == ROOT
    user = above.st_uid if is_root else found.st_uid
    group = above.st_gid if is_root or above.st_mode & _FOR_THE_GROUP else found.st_gid
    if (user, group) == (found.st_uid, found.st_gid):
        return
    try:
        os.fchown(descriptor, user if user != found.st_uid else -1, group)
    except own(OSError) as error:
        if error.errno not in _NO_OWNERS_HERE:
            raise
        _warn(path.rpartition("/")[0] or ".", user, group, error.errno)


def works_for_another(above: os.stat_result) -> bool:
    """Whether this process runs as root and ``above`` belongs to another user."""
    return above.st_uid != ROOT == os.geteuid()


def give_directory_to_owner(descriptor: int, above: os.stat_result, path: str) -> bool:
    """Like ``give_to_owner``, for a directory that a root process has just made. True if given.

    ``mkdir`` returns no descriptor, and the owner of ``above`` can replace the directory before it
    is opened. So a directory that is not root's, or is not empty, stays as it is.
    """
    if works_for_another(above) and (os.fstat(descriptor).st_uid != ROOT or os.listdir(descriptor)):
        return False
    give_to_owner(descriptor, above, path)
    return True


def excuse_time(path: str, error: OSError) -> None:
    """Raise the error unless this process may not set file times there. That is logged once for a
    directory."""
    if error.errno not in _NO_TIMES_HERE:
        raise error
    _warn_of_time(path.rpartition("/")[0] or ".", error.errno)


@cache
def _warn_of_time(directory: str, number: int) -> None:
    logger.warning(
        "this process may not set the times of files in %r: %s; retention_clock='append' counts from when they were made",
        directory, os.strerror(number),
    )  # fmt: skip


@cache
def _warn(directory: str, user: int, group: int, number: int) -> None:
    logger.warning(
        "new files in %r can't be given to the owner of that directory (user %d, group %d): %s; if these cannot "
        "use the log afterwards, chown its files",
        directory, user, group, os.strerror(number),
    )  # fmt: skip
