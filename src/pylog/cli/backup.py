"""``pylog backup``: a consistent copy of a log in use, which is a log again."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pylog.cli.exits import OK
from pylog.cli.options import Commands, log_options, open_log
from pylog.cli.output import count_text, duration_text, print_json, print_line, size_text
from pylog.cli.progress import Meter
from pylog.cli.verify import segment_bytes_of

if TYPE_CHECKING:
    from pylog.backup.report import BackupReport


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "backup", parents=[log_options()], help="copy the log while it is in use",
        description="Copy the log to DIR, which is a log then, with all that was acknowledged before. Writers, readers and "
        "retention continue; compaction waits. If DIR has an earlier, unchanged copy, its sealed segments are kept, and the new "
        "copy takes its place at the end, in one step. On return it is durable.",
    )  # fmt: skip
    parser.add_argument("directory", metavar="DIR", help="a new or empty directory, or an earlier backup of this log")
    parser.set_defaults(run=_run, only_reads=False)


def _run(arguments: argparse.Namespace) -> int:
    with open_log(arguments) as log, Meter("copying", segment_bytes_of(log, [])) as meter:
        report = log.backup(arguments.directory, progress=meter.advance)
    if arguments.json:
        print_json(_fields(report))
    else:
        print_line(
            f"{count_text(report.topics, 'topic')}, {count_text(report.partitions, 'partition')}: "
            f"{size_text(report.copied_bytes)} copied, {size_text(report.kept_bytes)} kept, "
            f"in {duration_text(report.duration_ms)}"
        )
    return OK


def _fields(report: BackupReport) -> dict[str, object]:
    ends = [{"topic": name.topic, "partition": name.partition, "end_offset": end} for name, end in report.ends.items()]
    return {"type": "backup", **report._asdict(), "ends": ends}
