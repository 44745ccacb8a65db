"""A topic is missing for a moment: renamed away and back, repartitioned, or created again.

If another member of the group polls meanwhile, what a member has read before is of the past.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.errors import CommitFailed
from pylog.group.admin import GroupAdmin
from pylog.group.lock import read_group
from pylog.group.membership import MemberOptions, Membership
from pylog.group.state import Group
from pylog.testing import produce_all

VALUES = [b"%d" % number for number in range(20)]
EITHER_NAME = re.compile("src|tmp")
SRC = TopicPartition("src", 0)


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as opened:
        yield opened


@pytest.fixture
def other(log: Log) -> Iterator[Log]:
    """As another process sees it."""
    with Log(log.path) as opened:
        yield opened


def member(log: Log, topics: str | re.Pattern[str] = "src", **options: int) -> Consumer:
    consumer = Consumer(log, group_id="g", auto_offset_reset="earliest", **options)
    consumer.subscribe(topics)
    return consumer


def committed(log: Log) -> set[int]:
    """Offsets of the group. A change of a topic commits 0, where the group began."""
    return {each.offset for each in log.manager.part(GroupAdmin).committed("g").values()}


def commit(consumer: Consumer, _: Log, positions: Mapping[TopicPartition, int]) -> None:
    consumer.commit()


def commit_offsets(consumer: Consumer, _: Log, positions: Mapping[TopicPartition, int]) -> None:
    consumer.commit(positions)


def commit_in_transaction(consumer: Consumer, log: Log, positions: Mapping[TopicPartition, int]) -> None:
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("copied", b"of what was read")
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())


def is_deleted_and_created_again(log: Log, poll: Callable[[], object]) -> None:
    log.delete_topic("src")
    poll()
    log.create_topic("src", partitions=2)


def is_repartitioned_under_another_name(log: Log, poll: Callable[[], object]) -> None:
    log.rename_topic("src", "tmp")
    poll()
    log.repartition("tmp", 3)
    log.rename_topic("tmp", "src")


def is_renamed_away_and_back(log: Log, poll: Callable[[], object]) -> None:
    log.rename_topic("src", "tmp")
    poll()
    log.rename_topic("tmp", "src")


@pytest.mark.parametrize("commits", [commit, commit_offsets, commit_in_transaction])
@pytest.mark.parametrize("polls_after", [True, False])
@pytest.mark.parametrize(
    "change", [is_deleted_and_created_again, is_repartitioned_under_another_name, is_renamed_away_and_back]
)
def test_a_late_commit_of_what_was_read_before_is_refused(
    log: Log,
    other: Log,
    change: Callable[[Log, Callable[[], object]], None],
    polls_after: bool,
    commits: Callable[[Consumer, Log, Mapping[TopicPartition, int]], None],
) -> None:
    log.create_topic("src", partitions=2)
    log.create_topic("copied")
    for partition in (0, 1):
        produce_all(log, "src", VALUES, partition=partition)
    with member(log) as late, member(other) as another:
        while not len(late.assignment()) == len(another.assignment()) == 1:
            late.poll()
            another.poll()
        late.seek_to_beginning()
        while len(late.poll(1.0)) < len(VALUES):
            late.seek_to_beginning()
        positions = {name: late.position(name) for name in late.assignment()}
        change(other, another.poll)
        if polls_after:
            another.poll()
        with pytest.raises(CommitFailed, match=r"or its topic was missing meanwhile|another name or other partitions"):
            commits(late, log, positions)
    assert committed(log) <= {0}
    with Consumer(log, auto_offset_reset="earliest", isolation_level="read_committed") as reader:
        reader.subscribe("copied")
        assert reader.poll() == []


@pytest.mark.parametrize("commits", [commit, commit_offsets, commit_in_transaction])
def test_what_another_member_has_read_under_another_name_is_not_committed_again(
    log: Log, other: Log, commits: Callable[[Consumer, Log, Mapping[TopicPartition, int]], None]
) -> None:
    log.create_topic("src")
    log.create_topic("copied")
    produce_all(log, "src", VALUES)
    with member(log, EITHER_NAME, max_poll_records=5) as late:
        assert len(late.poll(1.0)) == 5
        other.rename_topic("src", "tmp")
        with member(other, EITHER_NAME) as another:
            assert [record.value for record in another.poll(1.0)] == VALUES
            another.commit()
            other.rename_topic("tmp", "src")
            with pytest.raises(CommitFailed):
                commits(late, log, {TopicPartition("src", 0): 5})
            assert log.lag("g") == {TopicPartition("src", 0): 0}


def test_a_member_whose_topic_was_renamed_away_and_back_continues_where_the_group_is(log: Log, other: Log) -> None:
    log.create_topic("src")
    produce_all(log, "src", VALUES)
    with member(log, EITHER_NAME, max_poll_records=5) as late:
        assert len(late.poll(1.0)) == 5
        late.commit()
        other.rename_topic("src", "tmp")
        with member(other, EITHER_NAME) as another:
            assert [record.value for record in another.poll(1.0)] == VALUES[5:]
            another.commit()
            other.rename_topic("tmp", "src")
            assert late.poll() == []
            assert {*late.assignment()} <= {TopicPartition("src", 0)}
            if late.assignment():
                assert late.position(TopicPartition("src", 0)) == len(VALUES)


def test_a_topic_that_no_member_wants_any_more_is_its_readers_until_it_gives_it_up(log: Log, other: Log) -> None:
    for topic in ("src", "tmp"):
        log.create_topic(topic)
        produce_all(log, topic, VALUES)
    with member(log, enable_auto_commit=True) as leaving, member(other, "tmp"):
        assert len(leaving.poll(1.0)) == len(VALUES)
        leaving.subscribe("tmp")
        assert log.lag("g")[TopicPartition("src", 0)] == 0, "it has committed what it gives up"


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_topic_that_is_missing_for_a_moment_while_a_member_takes_it_keeps_its_commits(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch, reset: str
) -> None:
    log.create_topic("src")
    produce_all(log, "src", VALUES[:15])
    with member(log) as first:
        assert len(first.poll(1.0)) == 15
        first.commit()
    produce_all(log, "src", VALUES[15:])
    decided = GroupAdmin.decided

    def while_it_has_another_name(groups: GroupAdmin, *given: Any) -> Any:
        monkeypatch.undo()
        other.rename_topic("src", "tmp")
        found = decided(groups, *given)
        other.rename_topic("tmp", "src")
        return found

    monkeypatch.setattr(GroupAdmin, "decided", while_it_has_another_name)
    with Consumer(log, group_id="g", auto_offset_reset=reset) as second:
        second.subscribe("src")
        assert [record.value for record in second.poll(0.2)] == VALUES[15:]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_topic_that_is_created_again_while_a_member_takes_it_is_read_from_its_beginning(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """The group remembers where it began in the old one."""
    log.create_topic("src", partitions=2)
    for partition in (0, 1):
        produce_all(log, "src", VALUES[:15], partition=partition)
    decided = GroupAdmin.decided

    def before_it_is_created_again(groups: GroupAdmin, *given: Any) -> Any:
        found = decided(groups, *given)
        monkeypatch.undo()
        other.delete_topic("src")
        other.create_topic("src", partitions=partitions)
        produce_all(other, "src", VALUES, partition=0)
        return found

    first = Consumer(other, group_id="g", auto_offset_reset="latest")
    first.subscribe("src")
    with member(log) as second:
        first.close()
        monkeypatch.setattr(GroupAdmin, "decided", before_it_is_created_again)
        read = [record.value for _ in range(3) for record in second.poll(0.2)]
        assert read == VALUES
        second.commit()
    assert set(log.lag("g").values()) == {0}


@pytest.mark.parametrize("change", [Log.delete_topic, lambda log, name: log.rename_topic(name, "other")])
@pytest.mark.parametrize("another_polls", [True, False])
def test_partitions_of_a_topic_that_is_gone_are_lost_with_a_warning(
    log: Log, other: Log, change: Callable[[Log, str], object], another_polls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log.create_topic("src")
    log.create_topic("tmp")
    lost: list[list[TopicPartition]] = []
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer, member(other, "tmp") as another:
        consumer.subscribe("src", on_lost=lost.append, on_revoked=lambda _: pytest.fail("nothing can be committed"))
        assert consumer.assignment() == {TopicPartition("src", 0)}
        change(other, "src")
        if another_polls:
            another.poll()
        consumer.poll()
        assert lost == [[TopicPartition("src", 0)]]
        assert consumer.assignment() == set()
        assert "group 'g': lost src-0: its topic was deleted, created again, renamed, or repartitioned" in caplog.text


@pytest.mark.parametrize("commits", [commit_offsets, commit_in_transaction])
@pytest.mark.parametrize("callback", ["on_lost", "on_revoked"])
def test_what_was_read_before_is_not_committed_when_the_loss_is_told(
    log: Log, other: Log, callback: str, commits: Callable[[Consumer, Log, Mapping[TopicPartition, int]], None]
) -> None:
    log.create_topic("copied")
    log.create_topic("src")
    produce_all(log, "src", VALUES)
    refused = []

    def told(partitions: list[TopicPartition]) -> None:
        if not refused:  # else it closes
            refused.append(partitions)
            with pytest.raises(CommitFailed, match="these records are read again"):
                commits(late, log, dict.fromkeys(partitions, 5))

    with Consumer(log, group_id="g", auto_offset_reset="earliest", max_poll_records=5) as late:
        late.subscribe("src", **{callback: told})
        assert len(late.poll(1.0)) == 5
        other.delete_topic("src")
        other.create_topic("src")
        produce_all(other, "src", [b"new"])
        assert [record.value for record in late.poll(1.0)] == [b"new"]
        assert refused == [[TopicPartition("src", 0)]]


@pytest.mark.parametrize("commits", [commit, commit_offsets, commit_in_transaction])
def test_what_a_member_took_again_is_not_committed_before_the_loss_was_told(
    log: Log,
    other: Log,
    monkeypatch: pytest.MonkeyPatch,
    commits: Callable[[Consumer, Log, Mapping[TopicPartition, int]], None],
) -> None:
    """An exception comes between."""
    log.create_topic("copied")
    log.create_topic("src")
    produce_all(log, "src", VALUES)
    with member(log, EITHER_NAME, max_poll_records=5) as late:
        assert len(late.poll(1.0)) == 5
        other.rename_topic("src", "tmp")
        with member(other, EITHER_NAME) as another:
            assert len(another.poll(1.0)) == len(VALUES)
            another.commit()
            other.rename_topic("tmp", "src")

        def interrupts(membership: Membership) -> None:
            membership.look()
            raise KeyboardInterrupt

        monkeypatch.setattr(Membership, "tick", interrupts)
        with pytest.raises(KeyboardInterrupt):
            late.poll(1.0)
        monkeypatch.undo()
        with pytest.raises(CommitFailed):
            commits(late, log, {TopicPartition("src", 0): 5})
        assert late.poll() == []
        assert log.lag("g") == {TopicPartition("src", 0): 0}


def test_what_was_lost_and_came_back_while_a_callback_ran_is_told_at_once(log: Log, other: Log) -> None:
    topics = ["a", "b", "c", "d"]
    for topic in topics:
        log.create_topic(topic)
        produce_all(log, topic, VALUES)
    kept: list[TopicPartition] = []
    lost: list[TopicPartition] = []

    def read_the_kept_one_meanwhile(given_up: list[TopicPartition]) -> None:
        if kept:
            return
        kept.append(min(late.assignment() - set(given_up)))
        topic = kept[0].topic
        other.rename_topic(topic, "tmp")
        with Log(log.path) as third, member(third, "tmp") as reader:
            another.poll()
            assert len(reader.poll(1.0)) == len(VALUES)
            reader.commit()
        other.rename_topic("tmp", topic)
        another.poll()

    late = Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=1)
    with late, Consumer(other, group_id="g", auto_offset_reset="earliest") as another:
        late.subscribe(topics, on_revoked=read_the_kept_one_meanwhile, on_lost=lost.extend)
        another.subscribe(topics)
        late.poll()
        assert lost == kept
        assert late.position(kept[0]) == len(VALUES)
        late.commit()
        assert log.lag("g")[kept[0]] == 0


def test_what_is_taken_as_another_joins_can_be_committed(log: Log, other: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.create_topic("src", partitions=6)
    reconcile = Membership.reconcile
    joined: list[Consumer] = []

    def another_joins(membership: Membership, released: Collection[TopicPartition], timeout_s: float) -> Group:
        if not joined:
            joined.append(Consumer(other, group_id="g"))
            joined[0].subscribe("src")
        return reconcile(membership, released, timeout_s)

    with member(log) as one, member(log) as two:
        one.poll()
        monkeypatch.setattr(Membership, "reconcile", another_joins)
        two.poll()
        assert joined
        assert two.assignment()
        two.commit(dict.fromkeys(two.assignment(), 0))
        joined[0].close()


def test_a_member_that_joins_again_commits_nothing_before_it_has_followed(log: Log) -> None:
    """The generations of a deleted group begin again."""
    groups = log.manager.part(GroupAdmin)
    log.create_topic("src")
    partition = TopicPartition("src", 0)
    membership = Membership(groups.directory("g"), MemberOptions("sticky", "", "", 300_000, 10_000), groups.topics_now)
    membership.join(frozenset({"src"}))
    membership.generation = 7
    membership.join(frozenset({"src"}))
    with pytest.raises(CommitFailed, match="after generation 0"):
        membership.commit([partition], lambda _: None)
    membership.generation = membership.look().generation
    membership.commit([partition], lambda _: None)


@pytest.mark.parametrize("other_does", ["wants another topic", "joins", "leaves"])
def test_what_a_member_has_not_given_up_yet_is_its_own_in_each_generation(log: Log, other_does: str) -> None:
    for topic in ("src", "tmp", "x"):
        log.create_topic(topic)
    groups = log.manager.part(GroupAdmin)
    directory = groups.directory("g")

    def joined(topic: str) -> Membership:
        options = MemberOptions("sticky", "", "", 300_000, 10_000)
        membership = Membership(directory, options, groups.topics_now)
        membership.join(frozenset({topic}))
        return membership

    late, another = joined("src"), joined("tmp")
    late.want(frozenset({"tmp"}), appeared=False)
    if other_does == "wants another topic":
        another.want(frozenset({"tmp", "x"}), appeared=False)
    elif other_does == "leaves":
        another.leave()
    else:
        joined("tmp")
    group = read_group(directory)
    assert TopicPartition("src", 0) in group.members[late.id].owned
    assert group.topics.keys() >= {"src", "tmp"}
    late.reconcile(frozenset({TopicPartition("src", 0)}), 1.0)
    generation = read_group(directory).generation
    late.want(frozenset({"tmp"}), appeared=True)
    assert read_group(directory).generation == generation, "no member reads src any more: nothing is divided again"
