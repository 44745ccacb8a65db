"""Hands out producer ids: ``.pylog/producer-ids`` holds the next unreserved one, changed under its lock.

Ids are reserved in blocks, durably, before the first of a block is used: an id that came back after a loss of power would
have its batches taken for repeats of the earlier producer's. Unused ids of a block are lost with their process; there are
2**63.
"""

from __future__ import annotations

import threading  # producers of one process share a block

from pylog.clock import Clock
from pylog.errors import CorruptSegment, LogLocked, LogNotFound
from pylog.interrupts import own
from pylog.storage import FileSystem, after_fork_in_child, read_whole, while_holding, write_atomically
from pylog.turn import is_mine

BLOCK_IDS = 1000
FIRST_BLOCK = range(BLOCK_IDS)  # belongs to the process that creates the log, so that it needs no file yet
_LAST_BLOCK = 2**63 - BLOCK_IDS  # ids are int64
_LIMIT_BYTES = 64


class ProducerIds:
    """The ids of one log, as one process draws them."""

    def __init__(self, filesystem: FileSystem, clock: Clock, path: str, lock_path: str, block: range | None) -> None:
        self._filesystem = filesystem
        self._clock = clock
        self._path = path
        self._lock_path = lock_path
        self._left = list(reversed(block)) if block is not None else []
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
        """The next block. The lock is held."""
        first = self._read()
        write_atomically(self._filesystem, self._path, f"{first + BLOCK_IDS}\n".encode())
        return range(first, first + BLOCK_IDS)

    def _read(self) -> int:
        try:
            data = read_whole(self._filesystem, self._path, _LIMIT_BYTES)
        except own(FileNotFoundError):
            return FIRST_BLOCK.stop
        if not data.strip().isdigit() or not FIRST_BLOCK.stop <= int(data) <= _LAST_BLOCK:
            raise CorruptSegment(
                f"{self._path} holds {data[:30]!r}, expected a number from {FIRST_BLOCK.stop} to {_LAST_BLOCK}; "
                "stop the producers, and write one there that is above every producer id in the log",
                path=self._path,
                position=0,
                found=data,
                least=FIRST_BLOCK.stop,
                most=_LAST_BLOCK,
            )
        return int(data)

    def _forget_parent(self) -> None:
        self._mutex = threading.RLock()
        self._left = []
