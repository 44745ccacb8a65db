"""A small language for tests of partitions: lay one out, fill it, damage its files, look at it.

Partitions are opened without a Log, straight from a directory, so that thousands of openings cost
little.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import crc32c

from pylog.catalog import TopicConfig
from pylog.codec import RecordEncoder
from pylog.codec.batch import BatchHeader, build_batch, stamp, write_header
from pylog.codec.control import ControlType, build_marker
from pylog.codec.format import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    CONTROL_KEY_STRUCT,
    HEADER_BYTES,
    LENGTH_POSITION,
    TRANSACTIONAL_BIT,
)
from pylog.index.offset_index import ENTRY as OFFSET_ENTRY
from pylog.index.time_index import ENTRY as TIME_ENTRY
from pylog.log import Log
from pylog.model import ProducerRecord, Record, TopicPartition
from pylog.partition import Cursor, Partition
from pylog.partition.directory import PartitionDirectory
from pylog.partition.partition_log import PartitionLog
from pylog.partition.verify import verify_partition
from pylog.partition.write.durability import Durability
from pylog.partition.write.writer import PartitionWriter
from pylog.storage import FileSystem, OsFileSystem
from pylog.testing.manual_clock import ManualClock
from pylog.turn import Turn
from tests.codec.reference import scan_headers

START_MS = 1_700_000_000_000
TP = TopicPartition("t", 0)


class OwnPartition(Partition):
    """A partition that no ``Log`` closes."""

    def close(self) -> None:
        self.log.close()


def open_partition(
    directory: Path | str,
    filesystem: FileSystem | None = None,
    *,
    clock: ManualClock | None = None,
    read_only: bool = False,
    is_kafka: bool = False,
    config: TopicConfig | None = None,
    topic_id: str = "id",
    number: int = 0,
    **changes: Any,
) -> OwnPartition:
    """A handle on the partition in ``directory``, which is laid out first if it is not there."""
    filesystem = filesystem or OsFileSystem()
    settings = config or TopicConfig(**changes)
    prepare(directory, filesystem)
    there = PartitionDirectory(
        filesystem,
        clock or ManualClock(),
        str(directory),
        TopicPartition(TP.topic, number),
        lambda: settings,
        boot_of(filesystem),
        "" if is_kafka else topic_id,
        is_kafka=is_kafka,
    )
    return partition_in(there, topic_id=topic_id, read_only=read_only)


def partition_in(directory: PartitionDirectory, *, topic_id: str = "id", read_only: bool = False) -> OwnPartition:
    """A handle without a ``Log`` around it."""
    why = "it was opened with read_only=True" if read_only else None
    return OwnPartition(
        PartitionLog(
            directory,
            topic_id=topic_id,
            log_start=0,
            notify=lambda: None,
            sync_catalog=lambda: None,
            why_read_only=why,
        )
    )


def durability_of(partition: Partition) -> Durability:
    """What syncs the partition. It must have been written."""
    writing = partition.log._writing
    assert writing
    return writing.durability


def topic_of(log: Log, name: str, **options: Any) -> Partition:
    """A new topic's first partition."""
    log.create_topic(name, **options)
    return log.partition(name, 0)


def open_writer(directory: Path | str, filesystem: FileSystem, config: TopicConfig) -> PartitionWriter:
    """Only the part that recovers and appends."""
    boot = boot_of(filesystem)
    return PartitionWriter(
        PartitionDirectory(filesystem, ManualClock(), str(directory), TP, lambda: config, boot, "id")
    )


def boot_of(filesystem: FileSystem) -> int:
    return crc32c.crc32c(filesystem.boot_id().encode())


def prepare(directory: Path | str, filesystem: FileSystem) -> None:
    if not os.path.isdir(directory):
        os.makedirs(directory)
        PartitionDirectory.create(filesystem, str(directory), "id", boot_of(filesystem))


@contextmanager
def in_turn(turn: Turn) -> Iterator[None]:
    """While this thread has the turn."""
    assert turn.take(timeout=0)
    try:
        yield
    finally:
        turn.leave()


def one(value: bytes | str, timestamp_ms: int | None = None) -> list[ProducerRecord]:
    return [ProducerRecord(value.encode() if isinstance(value, str) else value, timestamp_ms=timestamp_ms)]


def many(*values: str, timestamp_ms: int | None = None) -> list[ProducerRecord]:
    return [ProducerRecord(value.encode(), timestamp_ms=timestamp_ms) for value in values]


def spans(partition: Partition, first_ms: int, last_ms: int) -> list[tuple[int, int]]:
    return partition.log.reader.spans_of_times(0, partition.latest_offset, first_ms, last_ms)


def problems(directory: Path) -> list[str]:
    return [str(p) for p in verify_partition(OsFileSystem(), str(directory), TP)]


def values(records: list[Record]) -> list[str]:
    return [record.value.decode() for record in records]


def values_of_topic(log: Log, topic: str) -> list[bytes | None]:
    """Of all records, partition after partition."""
    return [record.value for n in log.describe_topic(topic).numbers for record in log.partition(topic, n).scan()]


def everything(partition: Partition, isolation_level: str = "read_uncommitted") -> list[tuple[int, bytes]]:
    """Offset and value of every record that such a reader gets, batch after batch as a consumer
    does."""
    cursor = Cursor(partition.earliest_offset)
    found: list[tuple[int, bytes]] = []
    while True:
        fetched = partition.log.fetch(cursor, max_bytes=1 << 20, isolation_level=isolation_level, visibility="written")
        for view in fetched.batches:
            found += [(record.offset, record.value) for record in view.records() if record.offset >= cursor.offset]
        if fetched.cursor.offset == cursor.offset:
            return found
        cursor = fetched.cursor


def batch(
    *values: bytes,
    key: bytes | None = None,
    timestamp_ms: int = START_MS,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """One encoded batch."""
    encoder = RecordEncoder(1 << 24)
    for value in values:
        encoder.append(timestamp_ms, key, value, ())
    return build_batch(
        encoder, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )


def batch_of_size(size_bytes: int, seed: int = 0) -> bytearray:
    """A batch of one record that takes exactly ``size_bytes``, filled with bytes that look like
    nothing."""
    fill = bytes((seed * 31 + 7 * at + (at >> 5)) % 251 for at in range(size_bytes))
    for length in range(max(size_bytes - 80, 0), size_bytes):
        made = batch(fill[:length], timestamp_ms=START_MS + seed)
        if len(made) == size_bytes:
            return made
    raise AssertionError(f"no batch of one record has {size_bytes} bytes")


def headers_that_claim_everything(size: int, base_offset: int = 0) -> bytes:
    """Headers one behind the other, each of a batch that would reach to the end. No checksum is
    right."""
    made = bytearray()
    while size - len(made) >= HEADER_BYTES:
        header = bytearray(batch(b"a value", b"another")[:HEADER_BYTES])
        length = size - len(made) - BATCH_OVERHEAD
        header[LENGTH_POSITION : LENGTH_POSITION + 4] = length.to_bytes(4, "big")
        stamp(header, base_offset, 0)
        made += header
    return bytes(made) + bytes(size - len(made))


def marker(producer_id: int, epoch: int, *, commit: bool, timestamp_ms: int = START_MS) -> bytearray:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return build_marker(kind, producer_id, epoch, 0, timestamp_ms)


def control_batch(kind: int, producer_id: int = -1, epoch: int = -1, *, key: bytes | None = None) -> bytearray:
    """A control batch of any kind, or with any key."""
    encoder = RecordEncoder(1 << 10)
    encoder.append(START_MS, CONTROL_KEY_STRUCT.pack(0, kind) if key is None else key, bytes(6), ())
    made = encoder.take_batch()
    attributes = CONTROL_BIT | (TRANSACTIONAL_BIT if producer_id >= 0 else 0)
    write_header(made, attributes, 1, START_MS, START_MS, producer_id, epoch, -1)
    return made


def append_encoded(partition: Partition, encoded: bytearray) -> int:
    """Append a batch built above; its base offset."""
    return partition.log.append_batch(encoded).base_offset


def no_marker(key: bytes = b"\0", producer_id: int = 7, epoch: int = 0) -> bytearray:
    """A control batch, checksum and all, that says neither commit nor abort."""
    encoder = RecordEncoder(1 << 20)
    encoder.append(START_MS, key, b"zz", ())
    made = encoder.take_batch()
    write_header(made, CONTROL_BIT | TRANSACTIONAL_BIT, 1, START_MS, START_MS, producer_id, epoch, -1)
    return made


# Files


def log_file(directory: Path, base: int = 0) -> Path:
    return directory / f"{base:020d}.log"


def file_of(directory: Path, base: int, kind: str) -> Path:
    return directory / f"{base:020d}{kind}"


def snapshot_of(directory: Path) -> dict[str, bytes]:
    """Every byte below a directory, by name."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b"directory"
        for path in sorted(directory.rglob("*"))
    }


def copy_of(directory: Path, name: str = "copy") -> Path:
    target = directory.with_name(name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(directory, target)
    return target


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def flip(path: Path, position: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def headers(path: Path) -> list[tuple[int, BatchHeader]]:
    return list(scan_headers(path.read_bytes()))


def bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


# Indexes, made from the log alone: a second writing of docs/format.md, "Indexes"


def expected_indexes(
    directory: Path, base: int, interval_bytes: int, *, closed: bool, batches: int | None = None
) -> tuple[bytes, bytes]:
    """Of the first ``batches``, or of all."""
    offsets, times = bytearray(), bytearray()
    last_indexed, last_ms, latest_ms, latest_offset = 0, -1, -1, base
    for position, header in islice(headers(log_file(directory, base)), batches):
        if header.max_timestamp_ms > latest_ms:
            latest_ms, latest_offset = header.max_timestamp_ms, header.last_offset
        if position - last_indexed > interval_bytes:
            offsets += OFFSET_ENTRY.pack(header.last_offset - base, position)
            last_indexed = position
            if latest_ms > last_ms and (latest_ms, latest_offset) != (0, base):
                times += TIME_ENTRY.pack(latest_ms, latest_offset - base)
                last_ms = latest_ms
    if closed and latest_ms > last_ms and (latest_ms, latest_offset) != (0, base):
        times += TIME_ENTRY.pack(latest_ms, latest_offset - base)
    return bytes(offsets), bytes(times)


def assert_indexes_follow_from_the_log(directory: Path, interval_bytes: int, active_base: int | None = None) -> None:
    """Every index in the directory, up to the active segment's, has the bytes that its log alone
    gives it.

    Closed or not: the active segment's time index may have its closing entry, or one that it had
    when another process closed it, until the next one is written over it.
    """
    all_bases = bases(directory)
    active = all_bases[-1] if active_base is None else active_base
    for base in [base for base in all_bases if base <= active]:
        offsets, times = expected_indexes(directory, base, interval_bytes, closed=base != active)
        assert bytes_of(file_of(directory, base, ".index")) == offsets, f"offset index of segment {base}"
        found = bytes_of(file_of(directory, base, ".timeindex"))
        ends = closing_entries(directory, base, interval_bytes, times)
        assert found == times or found in ends, f"time index of segment {base}"


def closing_entries(directory: Path, base: int, interval_bytes: int, times: bytes) -> Iterator[bytes]:
    """The time index with the entry that it got, or would have got, as a process closed it, the
    last batch first."""
    for count in range(len(headers(log_file(directory, base))), 0, -1):
        closed = expected_indexes(directory, base, interval_bytes, closed=True, batches=count)[1]
        if closed[: len(times)] == times:
            yield closed


def bytes_of(path: Path) -> bytes:
    """The content of a file; one that is not there has none."""
    return path.read_bytes() if path.exists() else b""
