"""Offsets that a producer commits in a transaction, together with records: both or none, and only
by the owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pylog import Consumer, ConsumerGroupMetadata, Log, OffsetAndMetadata, Producer, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import (
    CommitFailed,
    ConfigError,
    InstanceFenced,
    InvalidPartition,
    InvalidTransactionState,
    LogLocked,
    OutcomeUnknown,
    TopicNotFound,
    TransactionAborted,
)
from pylog.group.admin import GroupAdmin
from pylog.testing import consume_all
from pylog.transaction.offsets import TransactionOffsets
from pylog.transaction.owner import TransactionOwner
from tests.group.consumers import fill, member, membership_of, place, settle


@pytest.fixture
def out(log: Log) -> Log:
    log.create_topic("out", partitions=2)
    fill(log, 10)
    return log


def transactional(log: Log, transactional_id: str = "p", **options: Any) -> Producer:
    producer = Producer(log, transactional_id=transactional_id, **options)
    producer.init_transactions()
    return producer


def work(producer: Producer, offsets: dict[TopicPartition, int], who: ConsumerGroupMetadata | str) -> None:
    """A transaction of one record and these offsets."""
    with producer.transaction():
        producer.send("out", b"a")
        producer.send_offsets_to_transaction(offsets, who)


def committed_by(log: Log, group: str = "g") -> dict[int, int]:
    """As another process sees it that knows nothing yet."""
    with Log(log.path) as other:
        return {name.partition: at.offset for name, at in other.manager.part(GroupAdmin).committed(group).items()}


def values(log: Log, topic: str = "out") -> list[bytes]:
    with Log(log.path) as other:
        return [record.value for record in consume_all(other, topic, isolation_level="read_committed")]


def test_records_and_offsets_are_committed_together(out: Log) -> None:
    with member(out) as one, transactional(out) as producer:
        producer.begin_transaction()
        producer.send("out", b"a", partition=0)
        producer.send("out", b"b", partition=1)
        producer.send_offsets_to_transaction(
            {place(0): 3, place(1): OffsetAndMetadata(4, "half way")}, one.group_metadata()
        )
        assert (values(out), committed_by(out)) == ([], {})
        producer.commit_transaction()
        assert (values(out), committed_by(out)) == ([b"a", b"b"], {0: 3, 1: 4})
        assert one.committed(place(1), metadata=True) == OffsetAndMetadata(4, "half way")


def test_neither_is_committed_by_an_abort(out: Log) -> None:
    with member(out) as one, transactional(out) as producer:
        producer.begin_transaction()
        producer.send("out", b"a").result()
        producer.send_offsets_to_transaction({place(0): 3}, one.group_metadata())
        producer.abort_transaction()
        assert (values(out), committed_by(out)) == ([], {})
        with producer.transaction():
            producer.send("out", b"b")
        assert (values(out), committed_by(out)) == ([b"b"], {})  # nothing of the one before


def test_offsets_alone_are_a_transaction(out: Log) -> None:
    with member(out) as one, transactional(out) as producer:
        for offset in (2, 5, 7):
            with producer.transaction():
                producer.send_offsets_to_transaction({place(0): offset}, one.group_metadata())
            assert committed_by(out) == {0: offset}


def test_several_calls_and_groups_are_one_transaction(out: Log) -> None:
    with member(out) as one, member(out, "h") as other, transactional(out) as producer:
        with producer.transaction():
            producer.send_offsets_to_transaction({place(0): 1, place(1): 1}, one.group_metadata())
            producer.send_offsets_to_transaction({place(0): 2}, one.group_metadata())
            producer.send_offsets_to_transaction({place(3): 9}, other.group_metadata())
            producer.send_offsets_to_transaction({}, other.group_metadata())
        assert (committed_by(out), committed_by(out, "h")) == ({0: 2, 1: 1}, {3: 9})


def test_members_of_one_group_may_share_a_producer(out: Log) -> None:
    one, other = member(out), member(out)
    settle(one, other)
    with transactional(out) as producer, producer.transaction():
        for consumer in (one, other):
            offsets = dict.fromkeys(consumer.assignment(), 5)
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    assert committed_by(out) == dict.fromkeys(range(4), 5)
    one.close()
    other.close()


def test_a_generation_that_others_have_raised_does_not_matter(out: Log) -> None:
    with member(out) as one, transactional(out) as producer:
        before = one.group_metadata()
        with member(out) as other:
            settle(one, other)
            mine = min(one.assignment())
            with producer.transaction():
                producer.send_offsets_to_transaction({mine: 3}, before)
            assert one.group_metadata().generation > before.generation
            assert committed_by(out) == {mine.partition: 3}


def test_offsets_of_a_partition_of_another_member_abort_the_transaction(out: Log) -> None:
    one, other = member(out), member(out)
    settle(one, other)
    theirs = min(other.assignment())
    with transactional(out) as producer:
        producer.begin_transaction()
        producer.send("out", b"a")
        producer.send_offsets_to_transaction({theirs: 3}, one.group_metadata())
        for _ in range(2):
            with pytest.raises(CommitFailed, match=r"is not assigned to this member of group 'g' \(generation 2\)"):
                producer.commit_transaction()
        with pytest.raises(CommitFailed):
            producer.send("out", b"b")
        producer.abort_transaction()
        with producer.transaction():
            producer.send("out", b"c")
    assert (values(out), committed_by(out)) == ([b"c"], {})
    one.close()
    other.close()


@pytest.mark.parametrize("sent_again", [False, True])
def test_a_partition_that_was_lost_and_taken_again_is_not_committed(out: Log, sent_again: bool) -> None:
    """It is read again from what the group has committed: its records would be delivered twice."""
    with member(out, enable_auto_commit=False) as one, transactional(out) as producer:
        producer.begin_transaction()
        producer.send("out", b"a")
        offsets = dict.fromkeys(one.assignment(), 3)
        producer.send_offsets_to_transaction(offsets, one.group_metadata())
        with member(out) as other:
            settle(one, other)
            kept = one.assignment()
        settle(one)
        assert one.assignment() == offsets.keys() > kept
        if sent_again:
            producer.send_offsets_to_transaction(offsets, one.group_metadata())
        with pytest.raises(CommitFailed, match="after generation 1 of this commit"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets_to_transaction(offsets, one.group_metadata())
    assert (values(out), committed_by(out)) == ([], dict.fromkeys(range(4), 3))


@pytest.mark.parametrize("earliest_first", [False, True])
def test_offsets_that_are_sent_again_are_of_the_first_generation(out: Log, earliest_first: bool) -> None:
    with member(out, enable_auto_commit=False) as one, transactional(out) as producer:
        before = one.group_metadata()
        with member(out) as other:
            settle(one, other)
            moved = min(other.assignment())
        settle(one)
        producer.begin_transaction()
        for metadata in (before, one.group_metadata())[:: 1 if earliest_first else -1]:
            producer.send_offsets_to_transaction({moved: 3}, metadata)
        with pytest.raises(CommitFailed, match="was called before"):
            producer.commit_transaction()


def test_offsets_of_each_call_are_checked(out: Log) -> None:
    one, other = member(out), member(out)
    settle(one, other)
    with transactional(out) as producer:
        producer.begin_transaction()
        for partition in (min(one.assignment()), min(other.assignment())):
            producer.send_offsets_to_transaction({partition: 3}, one.group_metadata())
        with pytest.raises(CommitFailed, match="is not assigned to this member"):
            producer.commit_transaction()
    one.close()
    other.close()


def test_a_member_that_has_left_commits_nothing(out: Log) -> None:
    with transactional(out) as producer:
        with member(out) as one:
            former = one.group_metadata()
        with pytest.raises(CommitFailed, match="not a member of group 'g' any more"):
            work(producer, {place(0): 3}, former)
        static = member(out, group_instance_id="i")
        with member(out, group_instance_id="i"), pytest.raises(InstanceFenced):
            work(producer, {place(0): 3}, static.group_metadata())
        static._assignment._drop(list(static.assignment()))  # type: ignore[attr-defined]
        membership_of(static)._drop()
    assert (values(out), committed_by(out)) == ([], {})


def test_a_subscribed_consumer_that_has_lost_its_membership_is_not_taken_for_one_without_members(out: Log) -> None:
    """As in a forked child whose parent has ended: its positions are the parent's."""
    one = member(out)
    membership_of(one).leave()
    with transactional(out) as producer, pytest.raises(CommitFailed, match="not a member"):
        work(producer, {place(0): 3}, one.group_metadata())
    one.unsubscribe()
    with transactional(out) as producer:
        work(producer, {place(0): 3}, one.group_metadata())
    assert committed_by(out) == {0: 3}


def test_the_name_of_a_group_is_enough_while_it_has_no_members(out: Log) -> None:
    with transactional(out) as producer:
        with producer.transaction():
            producer.send_offsets_to_transaction({place(0): 3}, "g")
        with Consumer(out, group_id="g") as by_hand:
            by_hand.assign([place(0)])
            assert by_hand.position(place(0)) == 3
            with producer.transaction():
                producer.send_offsets_to_transaction({place(0): 4}, by_hand.group_metadata())
        assert committed_by(out) == {0: 4}
        with (
            member(out),
            pytest.raises(CommitFailed, match=r"has members .*give consumer.group_metadata\(\)"),
            producer.transaction(),
        ):
            producer.send_offsets_to_transaction({place(0): 5}, "g")
        assert committed_by(out) == {0: 4}


@pytest.mark.parametrize(
    ("offsets", "who", "error"),
    [
        ([place(0)], "g", ConfigError),
        ({place(0): -1}, "g", ConfigError),
        ({place(0): 1}, None, ConfigError),
        ({place(0): 1}, ("g", 1, "m", None), ConfigError),
        ({place(0): 1}, ConsumerGroupMetadata("g", "1", "m", None), ConfigError),
        ({place(0): 1}, "", ConfigError),
        ({place(9): 1}, "g", InvalidPartition),
        ({place(0, "nope"): 1}, "g", TopicNotFound),
    ],
)
def test_what_can_be_no_commit_is_refused_and_the_transaction_goes_on(
    out: Log, offsets: Any, who: Any, error: type[Exception]
) -> None:
    with transactional(out) as producer, producer.transaction():
        with pytest.raises(error):
            producer.send_offsets_to_transaction(offsets, who)
        producer.send("out", b"a")
    assert (values(out), committed_by(out)) == ([b"a"], {})


def test_offsets_need_an_open_transaction(out: Log) -> None:
    with (
        pytest.raises(ConfigError, match="send_offsets_to_transaction needs a transactional_id"),
        Producer(out) as plain,
    ):
        plain.send_offsets_to_transaction({place(0): 1}, "g")
    with transactional(out) as producer, pytest.raises(InvalidTransactionState):
        producer.send_offsets_to_transaction({place(0): 1}, "g")


# What the group's lock prevents


def test_an_expelled_member_does_not_commit_what_its_successor_reads_again(
    out: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 8: between the check and the decision, its successor read from the old offset, and then
    the commit succeeded."""
    one, other = member(out), member(out)
    settle(one, other)
    mine = min(one.assignment())
    starts: list[int] = []

    def successor() -> None:
        """Any moment of the commit is the worst one: the successor tries to take over before each
        append and each sync."""
        if not starts and one.group_metadata().member_id in read_members(out):
            membership = membership_of(other)
            try:
                membership._files.holding(
                    lambda state: membership._publish_without(state, {one.group_metadata().member_id}), 0.01
                )
            except LogLocked:
                return
            other._assignment.refresh()
            if mine in other.assignment():
                starts.append(other.position(mine))

    with transactional(out) as producer:
        producer.begin_transaction()
        producer.send("out", b"a").result()
        producer.send_offsets_to_transaction({mine: 5}, one.group_metadata())
        decide = TransactionOwner._append

        def interfering(owner: TransactionOwner, *arguments: Any) -> Any:
            successor()
            found = decide(owner, *arguments)
            successor()
            return found

        monkeypatch.setattr(TransactionOwner, "_append", interfering)
        producer.commit_transaction()
        monkeypatch.undo()
        assert starts == []  # the lock was held
    successor()
    assert starts == [5]
    assert committed_by(out)[mine.partition] == 5
    one.close()
    other.close()


def read_members(log: Log) -> set[str]:
    return {found.member_id for found in log.describe_group("g").members}


def test_a_member_that_was_expelled_before_the_check_does_not_commit(out: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offsets are in the log already, and its successor waits for the decision about them."""
    one, other = member(out), member(out)
    settle(one, other)
    mine = min(one.assignment())
    check = TransactionOffsets.while_owned
    waited: list[bool] = []

    def late(offsets: TransactionOffsets, decide: Callable[[], object]) -> None:
        membership = membership_of(other)
        membership._files.holding(lambda state: membership._publish_without(state, {one.group_metadata().member_id}))
        other._assignment.refresh()
        waited.append(mine not in other.assignment())
        check(offsets, decide)

    monkeypatch.setattr(TransactionOffsets, "while_owned", late)
    with transactional(out) as producer, pytest.raises(CommitFailed):
        work(producer, {mine: 5}, one.group_metadata())
    assert waited == [True]
    assert (values(out), committed_by(out)) == ([], {})
    settle(other)
    assert other.position(mine) == 0
    one.close()
    other.close()


def test_a_commit_of_unknown_outcome_is_waited_for_and_can_be_repeated(
    out: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of the decision may survive. The successor must not begin before it is known."""
    one, other = member(out), member(out)
    settle(one, other)
    mine = min(one.assignment())

    def refused(*_: object) -> None:
        raise OutcomeUnknown("the disk refused")

    with transactional(out) as producer:
        producer.begin_transaction()
        producer.send("out", b"a")
        producer.send_offsets_to_transaction({mine: 5}, one.group_metadata())
        monkeypatch.setattr("pylog.transaction.table.Found.sync", refused)
        with pytest.raises(OutcomeUnknown):
            producer.commit_transaction()
        monkeypatch.undo()
        one.close()
        other._assignment.refresh()
        other._assignment.refresh()
        assert mine not in other.assignment()
        asking = Consumer(out, group_id="g", isolation_level="read_committed", default_api_timeout_ms=50)
        with pytest.raises(LogLocked, match="a transaction with an offset of t-"):
            asking.committed(mine)
        asking.close()
        with Consumer(out, group_id="g", isolation_level="read_uncommitted", default_api_timeout_ms=50) as asking:
            assert asking.committed(mine) is None
        producer.commit_transaction()
        settle(other)
        assert other.position(mine) == 5
        assert (values(out), committed_by(out)) == ([b"a"], {mine.partition: 5})
    other.close()


def test_a_lock_that_is_not_free_decides_nothing_and_both_ends_are_left(
    out: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(out) as one, transactional(out) as producer:
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.send("out", b"a")
            producer.send_offsets_to_transaction({place(0): 5}, one.group_metadata())

            def held(*_: object, **__: object) -> None:
                raise LogLocked("stopped")

            monkeypatch.setattr("pylog.group.lock.GroupLock.holding", held)
            with pytest.raises(LogLocked):
                producer.commit_transaction()
            monkeypatch.undo()
            end()
        assert (values(out), committed_by(out)) == ([b"a"], {0: 5})


def test_offsets_that_were_not_appended_leave_only_the_abort(out: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    with member(out) as one, transactional(out) as producer:
        producer.begin_transaction()
        producer.send("out", b"a")
        producer.send_offsets_to_transaction({place(0): 5}, one.group_metadata())

        def refused(*_: object) -> None:
            raise OutcomeUnknown("the disk refused")

        monkeypatch.setattr(TransactionOffsets, "append", refused)
        for _ in range(2):
            with pytest.raises(TransactionAborted, match="the disk refused"):
                producer.commit_transaction()
        monkeypatch.undo()
        producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets_to_transaction({place(0): 6}, one.group_metadata())
        assert (values(out), committed_by(out)) == ([], {0: 6})


# Topics that go


def test_offsets_in_a_topic_that_is_deleted_before_the_commit_are_left_out(out: Log) -> None:
    out.create_topic("gone")
    with member(out, topics=["t", "gone"]) as one, transactional(out) as producer:
        producer.begin_transaction()
        producer.send("out", b"a")
        producer.send_offsets_to_transaction({place(0): 5, place(0, "gone"): 0}, one.group_metadata())
        out.delete_topic("gone")
        producer.commit_transaction()
        assert (values(out), committed_by(out)) == ([b"a"], {0: 5})
        assert out.manager.part(GroupAdmin).offsets.partitions("g") == {place(0)}


@pytest.mark.parametrize("again", [False, True])
def test_offsets_in_a_topic_that_is_deleted_during_the_commit_do_not_come_back(
    out: Log, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """They were appended without the group's lock, so the deleter may have looked before."""
    out.create_topic("gone")
    check = TransactionOffsets.while_owned

    def late(offsets: TransactionOffsets, decide: Callable[[], object]) -> None:
        out.delete_topic("gone")
        if again:
            out.create_topic("gone")
        check(offsets, decide)

    monkeypatch.setattr(TransactionOffsets, "while_owned", late)
    with member(out, topics=["t", "gone"]) as one, transactional(out) as producer:
        with producer.transaction():
            producer.send_offsets_to_transaction({place(0): 5, place(0, "gone"): 0}, one.group_metadata())
        assert committed_by(out) == {0: 5}
        assert out.manager.part(GroupAdmin).offsets.partitions("g") == {place(0)}


def test_a_commit_of_the_consumer_itself_is_not_taken_for_one_that_is_there(out: Log) -> None:
    """A producer has moved the group's offset meanwhile."""
    with member(out) as one, transactional(out) as producer:
        one.commit({place(0): 2})
        with producer.transaction():
            producer.send_offsets_to_transaction({place(0): 7}, one.group_metadata())
        one.seek(place(0), 2)
        one.commit()
        assert committed_by(out)[0] == 2


def test_the_batch_in_the_log_is_the_transactions(out: Log) -> None:
    with member(out) as one, transactional(out) as producer:
        for offset in (1, 2):
            producer.begin_transaction()
            producer.send("out", b"a").result()
            producer.send_offsets_to_transaction({place(0): offset, place(1): offset}, one.group_metadata())
            producer.commit_transaction()
        headers = [view.header for view in out.partition("out", 0).log.batches(0, 10)]
        headers += [view.header for view in out.partition("out", 1).log.batches(0, 10)]
        offsets = [view.header for view in out.partition(OFFSETS_TOPIC, 0).log.batches(0, 10)]
        assert [header.is_transactional for header in offsets] == [True, True]
        assert [(header.base_sequence, header.count) for header in offsets] == [(0, 2), (0, 2)]
        identities = {(header.producer_id, header.producer_epoch) for header in headers}
        assert {(header.producer_id, header.producer_epoch) for header in offsets} == identities
        assert list(out.verify().problems) == []
