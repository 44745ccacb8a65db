"""What a task writes: a file of encoded batches, as they will be in the log.

An ordinary producer encodes them; its partitions are parts of a file (``StagedLog``). The file is
read only after it is complete, and is never synced: the driver's transaction syncs the records.

Layout, big-endian (our own, see docs/format.md):

    0  magic "PYLGSTGD"     8  int16 version 2
    Then follow frames: uint8 kind, uint32 size of the body in bytes, body.
    Kind 1: the next partition, numbered from 0. Topic, topic id and number as text, separated by
    zero bytes. Kind 2: uint32 number of a partition, int64 least timestamp of the records, and a
    batch (v2) of them: base offset 0, no producer.

The checksum of a file leaves out the records, for each batch has its own. In version 1, of earlier
builds, it covers all bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from pylog.codec.batch import BatchView, check_header, read_header
from pylog.codec.checksum import crc32c
from pylog.codec.format import HEADER_BYTES, NO_PRODUCER_ID
from pylog.errors import CorruptSegment, NotAppended
from pylog.interrupts import own
from pylog.model import AppendResult, Flushable
from pylog.spark.sink.directory import SinkDirectory

if TYPE_CHECKING:
    from pylog.catalog import TopicDescription
    from pylog.manager.access import ProducerLog
    from pylog.storage import AppendableFile

MAGIC = b"PYLGSTGD"
VERSION = 2
_EARLIER_VERSION = 1

_HEAD = Struct(">8sh")
_FRAME = Struct(">BI")
_BATCH_FRONT = Struct(">Iq")
_PARTITION, _BATCH = 1, 2
_PARTITION_BYTES_MAX = 1024
_PARTITIONS_MAX = 1_000_000


class Target(NamedTuple):
    """A partition of the topic with this id. A recreated topic has another id."""

    topic: str
    topic_id: str
    partition: int


class Staged(NamedTuple):
    """A file that a task has finished. ``crc`` covers all bytes but the records."""

    name: str
    size_bytes: int
    crc: int


class StagedFile:
    """One task attempt's file, for one thread. The first batch creates it: no rows, no file."""

    def __init__(self, directory: SinkDirectory, batch_id: int, task_attempt: int) -> None:
        self._directory = directory
        self.name = directory.new_staged_name(batch_id, task_attempt)
        self._file: AppendableFile | None = None
        self._end = self._crc = 0
        self._targets: dict[Target, int] = {}
        self.failure: Exception | None = None  # the first one: later writes fail with it

    def append(self, target: Target, batch: bytearray, min_timestamp_ms: int) -> None:
        try:
            self._append(target, batch, min_timestamp_ms)
        except own(Exception) as error:
            self.failure = self.failure or error
            raise

    def _append(self, target: Target, batch: bytearray, min_timestamp_ms: int) -> None:
        if self.failure is not None:
            raise NotAppended(f"nothing more is staged in {self.name}: {self.failure}") from self.failure
        number = self._targets.get(target)
        if number is None:
            number = self._targets[target] = len(self._targets)
            body = f"{target.topic}\0{target.topic_id}\0{target.partition}".encode()
            self._write(_FRAME.pack(_PARTITION, len(body)) + body)
        front = _BATCH_FRONT.pack(number, min_timestamp_ms)
        self._write(_FRAME.pack(_BATCH, len(front) + len(batch)) + front)
        self._write(batch, HEADER_BYTES)

    def _write(self, data: bytes | bytearray, covered_bytes: int | None = None) -> None:
        """``covered_bytes`` of it go into the checksum, or all."""
        if self._file is None:
            self._directory.make()
            self._file = self._directory.filesystem.open_appendable(self._directory.file(self.name))
            if self._file.size():
                raise NotAppended(f"{self._file.path} is there already")
            self._write(_HEAD.pack(MAGIC, VERSION))
        self._file.pwrite(data, self._end)
        self._end += len(data)
        self._crc = crc32c(data[:covered_bytes], self._crc)

    def finish(self) -> Staged | None:
        """What the driver is told; None if nothing was staged."""
        if self._file is None:
            return None
        self._file.close()
        return Staged(self.name, self._end, self._crc)

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._directory.remove([self.name])


class StagedLog:
    """The log for a task's producer, which stages appends. It is its own manager."""

    def __init__(self, log: ProducerLog, file: StagedFile) -> None:
        self._log = log
        self._file = file
        self.clock = log.clock

    @property
    def manager(self) -> StagedLog:
        return self

    @property
    def path(self) -> str:
        return self._log.path

    @property
    def closed(self) -> bool:
        return self._log.closed

    def require_writable(self) -> None:
        self._log.require_writable()

    def close_gone(self, name: str) -> None:
        """Nothing is open."""

    def catalog_version(self) -> int:
        return self._log.catalog_version()

    def describe_topic(self, name: str) -> TopicDescription:
        return self._log.describe_topic(name)

    def topic_to_send_to(self, name: str) -> TopicDescription:
        return self._log.topic_to_send_to(name)

    def next_producer_id(self) -> int:
        return self._log.next_producer_id()

    def flush_on_close(self, producer: Flushable) -> None:
        self._log.flush_on_close(producer)

    def partition(self, topic: str, number: int) -> StagedPartition:
        return StagedPartition(Target(topic, self._log.describe_topic(topic).id, number), self._file)


class StagedPartition:
    """A partition for a task's producer."""

    is_closed = False

    def __init__(self, target: Target, file: StagedFile) -> None:
        self._target = target
        self._file = file
        self.topic_id = target.topic_id

    def append_batch(
        self,
        batch: bytearray,
        *,
        timeout_ms: int,
        min_timestamp_ms: int | None,
        require_ongoing: Callable[[], object] | None = None,
    ) -> AppendResult:
        assert min_timestamp_ms is not None  # a producer's encoder always gives it
        self._file.append(self._target, batch, min_timestamp_ms)
        return AppendResult(0, read_header(batch).last_offset_delta, -1, False)

    def is_syncing_here(self) -> bool:
        return False

    def sync(self, end_offset: int) -> None:
        """Nothing: a power failure takes an uncommitted batch as a whole."""


# Reading


class Part:
    """Where a file has the batches for one partition: a position, a size and a least timestamp
    each."""

    def __init__(self, staged: Staged, target: Target) -> None:
        self.staged = staged
        self.target = target
        self.positions, self.sizes, self.least_ms = array("q"), array("I"), array("q")

    def batches(self, directory: SinkDirectory) -> Iterator[tuple[bytearray, int]]:
        """The batches in order, each with its least timestamp. ``copy_file_range`` would not check
        them before they are in the log."""
        reader = _Reader(directory, self.staged)
        try:
            for position, size, least_ms in zip(self.positions, self.sizes, self.least_ms, strict=True):
                yield reader.batch(position, size), least_ms
        finally:
            reader.close()


def parts_of(directory: SinkDirectory, staged: Staged) -> list[Part]:
    """What a file has, by partition. Its checksum is compared, but no record is read.

    ``CorruptSegment`` if the file has changed.
    """
    reader = _Reader(directory, staged)
    parts: dict[Target, Part] = {}
    try:
        for target, position, size, least_ms in reader.scan():
            part = parts.get(target) or parts.setdefault(target, Part(staged, target))
            part.positions.append(position)
            part.sizes.append(size)
            part.least_ms.append(least_ms)
    finally:
        reader.close()
    return list(parts.values())


def staged_batches(directory: SinkDirectory, staged: Staged) -> Iterator[tuple[Target, bytearray, int]]:
    """Target, batch and least timestamp of all batches of a file, in order, each checked.

    The checksum is compared at the end: to use nothing of a damaged file, read it through first.
    """
    reader = _Reader(directory, staged)
    try:
        for target, position, size, least_ms in reader.scan():
            yield target, reader.batch(position, size), least_ms
    finally:
        reader.close()


class _Reader:
    def __init__(self, directory: SinkDirectory, staged: Staged) -> None:
        path = directory.file(staged.name)
        try:
            self._file = directory.filesystem.open_readable(path)
        except own(FileNotFoundError) as error:
            raise CorruptSegment(f"{path}, which a task has staged, is gone", path=path, position=0) from error
        self._staged = staged
        self._at = self._crc = 0
        self._targets: list[Target] = []
        self.close = self._file.close

    def scan(self) -> Iterator[tuple[Target, int, int, int]]:
        """Target, position, size and least timestamp of each batch."""
        staged = self._staged
        if self._file.size() != staged.size_bytes:
            self._damaged(f"it has {self._file.size()} bytes, {staged.size_bytes} were staged")
        head = self._read(_HEAD.size)
        if head not in (_HEAD.pack(MAGIC, VERSION), _HEAD.pack(MAGIC, _EARLIER_VERSION)):
            self._damaged("it does not begin as a staged file of this version")
        covers_records = head == _HEAD.pack(MAGIC, _EARLIER_VERSION)
        while self._at < staged.size_bytes:
            kind, size = _FRAME.unpack(self._read(_FRAME.size))
            if kind == _PARTITION and size <= _PARTITION_BYTES_MAX and len(self._targets) < _PARTITIONS_MAX:
                self._targets.append(self._target(self._read(size)))
            elif kind == _BATCH and size >= _BATCH_FRONT.size + HEADER_BYTES:
                number, least_ms = _BATCH_FRONT.unpack(self._read(_BATCH_FRONT.size))
                if number >= len(self._targets):
                    self._damaged(f"a batch for partition {number} of {len(self._targets)}")
                position, size = self._at, size - _BATCH_FRONT.size
                self._pass(size, covers_records)
                yield self._targets[number], position, size, least_ms
            else:
                self._damaged(f"a frame of kind {kind} and {size} bytes")
        if self._crc != staged.crc:
            self._damaged(f"its checksum is {self._crc:08x}, {staged.crc:08x} was staged")

    def _read(self, size: int) -> bytes:
        data = self._pread(size, self._at)
        self._at += size
        self._crc = crc32c(data, self._crc)
        return data

    def _pass(self, size: int, covers_records: bool) -> None:
        """Pass a batch."""
        self._require(size, self._at)
        if covers_records:
            self._read(size)
            return
        self._read(HEADER_BYTES)
        self._at += size - HEADER_BYTES

    def _pread(self, size: int, position: int) -> bytes:
        self._require(size, position)
        data = self._file.pread(size, position)
        if len(data) != size:
            self._damaged(f"{size} bytes expected, {len(data)} were there", position)
        return data

    def _require(self, size: int, position: int) -> None:
        """Before anything of this size is allocated."""
        if size > self._staged.size_bytes - position:
            self._damaged(f"{size} bytes expected, it ends at {self._staged.size_bytes}", position)

    def _target(self, body: bytes) -> Target:
        parts = body.decode("utf-8", "replace").split("\0")
        if len(parts) != 3 or not parts[2].isdecimal() or len(parts[2]) > 9:
            self._damaged(f"{body!r:.80} names no partition")
        return Target(parts[0], parts[1], int(parts[2]))

    def batch(self, position: int, size: int) -> bytearray:
        data = bytearray(self._pread(size, position))
        header = read_header(data)
        problem = check_header(header)
        if problem is None and header.size_bytes != size:
            problem = f"a batch of {header.size_bytes} bytes in {size}"
        if problem is None and (header.last_offset_delta != header.count - 1 or header.producer_id != NO_PRODUCER_ID):
            problem = f"a batch of producer {header.producer_id}, of {header.count} records"
        if problem is None and (header.is_control or header.is_transactional or header.is_log_append_time):
            problem = f"a batch with attributes {header.attributes:#x}"
        if problem is not None:
            self._damaged(problem, position)
        BatchView(data, header).check_crc()
        return data

    def _damaged(self, problem: str, position: int | None = None) -> NoReturn:
        at = self._at if position is None else position
        raise CorruptSegment(
            f"{self._file.path}, which a task has staged, is damaged before position {at}: {problem}",
            path=self._file.path, position=at, problem=problem,
        )  # fmt: skip
