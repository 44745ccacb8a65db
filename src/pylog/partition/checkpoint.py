"""Kafka's text checkpoints: a version, a count, and one line an entry (format.md, section 7).

``leader-epoch-checkpoint`` in a partition has ``epoch startOffset`` a line; the checkpoints at the root of a log have
``topic partition offset``. Written whole and atomically; an empty file has no entries.
"""

from __future__ import annotations

from collections.abc import Iterable

from pylog.errors import CorruptSegment, FormatVersionError
from pylog.storage import FileSystem, read_whole, write_atomically

VERSION = 0
_LIMIT_BYTES = 64 << 20
_OFFSETS_END = 2**63

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"


def write_checkpoint(
    filesystem: FileSystem, path: str, entries: Iterable[tuple[object, ...]], *, durable: bool = True
) -> None:
    lines = [" ".join(map(str, entry)) for entry in entries]
    text = "\n".join([str(VERSION), str(len(lines)), *lines]) + "\n"
    write_atomically(filesystem, path, text.encode(), durable=durable)


def read_checkpoint(filesystem: FileSystem, path: str, fields: int) -> list[list[str]]:
    """The entries, each as its ``fields`` words; [] where the file is missing or empty. ``CorruptSegment`` if malformed."""
    try:
        text = read_whole(filesystem, path, _LIMIT_BYTES).decode()
    except FileNotFoundError:
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
    entries = [line.split() for line in lines[2:]]
    if len(lines) < 2 or lines[1] != str(len(entries)) or any(len(entry) != fields for entry in entries):
        raise CorruptSegment(
            f"{path} has {len(entries)} lines, its second line says {lines[1:2]}", path=path, position=0
        )
    return entries


def read_offsets(filesystem: FileSystem, path: str) -> dict[tuple[str, int], int]:
    """A root checkpoint: the offset of each (topic, partition)."""
    try:
        offsets = {(topic, int(number)): int(offset) for topic, number, offset in read_checkpoint(filesystem, path, 3)}
    except ValueError as error:
        raise CorruptSegment(f"{path}: {error}", path=path, position=0) from error
    for (topic, number), offset in offsets.items():
        if not 0 <= offset < _OFFSETS_END:
            raise CorruptSegment(
                f"{path} has offset {offset} for {topic}-{number}, expected 0 to {_OFFSETS_END - 1}",
                path=path, position=0, offset=offset,
            )  # fmt: skip
    return offsets
