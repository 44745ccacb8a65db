"""``pylog maintain``, ``doctor`` and ``alter``: what retention has to do, and whether it is
done."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pylog.cli.exits import OK, PROBLEM
from pylog.cli.options import Commands, log_options, open_log, whole_number
from pylog.cli.output import complain, count_text, print_answer, print_json, print_line, print_table, size_text

if TYPE_CHECKING:
    from pylog.cleaner.report import LogMaintenance, MaintenanceReport, PartitionMaintenance

_TITLES = ("PARTITION", "STEP", "LOG START", "SEGMENTS", "DELETED", "BY", "KEPT")


def add_parser(commands: Commands) -> None:
    maintain = commands.add_parser(
        "maintain", parents=[log_options()], help="delete what retention no longer keeps, and compact",
        description="Do all maintenance that is due, once, and say of each partition with a policy what went or was compacted, "
        "and why the rest stays. Exit code 1 if something failed, has been due for a day and is held, or the log stays above its "
        "bound; with --dry-run only if something failed.",
    )  # fmt: skip
    maintain.add_argument("topics", metavar="TOPIC", nargs="*", help="default: all, and the bound of the log")
    maintain.add_argument("--dry-run", action="store_true", help="change nothing, and say what would be done")
    maintain.set_defaults(run=_maintain, only_reads="with --dry-run")

    doctor = commands.add_parser(
        "doctor", parents=[log_options()], help="check that maintenance is done",
        description="Say what maintenance has not done, and change nothing. Exit code 1 if something has been due for a day, "
        "also if it is held, or cannot be told, or the log is above its bound for good.",
    )  # fmt: skip
    doctor.set_defaults(run=_doctor, only_reads=True)

    alter = commands.add_parser("alter", parents=[log_options()], help="show or change the options of the whole log")
    alter.add_argument(
        "--max-bytes", type=whole_number(-1), metavar="N", help="a bound of all files of all partitions; -1: none"
    )
    alter.set_defaults(run=_alter, only_reads="without --max-bytes")


def _maintain(arguments: argparse.Namespace) -> int:
    with open_log(arguments, writing=not arguments.dry_run) as log:
        report = log.maintain(arguments.topics, dry_run=arguments.dry_run)
    _print(report, as_json=arguments.json)
    problems = report.failures if report.dry_run else report.problems
    for problem in problems:
        complain("error", problem)
    return PROBLEM if problems else OK


def _print(report: MaintenanceReport, *, as_json: bool) -> None:
    if as_json:
        for done in report.partitions:
            print_json({"type": "partition", "dry_run": report.dry_run, **done._asdict()})
        print_json({
            "type": "log", "dry_run": report.dry_run, **report.log._asdict(), "kept": dict(report.log.kept),
            "unlimited": report.unlimited, "unreadable": report.unreadable, "deleted_segments": report.deleted_segments,
            "deleted_bytes": report.deleted_bytes,
        })  # fmt: skip
        return
    print_table(_TITLES, [_row(done, report.dry_run) for done in report.partitions if not done.error])
    verb = "would be deleted" if report.dry_run else "deleted"
    deleted = f"{count_text(report.deleted_segments, 'segment')}, {size_text(report.deleted_bytes)} {verb}"
    compacted = sum(done.bytes_before - done.bytes_after for done in report.partitions)
    if compacted and not report.dry_run:
        deleted += f", {size_text(compacted)} compacted away"
    print_line(f"{deleted}; {count_text(report.unlimited, 'partition')} without a policy{_bound_text(report.log)}")


def _row(done: PartitionMaintenance, dry_run: bool) -> tuple[object, ...]:
    deleted = size_text(done.deleted_bytes)
    if done.bytes_before:
        deleted = (
            f"{'?' if dry_run else size_text(done.bytes_before - done.bytes_after)} of {size_text(done.bytes_before)}"
        )
    kept = f"{done.kept} ({done.detail})" if done.detail else done.kept
    return (
        f"{done.topic}-{done.partition}", done.step, done.log_start_offset, done.deleted_segments,
        deleted, ", ".join(done.rules) or "-", kept or "-",
    )  # fmt: skip


def _bound_text(log: LogMaintenance) -> str:
    return "" if log.max_bytes < 0 else f"; the log has {size_text(log.size_bytes)} of {size_text(log.max_bytes)}"


def _doctor(arguments: argparse.Namespace) -> int:
    with open_log(arguments) as log:
        problems = log.maintain(dry_run=True).problems
    for problem in problems:
        print_answer(arguments.json, {"type": "problem", "problem": problem}, problem)
    if arguments.json:
        print_json({"type": "summary", "problems": len(problems)})
    elif not problems:
        print_line("nothing is overdue")
    return PROBLEM if problems else OK


def _alter(arguments: argparse.Namespace) -> int:
    with open_log(arguments, writing=arguments.max_bytes is not None) as log:
        settings = log.settings() if arguments.max_bytes is None else log.alter(max_bytes=arguments.max_bytes)
    print_answer(arguments.json, settings._asdict(), f"max_bytes {settings.max_bytes}")
    return OK
