"""``pylog verify``: checks every batch, index and checkpoint of a log. Exit code 1 for findings.

It only reads, and writers may work at the same time. It reports each damage with file, position and
offsets, and continues after it. Records that cannot be decompressed because a library is missing
are not damage, but not verified either: they are counted separately, with exit code 1.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from typing import TYPE_CHECKING

from pylog.cli.exits import OK, PROBLEM
from pylog.cli.options import Commands, log_options, open_log
from pylog.cli.output import count_text, print_answer, print_json, print_line, size_text
from pylog.cli.progress import Meter

if TYPE_CHECKING:
    from pylog.log import Log
    from pylog.partition.verify import Problem, VerifyReport


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "verify", parents=[log_options()], help="check every batch, index and checkpoint",
        description="Check every batch of every segment (framing, checksum, decompression, records, offsets), seals, indexes, "
        "producer snapshots and epochs. Exit code 1 if anything is wrong, or could not be checked.",
    )  # fmt: skip
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all")
    parser.set_defaults(run=_run, only_reads=True)


def _run(arguments: argparse.Namespace) -> int:
    from pylog.partition.verify import UNCHECKED, VerifyReport

    report = VerifyReport()
    problems = 0
    unchecked: Counter[str] = Counter()
    with open_log(arguments) as log, Meter("verifying", segment_bytes_of(log, arguments.topics)) as meter:
        for found in log.find_problems(arguments.topics, progress=meter.advance, report=report):
            meter.pause()
            if found.kind == UNCHECKED:
                unchecked[found.problem] += 1
                if not arguments.json:
                    continue
            else:
                problems += 1
            _print_problem(arguments.json, found)
    _print_summary(arguments.json, report, problems, unchecked)
    return PROBLEM if problems or unchecked else OK


def segment_bytes_of(log: Log, topics: list[str]) -> int:
    """The number of bytes to check, for the progress bar."""
    from pylog.catalog.layout import parse_partition
    from pylog.manager.verification import segment_bytes
    from pylog.storage import OsFileSystem

    filesystem, root = OsFileSystem(), str(log.path)
    named = [(name, parse_partition(name)) for name in filesystem.names(root)]
    wanted = [name for name, partition in named if partition and (not topics or partition.topic in topics)]
    return sum(segment_bytes(filesystem, f"{root}/{name}") for name in wanted)


def _print_problem(as_json: bool, found: Problem) -> None:
    from pylog.partition.verify import UNCHECKED

    names = {"path": "file"}
    fields = {names.get(name, name): value for name, value in found._asdict().items()}
    kind = "not_checked" if found.kind == UNCHECKED else "problem"
    print_answer(as_json, {"type": kind, **fields}, str(found._replace(path=os.path.basename(found.path))))


def _print_summary(as_json: bool, report: VerifyReport, problems: int, unchecked: Counter[str]) -> None:
    if as_json:
        print_json({
            "type": "summary", "problems": problems, "not_checked": unchecked.total(),
            **{name: value for name, value in vars(report).items() if name != "problems"},
            "open_transactions": len(report.open_transactions),
        })  # fmt: skip
        return
    if report.unfinished_bytes:
        size = size_text(report.unfinished_bytes)
        print_line(f"{size} of an unfinished append, which the next writer adopts or cuts: no damage")
    if report.open_transactions:
        print_line(f"{count_text(len(report.open_transactions), 'open transaction')}: no damage")
    for note in report.notes:
        print_line(f"note: {note}")
    for missing, segments in unchecked.items():
        print_line(f"not checked: the records of {count_text(segments, 'segment')}: {missing}")
    checked = ", ".join([
        count_text(report.partitions, "partition"), count_text(report.segments, "segment"), count_text(report.batches, "batch"),
        count_text(report.records, "record"), size_text(report.size_bytes),
    ])  # fmt: skip
    verdict = count_text(problems, "problem") if problems or unchecked else "all good"
    print_line(f"{checked}: {verdict}{', but not everything was checked' if unchecked else ''}")
