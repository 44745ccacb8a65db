"""Histories: the operations that the processes of a test invoked on a log, and their results.

A history is a sequence of ``Operation``, one JSON object a line. The order of the lines is an order
of events: an invocation is before its effects, a completion after the events that it reports. This
order results if each process sends a line to one collector (a socket, a queue) just before and just
after each call.

Values are whole numbers, each sent at most once to a partition. ``encode_value`` makes a record
value of a number, in which any change can be detected.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

INVOKE, OK, FAIL, INFO = "invoke", "ok", "fail", "info"
TYPES = (INVOKE, OK, FAIL, INFO)

SEND, POLL, ASSIGN, DELETE, COMMIT = "send", "poll", "assign", "delete", "commit"
BEGIN, TRANSACTION = "begin", "txn"
CRASH, STOP, CONTINUE = "crash", "stop", "continue"
FUNCTIONS = (SEND, POLL, BEGIN, TRANSACTION, ASSIGN, DELETE, COMMIT, CRASH, STOP, CONTINUE)

Pair = Sequence["int | None"]
"""(offset, value). Before the acknowledgement the offset is None. An altered value is None."""

_NOTHING: Mapping[str, Any] = {}
_HEAD = struct.Struct(">II q")  # CRC of all that follows; total length; the number


class Operation(NamedTuple):
    """One line of a history. A partition is named like ``orders-0``.

    - ``process``: the number of a process or a thread that runs one operation after another.
    - ``type``: ``invoke`` for an invocation; for a completion ``ok``, ``fail`` (it certainly did
      not happen), or ``info`` (it may have happened, or may still happen). An operation without a
      completion counts as ``info``. Several completions may report different values of one send.
    - ``f``: ``send``; ``poll`` (the invocation is optional), without records of undecided
      transactions; ``txn``, which sends and polls, and commits ``positions``; ``begin``: the
      records that a transaction is going to send. The process then invokes its ``txn`` before it
      commits; if it never does, the transaction is aborted. ``assign``: all partitions that the
      process reads from now on, ``info`` if its group took the others from it before; ``delete``:
      of the records before an offset; ``commit``: of a group's offsets. Events of a process:
      ``crash``; ``stop`` and ``continue``, as by SIGSTOP and SIGCONT.
    - ``time``: seconds on one clock that never goes backwards.
    - ``sent``, ``polled``: (offset, value) pairs by partition, in order. A poll without a result
      may record its partitions without pairs.
    - ``positions``: offsets by partition. For ``assign``, ``commit`` and ``txn`` the next offset to
      read; in ``assign`` None if it is unknown or unchanged. For ``delete`` the first to keep.
    - ``atomic``: all records sent are in the log or none; a partition's have successive offsets.
    - ``final``: a poll at the end. All final polls together read the whole log, or, if there are
      transactions, all committed records.
    - ``group``, ``generation``: the consumer group of ``assign``, ``commit`` and ``txn``, and its
      generation, which begins at 1. A commit without a generation resets the group.
    """

    process: int
    type: str
    f: str
    time: float = 0.0
    sent: Mapping[str, Sequence[Pair]] = _NOTHING
    polled: Mapping[str, Sequence[Pair]] = _NOTHING
    positions: Mapping[str, int | None] = _NOTHING
    atomic: bool = False
    final: bool = False
    group: str = ""
    generation: int = 0

    def to_json(self) -> str:
        """One line without a line end. Fields with default values are omitted."""
        fields = {name: value for name, value in self._asdict().items() if value or name in _ALWAYS}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes) -> Operation:
        """Read the output of ``to_json``. ``ValueError`` if it is invalid."""
        try:
            operation = cls(**json.loads(line))
        except TypeError as error:
            raise ValueError(f"not an operation: {error}") from error
        if operation.type not in TYPES or operation.f not in FUNCTIONS:
            raise ValueError(f"not an operation: type {operation.type!r}, f {operation.f!r}")
        return operation


_ALWAYS = ("process", "type", "f", "time")


def write_history(path: str | Path, operations: Iterable[Operation]) -> None:
    """Write a file of JSON lines. An existing file is replaced."""
    with open(path, "w", encoding="ascii") as file:
        file.writelines(operation.to_json() + "\n" for operation in operations)


def read_history(path: str | Path) -> Iterator[Operation]:
    """Read operations one at a time. ``ValueError`` with the number of an invalid line.

    A last line without a line end is skipped: its writer was killed.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield Operation.from_json(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error


def encode_value(number: int, size: int = 0) -> bytes:
    """A record value of at least ``size`` and 16 bytes: a checksum, ``number``, and padding."""
    length = max(size, _HEAD.size)
    rest = struct.pack(">Iq", length, number) + _filling(number, length - _HEAD.size)
    return struct.pack(">I", zlib.crc32(rest)) + rest


def decode_value(value: bytes | None) -> int | None:
    """The number in a value, or None if the value differs in any bit from ``encode_value``."""
    if value is None or len(value) < _HEAD.size:
        return None
    checksum, length, number = _HEAD.unpack_from(value)
    whole = length == len(value) and checksum == zlib.crc32(memoryview(value)[4:])
    return number if whole else None


def _filling(number: int, size: int) -> bytes:
    """Bytes that differ from record to record and do not compress to almost nothing."""
    block = bytes((number * 31 + i * i) & 0xFF for i in range(min(size, 251)))
    return (block * (size // 251 + 1))[:size]
