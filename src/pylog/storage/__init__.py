"""The only package that calls the operating system. ``filesystem.py`` documents its guarantees."""

from os import fspath

from pylog.storage.atomic_file import read_whole, write_atomically
from pylog.storage.directories import make_directory_durably, sync_name
from pylog.storage.filesystem import AppendableFile, Buffer, FileLock, FileSystem, ReadableFile, Watch
from pylog.storage.fork import after_fork_in_child
from pylog.storage.locked import LOCK_TIMEOUT_MS, LOCK_TIMEOUT_S, SLEEP_MAX_S, acquire, holding, while_holding
from pylog.storage.os_filesystem import NETWORK_FILESYSTEMS, OsFileSystem
from pylog.storage.os_lock import LOCK_KIND
from pylog.storage.os_sockets import acknowledge_at_once
from pylog.storage.permissions import PRIVATE_MODE, SHARED_GROUP_MODE
from pylog.storage.same_process import same_process

__all__ = [
    "LOCK_KIND",
    "LOCK_TIMEOUT_MS",
    "LOCK_TIMEOUT_S",
    "NETWORK_FILESYSTEMS",
    "PRIVATE_MODE",
    "SHARED_GROUP_MODE",
    "SLEEP_MAX_S",
    "AppendableFile",
    "Buffer",
    "FileLock",
    "FileSystem",
    "OsFileSystem",
    "ReadableFile",
    "Watch",
    "acknowledge_at_once",
    "acquire",
    "after_fork_in_child",
    "fspath",
    "holding",
    "make_directory_durably",
    "read_whole",
    "same_process",
    "sync_name",
    "while_holding",
    "write_atomically",
]
