"""Kafka's text checkpoints: a version, a count, and one line an entry.

``leader-epoch-checkpoint`` in a partition has ``epoch startOffset`` a line; the checkpoints at the
root of a log have ``topic partition offset``. Written whole and atomically; an empty file has no
entries.
"""

from __future__ import annotations

from collections.abc import Iterable

from pylog.codec.format import INT32_MAX, INT64_MAX
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.interrupts import own
from pylog.storage import FileSystem, read_whole, write_atomically

VERSION = 0
_LIMIT_BYTES = 8 << 20  # a hundred thousand partitions, or epochs

LOG_START = "log-start-offset-checkpoint"


def write_checkpoint(
    filesystem: FileSystem, path: str, entries: Iterable[tuple[object, ...]], *, durable: bool = True
) -> None:
    lines = [" ".join(map(str, entry)) for entry in entries]
    text = "\n".join([str(VERSION), str(len(lines)), *lines]) + "\n"
    write_atomically(filesystem, path, text.encode(), durable=durable)


def read_checkpoint(filesystem: FileSystem, path: str, fields: int) -> list[list[str]]:
    """The entries, each as its ``fields`` words; [] if the file is missing or empty.
    ``CorruptSegment`` if malformed."""
    try:
        text = read_whole(filesystem, path, _LIMIT_BYTES).decode()
    except own(FileNotFoundError):
        return []
    except UnicodeDecodeError as error:
        raise CorruptSegment(f"{path} is not text: {error}", path=path, position=error.start) from error
    lines = text.splitlines()
    if not lines:
        return []
    if lines[0] != str(VERSION):
        raise FormatVersionError(
            f"{path} has version {lines[0][:20]!r}, expected {VERSION}", path=path, expected=VERSION
        )
    found = len(lines) - 2
    entries = [line.split(None, fields) for line in lines[2:]]
    if lines[1:2] != [str(found)] or any(len(entry) != fields for entry in entries):
        raise CorruptSegment(
            f"{path} has {max(found, 0)} lines of entries, its second line says {lines[1:2]!r:.40}, and each has {fields} words",
            path=path,
            position=0,
        )
    return entries


def read_offsets(filesystem: FileSystem, path: str) -> dict[tuple[str, int], int]:
    """A root checkpoint: the offset of each (topic, partition)."""
    return {
        (topic, number_of(partition, INT32_MAX, path)): number_of(offset, INT64_MAX, path)
        for topic, partition, offset in read_checkpoint(filesystem, path, 3)
    }


def number_of(word: str, most: int, path: str) -> int:
    """A word of an entry as a number from 0 to ``most``. ``CorruptSegment`` for any other."""
    if not (word.isascii() and word.isdigit() and len(word) <= len(str(most)) and int(word) <= most):
        raise CorruptSegment(f"{path} says {word[:30]!r}, expected a number from 0 to {most}", path=path, position=0)
    return int(word)
