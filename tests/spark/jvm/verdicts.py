"""Asks the Java reader and the Python source for the rows of the same pieces, and says where they
differ."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from select import select
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyspark

from pylog import arrow
from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import CorruptRecord, FormatVersionError, InvalidTimestamp, OffsetOutOfRange, TopicNotFound
from pylog.spark.jvm.pieces import Pieces
from pylog.spark.source.partition_range import PartitionRange
from pylog.spark.source.ranges import record_batches

HERE = Path(__file__).parent
JAVA = HERE.parents[2] / "src" / "pylog" / "spark" / "jvm" / "java"
JARS = Path(pyspark.__file__).parent / "jars"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
ANSWER_SECONDS_MAX = 120
_INT64 = struct.Struct(">q")


def compile_reader(to: Path) -> Path:
    """The reader and ``Verdicts``, compiled."""
    sources = [*map(str, sorted(JAVA.rglob("*.java"))), *map(str, sorted(HERE.glob("*.java")))]
    command = ["javac", "--release", "17", "-proc:none", "-nowarn", "-cp", f"{JARS}/*", "-d", str(to), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return to


def has_javac() -> bool:
    return shutil.which("javac") is not None


class JavaProcess:
    """A JVM that answers lines, with as much memory as its heap says."""

    def __init__(self, classes: Path, program: str, heap: str = "256m") -> None:
        memory = (f"-Xmx{heap}", "-Xss1m", "-XX:+UseSerialGC")
        command = ["java", *memory, "-cp", f"{classes}:{JARS}/*", program]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._unread = b""

    def close(self) -> None:
        with suppress(OSError):
            self._process.communicate(timeout=ANSWER_SECONDS_MAX)

    def put_line(self, question: str) -> None:
        """A question; the answers come in the same order."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(question.encode() + b"\n")
        stdin.flush()

    def answer(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        while b"\n" not in self._unread:
            assert select([stdout], [], [], ANSWER_SECONDS_MAX)[0], "no answer"
            got = os.read(stdout.fileno(), 1 << 16)
            assert got, f"the JVM has ended with {self._process.wait()}"
            self._unread += got
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()


class JavaReader(JavaProcess):
    """Reads pieces."""

    def __init__(self, classes: Path, heap: str = "256m") -> None:
        super().__init__(classes, "pylog.spark.Verdicts", heap)

    def ask(self, pieces: Sequence[dict[str, Any]], columns: Sequence[str] = COLUMNS, **how: bool) -> str:
        """``rows <count> <CRC-32>``, or an error's kind and message. ``how``: ``count``,
        ``totals``, ``trustHeaders=False``."""
        self.put(pieces, columns, **how)
        return self.answer()

    def put(self, pieces: Sequence[dict[str, Any]], columns: Sequence[str] = COLUMNS, **how: bool) -> None:
        self.put_line(json.dumps({"trustHeaders": True, **how, "pieces": pieces, "columns": columns}))


def pieces_of(ranges: Sequence[PartitionRange]) -> list[dict[str, Any]]:
    """The ranges as the planner hands them over. ``CorruptSegment``."""
    with closing(Pieces()) as pieces:
        found: list[dict[str, Any]] = pieces.task(ranges)["pieces"]
        return found


def python_verdict(ranges: Iterable[PartitionRange], columns: Sequence[str] = COLUMNS, *, totals: bool = False) -> str:
    """The same of the Python source: ``corrupt``, ``lost`` and ``unsupported`` are its errors'
    kinds."""
    try:
        return python_totals(ranges) if totals else _python_rows(ranges, columns)
    except (CorruptRecord, FormatVersionError) as error:
        return f"corrupt {error}"
    except (OffsetOutOfRange, TopicNotFound) as error:
        return f"lost {error}"
    except InvalidTimestamp as error:
        return f"unsupported {error}"


def _python_rows(ranges: Iterable[PartitionRange], columns: Sequence[str]) -> str:
    crc = count = 0
    wanted = pa.schema([arrow.schema(headers=True).field(name) for name in columns])
    for planned in ranges:
        for batch in record_batches(planned, wanted if columns else arrow.schema()):
            crc = zlib.crc32(_encoded(batch, columns), crc) if columns else 0
            count += batch.num_rows
    return f"rows {count} {crc}"


def python_totals(ranges: Iterable[PartitionRange]) -> str:
    """Count, least and greatest offset, and timestamp in milliseconds, by the rows of the Python
    source."""
    wanted = arrow.schema().empty_table().select(["offset", "timestamp"]).schema
    batches = [batch for planned in ranges for batch in record_batches(planned, wanted)]
    rows = pa.Table.from_batches(batches, wanted)
    extremes = [str(INT64_MAX), str(INT64_MIN)] * 2
    if rows.num_rows:
        columns = rows["offset"], pc.divide(rows["timestamp"].cast(pa.int64()), 1000)
        extremes = [str(pc.min_max(column)[which]) for column in columns for which in ("min", "max")]
    return " ".join(["totals", str(rows.num_rows), *extremes])


def verdicts(java: JavaReader, ranges: Sequence[PartitionRange], columns: Sequence[str] = COLUMNS) -> tuple[str, str]:
    """What Java and Python say of the same ranges."""
    return java.ask(pieces_of(ranges), columns), python_verdict(ranges, columns)


def agree(one: str, other: str) -> bool:
    """Whether two verdicts are the same rows or totals, or the same kind of error."""
    kinds = {one.split(maxsplit=1)[0], other.split(maxsplit=1)[0]}
    return one == other if kinds & {"rows", "totals"} else len(kinds) == 1


def _encoded(batch: pa.RecordBatch, columns: Sequence[str]) -> bytes:
    values = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in batch.columns
    ]
    parts: list[bytes] = []
    for row in zip(*values, strict=True):
        for name, value in zip(columns, row, strict=True):
            if name == "headers":
                parts.append(_INT64.pack(-1 if value is None else len(value)))
                for header in value or ():
                    parts += *_bytes(header["key"].encode()), *_bytes(header["value"])
            elif isinstance(value, int):
                parts.append(_INT64.pack(value))
            else:
                parts += _bytes(value.encode() if isinstance(value, str) else value)
    return b"".join(parts)


def _bytes(value: bytes | None) -> tuple[bytes, bytes]:
    return (_INT64.pack(-1), b"") if value is None else (_INT64.pack(len(value)), value)
