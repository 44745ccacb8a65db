"""Histories: what the processes of a test asked of a log, and what they were answered, one operation after the other.

A history is a sequence of ``Operation``, kept as JSON, one a line. The order of the lines is an order in which things
happened: an invocation stands before what it causes, a completion behind what it reports. Lines sent to one collector
(a socket, a queue) just before each call and just after it come in such an order by themselves.

Values are whole numbers, each sent at most once to a partition; ``encode_value`` makes a record of one that tells whether
it was altered.
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

SEND, POLL, TRANSACTION, ASSIGN, DELETE, COMMIT = "send", "poll", "txn", "assign", "delete", "commit"
CRASH, STOP, CONTINUE = "crash", "stop", "continue"
FUNCTIONS = (SEND, POLL, TRANSACTION, ASSIGN, DELETE, COMMIT, CRASH, STOP, CONTINUE)

Pair = Sequence["int | None"]
"""(offset, value). The offset of a record not acknowledged yet is None; so is the value of one that was altered."""

_NOTHING: Mapping[str, Any] = {}
_HEAD = struct.Struct(">II q")  # CRC of the rest; length of the whole; the number


class Operation(NamedTuple):
    """One line of a history. Partitions go by names, such as ``orders-0``.

    - ``process``: who: a number for each thing that does one operation after another (a thread, too).
    - ``type``: ``invoke`` when it is asked for; then ``ok``, ``fail`` (it certainly did not happen), or ``info`` (it may
      have happened, or may yet). What is never completed counts as ``info``. A completion may speak of some of the
      values sent, and a further one of others.
    - ``f``: ``send``; ``poll`` (whose invocation may be left out); ``txn``, which sends and polls; ``assign``: what the process
      reads from now on, as ``info`` where its group had taken the rest from it before; ``delete``: records before an offset;
      ``commit``: offsets of a group. Of the process itself: ``crash``; ``stop`` and ``continue``, as by SIGSTOP and SIGCONT.
    - ``time``: seconds on one clock that never goes backwards.
    - ``sent``, ``polled``: (offset, value) pairs by partition, in order. A partition polled in vain may stand with no pairs.
    - ``positions``: of ``assign``, the offset to go on at, by partition, None where it is not known or stays what it was; of
      ``delete``, the offset before which records may go; of ``commit``, the offset to go on at.
    - ``atomic``: what is sent goes into the log all or none, each partition's at successive offsets.
    - ``final``: a poll at the end, which with the other final ones reads everything there is; where there are transactions,
      only what is committed.
    - ``group``, ``generation``: of ``assign`` and ``commit``, the consumer group and its generation, which begins at 1. A commit
      without a generation resets the group.
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
        """One line, without its end; fields that say nothing are left out."""
        fields = {name: value for name, value in self._asdict().items() if value or name in _ALWAYS}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | bytes) -> Operation:
        """What ``to_json`` wrote. ``ValueError`` for anything else."""
        try:
            operation = cls(**json.loads(line))
        except TypeError as error:
            raise ValueError(f"not an operation: {error}") from error
        if operation.type not in TYPES or operation.f not in FUNCTIONS:
            raise ValueError(f"not an operation: type {operation.type!r}, f {operation.f!r}")
        return operation


_ALWAYS = ("process", "type", "f", "time")


def write_history(path: str | Path, operations: Iterable[Operation]) -> None:
    """Write a file of JSON lines, replacing what is there."""
    with open(path, "w", encoding="ascii") as file:
        file.writelines(operation.to_json() + "\n" for operation in operations)


def read_history(path: str | Path) -> Iterator[Operation]:
    """The operations of a file, one at a time. ``ValueError`` with the line's number where it is none.

    A last line without an end is passed over: whoever wrote it was killed.
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
    """The value of a record: ``number`` and its checksum, filled up to ``size`` bytes with what depends on both.

    It is at least 16 bytes long, and longer by what ``size`` asks for.
    """
    length = max(size, _HEAD.size)
    rest = struct.pack(">Iq", length, number) + _filling(number, length - _HEAD.size)
    return struct.pack(">I", zlib.crc32(rest)) + rest


def decode_value(value: bytes | None) -> int | None:
    """The number in a value, or None if a bit of it is not as ``encode_value`` made it."""
    if value is None or len(value) < _HEAD.size:
        return None
    checksum, length, number = _HEAD.unpack_from(value)
    whole = length == len(value) and checksum == zlib.crc32(memoryview(value)[4:])
    return number if whole else None


def _filling(number: int, size: int) -> bytes:
    """Bytes that differ from record to record and don't compress to nothing."""
    block = bytes((number * 31 + i * i) & 0xFF for i in range(min(size, 251)))
    return (block * (size // 251 + 1))[:size]
