"""``pylog records``: delete the oldest records of a partition."""

from __future__ import annotations

import argparse

from pylog.cli.exits import OK
from pylog.cli.options import TIME_FORMS, Commands, log_options, moment_ms, open_log, whole_number
from pylog.cli.output import print_answer


def add_parser(commands: Commands) -> None:
    group = commands.add_parser("records", help="delete the oldest records of a partition")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    delete = verbs.add_parser(
        "delete", parents=[log_options()], help="delete the records before an offset or a time, at once and for good",
        description="Make a later offset the first one that can be read. Segments wholly before it are removed.",
    )  # fmt: skip
    delete.add_argument("topic", metavar="TOPIC")
    delete.add_argument("--partition", type=whole_number(0), metavar="N", help="default: all")
    before = delete.add_mutually_exclusive_group(required=True)
    before.add_argument("--before-offset", type=whole_number(-1), metavar="OFFSET", help="-1: the end")
    before.add_argument("--before-time", metavar="TIME", help=f"of the first record that stays: {TIME_FORMS}")
    delete.set_defaults(run=_delete, only_reads=False)


def _delete(arguments: argparse.Namespace) -> int:
    from pylog.model import TopicPartition

    with open_log(arguments) as log:
        numbers = log.describe_topic(arguments.topic).numbers
        for number in numbers if arguments.partition is None else [arguments.partition]:
            partition = log.partition(arguments.topic, number)
            if arguments.before_time is not None:
                found = partition.offset_for_time(moment_ms(arguments.before_time, log.clock.now_ms()))
                before = partition.latest_offset if found is None else found.offset
            else:
                before = partition.latest_offset if arguments.before_offset == -1 else arguments.before_offset
            start = log.delete_records(TopicPartition(arguments.topic, number), before)
            fields = {"topic": arguments.topic, "partition": number, "log_start_offset": start}
            print_answer(arguments.json, fields, f"{arguments.topic}-{number} begins at offset {start}")
    return OK
