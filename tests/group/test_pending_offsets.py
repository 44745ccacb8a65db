"""Committed offsets while transactions are open in ``__consumer_offsets``."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import CorruptSegment, LogLocked
from pylog.group import offsets as offsets_module
from pylog.group.admin import GroupAdmin
from pylog.group.offset_records import Committed
from pylog.group.offsets import OffsetStore
from pylog.group.offsets_partition import OffsetsPartition
from pylog.partition.read.undecided import Outcome
from pylog.testing import ManualClock
from tests.group.consumers import checkpoint, fill, member, place
from tests.partition.logs import append_encoded, no_marker

OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


@pytest.fixture
def out(log: Log) -> Log:
    log.create_topic("out")
    fill(log, 10)
    return log


def store_of(log: Log) -> OffsetStore:
    """One that knows nothing yet, as in another process."""
    return Log(log.path).manager.part(GroupAdmin).offsets


def opened(log: Log, transactional_id: str, offset: int, group: str = "g", number: int = 0) -> Producer:
    """A producer whose transaction has an offset in the log, and is not decided."""
    producer = Producer(log, transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({place(number): offset}, group)
    transactions = producer._transactions
    assert transactions is not None
    assert transactions._owner is not None
    transactions._append_offsets(transactions._owner)
    return producer


def die(producer: Producer) -> None:
    """What the end of its process leaves: its lock is free, and nothing else was done."""
    transactions = producer._transactions
    assert transactions is not None
    assert transactions._owner is not None
    assert transactions._owner._alive is not None
    transactions._owner._alive.release()


def plain(log: Log, offset: int | None, group: str = "g", number: int = 0) -> None:
    committed = None if offset is None else Committed(offset, -1, "", 0, "")
    log.manager.part(GroupAdmin).commit_alone(group, {place(number): committed})


def seen(store: OffsetStore, group: str = "g") -> dict[int, int]:
    return {name.partition: at.offset for name, at in store.committed(group).items()}


def test_a_commit_of_another_group_while_a_transaction_is_open_is_read_at_once(out: Log) -> None:
    """It was hidden until the transaction ended, together with those of all other groups."""
    before = store_of(out)
    producer = opened(out, "p", 5, "g")
    with member(out, "h") as other:
        other.commit({place(1): 3})
        assert seen(before, "h") == seen(store_of(out), "h") == {1: 3}
        other.commit({place(1): 4})
        assert seen(before, "h") == seen(store_of(out), "h") == {1: 4}
    assert seen(before) == seen(store_of(out)) == {}
    assert before.groups() == {"h"}
    producer.commit_transaction()
    assert seen(before) == seen(store_of(out)) == {0: 5}
    assert before.groups() == {"g", "h"}


@pytest.mark.parametrize("decision", ["commit", "abort"])
def test_a_pending_offset_counts_after_a_commit_only(out: Log, decision: str) -> None:
    plain(out, 1)
    follower = store_of(out)
    assert seen(follower) == {0: 1}
    producer = opened(out, "p", 5)
    assert seen(follower) == seen(store_of(out)) == {0: 1}
    assert follower.look("g").undecided == store_of(out).look("g").undecided == {place(0)}
    assert follower.look("h").undecided == set()
    producer.commit_transaction() if decision == "commit" else producer.abort_transaction()
    assert seen(follower) == seen(store_of(out)) == {0: 5 if decision == "commit" else 1}
    assert follower.look("g").undecided == store_of(out).look("g").undecided == set()


def test_a_decision_counts_before_its_marker(out: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = store_of(out)
    producer = opened(out, "p", 5)
    assert seen(follower) == {}
    monkeypatch.setattr("pylog.producer.transactions.ProducerTransactions._write_markers", lambda self: None)
    producer.commit_transaction()
    assert out.partition(*OFFSETS).log.open_transactions() != []
    assert seen(follower) == seen(store_of(out)) == {0: 5}
    with Log(out.path, read_only=True) as reader:
        assert {name.partition: at.offset for name, at in reader.manager.part(GroupAdmin).committed("g").items()} == {
            0: 5
        }
    monkeypatch.undo()


def test_a_pending_offset_of_a_dead_producer_is_dropped_at_once(out: Log) -> None:
    plain(out, 1)
    follower = store_of(out)
    producer = opened(out, "p", 5)
    assert follower.look("g").undecided == {place(0)}
    die(producer)
    assert seen(follower) == seen(store_of(out)) == {0: 1}
    assert follower.look("g").undecided == set()
    with member(out) as one:
        assert one.position(place(0)) == 1


def test_partitions_assigned_by_hand_wait_for_the_decision_too(out: Log) -> None:
    plain(out, 1)
    producer = opened(out, "p", 5)
    with Consumer(out, group_id="g", default_api_timeout_ms=50) as one:
        with pytest.raises(LogLocked, match="an offset of t-0 in group 'g' was not decided for"):
            one.assign([place(0)])
        one.assign([place(1)])  # has none
        producer.commit_transaction()
        one.assign([place(0)])
        assert one.position(place(0)) == 5


def test_the_offset_of_a_commit_whose_producer_died_before_the_markers_counts(
    out: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = opened(out, "p", 5)
    monkeypatch.setattr("pylog.producer.transactions.ProducerTransactions._write_markers", lambda self: None)
    producer.commit_transaction()
    die(producer)
    with member(out) as one:
        assert one.position(place(0)) == 5
    monkeypatch.undo()


@pytest.mark.parametrize("offset", [7, None])
def test_a_later_commit_of_the_same_partition_wins_over_an_earlier_pending_one(out: Log, offset: int | None) -> None:
    plain(out, 1)
    followers = [store_of(out)]
    producer = opened(out, "p", 5)
    followers.append(store_of(out))
    assert [seen(store) for store in followers] == [{0: 1}, {0: 1}]
    plain(out, offset)
    expected = {} if offset is None else {0: offset}
    assert [seen(store) for store in followers] == [expected, expected]
    assert followers[0].look("g").undecided == set()
    producer.commit_transaction()
    assert [seen(store) for store in [*followers, store_of(out)]] == [expected] * 3


def test_of_two_transactions_the_later_record_wins_whatever_the_order_of_the_decisions(out: Log) -> None:
    for first_decided in (0, 1):
        producers = [opened(out, f"p{number}", 5 + number) for number in range(2)]
        follower = store_of(out)
        assert follower.look("g").undecided == {place(0)}
        producers[first_decided].commit_transaction()
        assert seen(follower) == seen(store_of(out)) == {0: 5 + first_decided}
        producers[1 - first_decided].commit_transaction()
        assert seen(follower) == seen(store_of(out)) == {0: 6}
        plain(out, 0)


def test_what_removes_a_group_removes_its_pending_offsets_too(out: Log) -> None:
    plain(out, 1, number=1)
    producer = opened(out, "p", 5)
    out.delete_group("g")
    with pytest.raises(Exception, match="no group 'g'"):
        out.describe_group("g")
    producer.commit_transaction()
    assert "g" not in out.groups()


def test_a_checkpoint_does_not_pass_a_pending_offset(out: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 5)
    store = out.manager.part(GroupAdmin).offsets
    for offset in range(12):
        plain(out, offset, "h")
        checkpoint(store, "h")
    producer = opened(out, "p", 5)
    first = out.partition(*OFFSETS).latest_offset - 1
    for offset in range(12, 30):
        plain(out, offset, "h")
        checkpoint(store, "h")
    taken: list[int] = []
    apply = OffsetsPartition.apply

    def counted(partition: OffsetsPartition, key: bytes, value: bytes, at: int = -1, *transaction: object) -> None:
        taken.append(at)
        apply(partition, key, value, at, *transaction)

    monkeypatch.setattr(OffsetsPartition, "apply", counted)
    fresh = store_of(out)
    assert (seen(fresh), seen(fresh, "h")) == ({}, {0: 29})
    assert [at for at in taken if at >= 0] == list(range(first, first + 19))  # the rest is from the checkpoint
    producer.commit_transaction()
    assert seen(fresh) == seen(store_of(out)) == {0: 5}
    for offset in range(30, 50):
        plain(out, offset, "h")
        checkpoint(store, "h")
    taken.clear()
    assert (seen(store_of(out)), seen(store_of(out), "h")) == ({0: 5}, {0: 49})
    assert min(at for at in taken if at >= 0) > first + 19


def test_transactions_alone_write_checkpoints_too(out: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 10)
    with Producer(out, transactional_id="p") as producer:
        producer.init_transactions()
        for offset in range(30):
            with producer.transaction():
                producer.send_offsets_to_transaction({place(0): offset}, "g")
    taken: list[bytes] = []
    monkeypatch.setattr(OffsetsPartition, "take", lambda self, view: taken.append(view))
    assert seen(store_of(out))[0] > 20
    assert len(taken) < 20  # of 60


@pytest.mark.parametrize("decision", ["commit", "abort"])
def test_far_behind_a_process_forgets_what_was_pending(
    out: Log, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    """A checkpoint contains the decision: applied once more, it would win over later commits."""
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 5)
    monkeypatch.setattr(offsets_module, "_FAR_RECORDS", 10)
    late, store = store_of(out), out.manager.part(GroupAdmin).offsets
    producer = opened(out, "p", 5)
    assert late.look("g").undecided == {place(0)}
    producer.commit_transaction() if decision == "commit" else producer.abort_transaction()
    plain(out, 3)
    for offset in range(40):
        plain(out, offset, "h")
        checkpoint(store, "h")
    assert (seen(late), late.look("g").undecided) == ({0: 3}, frozenset())


def test_a_marker_that_arrives_between_the_look_and_the_answer_is_not_taken_for_an_abort(
    out: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once all markers are there, the table may forget the commit: the answer is then that it was
    aborted."""
    producer, follower = opened(out, "p", 5), store_of(out)

    def outcome(*_: object) -> Outcome:
        monkeypatch.undo()
        producer.commit_transaction()
        return Outcome.ABORTED

    monkeypatch.setattr("pylog.partition.partition_log.PartitionLog.outcome", outcome)
    assert seen(follower) == {0: 5}


@pytest.mark.slow
def test_a_late_producer_is_not_waited_for_longer_than_its_timeout(tmpfs_dir: Path) -> None:
    clock = ManualClock()
    with Log(tmpfs_dir / "timed", clock=clock) as log:
        log.create_topic("t")
        fill(log, 10)
        producer = opened(log, "p", 5)
        begun_s = clock.monotonic()
        groups = log.manager.part(GroupAdmin)
        assert groups.decided("g", [place(0)], 300.0) == {}
        assert 60 < clock.monotonic() - begun_s < 76  # an owner is late after a quarter more
        with pytest.raises(Exception, match="transaction_timeout_ms"):
            producer.commit_transaction()
        producer.abort_transaction()


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_commits_and_decisions_is_what_a_model_says(
    out: Log, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model: of each key the last record in the log that is not pending and not aborted."""
    print("seed", seed)
    chance = random.Random(seed)
    monkeypatch.setattr(offsets_module, "CHECKPOINT_RECORDS", 4)
    monkeypatch.setattr(offsets_module, "_FAR_RECORDS", 12)
    history: list[tuple[str, int, int, str | None]] = []  # group, partition, offset, open transaction
    producers: dict[str, Producer] = {}
    names = (f"p{number}" for number in itertools.count())
    store, followers = out.manager.part(GroupAdmin).offsets, [store_of(out)]
    for step in range(40):
        group, number = chance.choice("gh"), chance.randrange(2)
        action = chance.choice(["plain", "plain", "open", "commit", "abort", "die", "look"])
        if action == "plain":
            plain(out, step, group, number)
            history.append((group, number, step, None))
        elif action == "open":
            name = next(names)
            producers[name] = opened(out, name, step, group, number)
            history.append((group, number, step, name))
        elif action == "look":
            followers.append(store_of(out))
            seen(followers[-1], group)
            if store.partition_of(group) is not None:
                checkpoint(store, group)
        elif producers:
            name = chance.choice(sorted(producers))
            producer = producers.pop(name)
            if action == "commit":
                producer.commit_transaction()
                history = [(*record[:3], None if record[3] == name else record[3]) for record in history]
            else:
                producer.abort_transaction() if action == "abort" else die(producer)
                history = [record for record in history if record[3] != name]
        if chance.random() < 0.5:
            follower = chance.choice(followers)
            for asked in "gh":
                decided = {n: offset for g, n, offset, name in history if g == asked and name is None}
                assert seen(follower, asked) == decided, (step, action)
    for asked in "gh":
        decided = {n: offset for g, n, offset, name in history if g == asked and name is None}
        assert [seen(store, asked) for store in [*followers, store_of(out)]] == [decided] * (len(followers) + 1)


def test_a_marker_that_cannot_be_read_is_damage_and_ends_nothing(out: Log) -> None:
    """Whether the offsets of its transaction count is not known: no answer is better than a wrong
    one."""
    opened(out, "p", 5)
    ((producer_id, epoch, _),) = out.partition(*OFFSETS).log.open_transactions()
    append_encoded(out.partition(*OFFSETS), no_marker(producer_id=producer_id, epoch=epoch))
    with pytest.raises(CorruptSegment, match="control record at offset 1: key"):
        seen(store_of(out))


def test_who_waits_for_a_decision_while_the_topic_of_commits_is_deleted_finds_no_commit(
    timed_log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_log.create_topic("t")
    opened(timed_log, "p", 5)

    def sleep(_: object) -> None:
        monkeypatch.undo()
        with Log(timed_log.path) as other:
            other.delete_topic(OFFSETS_TOPIC)

    monkeypatch.setattr(clock, "sleep", sleep)
    assert timed_log.manager.part(GroupAdmin).decided("g", [place(0)], 300.0) == {}
    assert clock.monotonic() == 0
