"""Each key keeps its order in a repartitioned topic, also if it is in several partitions before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import mmh3
import pytest

from pylog import Log, Producer, ProducerRecord, Record, TopicPartition
from pylog.manager.manager import LogManager
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.partition.partition_log import PartitionLog
from pylog.testing import ManualClock
from pylog.topic_changes import switch
from pylog.topic_changes.copying import TopicCopy
from pylog.topic_changes.keys import KeyHash
from pylog.topic_changes.merging import Stream, merged


def place(key: bytes, count: int) -> int:
    return int(mmh3.hash(key) & 0x7FFFFFFF) % count


def key_of(*places: int) -> bytes:
    """A key that 2 partitions have at the first place, 3 at the second, and so on."""
    keys = (b"k%d" % n for n in range(100_000))
    return next(key for key in keys if all(place(key, 2 + n) == number for n, number in enumerate(places)))


def put(log: Log, count: int, key: bytes | None, value: bytes | None, time_ms: int | None = None) -> None:
    """As a producer that knows ``count`` partitions."""
    number = 0 if key is None else place(key, count)
    log.partition("t", number).append([ProducerRecord(value, key, timestamp_ms=time_ms)], acks=1)


def values(log: Log, key: bytes) -> list[bytes | None]:
    """Of all records of a key, which are in one partition."""
    count = log.describe_topic("t").partitions
    found = [r for number in range(count) for r in log.partition("t", number).scan() if r.key == key]
    assert {r.partition for r in found} == {place(key, count)}
    return [r.value for r in found]


@contextmanager
def log_with_a_moved_key(path: Path, first: int, second: int, **config: object) -> Iterator[tuple[Log, bytes]]:
    """A key's old value is in the partition ``first``, and its place is ``second`` now. ``second``
    is the older partition."""
    clock = ManualClock()
    with Log(path, clock=clock) as log:
        log.create_topic("t", partitions=2, **config)
        put(log, 2, key_of(second, second), b"first")
        clock.advance(0.01)
        put(log, 2, key_of(first, second), b"old")
        clock.advance(0.01)
        log.add_partitions("t", 3)
        yield log, key_of(first, second)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_the_value_before_a_key_moved_comes_first(tmp_log_dir: Path, first: int, second: int) -> None:
    """The partition with the new value has an older record: the order of whole pieces is another
    one."""
    with log_with_a_moved_key(tmp_log_dir, first, second) as (log, key):
        put(log, 3, key, b"new")
        log.repartition("t", 4)
        assert values(log, key) == [b"old", b"new"]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_of_the_same_millisecond_the_record_that_is_not_at_its_place_now_comes_first(
    tmp_log_dir: Path, first: int, second: int
) -> None:
    with log_with_a_moved_key(tmp_log_dir, first, second) as (log, key):
        put(log, 2, key, b"older", 5_000_000_000_000)
        put(log, 3, key, b"new", 5_000_000_000_000)
        log.repartition("t", 4)
        assert values(log, key) == [b"old", b"older", b"new"]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_a_delete_horizon_is_not_the_time_of_a_record(tmp_log_dir: Path, first: int, second: int) -> None:
    """Compaction writes it where the time of a batch's first record was."""
    with log_with_a_moved_key(tmp_log_dir, first, second, cleanup_policy="compact") as (log, key):
        old = log.partition("t", first).log
        tombstone = ProducerRecord(None, b"deleted")
        log.partition("t", first).append([tombstone, ProducerRecord(b"older", key)], acks=1)
        old.roll()
        old.sync(old.latest_offset)
        compact(old, CompactionOptions())
        assert [b.header.delete_horizon_ms for b in old.batches(0, old.latest_offset)] != [None]
        assert isinstance(log.clock, ManualClock)
        log.clock.advance(0.01)
        put(log, 3, key, b"new")
        log.repartition("t", 4)
        assert values(log, key) == [b"older", b"new"]


def test_a_transaction_that_was_open_before_a_key_moved_holds_back_what_follows(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records come first when it has ended, and not all of that is copied while the locks are
    held."""
    monkeypatch.setattr("pylog.topic_changes.merging.RECORDS_AT_ONCE", 1)
    monkeypatch.setattr("pylog.topic_changes.copying._STEP_BYTES", 1)
    monkeypatch.setattr("pylog.topic_changes.repartition._LITTLE_BYTES", 1)
    settle, make_change, found = switch._settle, TopicCopy.is_complete, []
    with log_with_a_moved_key(tmp_log_dir, 0, 1) as (log, key), Log(tmp_log_dir, clock=log.clock) as other:
        with Producer(other, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"older", key=key, partition=0)
            producer.flush()
            for n in range(5):
                put(log, 3, key, b"%d" % n)

            def end(manager: LogManager, partitions: list[PartitionLog]) -> None:
                if not found:
                    producer.commit_transaction()
                settle(manager, partitions)

            def is_complete(copy: TopicCopy) -> bool:
                found.append(make_change(copy))
                return found[-1]

            monkeypatch.setattr(switch, "_settle", end)
            monkeypatch.setattr(TopicCopy, "is_complete", is_complete)
            log.repartition("t", 4)
        assert values(log, key) == [b"old", b"older", b"0", b"1", b"2", b"3", b"4"]
        assert found == [False, True]


class Model:
    """A topic that changes at random, and the values of each key in the order in which they were
    sent."""

    def __init__(self, log: Log, clock: ManualClock, random: Random) -> None:
        self.log, self.clock, self.random = log, clock, random
        self.keys = [b"k%d" % n for n in range(30)]
        self.count = 1
        self.sent = 0
        self.times_s = random.choice([[0, 0, 0, 0, 0.001], [0, 0.001, 0.01]])
        log.create_topic("t", partitions=1, cleanup_policy="compact", delete_retention_ms=1000)

    def send(self) -> None:
        """A batch of one partition's keys. The value is the number of the record, or none."""
        random, log = self.random, self.log
        number = random.randrange(self.count)
        keys = [key for key in self.keys if place(key, self.count) == number] or [self.keys[0]]
        batch = []
        for _ in range(random.randint(1, 8)):
            self.clock.advance(random.choice(self.times_s))
            self.sent += 1
            value = None if random.random() < 0.1 else b"%d" % self.sent
            header = [("n", b"%d" % self.sent)]
            batch.append(ProducerRecord(value, random.choice(keys), header, timestamp_ms=self.clock.now_ms()))
        log.partition("t", place(batch[0].key, self.count)).append(batch, acks=1)

    def add(self) -> None:
        if self.count < 6:
            self.count += 1
            self.log.add_partitions("t", self.count)
            self.clock.advance(0.001)

    def compact(self) -> None:
        partition = self.log.partition("t", self.random.randrange(self.count)).log
        partition.roll()
        partition.sync(partition.latest_offset)
        compact(partition, CompactionOptions(delete_retention_ms=self.random.choice([0, 1000, 10**9])))

    def records(self) -> dict[int, list[Record]]:
        return {number: list(self.log.partition("t", number).scan()) for number in range(self.count)}


def sent(record: Record) -> int:
    return int(record.headers[0][1])


@pytest.mark.slow
@pytest.mark.parametrize("run", range(6))
@pytest.mark.one_in(4)
def test_random_histories_keep_the_order_of_each_key_and_the_positions_of_groups(
    tmp_log_dir: Path, seed: int, run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With parts and steps of a few records, so that there are many of them."""
    random = Random(seed)
    monkeypatch.setattr("pylog.topic_changes.merging.RECORDS_AT_ONCE", random.choice([2, 20, 100]))
    monkeypatch.setattr("pylog.topic_changes.copying._STEP_BYTES", random.choice([1, 300, 3000]))
    monkeypatch.setattr("pylog.topic_changes.copying._READ_BYTES", 1)
    monkeypatch.setattr("pylog.topic_changes.copying._READ_BYTES_MIN", random.choice([1, 500, 100_000]))
    monkeypatch.setattr("pylog.topic_changes.copying._REACHED_BITS", random.choice([1, 12, 1000]))
    monkeypatch.setattr("pylog.topic_changes.merging._OPEN_BYTES", random.choice([1, 1000, 100_000]))
    copy, rounds = TopicCopy.copy, []

    def counted(self: TopicCopy, *most_bytes: int) -> int:
        rounds.append(self)
        return copy(self, *most_bytes)

    monkeypatch.setattr(TopicCopy, "copy", counted)
    clock = ManualClock()
    with Log(tmp_log_dir, clock=clock) as log:
        model = Model(log, clock, random)
        for change in random.choices([model.send, model.add, model.compact], [15, 2, 1], k=80):
            change()
        for _ in range(3):
            before = model.records()
            committed: dict[str, set[int]] = {}
            for group in map("g{}".format, range(8)):
                ends = {n: log.partition("t", n).latest_offset for n in before}
                offsets = {n: random.choice([0, end, random.randint(0, end)]) for n, end in ends.items()}
                log.reset_offsets(group, offsets={TopicPartition("t", n): each for n, each in offsets.items()})
                committed[group] = {sent(r) for n in before for r in before[n] if r.offset < offsets[n]}
            wanted = {sent(record) for each in before.values() for record in each}
            partitions = random.choice([n for n in range(1, 8) if n != model.count])
            rounds.clear()

            def send_more(_: int, wanted: set[int] = wanted) -> None:
                if len(rounds) == 1 and random.random() < 0.3:  # no locks are held
                    last = model.sent
                    model.send()
                    wanted.update(range(last + 1, model.sent + 1))

            log.repartition("t", partitions, send_more)
            model.count = partitions
            after = model.records()
            assert sorted(sent(record) for each in after.values() for record in each) == sorted(wanted)
            for key in model.keys:
                mine = [(n, sent(record)) for n in after for record in after[n] if record.key == key]
                assert mine == sorted(mine), f"seed {seed}: {key!r}"
                assert {number for number, _ in mine} <= {place(key, model.count)}
            for group, done in committed.items():
                for name, progress in log.describe_group(group).partitions.items():
                    there = after[name.partition]
                    first = next((r.offset for r in there if sent(r) not in done), len(there))
                    assert progress.committed is not None, f"seed {seed}"
                    assert progress.committed.offset == first, f"seed {seed}: {group} {name}"
            for _ in range(20):
                model.send()


def test_a_part_that_is_read_again_is_the_same(tmp_log_dir: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is read at once: positions of groups are found by reading a part again."""
    random = Random(seed)
    clock = ManualClock()
    with Log(tmp_log_dir, clock=clock) as log:
        model = Model(log, clock, random)
        for change in random.choices([model.send, model.add], [10, 1], k=100):
            change()
        partitions = [log.partition("t", number).log for number in range(model.count)]
        hashes = KeyHash(log.describe_topic("t")), KeyHash(log.describe_topic("t")._replace(partitions=4))

        def streams(starts: Sequence[int], ends: Sequence[int]) -> list[Stream]:
            monkeypatch.setattr("pylog.topic_changes.merging.RECORDS_AT_ONCE", random.randint(1, 20))
            monkeypatch.setattr("pylog.topic_changes.merging._OPEN_BYTES", random.choice([1, 1000, 100_000]))
            return [
                Stream(partition, *each, now=hashes[0], after=hashes[1], max_bytes=random.choice([1000, 10_000]))
                for partition, *each in zip(partitions, starts, ends, strict=True)
            ]

        ends = [partition.latest_offset for partition in partitions]
        sources = streams([0] * model.count, ends)
        whole: list[tuple[Record, int]] = []
        parts = [([0] * model.count, 0)]
        for records, targets in merged(sources):
            whole += zip(records, targets, strict=True)
            parts.append(([source.position for source in sources], len(whole)))
        assert len(whole) == model.sent
        for _ in range(30):
            (starts, first), (stops, last) = sorted(random.sample(parts, 2), key=lambda part: part[1])
            again = [pair for found in merged(streams(starts, stops)) for pair in zip(*found, strict=True)]
            assert again == whole[first:last], f"seed {seed}"
