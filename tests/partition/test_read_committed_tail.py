"""What ``read_committed`` sees after the last stable offset, by the answers that it is given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.codec.batch import stamp
from pylog.errors import CorruptSegment
from pylog.index import AbortedTransaction
from pylog.partition import Cursor, Fetched, Partition
from pylog.partition.read.reader import PartitionReader
from pylog.partition.read.undecided import Outcome
from tests.partition.logs import (
    add,
    append_encoded,
    batch,
    control_batch,
    everything,
    flip,
    headers,
    log_file,
    marker,
    open_partition,
    values,
)

COMMITTED, ABORTED, UNDECIDED = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNDECIDED


class Answers:
    """How transactions ended, by producer id, and what was asked."""

    def __init__(self, **outcomes: Outcome) -> None:
        self.outcomes = {int(name[1:]): outcome for name, outcome in outcomes.items()}
        self.asked: list[int] = []
        self.before_each: Callable[[], object] = bool

    def __call__(self, producer_id: int, epoch: int) -> Outcome:
        self.asked.append(producer_id)
        self.before_each()
        return self.outcomes[producer_id]


def reader_of(partition: Partition, answers: Answers) -> PartitionReader:
    log = partition.log
    return PartitionReader(log.directory, log.view, answers)


def data(partition: Partition, producer_id: int, *names: str, sequence: int = 0) -> int:
    encoded = batch(
        *(name.encode() for name in names), producer_id=producer_id, epoch=0, sequence=sequence, transactional=True
    )
    return append_encoded(partition, encoded)


def plain(partition: Partition, *names: str) -> int:
    return append_encoded(partition, batch(*(name.encode() for name in names)))


def fetch(reader: PartitionReader, offset: int, **options: Any) -> Fetched:
    given = {"max_bytes": 1 << 20, "isolation_level": "read_committed", "visibility": "written", **options}
    return reader.fetch(Cursor(offset), **given)


def read(reader: PartitionReader, offset: int = 0, **options: Any) -> list[str]:
    """Up to where it ends now, from an offset that may be inside of a batch."""
    found: list[str] = []
    while True:
        fetched = fetch(reader, offset, **options)
        found += values([record for view in fetched.batches for record in view.records() if record.offset >= offset])
        if fetched.cursor.offset <= offset:
            return found
        offset = fetched.cursor.offset


def read_one(reader: PartitionReader, offset: int) -> list[str]:
    return values([record for view in fetch(reader, offset).batches for record in view.records()])


@pytest.fixture
def partition(directory: Path) -> Partition:
    return open_partition(directory, segment_bytes=600)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (Answers(p1=COMMITTED, p2=ABORTED), ["before", "one", "between", "after"]),
        (Answers(p1=ABORTED, p2=COMMITTED), ["before", "between", "two", "after"]),
        (Answers(p1=COMMITTED, p2=UNDECIDED), ["before", "one", "between"]),
        (Answers(p1=UNDECIDED, p2=COMMITTED), ["before"]),
        (Answers(p1=ABORTED, p2=ABORTED), ["before", "between", "after"]),
    ],
)
def test_reading_stops_at_the_first_transaction_that_is_under_way(
    partition: Partition, answers: Answers, expected: list[str]
) -> None:
    plain(partition, "before")
    data(partition, 1, "one")
    plain(partition, "between")
    data(partition, 2, "two")
    plain(partition, "after")
    reader = reader_of(partition, answers)
    whole = list(enumerate(["before", "one", "between", "two", "after"]))
    for start in range(6):
        assert read(reader, start) == [name for offset, name in whole if offset >= start and name in expected]
    end = [name for _, name in whole].index(expected[-1]) + 1 if UNDECIDED in answers.outcomes.values() else 5
    assert reader.end_offset("read_committed", "written") == end
    assert reader.end_offset("read_uncommitted", "written") == 5
    last = fetch(reader, end)
    assert (last.is_blocked, last.end_offset) == (UNDECIDED in answers.outcomes.values(), end)
    assert last.is_unmarked == (answers.outcomes[1] is not UNDECIDED)


def test_without_anybody_to_ask_it_ends_at_the_last_stable_offset_and_waits_for_an_append(partition: Partition) -> None:
    plain(partition, "before")
    data(partition, 1, "one")
    reader = PartitionReader(partition.log.directory, partition.log.view)
    assert read(reader) == ["before"]
    last = fetch(reader, 1)
    assert (last.end_offset, last.is_blocked) == (1, False)
    assert last.token == partition.log.change_token()


def test_commit_abort_commit_of_one_producer_in_one_fetch(partition: Partition) -> None:
    """Each batch by its own transaction, not by the producer's last one: brod's issue 659."""
    expected = []
    for number in range(12):
        name, is_last = f"n{number}", number == 11
        offset = data(partition, 1, name, sequence=number)
        if number % 3 != 1:
            expected.append((offset, name))
        if not is_last:
            append_encoded(partition, marker(1, 0, commit=number % 3 != 1))
    reader = reader_of(partition, Answers(p1=COMMITTED))
    for start in range(partition.latest_offset + 1):
        assert read(reader, start) == [name for offset, name in expected if offset >= start], start
    reader = reader_of(partition, Answers(p1=ABORTED))
    assert read(reader) == [name for _, name in expected[:-1]]


def test_a_commit_that_the_table_forgot_after_its_marker_is_no_abort(partition: Partition) -> None:
    """Between the scan and the answer its owner writes the marker, and the record of its end."""
    data(partition, 1, "one")
    answers = Answers(p1=ABORTED)
    answers.before_each = lambda: append_encoded(partition, marker(1, 0, commit=True))
    reader = reader_of(partition, answers)
    assert fetch(reader, 0).batches[0].base_offset == 0
    assert read(reader) == ["one"]
    assert answers.asked == [1]


def test_an_abort_marker_after_the_scan_changes_nothing(partition: Partition) -> None:
    data(partition, 1, "one")
    answers = Answers(p1=ABORTED)
    answers.before_each = lambda: append_encoded(partition, marker(1, 0, commit=False))
    reader = reader_of(partition, answers)
    assert fetch(reader, 0).batches == []
    assert read(reader) == []


def count_reads(reader: PartitionReader, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of all batches that it reads."""
    seen: list[int] = []
    original = reader.read_at

    def counted(*given: Any) -> Any:
        batches, cursor = original(*given)
        seen.extend(view.base_offset for view in batches)
        return batches, cursor

    monkeypatch.setattr(reader, "read_at", counted)
    return seen


def test_what_was_scanned_is_not_read_again_while_a_transaction_stays_open(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over rolls, and when an earlier one of several ends."""
    data(partition, 1, "one")
    data(partition, 2, "two")
    for number in range(40):
        plain(partition, f"n{number}")
    answers = Answers(p1=UNDECIDED, p2=UNDECIDED)
    reader = reader_of(partition, answers)
    seen = count_reads(reader, monkeypatch)
    assert fetch(reader, 0).is_blocked
    assert seen == list(range(42))
    seen.clear()
    for number in range(10):
        plain(partition, f"m{number}")
        assert fetch(reader, 0).is_blocked
    assert seen == list(range(42, 52))
    append_encoded(partition, marker(1, 0, commit=True))
    seen.clear()
    assert reader.end_offset("read_committed", "written") == 1
    assert seen == [52]


def test_who_reads_what_is_before_the_first_open_transaction_scans_nothing_after_it(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        plain(partition, f"n{number}")
    data(partition, 1, "one")
    plain(partition, "after")
    answers = Answers(p1=COMMITTED)
    reader = reader_of(partition, answers)
    fetched = fetch(reader, 0, max_bytes=100)
    assert fetched.batches
    assert answers.asked == []
    assert fetched.end_offset == 7  # so a consumer does not take itself for one that has come to the end
    assert read(reader) == [*(f"n{number}" for number in range(5)), "one", "after"]
    answers.asked.clear()
    assert fetch(reader, 0, isolation_level="read_uncommitted").batches
    assert read(reader, isolation_level="read_uncommitted")
    assert answers.asked == []


def test_a_final_answer_is_asked_for_once(partition: Partition) -> None:
    data(partition, 1, "one")
    data(partition, 2, "two")
    data(partition, 3, "three")
    answers = Answers(p1=COMMITTED, p2=ABORTED, p3=UNDECIDED)
    reader = reader_of(partition, answers)
    for _ in range(5):
        assert read(reader) == ["one"]
    assert (answers.asked.count(1), answers.asked.count(2)) == (1, 1)
    assert answers.asked.count(3) > 1
    answers.outcomes[3] = COMMITTED
    assert read(reader) == ["one", "three"]


@pytest.mark.parametrize("outcome", [COMMITTED, ABORTED])
def test_damage_among_the_records_is_met_where_it_is(directory: Path, outcome: Outcome) -> None:
    partition = open_partition(directory)
    data(partition, 1, "one")
    plain(partition, "whole")
    plain(partition, "damaged")
    data(partition, 1, "more", sequence=1)
    plain(partition, "last")
    position = headers(log_file(directory))[2][0]
    flip(log_file(directory), position + 65)
    reader = reader_of(partition, Answers(p1=outcome))
    ones = ["one", "more"] if outcome is COMMITTED else []
    assert read_one(reader, 0) == [*ones[:1], "whole"]
    with pytest.raises(CorruptSegment) as caught:
        fetch(reader, 2)
    assert caught.value.offset == 2
    assert reader.after_damage(caught.value, 2).offset == 3
    assert read(reader, 3) == [*ones[1:], "last"]
    assert reader.end_offset("read_committed", "written") == 5


def test_inside_of_damage_that_hides_transactions_nothing_is_shown(directory: Path) -> None:
    """An index leads to a whole batch there, of which nobody knows whether its transaction is
    over."""
    partition = open_partition(directory)
    data(partition, 1, "one")
    plain(partition, "damaged")
    data(partition, 2, "two")
    plain(partition, "last")
    places = headers(log_file(directory))
    flip(log_file(directory), places[1][0] + 65)
    reader = reader_of(partition, Answers(p1=COMMITTED, p2=UNDECIDED))
    reader.after_damage = lambda *_: Cursor(4)  # as if it found no whole batch
    assert reader.end_offset("read_committed", "written") == 4
    assert read_one(reader, 0) == ["one"]
    for offset in (1, 2, 3):
        with pytest.raises(CorruptSegment):
            fetch(reader, offset)


def test_damage_of_the_table_is_told_as_what_it_is(partition: Partition) -> None:
    data(partition, 1, "one")

    def damaged(*_: object) -> Outcome:
        raise CorruptSegment("the table is damaged", path="/log/topics/__transaction_state-0/x.log", offset=17)

    reader = PartitionReader(partition.log.directory, partition.log.view, damaged)
    with pytest.raises(CorruptSegment, match="the table is damaged") as caught:
        fetch(reader, 0)
    assert caught.value.offset == 17
    assert "topic" not in caught.value.facts


def test_what_is_not_durable_stays_hidden_whatever_was_decided(partition: Partition) -> None:
    plain(partition, "before")
    data(partition, 1, "one")
    partition.log.sync(2)
    data(partition, 1, "more", sequence=1)
    data(partition, 2, "two")
    plain(partition, "after")
    reader = reader_of(partition, Answers(p1=COMMITTED, p2=UNDECIDED))
    assert read(reader, visibility="durable") == ["before", "one"]
    assert reader.end_offset("read_committed", "durable") == 2
    assert not fetch(reader, 2, visibility="durable").is_blocked  # it waits for a sync, which publishes
    assert read(reader) == ["before", "one", "more"]
    partition.log.sync(5)
    assert read(reader, visibility="durable") == ["before", "one", "more"]
    assert fetch(reader, 3, visibility="durable").is_blocked


def test_deleting_the_first_records_of_an_open_transaction_does_not_show_the_others(partition: Partition) -> None:
    data(partition, 1, "one")
    data(partition, 1, "two", sequence=1)
    plain(partition, "after")
    answers = Answers(p1=UNDECIDED)
    known, new = reader_of(partition, answers), reader_of(partition, answers)
    assert read(known) == []
    partition.log.delete_before(1)
    for reader in (known, new):
        assert read(reader, 1) == []
        assert reader.end_offset("read_committed", "written") == 1
    answers.outcomes[1] = COMMITTED
    for reader in (known, new):
        assert read(reader, 1) == ["two", "after"]


def test_files_that_are_deleted_meanwhile_are_no_error(directory: Path) -> None:
    partition = open_partition(directory, segment_bytes=100)
    for number in range(4):
        data(partition, 1, f"n{number}", sequence=number)
    answers = Answers(p1=UNDECIDED)
    reader = reader_of(partition, answers)
    original = reader.read_at

    def deleting(*given: Any, **more: Any) -> Any:
        reader.read_at = original
        partition.log.delete_before(3)
        return original(*given, **more)

    reader.read_at = deleting
    assert reader.end_offset("read_committed", "written") == 3
    answers.outcomes[1] = COMMITTED
    assert read(reader, 3) == ["n3"]


@pytest.mark.slow
def test_threads_that_share_a_reader_see_the_same(partition: Partition) -> None:
    """While the log grows: committed, open with a marker later, aborted."""
    answers = Answers(**{f"p{number}": (COMMITTED, ABORTED)[number % 2] for number in range(200)})
    reader = reader_of(partition, answers)
    wrong: list[object] = []
    over = threading.Event()

    def look() -> None:
        try:
            while not over.is_set():
                found = read(reader)
                if any(int(name[1:]) % 2 for name in found) or found != sorted(found, key=lambda name: int(name[1:])):
                    wrong.append(found)
        except BaseException as error:  # noqa: BLE001 - for the main thread
            wrong.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(200):
        data(partition, number, f"n{number}")
        if number % 5 == 4:
            append_encoded(partition, marker(number - 2, 0, commit=(number - 2) % 2 == 0))
    over.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert read(reader) == [f"n{number}" for number in range(0, 200, 2)]


def test_partitions_without_a_table_read_as_kafkas(partition: Partition) -> None:
    plain(partition, "before")
    data(partition, 1, "one")
    assert everything(partition, "read_committed") == [(0, b"before")]
    assert [record.value for record in partition.read(0)] == [b"before"]
    assert [record.value for record in partition.scan()] == [b"before"]
    assert [record.value for record in partition.scan(isolation_level="read_uncommitted")] == [b"before", b"one"]
    assert (partition.last_stable_offset, partition.latest_offset) == (1, 2)


def test_a_control_batch_of_another_kind_ends_no_transaction(partition: Partition) -> None:
    data(partition, 1, "one")
    append_encoded(partition, control_batch(2, 1, 0))  # not ABORT, not COMMIT
    answers = Answers(p1=UNDECIDED)
    reader = reader_of(partition, answers)
    assert fetch(reader, 0).is_blocked
    answers.outcomes[1] = COMMITTED
    assert read(reader) == ["one"]
    append_encoded(partition, marker(1, 0, commit=True))
    answers.asked.clear()
    assert read(reader_of(partition, answers)) == ["one"]
    assert answers.asked == []


def test_nobody_is_asked_if_no_transaction_is_open(partition: Partition) -> None:
    data(partition, 1, "one")
    append_encoded(partition, marker(1, 0, commit=True))
    plain(partition, "after")
    answers = Answers()
    undecided = reader_of(partition, answers).undecided()
    assert (undecided.end, undecided.is_blocked, undecided.aborted) == (3, False, ())
    assert answers.asked == []


def test_aborted_transactions_are_told_by_their_markers_and_last_those_without_one(directory: Path) -> None:
    partition = open_partition(directory)
    data(partition, 1, "one")
    data(partition, 2, "two")
    append_encoded(partition, marker(2, 0, commit=False))
    append_encoded(partition, marker(1, 0, commit=False))
    partition.log.roll()
    data(partition, 3, "three")
    known = AbortedTransaction(3, 4, 4, -1)  # its owner is dead, and its id was taken over
    reader = PartitionReader(partition.log.directory, partition.log.view, None, (known,))
    found = list(reader.aborted_since(0))
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in found] == [
        (2, 1, 2),
        (1, 0, 3),
        (3, 4, 4),
    ]
    assert list(reader.aborted_since(4)) == [known]


def test_whole_batches_after_the_published_end_are_found_and_a_torn_one_is_none(directory: Path) -> None:
    """Their writer died before it published them. The next one takes in what is whole, and cuts the
    rest."""
    partition = open_partition(directory)
    plain(partition, "published")
    made = [batch(b"first"), batch(b"second")]
    for offset, encoded in enumerate(made, 1):
        stamp(encoded, offset, 0)
    found = []
    for data in (b"", made[0][:-1], made[0][-1:], made[1][:30]):
        add(log_file(directory), data)
        found.append([record.value for view in partition.log.unpublished_batches() for record in view.records()])
    assert found == [[], [], [b"first"], [b"first"]]
    assert (partition.latest_offset, plain(partition, "next")) == (1, 2)
