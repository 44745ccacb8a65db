"""File names of a partition directory, built and parsed in one place.

Kafka's names (format.md, section 1): twenty digits of base offset, then the kind. ``.seal`` and ``.unsynced`` are pylog's own.
"""

from __future__ import annotations

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEAL = ".seal"
UNSYNCED = ".unsynced"
DELETED = ".deleted"  # behind the name of a file on its way out
REWRITE = ".rewrite"  # behind the name of a log that is being copied

COMMIT_SLOTS = ".commit"
LOCK = ".lock"
EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_DIGITS = 20
_OFFSET_MAX = 2**63 - 2**31  # offsets are int64, and those of a segment reach up to 2**31 behind its base
_SEGMENT_KINDS = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, SEAL, UNSYNCED)


def file_name(base_offset: int, kind: str) -> str:
    """``file_name(42, LOG) == "00000000000000000042.log"``"""
    return f"{base_offset:0{_DIGITS}d}{kind}"


def file_path(directory: str, base_offset: int, kind: str) -> str:
    return f"{directory}/{file_name(base_offset, kind)}"


def offset_of(name: str, kind: str) -> int | None:
    """The offset in the name of a file of this kind, or None for any other name: beyond int64, a number is no offset."""
    stem = name[: -len(kind)]
    if name.endswith(kind) and len(stem) == _DIGITS and stem.isascii() and stem.isdigit():
        offset = int(stem)
        return offset if offset <= _OFFSET_MAX else None
    return None


def is_leftover(name: str) -> bool:
    """Whether a crash left a file of this name: a segment's file on its way out, or a copy of a log that was not finished."""
    if name.endswith(REWRITE):
        return offset_of(name.removesuffix(REWRITE), LOG) is not None
    return name.endswith(DELETED) and any(
        offset_of(name.removesuffix(DELETED), kind) is not None for kind in _SEGMENT_KINDS
    )


def base_offsets(names: list[str]) -> list[int]:
    """The base offsets of the segments among the names of a partition directory, rising."""
    return sorted(offset for name in names if (offset := offset_of(name, LOG)) is not None)


def segment_files(names: list[str], base_offset: int) -> list[str]:
    """Those of ``names`` that belong to one segment."""
    return [name for kind in _SEGMENT_KINDS if (name := file_name(base_offset, kind)) in names]
