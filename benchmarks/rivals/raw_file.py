"""The machine's limit: system calls on one file, with nothing in between."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.settings import Scale, fresh, percentile, seconds
from benchmarks.workload import Measure, Sample

PIECE_BYTES = 1 << 20
SYNCED_BYTES = 4_096
BATCH_BYTES = 190  # of one record of 100 bytes
SLOT_BYTES = 64


@contextmanager
def bandwidth(place: Path, scale: Scale) -> Iterator[Measure]:
    """write(2) and read(2) of the page cache, a mebibyte at a time, and memcpy of as much."""
    pieces = scale.of(64)
    piece = os.urandom(PIECE_BYTES)
    window = memoryview(bytearray(PIECE_BYTES))
    source, target = bytearray(pieces * PIECE_BYTES), bytearray(pieces * PIECE_BYTES)  # larger than the caches

    def measure() -> Sample:
        total = pieces * PIECE_BYTES
        with fresh(place) as directory:
            file = os.open(directory / "raw", os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                written = seconds(lambda: [os.write(file, piece) for _ in range(pieces)])
                os.lseek(file, 0, os.SEEK_SET)
                read = seconds(lambda: [os.readv(file, [window]) for _ in range(pieces)])
            finally:
                os.close(file)

        def copy() -> None:
            target[:] = source

        copied = seconds(copy)
        return {
            "write_bytes_per_s": total / written,
            "read_bytes_per_s": total / read,
            "memcpy_bytes_per_s": total / copied,
        }

    yield measure


class AppendCalls:
    """The system calls that pylog makes for one append, and nothing else: the lock taken and looked
    at, the slots read, the end looked at, the bytes and a slot written, the lock freed.
    """

    def __init__(self, directory: Path) -> None:
        self._names = [str(directory / name) for name in ("lock", "slots", "data")]
        self._lock, self.slots, self._data = (os.open(name, os.O_RDWR | os.O_CREAT, 0o600) for name in self._names)
        os.pwrite(self.slots, bytes(2 * SLOT_BYTES), 0)
        self._batch = os.urandom(BATCH_BYTES)
        self._position = 0

    @property
    def slots_path(self) -> str:
        return self._names[1]

    def append(self, stamp: bytes = b"") -> None:
        """One of them. ``stamp`` begins the slot."""
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(self._names[0])
        os.pread(self.slots, 2 * SLOT_BYTES, 0)
        os.lseek(self._data, 0, os.SEEK_END)
        os.pwrite(self._data, self._batch, self._position)
        self._position += BATCH_BYTES
        os.pwrite(self.slots, stamp.ljust(SLOT_BYTES, b"\0"), 0)
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        for descriptor in (self._lock, self.slots, self._data):
            os.close(descriptor)


@contextmanager
def append_calls(place: Path, scale: Scale) -> Iterator[Measure]:
    """One append's system calls, as fast as they follow one another."""
    count = scale.of(20_000, at_least=200)

    def measure() -> Sample:
        took = []
        with fresh(place) as directory:
            calls = AppendCalls(directory)
            clock = time.perf_counter_ns
            for _ in range(count):
                start = clock()
                calls.append()
                took.append((clock() - start) / 1e3)
            calls.close()
        took.sort()
        return {"p50_us": percentile(took, 0.5), "p99_us": percentile(took, 0.99)}

    yield measure


@contextmanager
def synced_writes(place: Path, scale: Scale) -> Iterator[Measure]:
    """Appending 4 KiB to a file and fdatasync, again and again: what one durable commit costs at
    least."""
    count = scale.of(1_000, at_least=20)
    piece = os.urandom(SYNCED_BYTES)

    def measure() -> Sample:
        took = []
        with fresh(place) as directory:
            file = os.open(directory / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                for _ in range(count):
                    start = time.perf_counter()
                    os.write(file, piece)
                    os.fdatasync(file)
                    took.append((time.perf_counter() - start) * 1e6)
            finally:
                os.close(file)
        took.sort()
        return {
            "p50_us": percentile(took, 0.5),
            "p99_us": percentile(took, 0.99),
            "records_per_s": 1e6 * count / sum(took),
        }

    yield measure
