"""``pylog groups``: the members of groups, their progress, and manual changes of it.

Describing joins no group, takes no lock and needs no write permission. Offsets are only changed for
groups without members: members would continue from their own positions.
"""

from __future__ import annotations

import argparse

from pylog.cli import group_reset, group_view
from pylog.cli.exits import OK
from pylog.cli.options import Commands, log_options, open_log
from pylog.cli.output import print_answer


def add_parser(commands: Commands) -> None:
    group = commands.add_parser("groups", help="list, describe, reset and delete consumer groups")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = verbs.add_parser("list", parents=[log_options()], help="the names of all groups")
    listing.set_defaults(run=_list, only_reads=True)

    group_view.add_parser(verbs)
    group_reset.add_parser(verbs)

    delete = verbs.add_parser(
        "delete", parents=[log_options()], help="forget a group without members, and all it has committed"
    )
    delete.add_argument("group", metavar="GROUP")
    delete.set_defaults(run=_delete, only_reads=False)


def _list(arguments: argparse.Namespace) -> int:
    with open_log(arguments) as log:
        for name in log.groups():
            print_answer(arguments.json, {"group": name}, name)
    return OK


def _delete(arguments: argparse.Namespace) -> int:
    with open_log(arguments) as log:
        log.delete_group(arguments.group)
    print_answer(arguments.json, {"group": arguments.group, "deleted": True}, f"{arguments.group} deleted")
    return OK
