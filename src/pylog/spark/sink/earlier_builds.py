"""Logs of earlier builds, whose sinks had a commit of their own: it is finished, and then is ours.

Such a sink kept a decided commit in ``intent``, and the last batch of a query in ``state``, both
under ``lock``. What an intent names is appended as those builds did, with the sink's own producer,
whose sequences tell what is there already. The last batch becomes the offset of the query's group.

This file can go, with its part of docs/format.md, when no such log is left to be written to.
"""

from __future__ import annotations

import json
import logging
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pylog.codec.batch import read_header
from pylog.codec.checksum import crc32c
from pylog.codec.format import INT32_MAX, INT64_MAX, MAX_SEQUENCE
from pylog.codec.header import number
from pylog.errors import CorruptSegment, InvalidPartition, PylogError, TopicNotFound
from pylog.interrupts import own
from pylog.spark.sink.directory import SinkDirectory, is_staged_name
from pylog.spark.sink.staging import Staged, Target, staged_batches
from pylog.storage import read_whole, while_holding

if TYPE_CHECKING:
    from pylog.log import Log
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.spark")

FILES = STATE, INTENT, LOCK = "state", "intent", "lock"
LIMIT_BYTES = 64 << 20
TRANSACTION_TIMEOUT_MS = 60_000


class Share(NamedTuple):
    """A commit's records for one partition. They start at ``start_offset`` or later."""

    target: Target
    first_sequence: int
    records: int
    start_offset: int


class Intent(NamedTuple):
    """A decided commit of the batches of ``files``, in this order."""

    batch_id: int
    producer_id: int
    files: list[Staged]
    shares: list[Share]


def finish_earlier(log: Log, directory: SinkDirectory, timeout_ms: int) -> None:
    """Finish what sinks of earlier builds have left in this log. Another sink's failure is only
    logged."""
    for sink in directory.all():
        if not any(sink.filesystem.exists(sink.file(name)) for name in FILES):
            continue
        is_own = sink.sink_id == directory.sink_id
        work = partial(_finish, log, sink, timeout_ms)
        try:
            while_holding(
                sink.filesystem, log.clock, sink.file(LOCK), work, timeout_s=timeout_ms / 1000 if is_own else 0
            )
        except own(FileNotFoundError):
            pass  # another process was faster
        except own(PylogError) as error:
            if is_own:
                raise
            logger.warning("what sink %s of an earlier build has left could not be finished: %s", sink.sink_id, error)


def _finish(log: Log, sink: SinkDirectory, timeout_ms: int) -> None:
    state, intent = _read(sink, STATE), _read_intent(sink)
    if sink.is_save:
        last = 0
        if intent is not None:
            _append(log, sink, intent, timeout_ms)
    else:
        last = _finish_query(log, sink, -1 if state is None else state["batch_id"], intent, timeout_ms)
    sink.filesystem.remove(sink.file(INTENT))
    sink.filesystem.sync_directory(sink.path)
    sink.remove_up_to(last)
    for name in (STATE, LOCK):  # the lock last: while it is there, the next commit continues here
        sink.filesystem.remove(sink.file(name))
    sink.remove(())


def _finish_query(log: Log, sink: SinkDirectory, last: int, intent: Intent | None, timeout_ms: int) -> int:
    """Returns the last batch in the log, which is now the group's offset."""
    from pylog.group.position import POSITION, next_batch
    from pylog.producer.encoded import EncodedProducer

    name = f"spark:{sink.sink_id}"
    with closing(EncodedProducer(log.manager, name, TRANSACTION_TIMEOUT_MS)) as producer:
        committed = (next_batch(log.manager, name) or 0) - 1
        last = max(last, committed)
        if intent is not None and intent.batch_id > last:
            _append(log, sink, intent, timeout_ms)
            last = intent.batch_id
        if last > committed:
            producer.begin()
            producer.send_offsets({POSITION: last + 1}, name)
            producer.commit()
    return last


# Reading


def _read_intent(sink: SinkDirectory) -> Intent | None:
    content = _read(sink, INTENT)
    if content is None:
        return None
    try:
        files = [Staged(*entry) for entry in content["files"]]
        shares = [Share(Target(*entry[:3]), *entry[3:]) for entry in content["shares"]]
    except own(KeyError, TypeError) as error:
        raise _damaged(sink, INTENT, f"it is no commit ({error!r})") from error
    if not (all(map(_is_staged, files)) and all(map(_is_share, shares))):
        raise _damaged(sink, INTENT, "it names what cannot be")
    return Intent(content["batch_id"], content["producer_id"], files, shares)


def _is_staged(staged: Staged) -> bool:
    return is_staged_name(staged.name) and _are_numbers((staged.size_bytes, INT64_MAX), (staged.crc, 2**32 - 1))


def _is_share(share: Share) -> bool:
    topic, topic_id, partition = share.target
    return (
        isinstance(topic, str)
        and isinstance(topic_id, str)
        and _are_numbers((partition, INT32_MAX), (share.first_sequence, MAX_SEQUENCE), (share.records, MAX_SEQUENCE))
        and _are_numbers((share.start_offset, INT64_MAX))
        and share.records > 0
    )


def _are_numbers(*numbers: tuple[object, int]) -> bool:
    """Whether each is a whole number from 0 up to its limit."""
    return all(type(number) is int and 0 <= number <= limit for number, limit in numbers)


def _read(sink: SinkDirectory, name: str) -> dict[str, Any] | None:
    """The JSON after eight digits of its CRC-32C and a line's end, as in both files; None if there
    is no such file."""
    try:
        data = read_whole(sink.filesystem, sink.file(name), LIMIT_BYTES + 1)
    except own(FileNotFoundError):
        return None
    if len(data) > LIMIT_BYTES or data[:9] != b"%08x\n" % crc32c(data[9:]):
        raise _damaged(sink, name, f"{len(data)} bytes that don't fit their checksum")
    try:
        content = json.loads(data[9:].decode())
    except own(ValueError, RecursionError) as error:
        raise _damaged(sink, name, f"it is not JSON ({error})") from error
    if not isinstance(content, dict) or content.get("version") != 1:
        raise _damaged(sink, name, "it is no JSON object of version 1")
    if not _are_numbers((content.get("batch_id"), INT64_MAX), (content.get("producer_id"), INT64_MAX)):
        raise _damaged(sink, name, "it has no numbers of batch and producer")
    return content


def _damaged(sink: SinkDirectory, name: str, problem: str) -> CorruptSegment:
    path = sink.file(name)
    return CorruptSegment(
        f"{path} is damaged: {problem}; restore it from a copy. Without it the log does not know what the sink has written",
        path=path, position=0,
    )  # fmt: skip


# Appending


class _Part:
    """The records for one partition; its ``log`` is None if the topic is gone."""

    def __init__(self, share: Share, log: PartitionLog | None, there: int) -> None:
        self.share, self.log = share, log
        self.there = there  # this many records are in the log already
        self.passed = 0  # this many are done


def _append(log: Log, sink: SinkDirectory, intent: Intent, timeout_ms: int) -> None:
    """Append what is not in the log yet, and sync it. Records for a deleted topic are dropped."""
    parts = {share.target: _part(log, sink, intent, share, timeout_ms) for share in intent.shares}
    for staged in intent.files:
        for target, batch, least_ms in staged_batches(sink, staged):
            part = parts.get(target)
            if part is None:
                raise _damaged(sink, INTENT, f"{target} is in a file and not in the commit")
            passed, part.passed = part.passed, part.passed + read_header(batch).count
            if part.log is not None and passed >= part.there:
                number(batch, intent.producer_id, 0, part.share.first_sequence + passed & MAX_SEQUENCE)
                part.log.append_batch(batch, timeout_ms=timeout_ms, min_timestamp_ms=least_ms)
    for part in parts.values():
        if part.log is not None:
            part.log.sync(part.log.latest_offset)


def _part(log: Log, sink: SinkDirectory, intent: Intent, share: Share, timeout_ms: int) -> _Part:
    topic, topic_id, partition_number = share.target
    try:
        partition = log.partition(topic, partition_number).log
    except own(TopicNotFound, InvalidPartition):
        partition = None
    if partition is None or partition.topic_id != topic_id:
        logger.warning(
            "%s was deleted since a commit to it was decided; its %d records go with it", topic, share.records
        )
        return _Part(share, None, 0)
    expected = partition.next_sequence(intent.producer_id, timeout_ms)
    if expected is None:  # the partition has forgotten the producer
        expected = share.first_sequence
        for view in partition.batches(max(share.start_offset, partition.earliest_offset), partition.latest_offset):
            if view.header.producer_id == intent.producer_id:
                expected = view.header.last_sequence + 1 & MAX_SEQUENCE
    there = expected - share.first_sequence & MAX_SEQUENCE
    if there > share.records:
        problem = (
            f"{topic}-{partition_number} expects sequence {expected} of its producer, it has {share.records} records"
        )
        raise _damaged(sink, INTENT, f"it does not fit the log: {problem} from {share.first_sequence} on")
    return _Part(share, partition, there)
