"""What a partition directory contains if no valid commit slot records it. Reads only.

Used for a directory of another boot (power may have failed), a copy, one of Kafka's, or one that
has lost its slots. The writer acts on the answer (cuts, rebuilds, publishes); a reader without
write permission uses it as its view.

The rule (docs/guarantees.md): batches are kept up to the first that is not whole, valid and
continuing. Below the durable end that is damage and raises. If the durable end is unknown
(``known_durable=False``), whole batches *after* the bad place mean damage too, since nothing
follows a torn tail.
"""

from __future__ import annotations

from typing import NamedTuple

from pylog.codec.format import INT32_MAX
from pylog.errors import CorruptSegment
from pylog.partition.directory import PartitionDirectory
from pylog.partition.segments import Segments
from pylog.segment import SegmentScan, find_next_batch, rising_seal
from pylog.segment.naming import LOG, SEAL


class Assessment(NamedTuple):
    """Where the log ends, and what is after that end. ``last_position``: the last segment's last
    batch, or -1."""

    active_base: int
    written_end: int
    log_end_offset: int
    cut_bytes: int
    dropped: tuple[int, ...]
    problem: str | None
    last_position: int = -1


def assess(
    directory: PartitionDirectory, segments: Segments, *, start: int, durable_offset: int, known_durable: bool
) -> Assessment:
    """Check every batch from the segment of ``durable_offset`` on. Raises ``CorruptSegment`` for
    damage, per the rule.

    Without a segment the log is empty at ``start``, unless it was durable further.

    A segment whose seal allows gaps was compacted, so it was durable. If it is the last, the active
    one is still to come.
    """
    filesystem = directory.filesystem
    if not segments.bases:
        if durable_offset > start:
            raise CorruptSegment(
                f"{directory.path} has no segment, but was durable up to offset {durable_offset}; restore it from a copy",
                path=directory.path, position=0, offset=start, durable_offset=durable_offset,
            )  # fmt: skip
        return Assessment(start, 0, start, 0, (), None)
    first = segments.floor(durable_offset)
    bases = [base for base in segments.bases if first is None or base >= first]
    expected, size, last, seal = bases[0], 0, -1, None
    for number, base in enumerate(bases):
        path = directory.file_path(base, LOG)
        if base < expected or (base > expected and not directory.is_kafka):
            return _mismatched_base(directory, bases, number, expected, durable_offset, known_durable)
        seal = None if directory.is_kafka else rising_seal(filesystem, directory.path, base)
        if seal is not None:
            if base != bases[-1] and bases[number + 1] != seal.next_base:
                raise _wrong_seal(directory, base, bases[number + 1], seal.next_base)
            durable_offset = max(durable_offset, seal.next_base)
        file = filesystem.open_readable(path)
        try:
            size = file.size()
            scan = SegmentScan(file, 0, size, next_offset=base, dense=seal is None and not directory.is_kafka)
            last = -1
            for position, _ in scan:
                last = position
            if scan.problem is not None:
                _refuse_damage(scan, size, durable_offset, known_durable)
                if not known_durable:
                    _refuse_to_drop(directory, scan, bases[number + 1 :])
                return Assessment(
                    base,
                    scan.position,
                    scan.next_offset,
                    size - scan.position,
                    tuple(bases[number + 1 :]),
                    scan.problem,
                    last,
                )
            expected = scan.next_offset if seal is None else seal.gap_end(scan.next_offset)
        finally:
            file.close()
    if expected < durable_offset:
        raise _missing(directory.file_path(bases[-1], LOG), size, expected, durable_offset, "the file ends there")
    if seal is not None:
        return Assessment(expected, 0, expected, 0, (), None)
    return Assessment(bases[-1], size, expected, 0, (), None, last)


def _refuse_damage(scan: SegmentScan, size: int, durable_offset: int, known_durable: bool) -> None:
    if scan.next_offset < durable_offset:
        raise scan.damage(
            f", below the durable end {durable_offset}", "; it was not cut, restore it from a copy",
            durable_offset=durable_offset,
        )  # fmt: skip
    if not known_durable:
        if size > INT32_MAX:  # a sparse file claims any size, and is not searched for batches
            raise scan.damage(
                more=f"; it has {size} bytes, a segment has at most {INT32_MAX}, so it was not cut",
                size_bytes=size, limit_bytes=INT32_MAX,
            )  # fmt: skip
        following = find_next_batch(scan.file, scan.position + 1, size, scan.next_offset)
        if following is not None:
            position, offset = following[0], following[1].base_offset
            raise scan.damage(
                more=f"; whole batches follow at position {position}, offset {offset}, so it was not cut",
                next_position=position, next_offset=offset,
            )  # fmt: skip


def _refuse_to_drop(directory: PartitionDirectory, scan: SegmentScan, later: list[int]) -> None:
    """A torn tail has nothing after it: neither in its own file nor in later segments."""
    for base in later:
        if directory.filesystem.size(directory.file_path(base, LOG)):
            raise scan.damage(
                more=f"; a segment follows at offset {base}, and nothing says that power was lost, so nothing was cut",
                next_offset=base,
            )


def _mismatched_base(
    directory: PartitionDirectory,
    bases: list[int],
    number: int,
    expected: int,
    durable_offset: int,
    known_durable: bool,
) -> Assessment:
    """A segment that does not continue the one before it."""
    previous = bases[number - 1]
    path = directory.file_path(previous, LOG)
    size = directory.filesystem.size(path)
    problem = f"{path} ends at offset {expected}, but the next segment begins at {bases[number]}"
    if expected < durable_offset:
        raise _missing(path, size, expected, durable_offset, problem)
    if not known_durable and directory.filesystem.size(directory.file_path(bases[number], LOG)):
        raise CorruptSegment(
            f"{problem}; nothing says that power was lost, so nothing was cut",
            path=path,
            position=size,
            offset=expected,
            problem=problem,
            next_offset=bases[number],
        )
    return Assessment(previous, size, expected, 0, tuple(bases[number:]), problem)


def _wrong_seal(directory: PartitionDirectory, base: int, found: int, recorded: int) -> CorruptSegment:
    path = directory.file_path(base, SEAL)
    return CorruptSegment(
        f"{path} records that the next segment begins at {recorded}, but it begins at {found}; nothing was cut, restore "
        "the files from a copy",
        path=path, position=0, next_base=recorded, next_offset=found,
    )  # fmt: skip


def _missing(path: str, position: int, offset: int, durable_offset: int, problem: str) -> CorruptSegment:
    return CorruptSegment(
        f"{path}: offsets {offset} to {durable_offset - 1} are missing at position {position}, although they were durable: "
        f"{problem}; restore the file from a copy",
        path=path,
        position=position,
        offset=offset,
        durable_offset=durable_offset,
        problem=problem,
    )
