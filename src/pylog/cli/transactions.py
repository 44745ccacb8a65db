"""``pylog transactions``: the transactional ids of a log, and their last transactions.

The columns are those of Kafka's ``kafka-transactions.sh``. Listing and describing take no lock and
need no write permission.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pylog.cli.exits import OK, UsageError
from pylog.cli.options import Commands, log_options, open_log, whole_number
from pylog.cli.output import duration_text, print_answer, print_json, safe, table_lines

if TYPE_CHECKING:
    from pylog.transaction.descriptions import OpenTransactionDescription, TransactionDescription

_TITLES = ("TRANSACTIONAL-ID", "PRODUCER-ID", "EPOCH", "STATE", "OWNER", "TIMEOUT-MS", "IDLE-MS", "OPEN-IN")


def add_parser(commands: Commands) -> None:
    group = commands.add_parser("transactions", help="list, describe and abort transactions")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = verbs.add_parser("list", parents=[log_options()], help="all transactional ids and their states")
    listing.set_defaults(run=_list, only_reads=True)

    describe = verbs.add_parser(
        "describe", parents=[log_options()], help="the last transaction of an id, and where its records wait"
    )
    describe.add_argument("transactional_id", metavar="TRANSACTIONAL-ID")
    describe.set_defaults(run=_describe, only_reads=True)

    abort = verbs.add_parser(
        "abort", parents=[log_options()], help="abort an open transaction, also if its producer lives",
        description="Abort the ongoing transaction of an id, or the one that began at an offset of a partition, if no record "
        "tells its id: then it ends in this partition alone.",
    )  # fmt: skip
    abort.add_argument("transactional_id", metavar="TRANSACTIONAL-ID", nargs="?")
    abort.add_argument("--topic", metavar="TOPIC")
    abort.add_argument("--partition", type=whole_number(0), metavar="N")
    abort.add_argument("--start-offset", type=whole_number(0), metavar="OFFSET", help="of its first record")
    abort.set_defaults(run=_abort, only_reads=False)


def _list(arguments: argparse.Namespace) -> int:
    with open_log(arguments) as log:
        _print([log.describe_transaction(name) for name in log.transactions()], as_json=arguments.json)
    return OK


def _describe(arguments: argparse.Namespace) -> int:
    with open_log(arguments) as log:
        _print([log.describe_transaction(arguments.transactional_id)], as_json=arguments.json)
    return OK


def _print(found: list[TransactionDescription], *, as_json: bool) -> None:
    if as_json:
        for described in found:
            print_json(_fields(described))
    elif found:
        for line in table_lines(_TITLES, [_row(described) for described in found]):
            print(line)


def _fields(described: TransactionDescription) -> dict[str, Any]:
    open_in = [
        {"topic": topic, "partition": number, "first_offset": offset}
        for (topic, number), offset in sorted(described.open_in.items())
    ]
    return {**described._asdict(), "open_in": open_in}


def _row(described: TransactionDescription) -> tuple[object, ...]:
    open_in = ", ".join(f"{topic}-{number}@{offset}" for (topic, number), offset in sorted(described.open_in.items()))
    return (
        described.transactional_id, described.producer_id, described.epoch, described.state,
        "alive" if described.has_owner else "gone", described.transaction_timeout_ms,
        "-" if described.idle_ms is None else described.idle_ms, open_in or "-",
    )  # fmt: skip


def open_fields(found: OpenTransactionDescription) -> dict[str, Any]:
    """A transaction that waits for its marker, within what is printed of its topic."""
    return {name: value for name, value in found._asdict().items() if name != "topic"}


def open_text(found: OpenTransactionDescription) -> str:
    owner = {True: "alive", False: "gone", None: "unknown"}[found.has_owner]
    where = f"{found.topic}-{found.partition}@{found.first_offset}"
    return f"{where}, {_whose(found)}, owner {owner}, {duration_text(found.age_ms)} old"


def _whose(found: OpenTransactionDescription) -> str:
    return f"producer {found.producer_id}" if found.transactional_id is None else safe(found.transactional_id)


def _abort(arguments: argparse.Namespace) -> int:
    from pylog.model import TopicPartition

    name = arguments.transactional_id
    place = arguments.topic, arguments.partition, arguments.start_offset
    if name is not None and place == (None, None, None):
        with open_log(arguments) as log:
            log.abort_transaction(name)
        print_answer(arguments.json, {"transactional_id": name, "aborted": True}, f"{safe(name)} aborted")
        return OK
    if name is not None or None in place:
        raise UsageError("name the transactional id, or --topic, --partition and --start-offset together")
    topic, number, offset = place
    with open_log(arguments) as log:
        found = log.abort_transaction_at(TopicPartition(topic, number), offset)
    fields = {"topic": topic, "partition": number, "first_offset": offset, "producer_id": found.producer_id}
    text = f"the transaction of {_whose(found)} from {topic}-{number}@{offset} on aborted"
    print_answer(arguments.json, {"transactional_id": found.transactional_id, "aborted": True, **fields}, text)
    return OK
