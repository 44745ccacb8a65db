"""The files of one transactional id. Only the table outlives a boot, so nothing here is synced."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pylog.catalog.layout import Layout, check_encodable
from pylog.interrupts import own, suppress
from pylog.storage import FileLock, FileSystem, same_process
from pylog.transaction.state import OWNER_BYTES

_OWNER_SUFFIX = ".owner"
_GONE = "."  # prefix of the directories of ids that are forgotten


class TransactionDirectory(NamedTuple):
    """The directory of one transactional id. ``boot`` is ``boot_of`` its filesystem."""

    filesystem: FileSystem
    transactional_id: str
    path: str
    boot: int

    @classmethod
    def of(cls, filesystem: FileSystem, layout: Layout, transactional_id: str, boot: int) -> TransactionDirectory:
        return cls(filesystem, transactional_id, layout.transaction(transactional_id), boot)

    @property
    def lock(self) -> str:
        return f"{self.path}/lock"

    @property
    def state(self) -> str:
        return f"{self.path}/state"

    def owner(self, owner: bytes) -> str:
        """The file that this owner locks while it lives."""
        return f"{self.path}/{owner.hex()}{_OWNER_SUFFIX}"

    def is_alive(self, owner: bytes) -> bool:
        """Whether this owner's process lives. Needs no write permission."""
        return self.filesystem.is_locked(self.owner(owner))

    def owners(self) -> list[bytes]:
        """Every owner that has left a file. A power failure may have taken the directory."""
        try:
            names = self.filesystem.names(self.path)
        except own(FileNotFoundError):
            return []
        return [bytes.fromhex(name.removesuffix(_OWNER_SUFFIX)) for name in names if _is_owner(name)]

    @property
    def is_gone(self) -> bool:
        """Whether it is one that an expiry has renamed."""
        return self.path.rpartition("/")[2].startswith(_GONE)

    def rename_away(self) -> TransactionDirectory:
        """Atomic: who waits for its lock finds that the lock is not in place."""
        gone = f"{self.path.rpartition('/')[0]}/{_GONE}{self.filesystem.random_bytes(8).hex()}"
        self.filesystem.replace(self.path, gone)
        return self._replace(path=gone)

    def clear(self) -> None:
        """Remove the directory, which was renamed."""
        with suppress(FileNotFoundError):  # another process is removing it
            for name in self.filesystem.names(self.path):
                self.filesystem.remove(f"{self.path}/{name}")
            self.filesystem.remove_directory(self.path)

    def open_lock(self) -> FileLock:
        """The id's lock, in a directory that is made for it."""
        while True:
            self.make()
            with suppress(FileNotFoundError):  # an expiry has removed the directory again
                return self.filesystem.lock(self.lock)

    def same_process(self) -> Callable[[], None]:
        """To be called before the lock is taken: see ``storage.same_process``."""
        return same_process(
            self.filesystem,
            f"{self.lock} was held by this thread",
            path=self.lock,
            transactional_id=self.transactional_id,
        )

    def make(self) -> None:
        for directory in (self.path.rpartition("/")[0], self.path):
            self.filesystem.make_directory(directory)


def _is_owner(name: str) -> bool:
    stem = name.removesuffix(_OWNER_SUFFIX)
    return len(stem) == 2 * OWNER_BYTES and stem != name and not stem.strip("0123456789abcdef")


def check_transactional_id(value: object, ignores_case: bool = False) -> str:
    """Return it if it can be a transactional id; else ``ConfigError``."""
    return check_encodable(value, "transactional_id", "a transactional id", ignores_case)
