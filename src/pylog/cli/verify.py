"""``pylog verify``: every batch, index and checkpoint of a log checked. Exit code 1 if anything is wrong.

Reads only, beside writers at work. Names each damage with file, position and offsets, and goes on behind it.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from pylog.cli.exits import OK, PROBLEM
from pylog.cli.options import Commands, log_options, open_log
from pylog.cli.output import count_text, print_json, print_line, size_text
from pylog.cli.progress import Meter
from pylog.errors import PylogError, StorageError, TopicNotFound
from pylog.model import TopicPartition

if TYPE_CHECKING:
    from pylog.catalog import Layout
    from pylog.log import Log
    from pylog.partition.verify import Problem, VerifyReport
    from pylog.storage import FileSystem


def add_parser(commands: Commands) -> None:
    """Add ``verify``."""
    parser = commands.add_parser(
        "verify", parents=[log_options()], help="check every batch, index and checkpoint",
        description="Check every batch of every segment (framing, checksum, decompression, records, offsets), seals, indexes, "
        "producer snapshots and epochs. Exit code 1 if anything is wrong.",
    )  # fmt: skip
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from pylog.catalog import Layout
    from pylog.partition.verify import VerifyReport, verify_partition
    from pylog.storage import OsFileSystem

    filesystem = OsFileSystem()
    report = VerifyReport()
    problems = 0
    with open_log(arguments) as log:
        layout = Layout(str(log.path))
        partitions, broken = _partitions(log, arguments.topics)
        for name, problem in broken.items():
            problems += 1
            _print_damaged_topic(arguments.json, name, str(problem))
        for name in [] if arguments.topics else _strays(filesystem, log, layout):
            problems += 1
            _print_damaged_topic(
                arguments.json, name, "belongs to no topic: its topic file is lost, or a deletion was cut off"
            )
        total_bytes = sum(_size(filesystem, layout.partition(*partition)) for partition in partitions)
        with Meter("verifying", total_bytes) as meter:
            for partition in partitions:
                for found in verify_partition(
                    filesystem, layout.partition(*partition), partition,
                    dense=not log.is_kafka_directory, progress=meter.advance, report=report,
                ):  # fmt: skip
                    problems += 1
                    meter.pause()
                    _print_problem(arguments.json, found)
    _print_summary(arguments.json, report, problems)
    return PROBLEM if problems else OK


def _partitions(log: Log, topics: list[str]) -> tuple[list[TopicPartition], dict[str, PylogError]]:
    """The partitions to check, and the topics whose own file is damaged."""
    partitions: list[TopicPartition] = []
    broken: dict[str, PylogError] = {}
    for name in dict.fromkeys(topics or log.topics()):
        try:
            partitions += [TopicPartition(name, number) for number in range(log.describe_topic(name).partitions)]
        except TopicNotFound:
            raise
        except PylogError as damage:
            broken[name] = damage
    return partitions, broken


def _size(filesystem: FileSystem, directory: str) -> int:
    """The bytes of a partition's segments, for the progress bar."""
    from pylog.segment.naming import LOG

    try:
        names = filesystem.names(directory)
        return sum(filesystem.size(f"{directory}/{name}") for name in names if name.endswith(LOG))
    except (FileNotFoundError, StorageError):
        return 0


def _strays(filesystem: FileSystem, log: Log, layout: Layout) -> list[str]:
    """Partition directories with records that belong to no topic."""
    from pylog.catalog.layout import parse_partition

    if log.is_kafka_directory:
        return []
    known = set(log.topics())
    named = [(name, parse_partition(name)) for name in filesystem.names(layout.root)]
    found = [name for name, partition in named if partition is not None and partition.topic not in known]
    return [name for name in found if _size(filesystem, f"{layout.root}/{name}")]


def _print_damaged_topic(as_json: bool, name: str, problem: str) -> None:
    if as_json:
        print_json({
            "type": "problem", "topic": name, "partition": None, "kind": "topic", "file": None, "position": None,
            "first_offset": None, "end_offset": None, "problem": problem,
        })  # fmt: skip
    else:
        print_line(f"{name}: {problem}")


def _print_problem(as_json: bool, found: Problem) -> None:
    if as_json:
        print_json({
            "type": "problem", "topic": found.topic, "partition": found.partition, "kind": found.kind, "file": found.path,
            "position": found.position, "first_offset": found.first_offset, "end_offset": found.end_offset,
            "problem": found.problem,
        })  # fmt: skip
    else:
        print_line(str(found._replace(path=os.path.basename(found.path))))


def _print_summary(as_json: bool, report: VerifyReport, problems: int) -> None:
    if as_json:
        print_json({
            "type": "summary", "problems": problems, "partitions": report.partitions, "segments": report.segments,
            "unsealed_segments": report.unsealed_segments, "batches": report.batches, "records": report.records,
            "size_bytes": report.size_bytes, "unfinished_bytes": report.unfinished_bytes,
        })  # fmt: skip
        return
    if report.unfinished_bytes:
        size = size_text(report.unfinished_bytes)
        print_line(f"{size} of an unfinished append, which the next writer adopts or cuts: no damage")
    checked = ", ".join([
        count_text(report.partitions, "partition"), count_text(report.segments, "segment"), count_text(report.batches, "batch"),
        count_text(report.records, "record"), size_text(report.size_bytes),
    ])  # fmt: skip
    print_line(f"{checked}: {count_text(problems, 'problem') if problems else 'all good'}")
