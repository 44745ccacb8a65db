"""File names of a partition directory, built and parsed in one place.

Kafka's names (docs/format.md): twenty digits of base offset, then the kind. ``.seal`` and
``.unsynced`` are pylog's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pylog.storage.atomic_file import TEMPORARY

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
TIMES = ".times"  # of earlier versions: nothing reads it
SEAL = ".seal"
UNSYNCED = ".unsynced"
DELETED = ".deleted"  # after the name of a retired file
REWRITE = ".rewrite"  # after the name of a copy of a log, or of an index that is made again
CLEANED = ".cleaned"  # after the name of a file that compaction is writing
SWAP = ".swap"  # after the name of one that is whole; it counts while the segment has a seal of this name

COMMIT_SLOTS = ".commit"
LOCK = ".lock"
EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEANER_LOCK = ".cleaner-lock"
CLEANER_CHECKPOINT = ".cleaner-checkpoint"

_DIGITS = 20
_OF_PROCESS = re.compile("[0-9]+-[0-9a-f]+")  # see temporary_path
_OFFSET_MAX = 2**63 - 2**31  # offsets are int64, and a segment has offsets up to 2**31 after its base
SEGMENT_KINDS = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, TIMES, UNSYNCED, SEAL)
CLEANED_KINDS = (TRANSACTION_INDEX, OFFSET_INDEX, TIME_INDEX, LOG)  # besides the seal, in the order of a swap
_COPIED = (LOG, OFFSET_INDEX, TIME_INDEX)
_LEFTOVER_KINDS = frozenset(
    {
        *(kind + DELETED for kind in SEGMENT_KINDS),
        *(kind + REWRITE for kind in _COPIED),
        *(kind + suffix for kind in (*CLEANED_KINDS, SEAL) for suffix in (CLEANED, SWAP)),
        TIMES,
    }
)
_OUR_KINDS = frozenset({*SEGMENT_KINDS, SNAPSHOT})
_SINGLE_FILES = frozenset({COMMIT_SLOTS, LOCK, EPOCH_CHECKPOINT, PARTITION_METADATA, CLEANER_LOCK, CLEANER_CHECKPOINT})


def file_name(base_offset: int, kind: str) -> str:
    """``file_name(42, LOG) == "00000000000000000042.log"``"""
    return f"{base_offset:0{_DIGITS}d}{kind}"


def file_path(directory: str, base_offset: int, kind: str) -> str:
    return f"{directory}/{file_name(base_offset, kind)}"


def offset_of(name: str, kind: str) -> int | None:
    """The offset in the name of a file of this kind, or None for any other name. A number beyond
    int64 is not an offset."""
    return int(name[:_DIGITS]) if _kind_of(name) == kind else None


def _kind_of(name: str) -> str | None:
    """What follows the offset in a name; None for a name that begins with none."""
    digits = name[:_DIGITS]
    is_offset = len(digits) == _DIGITS and digits.isascii() and digits.isdigit() and int(digits) <= _OFFSET_MAX
    return name[_DIGITS:] if is_offset else None


def temporary_path(path: str, process_id: int, drawn: bytes) -> str:
    """Where one thread of one process writes a file that it then renames to ``path``."""
    return f"{path}.{process_id}-{drawn.hex()}{TEMPORARY}"


def is_unfinished_snapshot(name: str) -> bool:
    """Whether a writer that died, or whose disk was full, left this."""
    return name.endswith(TEMPORARY) and offset_of(name.removesuffix(TEMPORARY), SNAPSHOT) is not None


def unfinished_seal(name: str) -> int | None:
    """The offset in the name of a seal that its process has not finished; None for any other
    name."""
    target, _, of_process = name.removesuffix(TEMPORARY).rpartition(".")
    is_one = name.endswith(TEMPORARY) and _OF_PROCESS.fullmatch(of_process) is not None
    return offset_of(target, SEAL) if is_one else None


def is_leftover(name: str) -> bool:
    """Whether nothing reads a file of this name: a crash left it, or an earlier version wrote it.

    It is a retired file of a segment, or an unfinished copy of a log, index, seal, snapshot or
    lock. What compaction has written is one too, unless a swap is under way: finish that first
    (``partition/repair/swaps.py``).
    """
    if name.endswith(TEMPORARY):
        target, _, of_process = name.removesuffix(TEMPORARY).rpartition(".")
        is_lock = target == LOCK and _OF_PROCESS.fullmatch(of_process) is not None
        return is_lock or is_unfinished_snapshot(name) or unfinished_seal(name) is not None
    return _kind_of(name) in _LEFTOVER_KINDS


def is_ours(name: str) -> bool:
    """Whether pylog makes files of this name in a partition directory."""
    whole = name.removesuffix(TEMPORARY)
    if whole in _SINGLE_FILES or is_leftover(name):
        return True
    return _kind_of(whole) in _OUR_KINDS


def may_hold_records(name: str) -> bool:
    """Whether a file of this name contains records unless it is empty: a log, a retired one, or a
    copy."""
    whole = name.removesuffix(DELETED).removesuffix(REWRITE).removesuffix(CLEANED).removesuffix(SWAP)
    return offset_of(whole, LOG) is not None


def base_offsets(names: Sequence[str]) -> list[int]:
    """The base offsets of the segments among the names of a partition directory, rising."""
    return sorted(offsets_of(names, LOG))


def offsets_of(names: Sequence[str], kind: str) -> list[int]:
    """The offsets in the names of files of this kind, in the order of the names."""
    length = _DIGITS + len(kind)
    return [
        offset
        for name in names
        if name.endswith(kind)
        and len(name) == length
        and name.isascii()
        and name[:_DIGITS].isdigit()
        and (offset := int(name[:_DIGITS])) <= _OFFSET_MAX
    ]
