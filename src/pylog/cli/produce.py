"""``pylog produce``: lines or JSON objects from stdin or a file become records of a topic.

Every line read is sent before the command ends: at the end of the input, on Ctrl-C, or at a refused
line. It always prints the number of acknowledged records (delivery_report.py) and the first
failure's line.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from pylog.cli.delivery_report import DeliveryReport
from pylog.cli.exits import OK, UsageError
from pylog.cli.formats import unescaped
from pylog.cli.options import Commands, header_pair, log_options, open_input, open_log, whole_number
from pylog.cli.progress import Meter
from pylog.errors import PylogError, RecordTooLarge, StorageError
from pylog.model import Header

if TYPE_CHECKING:
    from pylog.producer import Producer

_SPARE_LINE_BYTES = 1 << 16
_JSON_GROWTH = 6  # a byte takes at most six characters of JSON text: \u0000
_JSON_TYPES = {
    int: "a number", float: "a number", bool: "a boolean", str: "a string", list: "an array", dict: "an object",
    type(None): "null",
}  # fmt: skip
_FIELDS = ("topic", "partition", "offset", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers")


class Input(NamedTuple):
    """One line as a record."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "produce", parents=[log_options()], help="append lines of the input to a topic",
        description="Append the lines of stdin, or of --file, to a topic: one line, one record. With --input-format json a line "
        "is an object as consume --json prints it; topic and offset in it are ignored.",
    )  # fmt: skip
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--file", metavar="FILE", help="read this file instead of stdin")
    parser.add_argument("--input-format", choices=("lines", "json"), default="lines")
    parser.add_argument("--key-separator", metavar="TEXT", help="what stands before it is the key; \\t is a tab")
    parser.add_argument(
        "--header", type=header_pair, action="append", default=[], metavar="NAME=VALUE",
        help="for every record; may be repeated",
    )  # fmt: skip
    parser.add_argument("--partition", type=whole_number(0), metavar="N", help="default: by the key, or in turn")
    parser.add_argument("--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), help="default: the topic's")
    parser.add_argument(
        "--acks", choices=("all", "1", "0"), default="all",
        help="all: survives power loss; 1: survives the death of any process; 0: fire and forget (default: all)",
    )  # fmt: skip
    parser.set_defaults(run=_run, only_reads=False)


def _run(arguments: argparse.Namespace) -> int:
    read_line = _line_reader(arguments)
    with open_log(arguments) as log:
        from pylog.producer import Producer

        limit_bytes = log.describe_topic(arguments.topic).config.max_message_bytes + _SPARE_LINE_BYTES
        if arguments.input_format == "json":
            limit_bytes *= _JSON_GROWTH
        report = DeliveryReport(arguments.topic)
        with open_input(arguments.file, "name a --file") as file, Meter("producing", _size(file)) as meter:
            try:
                with Producer(log, acks=arguments.acks, compression=arguments.compression) as producer:
                    try:
                        _send_all(producer, _lines(file, limit_bytes, meter), limit_bytes, read_line, report)
                    finally:
                        producer.flush()
                        report.finish()
            finally:
                meter.pause()
                report.print(arguments.json)
    failure = report.failure()
    if failure is not None:
        raise failure
    return OK


def _send_all(
    producer: Producer, lines: Iterator[tuple[int, bytes]], limit_bytes: int, read_line: Callable[[bytes], Input],
    report: DeliveryReport,
) -> None:  # fmt: skip
    """Send up to the first refused line. A previous line's batch may have failed: check each
    time."""
    for number, line in lines:
        if not report.collect():
            return
        try:
            if len(line) > limit_bytes:
                raise RecordTooLarge(
                    f"longer than {limit_bytes} bytes, more than the topic's max_message_bytes allow; raise it with alter_topic",
                    limit_bytes=limit_bytes,
                )
            delivery = producer.send(report.topic, **read_line(line)._asdict())
        except (PylogError, UsageError) as error:
            report.refuse(number, error)
            return
        report.add(number, delivery)


# Input


def _size(file: BinaryIO) -> int | None:
    """The size of a regular file."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, io.UnsupportedOperation):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _lines(file: BinaryIO, limit_bytes: int, meter: Meter) -> Iterator[tuple[int, bytes]]:
    """The lines by number, from 1, without newlines; of a long one ``limit_bytes`` and one more."""
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(limit_bytes + 1)
        except OSError as error:
            raise StorageError(f"cannot read the input: {error.strerror}", errno=error.errno) from error
        if not line:
            return
        meter.advance(len(line))
        yield number, line.removesuffix(b"\n")


def _line_reader(arguments: argparse.Namespace) -> Callable[[bytes], Input]:
    headers = tuple(arguments.header)
    if arguments.input_format == "json":
        if arguments.key_separator is not None:
            raise UsageError("--key-separator is for --input-format lines; JSON has the field key")
        return lambda line: _from_json(line, headers, arguments.partition)
    if arguments.key_separator is None:
        return lambda line: Input(line, None, headers, None, arguments.partition)
    separator = os.fsencode(unescaped(arguments.key_separator))
    if not separator:
        raise UsageError("--key-separator is empty")
    return lambda line: _with_key(line, separator, headers, arguments.partition)


def _with_key(line: bytes, separator: bytes, headers: tuple[Header, ...], partition: int | None) -> Input:
    key, found, value = line.partition(separator)
    if not found:
        raise UsageError(f"no key separator {os.fsdecode(separator)!r} in it")
    return Input(value, key, headers, None, partition)


def _from_json(line: bytes, headers: tuple[Header, ...], partition: int | None) -> Input:
    """A record as ``consume --json`` prints it. ``UsageError`` for an invalid one."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UsageError("not a JSON object")
    unknown = [name for name in fields if name not in _FIELDS]
    if unknown:
        raise UsageError(f"no field {unknown[0]!r}; there are {', '.join(_FIELDS)}")
    return Input(
        _bytes_of(fields, "value"),
        _bytes_of(fields, "key"),
        (*_headers_of(fields.get("headers", [])), *headers),
        _number_of(fields, "timestamp_ms"),
        _number_of(fields, "partition") if partition is None else partition,
    )


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    """The bytes of ``name`` or ``name_base64``; None if neither is there."""
    import base64

    text, encoded = fields.get(name), fields.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise UsageError(f"both {name} and {name}_base64")
    for field, value in ((name, text), (f"{name}_base64", encoded)):
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{field} is {_JSON_TYPES[type(value)]}, expected a string or null")
    try:
        if encoded is not None:
            return base64.b64decode(encoded, validate=True)
        return None if text is None else text.encode()
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def _headers_of(headers: object) -> Iterator[Header]:
    if not isinstance(headers, list):
        raise UsageError(f"headers is {_JSON_TYPES[type(headers)]}, expected an array")
    for header in headers:
        if not isinstance(header, dict) or not isinstance(header.get("key"), str):
            raise UsageError('a header is {"key": "name", "value": "text"}')
        if unknown := header.keys() - {"key", "value", "value_base64"}:
            raise UsageError(f"a header has no field {min(unknown)!r}")
        yield header["key"], _bytes_of(header, "value")


def _number_of(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise UsageError(f"{name} is {value!r}, expected a whole number")
    return value
