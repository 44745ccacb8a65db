"""``pylog groups describe``: a group's members and its progress; ``--watch`` repeats it.

The columns are those of Kafka's ``kafka-consumer-groups.sh --describe``.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pylog.cli.exits import OK, UsageError
from pylog.cli.options import Commands, log_options, open_log
from pylog.cli.output import count_text, print_json, safe, table_lines, time_text

if TYPE_CHECKING:
    from pylog.group.descriptions import GroupDescription, MemberDescription
    from pylog.log import Log
    from pylog.model import TopicPartition

_EVERY_S = 2.0
_EVERY_S_MAX = 86_400.0
_PROGRESS_TITLES = (
    "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
)  # fmt: skip
_MEMBER_TITLES = ("CONSUMER-ID", "INSTANCE-ID", "CLIENT-ID", "HOST", "PID", "JOINED", "ASSIGNED", "TARGET")

_SHORT_ID = 8  # this many characters of a member's id distinguish it
_GONE = "gone"  # shown after the process of a static member that may return

Show = Callable[["GroupDescription"], None]


def add_parser(verbs: Commands) -> None:
    parser = verbs.add_parser(
        "describe", parents=[log_options()], help="members of a group, committed offsets and lag",
        description="State and members of a group, and of each partition the committed offset, the end, the lag and the reader.",
    )  # fmt: skip
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--watch", action="store_true", help="look again and again, until Ctrl-C")
    parser.add_argument(
        "--interval", type=_seconds, metavar="SECONDS", help=f"between two looks of --watch; default: {_EVERY_S:g}"
    )
    parser.set_defaults(run=_run, only_reads=True)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _EVERY_S_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, more than 0 and at most {_EVERY_S_MAX:g}")
    return seconds


def _run(arguments: argparse.Namespace) -> int:
    if arguments.interval is not None and not arguments.watch:
        raise UsageError("--interval belongs to --watch")
    with open_log(arguments) as log:
        if arguments.watch:
            _watch(log, arguments.group, arguments.interval or _EVERY_S, as_json=arguments.json)
        elif arguments.json:
            print_json(fields(log.describe_group(arguments.group)))
        else:
            _print_lines(lines(log.describe_group(arguments.group)))
    return OK


def _print_lines(shown: list[str]) -> None:
    sys.stdout.write("".join([line + "\n" for line in shown]))


# Watching


def _watch(log: Log, group: str, every_s: float, *, as_json: bool) -> None:
    """Show the group until Ctrl-C, or until it no longer exists."""
    with _one_after_another(as_json) if as_json or not sys.stdout.isatty() else _in_place() as show:
        while True:
            show(log.describe_group(group))
            log.clock.sleep(every_s)


@contextmanager
def _one_after_another(as_json: bool) -> Iterator[Show]:
    """Print a line of JSON each time, or text followed by an empty line."""

    def show(group: GroupDescription) -> None:
        if as_json:
            print_json(fields(group))
        else:
            _print_lines([*lines(group), ""])
        sys.stdout.flush()  # the reader of a pipe waits for it

    yield show


@contextmanager
def _in_place() -> Iterator[Show]:
    """On a terminal: replace the previous output; without rich, print below it."""
    try:
        from rich import console, live, text
    except ImportError:
        with _one_after_another(as_json=False) as show:
            yield show
        return
    screen = console.Console(file=sys.stdout)
    with live.Live(console=screen, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as area:
        yield lambda group: area.update(
            text.Text("\n".join(_fitting(group, screen.width)), overflow="fold"), refresh=True
        )


def _fitting(group: GroupDescription, width: int) -> list[str]:
    """Shortens identifiers if lines are too long. Longer lines continue on the next one."""
    whole = lines(group)
    return whole if max(map(len, whole)) <= width else lines(group, _SHORT_ID)


# What is shown


def lines(group: GroupDescription, id_length: int | None = None) -> list[str]:
    """The description as safe lines of text."""
    facts = [group.state, f"generation {group.generation}", count_text(len(group.members), "member")]
    if group.assignor:
        facts.insert(2, f"assignor {group.assignor}")
    shown = [f"{safe(group.group)}  {safe(', '.join(facts))}"]
    members = {member.member_id: member for member in group.members}
    progress = []
    for name, at in group.partitions.items():
        owner = members.get(at.member_id)
        progress.append((
            name.topic, name.partition, "-" if at.committed is None else at.committed.offset, at.end_offset,
            "-" if at.lag is None else at.lag, at.member_id[:id_length] or "-", (owner and owner.host) or "-",
            (owner and owner.client_id) or "-",
        ))  # fmt: skip
    for table in (
        table_lines(_PROGRESS_TITLES, progress),
        table_lines(_MEMBER_TITLES, [_member_cells(member, id_length) for member in group.members]),
    ):
        if table:
            shown += ["", *table]
    return shown


def _member_cells(member: MemberDescription, id_length: int | None) -> tuple[object, ...]:
    return (
        member.member_id[:id_length], member.group_instance_id or "-", member.client_id or "-", member.host or "-",
        member.pid if member.is_alive else f"{member.pid} {_GONE}",
        time_text(member.joined_ms), _short(member.assigned), _short(member.target),
    )  # fmt: skip


def _short(partitions: Iterable[TopicPartition]) -> str:
    """``orders(0,1), payments(2)``, like Kafka's tool."""
    numbers: dict[str, list[str]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(str(number))
    return ", ".join(f"{topic}({','.join(of_topic)})" for topic, of_topic in numbers.items()) or "-"


def fields(group: GroupDescription) -> dict[str, Any]:
    return {
        **group._asdict(),
        "members": [
            {
                **member._asdict(),
                "assigned": [name._asdict() for name in member.assigned],
                "target": [name._asdict() for name in member.target],
            }
            for member in group.members
        ],
        "partitions": [
            {
                **name._asdict(),
                "offset": None if at.committed is None else at.committed.offset,
                "metadata": None if at.committed is None else at.committed.metadata,
                "end_offset": at.end_offset,
                "lag": at.lag,
                "member_id": at.member_id,
            }
            for name, at in group.partitions.items()
        ],
    }
