"""The files of a partition while compaction replaces some of them: for readers, which take no lock.

A compaction writes a segment under other names and decides by renaming its seal to
``<base>.seal.swap``. From then on, each file of the segment is the one with the suffix ``.swap``
or, once that was renamed, the one with the plain name; and the seal says which segments it
replaces. docs/design.md, "Compaction", has the reasons.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from pylog.errors import CorruptSegment
from pylog.interrupts import own
from pylog.segment.naming import LOG, SEAL, SEGMENT_KINDS, SWAP, file_path
from pylog.segment.seal import Seal, decode_seal_file
from pylog.storage import FileSystem, ReadableFile


def swap_seal(filesystem: FileSystem, directory: str, base: int) -> Seal:
    """The seal of a segment that takes the place of others. ``FileNotFoundError`` once it has;
    ``CorruptSegment``."""
    path = file_path(directory, base, SEAL) + SWAP
    size = filesystem.size(file_path(directory, base, LOG))  # a rename replaces it: it is always there
    try:
        size = max(size, filesystem.size(file_path(directory, base, LOG) + SWAP))
    except own(FileNotFoundError):
        pass  # renamed already
    seal = decode_seal_file(filesystem.open_readable(path), size)
    if seal.is_dense:
        raise CorruptSegment(
            f"{path} is of a compaction, but does not say which segments it replaces; restore the segments from a copy",
            path=path,
            position=0,
        )
    if seal.next_base <= base or (seal.positions and seal.first_offset < base):
        raise CorruptSegment(
            f"{path} is of offsets {seal.first_offset} to {seal.next_base - 1}, not of a segment that begins at {base}; nothing "
            "was replaced; restore the segments from a copy",
            path=path, position=0, offset=base, first_offset=seal.first_offset, next_offset=seal.next_base,
        )  # fmt: skip
    return seal


def seen_through(filesystem: FileSystem, directory: str, bases: Collection[int]) -> FileSystem:
    """The same files, but those of the segments at ``bases`` as the compaction has made them. For
    reading."""
    if not bases:
        return filesystem
    swapped = frozenset(file_path(directory, base, kind) for base in bases for kind in SEGMENT_KINDS)
    return cast(FileSystem, _SwapView(filesystem, swapped))


class _SwapView:
    def __init__(self, filesystem: FileSystem, swapped: frozenset[str]) -> None:
        self._filesystem = filesystem
        self._swapped = swapped

    def open_readable(self, path: str) -> ReadableFile:
        if path in self._swapped:
            try:
                return self._filesystem.open_readable(path + SWAP)
            except own(FileNotFoundError):
                pass
        return self._filesystem.open_readable(path)

    def size(self, path: str) -> int:
        if path in self._swapped:
            try:
                return self._filesystem.size(path + SWAP)
            except own(FileNotFoundError):
                pass
        return self._filesystem.size(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)
