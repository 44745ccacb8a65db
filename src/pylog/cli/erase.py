"""``pylog erase``: erase all records of keys from a topic."""

from __future__ import annotations

import argparse
import base64
import binascii
import os
from collections.abc import Iterator

from pylog.cli.exits import OK, UsageError
from pylog.cli.options import Commands, log_options, open_input, open_log
from pylog.cli.output import count_text, print_answer, size_text
from pylog.cli.progress import Meter


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "erase", parents=[log_options()], help="erase all records of keys from a topic, at once and for good",
        description="Erase all records with these keys from every partition and every file of a topic. Offsets stay as they "
        "are. On return it is durable; backups and other topics keep theirs. It reads the whole topic.",
    )  # fmt: skip
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--key", action="append", default=[], metavar="TEXT", help="may be repeated")
    parser.add_argument("--key-base64", action="append", default=[], metavar="TEXT", help="may be repeated")
    parser.add_argument(
        "--from-file",
        metavar="FILE",
        help="keys, one a line; - is stdin: others see the arguments of a running command",
    )
    parser.add_argument(
        "--tombstones", choices=("yes", "no"),
        help="whether to append a tombstone for each key first; default: if the topic is compacted",
    )  # fmt: skip
    parser.set_defaults(run=_run, only_reads=False)


def _run(arguments: argparse.Namespace) -> int:
    keys = [*map(os.fsencode, arguments.key), *map(_decoded, arguments.key_base64), *_lines(arguments.from_file)]
    if not keys:
        raise UsageError("no key: name --key TEXT, --key-base64 TEXT or --from-file FILE")
    tombstones = None if arguments.tombstones is None else arguments.tombstones == "yes"
    with open_log(arguments) as log:
        numbers = log.describe_topic(arguments.topic).numbers
        size_bytes = sum(log.partition(arguments.topic, number).size_bytes for number in numbers)
        with Meter("erasing", size_bytes) as meter:
            report = log.erase(arguments.topic, keys, tombstones=tombstones, progress=meter.advance)
    for done in report.partitions:
        text = f"{done.topic}-{done.partition}: {count_text(done.records, 'record')} erased before offset {done.end_offset}"
        if done.segments:
            text += f" ({count_text(done.segments, 'segment')}, {size_text(done.bytes_before - done.bytes_after)} less)"
        if done.tombstones:
            text += f", {count_text(done.tombstones, 'tombstone')} appended"
        print_answer(arguments.json, done._asdict(), text)
    return OK


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(f"--key-base64 {text!r} is not base64") from None


def _lines(path: str | None) -> Iterator[bytes]:
    if path is not None:
        with open_input(None if path == "-" else path, "name a file with --from-file") as file:
            for line in file:
                yield line.rstrip(b"\n")
