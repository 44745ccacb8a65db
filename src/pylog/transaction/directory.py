"""The files of one transactional id. Only the table outlives a boot, so nothing here is synced."""

from __future__ import annotations

from typing import NamedTuple

from pylog.catalog.layout import Layout, encoded_group
from pylog.errors import ConfigError
from pylog.interrupts import own
from pylog.storage import FileSystem
from pylog.transaction.state import OWNER_BYTES

NAME_BYTES_MAX = 200  # of the directory's name
_OWNER_SUFFIX = ".owner"


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

    def make(self) -> None:
        for directory in (self.path.rpartition("/")[0], self.path):
            self.filesystem.make_directory(directory)


def _is_owner(name: str) -> bool:
    stem = name.removesuffix(_OWNER_SUFFIX)
    return len(stem) == 2 * OWNER_BYTES and stem != name and not stem.strip("0123456789abcdef")


def check_transactional_id(value: object) -> str:
    """Return it if it can be a transactional id; else ``ConfigError``."""
    try:
        if isinstance(value, str) and value and len(encoded_group(value)) <= NAME_BYTES_MAX:
            return value
    except UnicodeEncodeError:
        pass
    raise ConfigError(
        f"a transactional id is text of 1 to {NAME_BYTES_MAX} bytes (a character that no topic's name can have counts three for "
        f"each of its bytes), got {value!r:.80}",
        option="transactional_id", value=value,
    )  # fmt: skip
