"""The way to a name below a root: directory by directory, and never through a symbolic link.

Who may write in a log's directory can swap any name in it for a link at any moment. A path that the kernel resolves at once
would follow it; here each directory on the way is opened as itself, and the last step is taken from that descriptor. The
root itself may be reached through links: that is its user's choice. Nothing is kept open.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType

from pylog.errors import StorageError
from pylog.interrupts import own
from pylog.storage.descriptor_pool import with_descriptor
from pylog.storage.descriptors import Descriptor, give_back, open_descriptor
from pylog.storage.os_errors import translated
from pylog.storage.status import is_link

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_INTO = os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)  # to pass, not to list


class reached:  # noqa: N801  (reads as a phrase: with reached(root, "remove", path) as (directory, name, no_follow))
    """Where ``path`` is: the descriptor of a directory (None: the process's own), the name there, and ``O_NOFOLLOW``.

    Without a root, or outside of it, the path as it stands, and 0. An ``OSError`` of the block is translated as by
    ``translated``.
    """

    __slots__ = ("_action", "_descriptor", "_path", "_root")

    def __init__(self, root: str | None, action: str, path: str) -> None:
        self._root = root
        self._action = action
        self._path = path
        self._descriptor: Descriptor | None = None

    def __enter__(self) -> tuple[int | None, str, int]:
        root, path = self._root, self._path
        if root is None or not path.startswith(f"{root}/"):
            return None, path, 0
        end = path.find("/", len(root) + 1)
        if end < 0:
            return None, path, os.O_NOFOLLOW
        name = path[:end]
        try:
            while True:
                above = None if self._descriptor is None else self._descriptor.fileno()
                self._descriptor = with_descriptor(open_descriptor, name, _INTO, directory=above)
                start, end = end + 1, path.find("/", end + 1)
                if end < 0:
                    return self._descriptor.fileno(), path[start:], os.O_NOFOLLOW
                name = path[start:end]
        except own(OSError) as error:
            self._close()
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and is_link(path[:end]):
                raise link_refused(path[:end]) from error
            with translated(self._action, path):
                raise
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            give_back(descriptor)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            self._close()
        if isinstance(error, OSError):
            translated(self._action, self._path).__exit__(kind, error, trace)


def link_refused(path: str) -> StorageError:
    """What is said of a symbolic link where none is followed."""
    return StorageError(
        f"{path!r} is a symbolic link, and inside a log none is followed; put what it leads to in its place (a bind "
        "mount will do)",
        path=path,
        kind="a symbolic link",
    )
