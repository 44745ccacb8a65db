"""What the methods of a ``Partition`` may be given: checked before anything is read or written."""

from __future__ import annotations

from pylog.checks import require_count, require_whole
from pylog.errors import ConfigError, OffsetOutOfRange
from pylog.model import OffsetRange, TopicPartition
from pylog.partition.commit_slots import CommitState
from pylog.partition.read.visibility import check_isolation


def check_append(acks: object, expected_offset: object, timeout_ms: object) -> None:
    if not isinstance(acks, str | int) or isinstance(acks, bool) or acks not in ("all", 1, -1):
        raise ConfigError(f"acks={acks!r:.80}, expected 'all' or 1", option="acks", value=acks)
    if expected_offset is not None:
        require_count("expected_offset", expected_offset, 0)
    require_count("timeout_ms", timeout_ms, 0)


def check_read(offset: object, max_bytes: object, max_records: object, isolation_level: str) -> None:
    require_whole("offset", offset)
    require_count("max_bytes", max_bytes, 1)
    if max_records is not None:
        require_count("max_records", max_records, 1)
    check_isolation(isolation_level)


def offset_range(start: int | None, end: int | None, partition: TopicPartition, state: CommitState) -> OffsetRange:
    """From ``start`` (None: the earliest) to ``end`` (None: the latest), in a partition in this state."""
    first, latest = state.log_start_offset, state.high_watermark
    stop = latest if end is None else require_count("end", end, 0)
    if start is None:
        return OffsetRange(first, stop)
    if not first <= require_whole("start", start) <= latest:
        raise OffsetOutOfRange(
            f"offset {start} of {partition.topic}-{partition.partition} is out of range: the log holds {first} to {latest}",
            topic=partition.topic,
            partition=partition.partition,
            offset=start,
            earliest=first,
            latest=latest,
        )
    if end is not None and stop < start:
        raise ConfigError(f"end {stop} is before start {start}", option="end", value=end, start=start)
    return OffsetRange(start, stop)
