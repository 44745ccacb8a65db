"""Producer ids: ``.pylog/producer-ids`` holds the next unreserved one, changed under its lock.

Ids are reserved durably, in blocks, before the first one is used: the batches of an id that a power
failure brought back would count as repeats. Unused ids are lost with their process.

Without the file (a new log, or a lost file), ids begin at a random multiple of 1,000 in [2**40,
2**62). Kafka counts from 0, so a broker that serves these files assigns none of them. No block of a
running process is drawn again. A search for the log's greatest id would miss unused blocks.
"""

from __future__ import annotations

import threading  # producers of one process share a block

from pylog.clock import Clock
from pylog.codec.format import INT64_MAX
from pylog.errors import CorruptSegment, LogLocked, LogNotFound
from pylog.interrupts import own
from pylog.storage import FileSystem, after_fork_in_child, read_whole, while_holding, write_atomically
from pylog.turn import is_mine

BLOCK_IDS = 1000
LIKE_KAFKA_BELOW = 1 << 40
"""Kafka's ids, and those of earlier versions of pylog, count from 0 and stay below this."""
_RANDOM_BLOCKS = range(-(-LIKE_KAFKA_BELOW // BLOCK_IDS), -(-(1 << 62) // BLOCK_IDS))
_LEAST = BLOCK_IDS
_LAST_BLOCK = INT64_MAX + 1 - BLOCK_IDS
_LIMIT_BYTES = 64


class ProducerIds:
    """Draws the ids of one log for one process."""

    def __init__(self, filesystem: FileSystem, clock: Clock, path: str) -> None:
        self._filesystem = filesystem
        self._clock = clock
        self._path = path
        self._lock_path = f"{path}.lock"
        self._left: list[int] = []
        self._mutex = threading.RLock()
        after_fork_in_child(self._forget_parent)

    def next(self) -> int:
        if is_mine(self._mutex) and not self._left:
            raise LogLocked(
                f"{self._lock_path}: this thread is reserving producer ids, and was interrupted in it by a signal handler; "
                "try again when the handler has returned",
                path=self._lock_path,
            )
        with self._mutex:
            if not self._left:
                self._left = list(reversed(self._next_block()))
            return self._left.pop()

    def _next_block(self) -> range:
        try:
            return while_holding(self._filesystem, self._clock, self._lock_path, self._reserve)
        except own(FileNotFoundError) as error:
            raise LogNotFound.while_open(self._path.rpartition("/")[0]) from error

    def _reserve(self) -> range:
        """Reserve the next block. The lock is held."""
        first = read_next_id(self._filesystem, self._path)
        if first is None:
            first = self._random_start()
        write_atomically(self._filesystem, self._path, f"{first + BLOCK_IDS}\n".encode())
        return range(first, first + BLOCK_IDS)

    def _random_start(self) -> int:
        drawn = int.from_bytes(self._filesystem.random_bytes(8), "big")
        return _RANDOM_BLOCKS[drawn % len(_RANDOM_BLOCKS)] * BLOCK_IDS

    def _forget_parent(self) -> None:
        self._mutex = threading.RLock()
        self._left = []


def read_next_id(filesystem: FileSystem, path: str) -> int | None:
    """The next unreserved id, None without the file. ``CorruptSegment`` for anything else."""
    try:
        data = read_whole(filesystem, path, _LIMIT_BYTES)
    except own(FileNotFoundError):
        return None
    if not data.strip().isdigit() or not _LEAST <= int(data) <= _LAST_BLOCK:
        raise CorruptSegment(
            f"{path} holds {data[:30]!r}, expected a number from {_LEAST} to {_LAST_BLOCK}; "
            "remove the file: the next producer then begins at a new random number",
            path=path, position=0, found=data, least=_LEAST, most=_LAST_BLOCK,
        )  # fmt: skip
    return int(data)
