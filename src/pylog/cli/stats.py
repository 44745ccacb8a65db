"""``pylog stats``: offsets, sizes and times of partitions, at a glance.

It is cheap whatever the size of the log. It only reads the first batch and the headers of the
newest batches (about the last thousand offsets), which give records per batch and compression. The
greatest timestamp comes from the time indexes and those headers.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pylog.cli.exits import OK, code_of
from pylog.cli.options import Commands, log_options, open_log
from pylog.cli.output import complain, print_json, print_table, size_text, time_text
from pylog.errors import CorruptRecord, MissingCodec, PylogError, StorageError

if TYPE_CHECKING:
    from pylog.codec.batch import BatchHeader
    from pylog.partition import Partition, SegmentInfo
    from pylog.storage import FileSystem

SAMPLED_OFFSETS = 1000
_TITLES = (
    "PARTITION", "EARLIEST", "LATEST", "STABLE", "SIZE", "SEGMENTS", "FIRST RECORD", "NEWEST RECORD", "RECORDS/BATCH",
    "COMPRESSION",
)  # fmt: skip


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "stats", parents=[log_options()], help="offsets, sizes and times of partitions",
        description="Offsets, sizes and times of partitions. Cheap: of the data it reads the first batch and the headers of the "
        f"newest {SAMPLED_OFFSETS} offsets, which RECORDS/BATCH and COMPRESSION are about.",
    )  # fmt: skip
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all")
    parser.set_defaults(run=_run, only_reads=True)


def _run(arguments: argparse.Namespace) -> int:
    from pylog.storage import OsFileSystem

    filesystem = OsFileSystem()
    rows: list[dict[str, Any]] = []
    unread: dict[str, list[str]] = {}
    code = OK
    with open_log(arguments) as log:
        for topic in dict.fromkeys(arguments.topics or log.topics()):
            try:
                numbers = log.describe_topic(topic).numbers
            except (CorruptRecord, StorageError) as error:  # the other partitions can still be shown
                complain("error", str(error))
                code = code_of(error)
                continue
            for number in numbers:
                try:
                    row, lacking = _statistics(filesystem, log.partition(topic, number))
                except (PylogError, FileNotFoundError) as error:
                    complain("error", f"{topic}-{number}: {error}")
                    code = code_of(error)
                    continue
                rows.append(row)
                if lacking is not None:
                    unread.setdefault(str(lacking), []).append(f"{topic}-{number}")
    if arguments.json:
        for row in rows:
            print_json(row)
    else:
        print_table(_TITLES, [_cells(row) for row in rows])
    for missing, names in unread.items():
        complain("warning", f"the first record's time is not known of {', '.join(names)}: {missing}")
    return code


def _statistics(filesystem: FileSystem, partition: Partition) -> tuple[dict[str, Any], MissingCodec | None]:
    """The figures of a partition, and the library that is missing to read the first record."""
    from pylog.codec.compression import codec_name

    segments = partition.segments
    earliest, latest = partition.earliest_offset, partition.latest_offset
    first, missing = [], None
    try:
        first = partition.read(earliest, max_bytes=1, max_records=1) if earliest < latest else []
    except MissingCodec as error:
        missing = error
    sample = _newest_headers(filesystem, partition, segments[-1]) if segments else []
    data = [header for header in sample if not header.is_control]
    row = {
        "topic": partition.topic,
        "partition": partition.number,
        "earliest_offset": earliest,
        "latest_offset": latest,
        "last_stable_offset": partition.last_stable_offset,
        "durable_offset": partition.durable_offset,
        "size_bytes": sum(segment.size_bytes for segment in segments),
        "segments": len(segments),
        "first_timestamp_ms": first[0].timestamp_ms if first else None,
        "newest_timestamp_ms": _newest_timestamp_ms(filesystem, segments, data),
        "records_per_batch": round(sum(header.count for header in data) / len(data), 1) if data else None,
        "compression": [codec_name(codec) for codec in sorted({header.codec for header in data})],
        "sampled_batches": len(data),
    }
    return row, missing


def _newest_headers(filesystem: FileSystem, partition: Partition, active: SegmentInfo) -> list[BatchHeader]:
    """The newest headers of the active segment, from an indexed batch on; [] if unreadable."""
    from pylog.index import OffsetIndexReader
    from pylog.segment import SegmentScan
    from pylog.segment.naming import LOG, OFFSET_INDEX

    start = 0
    try:
        file = filesystem.open_readable(active.path.removesuffix(LOG) + OFFSET_INDEX)
        with closing(OffsetIndexReader(file, active.base_offset)) as index:
            start = index.floor(partition.latest_offset - SAMPLED_OFFSETS).position
    except FileNotFoundError:
        pass
    with closing(filesystem.open_readable(active.path)) as file:
        end = min(active.size_bytes, file.size())
        scan = SegmentScan(file, start, end, next_offset=0, dense=False, check_crc=False)
        return [header for _, header in scan]


def _newest_timestamp_ms(
    filesystem: FileSystem, segments: tuple[SegmentInfo, ...], sample: list[BatchHeader]
) -> int | None:
    """The greatest timestamp: from time indexes, and the newest headers of the active segment."""
    from pylog.index import TimeIndexReader
    from pylog.segment.naming import LOG, TIME_INDEX

    newest = max((header.max_timestamp_ms for header in sample), default=-1)
    for segment in segments:
        try:
            file = filesystem.open_readable(segment.path.removesuffix(LOG) + TIME_INDEX)
        except FileNotFoundError:
            continue
        with closing(TimeIndexReader(file, segment.base_offset)) as index:
            last = index.last()
        newest = max(newest, last.timestamp_ms if last is not None else -1)
    return newest if newest >= 0 else None


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        f"{row['topic']}-{row['partition']}", row["earliest_offset"], row["latest_offset"], row["last_stable_offset"],
        size_text(row["size_bytes"]), row["segments"],
        time_text(row["first_timestamp_ms"]), time_text(row["newest_timestamp_ms"]),
        "-" if row["records_per_batch"] is None else row["records_per_batch"], ",".join(row["compression"]) or "-",
    )  # fmt: skip
