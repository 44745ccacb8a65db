"""``pylog consume``: prints records of topics up to the end, or as they arrive (``--follow``).

It starts at the end by default, like Kafka's console consumer. Without ``--follow`` it stops at the
end that the log had at the start, so a busy log cannot keep it running. It commits nothing. With
``--group`` it is a member, continues from the committed offsets, and commits what it has printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pylog.cli.exits import OK, Terminated, UsageError
from pylog.cli.formats import DEFAULT_FORMAT, record_fields, text_format
from pylog.cli.options import ISOLATION_LEVELS, TIME_FORMS, Commands, log_options, moment_ms, open_log, whole_number
from pylog.cli.output import complain, json_line
from pylog.model import Record, TopicPartition

if TYPE_CHECKING:
    from pylog.consumer import Consumer
    from pylog.log import Log

_POLL_S = 3600.0
_POLL_RECORDS = 1000
_CLIENT_ID = "pylog-consume"

Writer = Callable[[list[Record]], None]


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "consume", parents=[log_options()], help="print the records of topics",
        description="Print the records of topics. Without a start (--from-beginning, --from-time, --offset) only those that "
        "arrive from now on, which takes --follow. --follow runs until Ctrl-C, and then exits with 0.",
    )  # fmt: skip
    parser.add_argument("topics", metavar="TOPIC", nargs="+")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="start at the first record kept")
    start.add_argument(
        "--from-time", metavar="TIME", help=f"start at the first record of this time or later: {TIME_FORMS}"
    )
    start.add_argument(
        "--offset", type=whole_number(), metavar="N", help="start at this offset of --partition; -N: N before the end"
    )
    parser.add_argument(
        "--partition", type=whole_number(0), action="append", metavar="N", help="only this partition; may be repeated"
    )
    parser.add_argument(
        "--group", metavar="NAME",
        help="as a member of this group: the partitions it gives, from where it has come to; commits what was printed. "
        "--from-beginning is then for partitions in which it has committed nothing",
    )  # fmt: skip
    parser.add_argument("--max-records", type=whole_number(1), metavar="N", help="end after this many records")
    parser.add_argument("--follow", action="store_true", help="wait for more records at the end")
    parser.add_argument("--isolation-level", choices=ISOLATION_LEVELS, default=ISOLATION_LEVELS[0])
    parser.add_argument(
        "--format", metavar="TEXT",
        help="%%t topic, %%p partition, %%o offset, %%T timestamp, %%d date, %%k key, %%v value, %%h headers, %%K and %%V bytes "
        f"in key and value; default: {DEFAULT_FORMAT.replace('%', '%%')}",
    )  # fmt: skip
    parser.add_argument(
        "--raw", action="store_true", help="values as they are, a newline after each; never to a terminal"
    )
    parser.set_defaults(run=_run, only_reads="without --group")


def _run(arguments: argparse.Namespace) -> int:
    write = _writer(arguments)
    if arguments.offset is not None and not arguments.partition:
        raise UsageError("--offset belongs to a partition: name it with --partition")
    if arguments.group is not None:
        return _consume_in_group(arguments, write)
    with open_log(arguments) as log:
        from pylog.consumer import Consumer

        with Consumer(
            log, auto_offset_reset="none", isolation_level=arguments.isolation_level, max_poll_records=_POLL_RECORDS
        ) as consumer:
            partitions = _assign(consumer, log, arguments)
            _seek(consumer, log, partitions, arguments)
            if arguments.follow:
                return _follow(consumer, write, arguments.max_records)
            if not arguments.from_beginning and arguments.from_time is None and arguments.offset is None:
                complain(
                    "note", "starting at the end, where nothing can come without --follow; or use --from-beginning"
                )
            _read_to_end(consumer, consumer.end_offsets(partitions), write, arguments.max_records)
    return OK


def _assign(consumer: Consumer, log: Log, arguments: argparse.Namespace) -> list[TopicPartition]:
    """Assign the requested partitions. ``--follow`` also reads partitions that are added later."""
    from pylog.catalog import no_such_partition

    partitions = []
    for topic in dict.fromkeys(arguments.topics):
        numbers = log.describe_topic(topic).numbers
        for number in arguments.partition or numbers:
            if number not in numbers:
                raise no_such_partition(topic, number, numbers)
            partitions.append(TopicPartition(topic, number))
    partitions = list(dict.fromkeys(partitions))
    if arguments.follow and not arguments.partition:
        consumer.subscribe(arguments.topics)
    else:
        consumer.assign(partitions)
    return partitions


def _seek(consumer: Consumer, log: Log, partitions: list[TopicPartition], arguments: argparse.Namespace) -> None:
    if arguments.from_beginning:
        consumer.seek_to_beginning()
    elif arguments.from_time is not None:
        consumer.seek_to_time(moment_ms(arguments.from_time, log.clock.now_ms()))
    elif arguments.offset is None:
        consumer.seek_to_end()
    else:
        beginnings, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        for partition in partitions:
            offset = arguments.offset
            consumer.seek(partition, offset if offset >= 0 else max(ends[partition] + offset, beginnings[partition]))


def _follow(consumer: Consumer, write: Writer, max_records: int | None) -> int:
    try:
        _print_what_comes(consumer, write, max_records)
    except Terminated:
        raise
    except KeyboardInterrupt:  # the normal end
        sys.stdout.flush()
    return OK


def _print_what_comes(
    consumer: Consumer, write: Writer, max_records: int | None, printed: dict[TopicPartition, int] | None = None
) -> None:
    """Gives ``printed`` the next position of each partition after records were printed and
    flushed."""
    left = max_records
    while left is None or left > 0:
        records = consumer.poll(_POLL_S, _at_most(left))
        write(records)
        sys.stdout.flush()
        if printed is not None:
            printed.update((TopicPartition(record.topic, record.partition), record.offset + 1) for record in records)
        left = None if left is None else left - len(records)


def _at_most(left: int | None) -> int | None:
    """The limit of a poll, so that no more than ``left`` records are returned."""
    return left if left is not None and left < _POLL_RECORDS else None


def _read_to_end(consumer: Consumer, ends: dict[TopicPartition, int], write: Writer, max_records: int | None) -> None:
    """Everything up to these ends, of the partitions that the consumer has."""
    left = max_records
    while left != 0:
        records = consumer.poll(0.0, _at_most(left))
        if not records:
            return
        names = [TopicPartition(record.topic, record.partition) for record in records]
        wanted = [record for name, record in zip(names, records, strict=True) if record.offset < ends.get(name, 0)]
        write(wanted)
        sys.stdout.flush()
        left = None if left is None else left - len(wanted)
        for name in set(names):
            end = ends.setdefault(name, 0)  # a partition added since
            if consumer.position(name) >= end:
                consumer.seek(name, end)  # a group commits the position: only what was printed
                consumer.pause(name)


# In a group


def _consume_in_group(arguments: argparse.Namespace, write: Writer) -> int:
    """Read as a member. Output is flushed before each poll, since the consumer then commits it."""
    if arguments.partition or arguments.offset is not None or arguments.from_time is not None:
        raise UsageError(
            "--group excludes --partition, --offset and --from-time: the group says what is read, and from where; "
            "pylog groups reset changes that"
        )
    with open_log(arguments, writing=True) as log:
        from pylog.consumer import Consumer

        partitions = [TopicPartition(name, n) for name in arguments.topics for n in log.describe_topic(name).numbers]
        try:
            # An interrupt must leave this block as an exception: unfinished output is not
            # committed.
            with Consumer(
                log, group_id=arguments.group, enable_auto_commit=True, client_id=_CLIENT_ID,
                auto_offset_reset="earliest" if arguments.from_beginning else "latest",
                isolation_level=arguments.isolation_level, max_poll_records=_POLL_RECORDS,
            ) as consumer:  # fmt: skip
                if arguments.follow:
                    _follow_in_group(consumer, write, arguments)
                else:
                    consumer.subscribe(arguments.topics)
                    _hint_where_a_group_begins(log, arguments)
                    _read_to_end(consumer, consumer.end_offsets(partitions), write, arguments.max_records)
                consumer.commit()  # here a failure becomes an exit code, but not on close
        except Terminated:
            raise
        except KeyboardInterrupt:
            if not arguments.follow:
                raise
    return OK


def _follow_in_group(consumer: Consumer, write: Writer, arguments: argparse.Namespace) -> None:
    """On an interrupt, commits exactly what was printed and flushed."""
    printed: dict[TopicPartition, int] = {}

    def begin(partitions: list[TopicPartition]) -> None:
        printed.update((partition, consumer.position(partition)) for partition in partitions)

    consumer.subscribe(arguments.topics, on_assigned=begin)
    try:
        _print_what_comes(consumer, write, arguments.max_records, printed)
    except KeyboardInterrupt:
        consumer.commit({partition: printed[partition] for partition in consumer.assignment() & printed.keys()})
        raise


def _hint_where_a_group_begins(log: Log, arguments: argparse.Namespace) -> None:
    """A group begins once: ``--from-beginning`` does not later read what it did not read then."""
    group = log.describe_group(arguments.group)
    is_new = len(group.members) == 1 and all(at.committed is None for at in group.partitions.values())
    if is_new and not arguments.from_beginning:
        complain(
            "note",
            f"group {arguments.group!r} had committed nothing, and begins at the end; pylog groups reset moves it "
            "elsewhere, as --from-beginning would have",
        )


def _writer(arguments: argparse.Namespace) -> Writer:
    """The function that prints records: ``--json``, ``--raw`` or text."""
    if sum((arguments.json, arguments.raw, arguments.format is not None)) > 1:
        raise UsageError("--json, --raw and --format exclude one another")
    if arguments.raw:
        if sys.stdout.isatty():
            raise UsageError(
                "--raw would let data steer the terminal: send it to a file or a pipe, or leave --raw away"
            )
        return _write_raw
    render = text_format(DEFAULT_FORMAT if arguments.format is None else arguments.format)
    if arguments.json:
        return lambda records: _write_lines([json_line(record_fields(record)) for record in records])
    return lambda records: _write_lines([render(record) for record in records])


def _write_lines(lines: list[str]) -> None:
    if lines:
        sys.stdout.write("\n".join(lines) + "\n")


def _write_raw(records: list[Record]) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(b"".join([(record.value or b"") + b"\n" for record in records]))
