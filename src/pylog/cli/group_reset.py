"""``pylog groups reset``: moves a group to other offsets. A dry run unless ``--execute`` is
given."""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pylog.cli.exits import OK, InputError, UsageError
from pylog.cli.options import TIME_FORMS, Commands, log_options, moment_ms, open_input, open_log, whole_number
from pylog.cli.output import complain, count_text, print_json, print_table
from pylog.errors import GroupNotFound
from pylog.model import TopicPartition

if TYPE_CHECKING:
    from pylog.group.descriptions import OffsetChange
    from pylog.log import Log

_FILE_BYTES_MAX = 64 << 20
_COLUMNS = ["topic", "partition", "offset"]

Numbers = dict[str, set[int] | None]
"""The wanted partitions of each topic; None: all."""


def add_parser(verbs: Commands) -> None:
    parser = verbs.add_parser(
        "reset", parents=[log_options()], help="set the offsets from which a group without members continues",
        description="Set the offsets from which a group without members continues. Prints what would change; --execute changes "
        "it. What is beyond the log becomes its end, or its beginning.",
    )  # fmt: skip
    parser.add_argument("group", metavar="GROUP")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="the first record kept")
    target.add_argument("--to-latest", action="store_true", help="the end")
    target.add_argument("--to-offset", type=whole_number(0), metavar="N", help="this offset")
    target.add_argument("--to-time", metavar="TIME", help=f"the first record of this time or later: {TIME_FORMS}")
    target.add_argument(
        "--shift-by", type=whole_number(), metavar="N", help="so many on from what is committed; -N: back"
    )
    target.add_argument(
        "--from-file", metavar="FILE",
        help="lines topic,partition,offset as Kafka's tool exports them, or what describe --json or reset --json printed; -: "
        "from stdin",
    )  # fmt: skip
    parser.add_argument(
        "--topic", type=_topic, action="append", metavar="TOPIC[:N,...]",
        help="only this topic, or these of its partitions; may be repeated (default: all that the group has committed in)",
    )  # fmt: skip
    parser.add_argument("--execute", action="store_true", help="commit these offsets; without it nothing changes")
    parser.set_defaults(run=_run, only_reads="without --execute")


def _topic(text: str) -> tuple[str, set[int] | None]:
    """An argparse type: ``orders``, or ``orders:0,2``."""
    topic, colon, numbers = text.partition(":")
    number = whole_number(0)
    return topic, {number(part) for part in numbers.split(",")} if colon else None


def _run(arguments: argparse.Namespace) -> int:
    wanted = _by_topic(arguments.topic or ())
    given = None if arguments.from_file is None else _only(wanted, read_offsets(arguments.from_file))
    with open_log(arguments, writing=arguments.execute) as log:
        changes = log.reset_offsets(
            arguments.group,
            None if given is not None or not wanted else [*_partitions(wanted)],
            dry_run=not arguments.execute,
            **_target(arguments, given, log.clock.now_ms()),
        )
        if not changes:
            nothing = f"group {arguments.group!r} has committed nothing; name topics with --topic"
            if given is not None:
                nothing = f"no offset in {arguments.from_file} is wanted"
            raise UsageError(f"nothing to reset: {nothing}")
        _print(arguments, changes)
        _warn_of_limits(arguments, given, changes)
        if not arguments.execute:
            _note_dry_run(log, arguments.group)
    return OK


def _by_topic(chosen: Iterable[tuple[str, set[int] | None]]) -> Numbers:
    wanted: Numbers = {}
    for topic, numbers in chosen:
        before = wanted.get(topic, set())
        wanted[topic] = None if numbers is None or before is None else before | numbers
    return wanted


def _partitions(wanted: Numbers) -> Iterator[TopicPartition | str]:
    for topic, numbers in wanted.items():
        if numbers is None:
            yield topic
        else:
            yield from (TopicPartition(topic, number) for number in numbers)


def _only(wanted: Numbers, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The partitions that ``--topic`` names, or all."""
    if not wanted:
        return offsets
    return {
        name: offset
        for name, offset in offsets.items()
        if name.topic in wanted and name.partition in (wanted[name.topic] or {name.partition})
    }


def _target(arguments: argparse.Namespace, given: dict[TopicPartition, int] | None, now_ms: int) -> dict[str, Any]:
    """The keyword argument for ``Log.reset_offsets``."""
    if arguments.to_earliest or arguments.to_latest:
        return {"to": "earliest" if arguments.to_earliest else "latest"}
    if arguments.to_offset is not None:
        return {"to": arguments.to_offset}
    if arguments.to_time is not None:
        return {"to_time_ms": moment_ms(arguments.to_time, now_ms)}
    return {"offsets": given} if given is not None else {"shift_by": arguments.shift_by}


def _print(arguments: argparse.Namespace, changes: dict[TopicPartition, OffsetChange]) -> None:
    if arguments.json:
        for name, change in changes.items():
            print_json({
                "group": arguments.group, **name._asdict(), "before": change.before, "offset": change.after,
                "executed": arguments.execute,
            })  # fmt: skip
        return
    print_table(
        ("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"),
        [(*name, "-" if change.before is None else change.before, change.after) for name, change in changes.items()],
    )


def _warn_of_limits(
    arguments: argparse.Namespace, given: dict[TopicPartition, int] | None, changes: dict[TopicPartition, OffsetChange]
) -> None:
    """Report offsets that were requested but are not in the log."""

    def asked(name: TopicPartition, change: OffsetChange) -> int:
        if given is not None:
            return given[name]
        if arguments.shift_by is not None and change.before is not None:
            return change.before + int(arguments.shift_by)
        return change.after if arguments.to_offset is None else int(arguments.to_offset)

    beyond = [
        f"{name.topic}-{name.partition}" for name, change in changes.items() if asked(name, change) != change.after
    ]
    if beyond:
        complain("warning", f"not in the log, so its beginning or end instead: {', '.join(beyond)}")


def _note_dry_run(log: Log, group: str) -> None:
    try:
        members = sum(member.is_alive for member in log.describe_group(group).members)
    except GroupNotFound:
        members = 0
    first = f"; {count_text(members, 'member')} of the group must be stopped first" if members else ""
    complain("note", f"nothing was changed: --execute does it{first}")


# Files


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """The offsets in a file; the last line of a partition counts. ``InputError`` if invalid."""
    from pylog.codec.format import INT64_MAX

    with open_input(None if path == "-" else path, "name a file") as file:
        data = file.read(_FILE_BYTES_MAX + 1)
    if len(data) > _FILE_BYTES_MAX:
        raise InputError(f"{path}: more than {_FILE_BYTES_MAX} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error}") from None
    rows = _json_rows(path, text) if text.lstrip().startswith("{") else _csv_rows(path, text)
    offsets = {}
    for line, row in rows:
        topic, partition, offset = row
        if not isinstance(topic, str) or not all(
            isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= INT64_MAX
            for number in (partition, offset)
        ):
            raise InputError(f"{path}: line {line}: expected a topic, a partition and an offset, got {row!r:.200}")
        offsets[TopicPartition(topic, partition)] = offset
    return offsets


def _csv_rows(path: str, text: str) -> Iterator[tuple[int, list[Any]]]:
    """Lines ``topic,partition,offset``, with or without this header line."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in reader:
            words = [word.strip() for word in row]
            if not any(words) or (words == _COLUMNS and reader.line_num == 1):
                continue
            if len(words) != len(_COLUMNS):
                raise InputError(f"{path}: line {reader.line_num}: expected topic,partition,offset, got {row!r:.200}")
            yield reader.line_num, [words[0], *map(_number, words[1:])]
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: {error}") from None


def _number(word: str) -> int | str:
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 19 else word


def _json_rows(path: str, text: str) -> Iterator[tuple[int, list[Any]]]:
    """Lines of ``reset --json`` or ``describe --json``. Partitions without a commit are skipped."""
    for line, words in enumerate(text.splitlines(), 1):
        if not words.strip():
            continue
        try:
            found = json.loads(words)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: line {line}: not JSON: {error}") from None
        rows = found.get("partitions", [found]) if isinstance(found, dict) else [found]
        for row in rows if isinstance(rows, list) else [rows]:
            if not isinstance(row, dict) or not row.keys() >= set(_COLUMNS):
                raise InputError(f"{path}: line {line}: no object with {', '.join(_COLUMNS)}: {row!r:.200}")
            if row["offset"] is not None:
                yield line, [row[column] for column in _COLUMNS]
