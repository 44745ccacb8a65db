"""The machine's limit: system calls on one file, with nothing in between."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.settings import Scale, fresh, percentile, seconds
from benchmarks.workload import Measure, Sample

PIECE_BYTES = 1 << 20
SYNCED_BYTES = 4_096


@contextmanager
def bandwidth(place: Path, scale: Scale) -> Iterator[Measure]:
    """write(2) and read(2) of the page cache, a mebibyte at a time, and memcpy of as much."""
    pieces = scale.of(256)
    piece = os.urandom(PIECE_BYTES)
    target = bytearray(PIECE_BYTES)
    window = memoryview(target)

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
            for _ in range(pieces):
                window[:] = piece

        copied = seconds(copy)
        return {
            "write_bytes_per_s": total / written,
            "read_bytes_per_s": total / read,
            "memcpy_bytes_per_s": total / copied,
        }

    yield measure


@contextmanager
def synced_writes(place: Path, scale: Scale) -> Iterator[Measure]:
    """Appending 4 KiB to a file and fdatasync, again and again: what one durable commit costs at least."""
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
