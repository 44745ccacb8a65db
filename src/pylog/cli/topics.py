"""``pylog topics``: create, list, describe, alter and delete topics."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pylog.cli.exits import OK, PROBLEM, UsageError, code_of
from pylog.cli.options import Commands, log_options, open_log, topic_config, whole_number
from pylog.cli.output import (
    complain,
    count_text,
    duration_text,
    print_answer,
    print_line,
    print_table,
    size_text,
    time_text,
)
from pylog.cli.transactions import open_fields, open_text
from pylog.errors import CorruptRecord, PylogError, StorageError, TopicExists, TopicNotFound

if TYPE_CHECKING:
    from pylog.catalog import TopicDescription
    from pylog.cleaner.description import PartitionDescription
    from pylog.log import Log
    from pylog.transaction.descriptions import OpenTransactionDescription

_TITLES = (
    "  partition", "earliest", "latest", "segments", "size", "other files", "oldest record", "newest record", "span", "open",
    "dirty",
)  # fmt: skip
_CONFIG_HELP = "an option of the topic, as segment.bytes=1048576 or segment_bytes=1048576; may be repeated"


def add_parser(commands: Commands) -> None:
    group = commands.add_parser("topics", help="create, list, describe, alter, rename, repartition and delete topics")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    log = [log_options()]

    create = verbs.add_parser("create", parents=log, help="create a topic, and the log if there is none")
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument("--partitions", type=whole_number(1), default=1, metavar="N", help="default: 1")
    create.add_argument("--config", action="append", default=[], metavar="OPTION=VALUE", help=_CONFIG_HELP)
    create.add_argument(
        "--if-not-exists", action="store_true", help="leave a topic of this name as it is, without error"
    )
    create.set_defaults(run=_create, only_reads=False)

    listing = verbs.add_parser("list", parents=log, help="the names of all topics")
    _add_exclusion(listing)
    listing.set_defaults(run=_list, only_reads=True)

    describe = verbs.add_parser("describe", parents=log, help="partitions, sizes and configuration of topics")
    describe.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all")
    _add_exclusion(describe)
    describe.set_defaults(run=_describe, only_reads=True)

    alter = verbs.add_parser(
        "alter", parents=log, help="change a topic's configuration, or add partitions",
        description="Change options of a topic for all processes, durably. With writable=false no process appends records any "
        "more.",
    )  # fmt: skip
    alter.add_argument("topic", metavar="TOPIC")
    alter.add_argument("--config", action="append", default=[], metavar="OPTION=VALUE", help=_CONFIG_HELP)
    alter.add_argument(
        "--partitions", type=whole_number(1), metavar="N", help="grow to so many; keys are then hashed over all of them"
    )
    alter.set_defaults(run=_alter, only_reads=False)

    rename = verbs.add_parser(
        "rename", parents=log, help="give a topic another name; groups keep their positions",
        description="Give a topic another name while others use it, durably. Waits up to 30 s for open transactions. Who uses "
        "the old name does not find it any more.",
    )  # fmt: skip
    rename.add_argument("topic", metavar="TOPIC")
    rename.add_argument("name", metavar="NAME", help="the new name")
    rename.set_defaults(run=_rename, only_reads=False)

    repartition = verbs.add_parser(
        "repartition", parents=log, help="give a topic more or fewer partitions; each key keeps its order",
        description="Copies the topic while others use it, and puts the copy in its place, durably. Needs as much disk space "
        "again. Offsets begin at 0; groups continue where they have committed; producers send again what fails.",
    )  # fmt: skip
    repartition.add_argument("topic", metavar="TOPIC")
    repartition.add_argument("partitions", type=whole_number(1), metavar="N", help="how many there will be")
    repartition.set_defaults(run=_repartition, only_reads=False)

    delete = verbs.add_parser("delete", parents=log, help="delete a topic and its records, at once and for good")
    delete.add_argument("topic", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="no error where there is no such topic")
    delete.set_defaults(run=_delete, only_reads=False)


def _add_exclusion(parser: argparse.ArgumentParser) -> None:
    text = "without topics of pylog's or Kafka's own, as __consumer_offsets"
    parser.add_argument("--exclude-internal", action="store_true", help=text)


def _create(arguments: argparse.Namespace) -> int:
    config = topic_config(arguments.config)
    with open_log(arguments, create=True) as log:
        try:
            topic = log.create_topic(arguments.topic, partitions=arguments.partitions, **config)
            happened = "created"
        except TopicExists as error:
            if not arguments.if_not_exists or error.existing != arguments.topic:
                raise
            topic, happened = log.describe_topic(arguments.topic), "is there already"
    _report(arguments, topic, happened)
    return OK


def _list(arguments: argparse.Namespace) -> int:
    with open_log(arguments) as log:
        for name in _shown(arguments, log.topics()):
            print_answer(arguments.json, {"topic": name}, name)
    return OK


def _shown(arguments: argparse.Namespace, names: Iterable[str]) -> Iterator[str]:
    from pylog.catalog.topic import INTERNAL_TOPICS

    return (name for name in names if not (arguments.exclude_internal and name in INTERNAL_TOPICS))


def _describe(arguments: argparse.Namespace) -> int:
    code = OK
    with open_log(arguments) as log:
        for name in _shown(arguments, arguments.topics or log.topics()):
            try:
                topic = log.describe_topic(name)
            except (CorruptRecord, StorageError) as error:  # the other topics can still be shown
                complain("error", str(error))
                code = code_of(error)
                continue
            found, problem = _open_transactions(log, name)
            partitions = log.describe_partitions(name)
            _print_topic(topic, found, partitions, arguments.json)
            for damaged in (each for each in partitions if each.problem):
                complain("error", f"{name}-{damaged.partition}: {damaged.problem}")
                code = code or PROBLEM
            if problem is not None:
                complain("error", f"the open transactions of {name} are not known: {problem}")
                code = code_of(problem)
    return code


def _open_transactions(log: Log, topic: str) -> tuple[list[OpenTransactionDescription] | None, PylogError | None]:
    """Those of a topic, or why they are not known."""
    try:
        return log.open_transactions([topic]), None
    except (CorruptRecord, StorageError, TopicNotFound) as error:
        return None, error


def _print_topic(
    topic: TopicDescription,
    found: list[OpenTransactionDescription] | None,
    partitions: list[PartitionDescription],
    as_json: bool,
) -> None:
    here = "" if topic.present is None else f" (here: {', '.join(map(str, topic.present))})"
    text = f"{topic.name}  {count_text(topic.partitions, 'partition')}{here}  id {topic.id or '-'}"
    transactions = None if found is None else [open_fields(each) for each in found]
    details = [_partition_fields(each) for each in partitions]
    print_answer(as_json, {**_fields(topic), "open_transactions": transactions, "partition_details": details}, text)
    if not as_json:
        print_table(_TITLES, [_row(each) for each in partitions])
        if found:
            print_line(f"  {count_text(len(found), 'open transaction')}, the oldest: {open_text(found[0])}")
        print_table(("  option", "value"), [(f"  {option}", value) for option, value in topic.config.as_dict().items()])


def _partition_fields(found: PartitionDescription) -> dict[str, Any]:
    fields = {name: value for name, value in found._asdict().items() if name != "topic"}
    ends = {name: None if fields[name] is None else fields[name]._asdict() for name in ("oldest", "newest")}
    return {**fields, **ends, "time_span_ms": found.time_span_ms}


def _row(found: PartitionDescription) -> tuple[object, ...]:
    """One partition. ``-``: unknown, or there is none."""
    span = found.time_span_ms
    dirty = "-" if found.dirty_bytes is None else f"{size_text(found.dirty_bytes)} from {found.first_dirty_offset}"
    numbers = (found.log_start_offset, found.latest_offset, found.segments)
    return (
        f"  {found.partition}", *("-" if number is None else number for number in numbers),
        *("-" if size is None else size_text(size) for size in (found.size_bytes, found.other_bytes)),
        *(time_text(None if end is None else end.timestamp_ms) for end in (found.oldest, found.newest)),
        "-" if span is None else duration_text(span), "-" if found.open_transactions is None else found.open_transactions,
        dirty,
    )  # fmt: skip


def _alter(arguments: argparse.Namespace) -> int:
    config = topic_config(arguments.config)
    if not config and arguments.partitions is None:
        raise UsageError("nothing to alter: name --config OPTION=VALUE or --partitions N")
    with open_log(arguments) as log:
        topic = log.alter_topic(arguments.topic, **config) if config else log.describe_topic(arguments.topic)
        if arguments.partitions is not None:
            topic = log.add_partitions(arguments.topic, arguments.partitions)
    _report(arguments, topic, "altered")
    return OK


def _rename(arguments: argparse.Namespace) -> int:
    with open_log(arguments) as log:
        topic = log.rename_topic(arguments.topic, arguments.name)
    _report(arguments, topic, f"is the new name of {arguments.topic}")
    return OK


def _repartition(arguments: argparse.Namespace) -> int:
    from pylog.cli.progress import Meter
    from pylog.cli.verify import segment_bytes_of

    with open_log(arguments) as log:
        log.describe_topic(arguments.topic)
        with Meter(f"copying {arguments.topic}", segment_bytes_of(log, [arguments.topic])) as meter:
            topic = log.repartition(arguments.topic, arguments.partitions, meter.advance)
    _report(arguments, topic, "repartitioned")
    return OK


def _delete(arguments: argparse.Namespace) -> int:
    with open_log(arguments) as log:
        try:
            log.delete_topic(arguments.topic)
        except TopicNotFound:
            if not arguments.if_exists:
                raise
            return OK
    print_answer(arguments.json, {"topic": arguments.topic, "deleted": True}, f"{arguments.topic} deleted")
    return OK


def _report(arguments: argparse.Namespace, topic: TopicDescription, happened: str) -> None:
    text = f"{topic.name} {happened} ({count_text(topic.partitions, 'partition')})"
    print_answer(arguments.json, _fields(topic), text)


def _fields(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name, "id": topic.id, "partitions": topic.partitions, "present": topic.present,
        "config": topic.config.as_dict(),
    }  # fmt: skip
