"""Who owns what pylog makes in a log: the owner and the group of the directory it is made in.

So the owner of a log can use what root, or a member of the owner's group, left in it. The system gives a new
file to the process that makes it: only root can give it to another user, and others can give it to a group
of theirs. Files are given by their descriptors, before anything is written.
"""

from __future__ import annotations

import errno
import logging
import os
from functools import cache

from pylog.interrupts import own

logger = logging.getLogger("pylog.storage")

ROOT = 0
_NO_OWNERS_HERE = (errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
_FOR_THE_GROUP = 0o070


def give_to_owner(descriptor: int, above: os.stat_result, path: str) -> None:
    """Give what was just made at ``path`` to the owner and the group of ``above``, its directory.

    Must come before the mode is set: changing the owner may take bits of the mode away. The system may refuse:
    for owners that are not known in this user namespace, or filesystems without owners. That is logged once.
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
    """Whether this process is root's, and makes something in a directory of another user."""
    return above.st_uid != ROOT == os.geteuid()


def give_directory_to_owner(descriptor: int, above: os.stat_result, path: str) -> bool:
    """The same for a directory that this process, or another one of root's, has just made. True if it was given.

    ``mkdir`` returns no descriptor, and the owner of ``above`` can put another directory at its name before it is
    opened. One that is not root's, or not empty, therefore stays as it is.
    """
    if works_for_another(above) and (os.fstat(descriptor).st_uid != ROOT or os.listdir(descriptor)):
        return False
    give_to_owner(descriptor, above, path)
    return True


@cache
def _warn(directory: str, user: int, group: int, number: int) -> None:
    logger.warning(
        "new files in %r can't be given to the owner of that directory (user %d, group %d): %s; if these cannot "
        "use the log afterwards, chown its files",
        directory, user, group, os.strerror(number),
    )  # fmt: skip
