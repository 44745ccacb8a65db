"""Where a reader that passes over damage goes on: it loses the damaged batches, and takes nothing
else for a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch, stamp
from pylog.codec.format import LENGTH_POSITION
from pylog.errors import CorruptSegment
from pylog.partition import Cursor, Partition
from tests.partition.logs import (
    START_MS,
    append_encoded,
    batch,
    file_of,
    flip,
    headers,
    headers_that_claim_everything,
    log_file,
    one,
    open_partition,
)

COUNT = 8
IN_THE_RECORDS = 65


def filled(
    directory: Path,
    *,
    closed: bool = False,
    values: Mapping[int, bytes] = MappingProxyType({}),
    headers: Mapping[int, bytes] = MappingProxyType({}),
) -> Partition:
    """Batches of one record each; if they are in a closed segment, two more are in the active one.

    Some have another value, or a header.
    """
    partition = open_partition(directory)
    for offset in range(COUNT):
        encoder = RecordEncoder(1 << 20)
        added = (("name", headers[offset]),) if offset in headers else ()
        encoder.append(START_MS, None, values.get(offset, b"%d" % offset), added)
        append_encoded(partition, build_batch(encoder))
    if closed:
        partition.log.roll()
        for offset in (COUNT, COUNT + 1):
            partition.append(one(f"{offset}"), acks=1)
    return partition


def places(directory: Path) -> list[int]:
    return [position for position, _ in headers(log_file(directory))]


def passing_damage(partition: Partition) -> tuple[list[int], list[int]]:
    """The offsets that are read, and those where damage was met."""
    cursor, read, damaged = Cursor(0), list[int](), list[int]()
    while cursor.offset < partition.latest_offset:
        try:
            fetched = partition.log.fetch(
                cursor, max_bytes=1 << 20, isolation_level="read_uncommitted", visibility="written"
            )
        except CorruptSegment as damage:
            damaged.append(cursor.offset)
            cursor = partition.log.reader.after_damage(damage, cursor.offset)
            continue
        assert fetched.cursor.offset > cursor.offset
        read += [record.offset for view in fetched.batches for record in view.records()]
        cursor = fetched.cursor
    assert cursor.offset == partition.latest_offset
    return read, damaged


def without(*lost: int, end: int = COUNT) -> list[int]:
    return [offset for offset in range(end) if offset not in lost]


@pytest.mark.parametrize(
    ("lost", "met"),
    [({3}, [3]), ({3, 4}, [3]), ({3, 4, 6}, [3, 6]), ({0}, [0]), ({6, 7}, [6]), ({7}, [7])],
    ids=str,
)
def test_an_active_segment_is_read_on_after_each_damaged_batch(directory: Path, lost: set[int], met: list[int]) -> None:
    partition = filled(directory)
    for number in lost:
        flip(log_file(directory), places(directory)[number] + IN_THE_RECORDS)
    assert passing_damage(partition) == (without(*lost), met)


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("lost", [{3}, {3, 4}, {7}])
def test_a_closed_segment_is_read_on_after_damage_and_the_next_one_after_it(
    directory: Path, lost: set[int], is_sealed: bool
) -> None:
    filled(directory, closed=True).log.close()
    found = places(directory)
    for number in lost:
        flip(log_file(directory), found[number] + IN_THE_RECORDS)
    if not is_sealed:
        file_of(directory, 0, ".seal").unlink()
    partition = open_partition(directory, read_only=True)
    assert passing_damage(partition)[0] == without(*lost, end=COUNT + 2)


def embedded(offset: int) -> bytes:
    """A whole batch of another log, as a record's value."""
    made = batch(b"of another log")
    stamp(made, offset, 0)
    return bytes(made)


@pytest.mark.parametrize("number", [3, COUNT - 1], ids=["in the middle", "at the end"])
@pytest.mark.parametrize("where", ["values", "headers"])
def test_a_batch_inside_of_a_damaged_record_is_not_read_if_nothing_continues_it(
    directory: Path, number: int, where: str
) -> None:
    """The length of the damaged batch is wrong, so the next whole batch is searched, and that one
    comes first.

    It ends where the record does if it is in a header, else a byte before.
    """
    partition = filled(directory, **{where: {number: embedded(700)}})
    flip(log_file(directory), places(directory)[number] + LENGTH_POSITION + 3)
    assert passing_damage(partition) == (without(number), [number])


def test_a_segment_that_looks_like_too_many_batches_is_left_for_the_next_one(directory: Path) -> None:
    filled(directory, closed=True, values={3: headers_that_claim_everything(2_000)}).log.close()
    flip(log_file(directory), places(directory)[3] + LENGTH_POSITION + 3)
    file_of(directory, 0, ".seal").unlink()  # it has the place of each batch
    partition = open_partition(directory, read_only=True)
    assert passing_damage(partition) == ([0, 1, 2, COUNT, COUNT + 1], [3])


def test_after_a_segment_that_has_only_a_name_the_next_one_is_read(directory: Path) -> None:
    filled(directory, closed=True).log.close()
    log_file(directory).unlink()
    log_file(directory).symlink_to(directory / "nowhere")
    partition = open_partition(directory, read_only=True)
    assert passing_damage(partition) == ([COUNT, COUNT + 1], [0])


def test_what_was_deleted_while_damage_is_passed_is_not_searched(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = filled(directory, closed=True)
    flip(log_file(directory), places(directory)[3] + IN_THE_RECORDS)
    after_damage: Callable[[CorruptSegment, int], Cursor] = partition.log.reader.after_damage

    def deleted(damage: CorruptSegment, offset: int) -> Cursor:
        partition.log.delete_before(COUNT)
        return after_damage(damage, offset)

    monkeypatch.setattr(partition.log.reader, "after_damage", deleted)
    assert passing_damage(partition) == ([0, 1, 2, COUNT, COUNT + 1], [3])
