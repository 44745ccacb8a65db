"""``pylog transactions``: the transactional ids of a log, and their last transactions.

The columns are those of Kafka's ``kafka-transactions.sh``. Listing and describing take no lock and
need no write permission.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pylog.cli.exits import OK
from pylog.cli.options import Commands, log_options, open_log
from pylog.cli.output import print_answer, print_json, safe, table_lines

if TYPE_CHECKING:
    from pylog.transaction.descriptions import TransactionDescription

_TITLES = ("TRANSACTIONAL-ID", "PRODUCER-ID", "EPOCH", "STATE", "OWNER", "TIMEOUT-MS", "IDLE-MS", "OPEN-IN")


def add_parser(commands: Commands) -> None:
    group = commands.add_parser("transactions", help="list, describe and abort transactions")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = verbs.add_parser("list", parents=[log_options()], help="all transactional ids and their states")
    listing.set_defaults(run=_list)

    describe = verbs.add_parser(
        "describe", parents=[log_options()], help="the last transaction of an id, and where its records wait"
    )
    describe.add_argument("transactional_id", metavar="TRANSACTIONAL-ID")
    describe.set_defaults(run=_describe)

    abort = verbs.add_parser(
        "abort", parents=[log_options()], help="abort the ongoing transaction of an id, also if its producer lives"
    )
    abort.add_argument("transactional_id", metavar="TRANSACTIONAL-ID")
    abort.set_defaults(run=_abort)


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


def _abort(arguments: argparse.Namespace) -> int:
    name = arguments.transactional_id
    with open_log(arguments, writing=True) as log:
        log.abort_transaction(name)
    print_answer(arguments.json, {"transactional_id": name, "aborted": True}, f"{safe(name)} aborted")
    return OK
