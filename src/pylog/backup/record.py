"""``.pylog/backup.json``: marks a directory that a backup made, and says how it left it.

It is the first file of a copy, and the last one removed; without ``partitions`` the copy is
unfinished. With it, a later backup knows whether anyone has written to the copy since.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any, NamedTuple

from pylog.catalog import Layout
from pylog.catalog.layout import PRIVATE, TOPIC_SUFFIX
from pylog.catalog.manifest import damaged_field, is_whole, read_json, read_manifest, write_json
from pylog.codec.checksum import crc32c
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.interrupts import own
from pylog.partition.commit_slots import FILE_BYTES, CommitSlotsReader, CommitState
from pylog.segment.naming import COMMIT_SLOTS, LOG, base_offsets, file_path, is_ours
from pylog.storage import FileSystem, read_whole

RECORD = "backup.json"
FORMAT = 1
ID_BYTES = 16
_ID = re.compile("[0-9a-f]{32}")
_TOPIC_LIMIT_BYTES = 1 << 20
_LIMIT_BYTES = 64 << 20  # some hundred thousand partitions


class CopiedPartition(NamedTuple):
    """How a copied partition ends: ``written_end`` is the size of its last segment, at
    ``active_base``."""

    log_start: int
    end: int
    active_base: int
    written_end: int

    @classmethod
    def of(cls, state: CommitState) -> CopiedPartition:
        return cls(state.log_start_offset, state.log_end_offset, state.active_base, state.written_end)


class Record(NamedTuple):
    """``log_id`` is of the log that was copied. ``partitions`` by directory name, and the checksum
    of each topic's file.

    ``replaces`` is the id of the copy that this one takes the place of, or empty.
    """

    id: str
    log_id: str
    replaces: str
    partitions: dict[str, CopiedPartition] | None = None
    topics: dict[str, int] | None = None

    @property
    def is_finished(self) -> bool:
        return self.partitions is not None


def record_path(root: str) -> str:
    return f"{root}/{PRIVATE}/{RECORD}"


def write_record(filesystem: FileSystem, root: str, record: Record) -> None:
    """Durable on return."""
    write_json(filesystem, record_path(root), {"format": FORMAT, **record._asdict()})


def read_record(filesystem: FileSystem, root: str) -> Record | None:
    """None without one. ``CorruptSegment``, ``FormatVersionError``."""
    path = record_path(root)
    try:
        content = read_json(filesystem, path, _LIMIT_BYTES)
    except own(FileNotFoundError):
        return None
    if content.get("format") != FORMAT:
        raise FormatVersionError(
            f"{path} has format {content.get('format')!r:.80}, this pylog knows {FORMAT}; upgrade pylog",
            path=path, field="format", version=content.get("format"), expected=FORMAT,
        )  # fmt: skip
    id_, log_id, replaces = (content.get(field) for field in ("id", "log_id", "replaces"))
    if not isinstance(id_, str) or not _ID.fullmatch(id_):
        raise damaged_field(path, "id", id_, "32 hexadecimal digits")
    if not isinstance(log_id, str):
        raise damaged_field(path, "log_id", log_id, "a text")
    if not isinstance(replaces, str):
        raise damaged_field(path, "replaces", replaces, "a text")
    partitions, topics = content.get("partitions"), content.get("topics")
    if partitions is None or topics is None:
        return Record(id_, log_id, replaces)
    return Record(id_, log_id, replaces, _partitions(path, partitions), _topics(path, topics))


def _partitions(path: str, found: Any) -> dict[str, CopiedPartition]:
    if not isinstance(found, dict):
        raise damaged_field(path, "partitions", found, "an object")
    for name, numbers in found.items():
        if (
            not isinstance(numbers, list)
            or len(numbers) != len(CopiedPartition._fields)
            or not all(map(is_whole, numbers))
        ):
            raise damaged_field(path, f"partitions.{name}", numbers, f"{len(CopiedPartition._fields)} whole numbers")
    return {name: CopiedPartition(*numbers) for name, numbers in found.items()}


def _topics(path: str, found: Any) -> dict[str, int]:
    if not isinstance(found, dict) or not all(map(is_whole, found.values())):
        raise damaged_field(path, "topics", found, "an object of whole numbers")
    return found


def checksums(contents: dict[str, bytes]) -> dict[str, int]:
    """Of the topics' files, by name."""
    return {name: crc32c(data) for name, data in contents.items()}


def read_topic_files(filesystem: FileSystem, layout: Layout, *suffixes: str) -> dict[str, bytes]:
    """The content of each file in the catalog's directory with one of these suffixes."""
    names = [name for name in filesystem.names(layout.topics) if name.endswith(suffixes)]
    return {name: read_whole(filesystem, f"{layout.topics}/{name}", _TOPIC_LIMIT_BYTES) for name in names}


def what_changed(filesystem: FileSystem, root: str, record: Record) -> str | None:
    """What someone has changed in a finished copy, as a part of a sentence; None if it is as it was
    left."""
    layout = Layout(root)
    try:
        manifest = read_manifest(filesystem, layout.manifest)
        if manifest is None or manifest.log_id != record.log_id:
            return "its manifest is another one"
        if checksums(read_topic_files(filesystem, layout, TOPIC_SUFFIX)) != record.topics:
            return "its topics were changed"
        others = set(filesystem.names(root)) ^ {PRIVATE, *(record.partitions or ())}
        if others:
            return f"{min(others)!r} was added or removed"
        for name, copied in (record.partitions or {}).items():
            if why := _changed_partition(filesystem, f"{root}/{name}", copied):
                return f"in {name}, {why}"
    except own(FileNotFoundError) as error:
        return f"a file is missing: {error.filename}"
    except own(CorruptSegment) as error:
        return str(error)
    return None


def _changed_partition(filesystem: FileSystem, path: str, copied: CopiedPartition) -> str | None:
    names = filesystem.names(path)
    foreign = [name for name in names if not is_ours(name)]
    if foreign:
        return f"{foreign[0]!r} was added"
    bases = base_offsets(names)
    last = bases[-1] if bases else -1
    size = filesystem.size(file_path(path, last, LOG)) if bases else 0
    if (last, size) != (copied.active_base, copied.written_end):
        return f"the last segment, at {last}, has {size} bytes, not {copied.written_end} at {copied.active_base}"
    with closing(CommitSlotsReader(filesystem.open_readable(f"{path}/{COMMIT_SLOTS}"))) as slots:
        state = slots.read()
    if state is None:
        return f"no valid slot of {FILE_BYTES} bytes tells where it ends"
    if (state.log_start_offset, state.log_end_offset) != (copied.log_start, copied.end):
        now = f"offsets {state.log_start_offset} to {state.log_end_offset}"
        return f"it holds {now}, not {copied.log_start} to {copied.end}"
    return None
