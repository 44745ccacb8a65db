"""A consumer commits what it has read of a topic that has got another name, or other partitions,
since. The group reads these records again, so the commit is refused. Of a deleted topic nothing is
left to commit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.consumer.commit_tracker import CommitTracker
from pylog.errors import CommitFailed, InvalidPartition, OutcomeUnknown, TopicNotFound, TransactionAborted
from pylog.group import ownership
from pylog.group.admin import GroupAdmin
from pylog.group.lock import GroupLock
from pylog.manager.changes import changed
from pylog.partition.partition_log import PartitionLog
from pylog.testing import produce_all
from pylog.testing.machine import Machine, Strategy
from pylog.transaction import offsets as transaction_offsets
from tests.group.test_deleted_topics import WhereTopicsAndCommitsAre
from tests.simulation.actors import World
from tests.simulation.orders import in_all_orders
from tests.topic_changes.test_drafts import decide

VALUES = [b"%d" % number for number in range(20)]
SRC, KEPT, T0 = TopicPartition("src", 2), TopicPartition("kept", 0), TopicPartition("t", 0)
POSITIONS = {SRC: len(VALUES), KEPT: len(VALUES)}

Change = Callable[[Log], object]
Step = tuple[object, str]
Commits = Callable[[Consumer, Log, Mapping[TopicPartition, int]], None]


def is_renamed(log: Log) -> None:
    log.rename_topic("src", "tmp")


def gets_more_partitions(log: Log) -> None:
    log.repartition("src", 5)


def gets_fewer_partitions(log: Log) -> None:
    log.repartition("src", 1)


def is_repartitioned_under_another_name(log: Log) -> None:
    log.rename_topic("src", "tmp")
    log.repartition("tmp", 2)
    log.create_topic("src")


changes = pytest.mark.parametrize(
    "change", [is_renamed, gets_more_partitions, gets_fewer_partitions, is_repartitioned_under_another_name]
)


def commit(consumer: Consumer, _: Log, positions: Mapping[TopicPartition, int]) -> None:
    consumer.commit()


def commit_offsets(consumer: Consumer, _: Log, positions: Mapping[TopicPartition, int]) -> None:
    consumer.commit(positions)


def commit_async(consumer: Consumer, _: Log, positions: Mapping[TopicPartition, int]) -> None:
    errors: list[Exception | None] = []
    consumer.commit_async(callback=lambda _, error: errors.append(error))
    if errors[0] is not None:
        raise errors[0]


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    with Log(tmpfs_dir / "log") as opened:
        opened.create_topic("src", partitions=3)
        opened.create_topic("kept")
        opened.create_topic("results")
        for topic, partition in (SRC, KEPT):
            produce_all(opened, topic, VALUES, partition=partition)
        yield opened


@pytest.fixture
def other(log: Log) -> Iterator[Log]:
    """As another process sees it."""
    with Log(log.path) as opened:
        yield opened


def read_all(consumer: Consumer, count: int = 2 * len(VALUES)) -> None:
    while count > 0:
        count -= len(consumer.poll(1.0))


@pytest.fixture(params=["a member", "assigned by hand"])
def reader(log: Log, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """It has read all records of two topics, and committed nothing."""
    with Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        if request.param == "a member":
            consumer.subscribe(["src", "kept"])
        else:
            consumer.assign([SRC, KEPT])
        read_all(consumer)
        yield consumer


def committed(log: Log) -> set[int]:
    """Offsets of the group. A change of a topic commits 0, where the group began."""
    return {each.offset for each in log.manager.part(GroupAdmin).committed("g").values()}


def is_changed_at(monkeypatch: pytest.MonkeyPatch, step: Step, change: Callable[[], object]) -> None:
    """The next call of this function finds the change."""
    owner, name = step
    function = getattr(owner, name)

    def after_the_change(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(owner, name, function)
        change()
        return function(*given, **more)

    monkeypatch.setattr(owner, name, after_the_change)


# Refused


@changes
@pytest.mark.parametrize("commits", [commit, commit_async, commit_offsets])
def test_a_commit_of_a_changed_topic_is_refused_before_any_member_has_noticed(
    log: Log, other: Log, reader: Consumer, change: Change, commits: Commits
) -> None:
    change(other)
    is_missing = change is is_renamed and commits is commit_offsets
    with pytest.raises(TopicNotFound if is_missing else CommitFailed, match="'src'"):
        commits(reader, log, POSITIONS)
    assert committed(log) <= {0}, "it commits all, or nothing"


BEFORE_IT_OPENS, AT_THE_SYNC, AT_THE_LOCK = (CommitTracker, "_prepare"), (PartitionLog, "sync"), (GroupLock, "holding")


@changes
@pytest.mark.parametrize(
    ("commits", "step"),
    [
        (commit, BEFORE_IT_OPENS), (commit, AT_THE_SYNC), (commit, AT_THE_LOCK),
        (commit_async, BEFORE_IT_OPENS), (commit_async, AT_THE_LOCK),
    ],
)  # fmt: skip
@pytest.mark.parametrize("same_log", [False, True])
def test_a_commit_is_refused_if_the_topic_changes_during_it(
    log: Log,
    other: Log,
    reader: Consumer,
    monkeypatch: pytest.MonkeyPatch,
    step: Step,
    change: Change,
    commits: Commits,
    same_log: bool,
) -> None:
    is_changed_at(monkeypatch, step, lambda: change(log if same_log else other))
    with pytest.raises(CommitFailed, match="topic 'src' got another name or other partitions meanwhile"):
        commits(reader, log, POSITIONS)
    assert committed(log) <= {0}


def test_a_commit_of_offsets_is_refused_if_the_topic_changes_during_it(
    log: Log, other: Log, reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_changed_at(monkeypatch, AT_THE_SYNC, lambda: gets_fewer_partitions(other))
    with pytest.raises(CommitFailed, match="topic 'src' got another name or other partitions meanwhile"):
        reader.commit(POSITIONS)
    assert committed(log) <= {0}


@changes
@pytest.mark.parametrize(
    "step",
    [(transaction_offsets, "make_records_durable"), AT_THE_SYNC, (transaction_offsets.TransactionOffsets, "_lock")],
)
def test_a_transaction_is_refused_if_the_topic_changes_before_the_decision(
    log: Log, other: Log, reader: Consumer, monkeypatch: pytest.MonkeyPatch, step: Step, change: Change
) -> None:
    """It commits neither the offsets nor what was computed from the records."""
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("results", b"of what was read")
        producer.send_offsets_to_transaction(POSITIONS, reader.group_metadata())
        is_changed_at(monkeypatch, step, lambda: change(other))
        with pytest.raises(CommitFailed, match="topic 'src' got another name or other partitions meanwhile"):
            producer.commit_transaction()
        producer.abort_transaction()
    assert committed(log) <= {0}
    with Consumer(log, auto_offset_reset="earliest", isolation_level="read_committed") as results:
        results.subscribe("results")
        assert results.poll() == []


def test_a_transaction_is_refused_if_the_topic_had_another_name_before_the_decision(
    log: Log, other: Log, reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renames have written the group's commits again, after the offsets of the transaction."""

    def is_renamed_there_and_back() -> None:
        is_renamed(other)
        other.rename_topic("tmp", "src")

    reader.commit({SRC: 5})
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("results", b"of what was read")
        producer.send_offsets_to_transaction(POSITIONS, reader.group_metadata())
        is_changed_at(monkeypatch, (transaction_offsets.TransactionOffsets, "while_owned"), is_renamed_there_and_back)
        with pytest.raises(CommitFailed, match="had another name"):
            producer.commit_transaction()
        producer.abort_transaction()
    assert log.lag("g")[SRC] == len(VALUES) - 5


@pytest.mark.parametrize("begin", [(transaction_offsets.TransactionOffsets, "append"), AT_THE_SYNC])
def test_a_transaction_is_refused_if_the_topic_was_missing_as_its_offsets_were_appended(
    log: Log, other: Log, reader: Consumer, monkeypatch: pytest.MonkeyPatch, begin: Step
) -> None:
    """They were left out like those of a deleted topic, and what was computed was committed."""
    end = (transaction_offsets.TransactionOffsets, "while_owned")
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("results", b"of what was read")
        producer.send_offsets_to_transaction(POSITIONS, reader.group_metadata())
        is_changed_at(monkeypatch, begin, lambda: is_renamed(other))
        is_changed_at(monkeypatch, end, lambda: other.rename_topic("tmp", "src"))
        with pytest.raises(CommitFailed, match="src-2 had another name"):
            producer.commit_transaction()
        producer.abort_transaction()
    assert committed(log) <= {0}


def test_another_change_of_the_catalog_does_not_concern_a_transaction(
    log: Log, other: Log, reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(POSITIONS, reader.group_metadata())
        step = (transaction_offsets.TransactionOffsets, "while_owned")
        is_changed_at(monkeypatch, step, lambda: other.create_topic("third"))
        producer.commit_transaction()
    assert log.lag("g")[SRC] == 0


def sends_and_commits(producer: Producer, reader: Consumer) -> None:
    producer.send_offsets_to_transaction(POSITIONS, reader.group_metadata())
    producer.commit_transaction()


@changes
def test_a_transaction_is_refused_if_the_topic_has_changed_before_the_offsets_are_sent(
    log: Log, other: Log, reader: Consumer, change: Change
) -> None:
    change(other)
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("results", b"of what was read")
        with pytest.raises((CommitFailed, TopicNotFound, InvalidPartition), match="'src'"):
            sends_and_commits(producer, reader)
        producer.abort_transaction()
    assert committed(log) <= {0}


def test_a_transaction_commits_nothing_in_a_topic_that_was_created_again(
    log: Log, other: Log, reader: Consumer
) -> None:
    other.delete_topic("src")
    other.create_topic("src", partitions=3)
    produce_all(other, "src", VALUES, partition=2)
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        sends_and_commits(producer, reader)
    assert log.lag("g") == {KEPT: 0}


def test_a_commit_is_refused_while_the_change_is_not_complete(log: Log, other: Log, reader: Consumer) -> None:
    """The process that has decided it was killed."""
    decide(other, topic="src")
    with pytest.raises(CommitFailed, match="'src'"):
        reader.commit()
    assert committed(log) == set()


def test_offsets_of_a_group_are_not_reset_in_a_topic_that_changes_meanwhile(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_changed_at(monkeypatch, AT_THE_LOCK, lambda: gets_more_partitions(other))
    with pytest.raises(CommitFailed, match="'src'"):
        log.reset_offsets("h", ["src", "kept"], to="latest")
    assert "h" not in log.groups()


def test_what_is_wrong_with_a_topic_that_is_there_is_told(
    log: Log, reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidPartition, match="'src'"):
        reader.commit({TopicPartition("src", 9): 1})

    def refuses(partition: PartitionLog, *_: object) -> None:
        raise OutcomeUnknown("the disk refused")

    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(POSITIONS, reader.group_metadata())
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "sync", refuses)
            for commits in (commit, commit_offsets):
                with pytest.raises(OutcomeUnknown, match="the disk refused"):
                    commits(reader, log, POSITIONS)
            with pytest.raises(TransactionAborted, match="the disk refused"):
                producer.commit_transaction()
        producer.abort_transaction()
    assert committed(log) == set()


@pytest.mark.parametrize("commits", [commit, commit_async])
def test_a_commit_that_began_while_the_topic_was_missing_sets_no_group_back(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch, commits: Commits
) -> None:
    """Another member has read it under another name, and committed it."""
    with Consumer(log, group_id="g", auto_offset_reset="earliest", max_poll_records=5) as late:
        late.subscribe("src")
        assert len(late.poll(1.0)) == 5
        is_renamed(other)
        with Consumer(other, group_id="g", auto_offset_reset="earliest") as another:
            another.subscribe("tmp")
            read_all(another, len(VALUES))
            another.commit()
            is_changed_at(monkeypatch, AT_THE_LOCK, lambda: other.rename_topic("tmp", "src"))
            with pytest.raises(CommitFailed, match="topic 'src' got another name or other partitions meanwhile"):
                commits(late, log, POSITIONS)
            assert log.lag("g")[SRC] == 0


# What goes on


def test_a_consumer_commits_the_rest_after_it_was_told(log: Log, other: Log, reader: Consumer) -> None:
    other.rename_topic("src", "tmp")
    with pytest.raises(CommitFailed, match="poll again, or assign other partitions"):
        reader.commit()
    if reader.subscription():
        reader.poll()
    else:
        reader.assign([KEPT])
    reader.commit()
    lag = log.lag("g")
    assert lag[KEPT] == 0
    assert lag.get(TopicPartition("tmp", 2), len(VALUES)) == len(VALUES)


def test_what_is_committed_already_is_no_loss(log: Log, other: Log, reader: Consumer) -> None:
    reader.commit()
    other.rename_topic("src", "tmp")
    reader.commit()
    assert set(log.lag("g").values()) == {0}


def test_a_topic_that_has_its_name_again_is_committed(log: Log, reader: Consumer) -> None:
    """The process that changed it has closed its files."""
    log.rename_topic("src", "tmp")
    log.rename_topic("tmp", "src")
    reader.commit()
    assert log.lag("g")[SRC] == 0


@changes
def test_an_automatic_commit_takes_what_is_still_there(
    log: Log, other: Log, change: Change, caplog: pytest.LogCaptureFixture
) -> None:
    with Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=True) as consumer:
        consumer.subscribe(["src", "kept"])
        read_all(consumer)
        change(other)
    assert log.lag("g")[KEPT] == 0
    assert committed(log) <= {0, len(VALUES)}
    assert "could not commit" not in caplog.text


@changes
@pytest.mark.parametrize("step", [BEFORE_IT_OPENS, AT_THE_SYNC, AT_THE_LOCK])
@pytest.mark.parametrize("by_hand", [False, True])
def test_an_automatic_commit_takes_the_rest_if_the_topic_changes_during_it(
    log: Log,
    other: Log,
    monkeypatch: pytest.MonkeyPatch,
    step: Step,
    change: Change,
    by_hand: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=True)
    if by_hand:
        consumer.assign([SRC, KEPT])
    else:
        consumer.subscribe(["src", "kept"])
    read_all(consumer)
    is_changed_at(monkeypatch, step, lambda: change(other))
    consumer.close()
    assert log.lag("g")[KEPT] == 0
    assert committed(log) <= {0, len(VALUES)}
    assert re.search(r"could not commit (src-0 at 0, src-1 at 0, )?src-2 at 20: topic 'src' got", caplog.text)


def test_an_automatic_commit_by_hand_beside_members_commits_nothing(
    log: Log, other: Log, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=True)
    consumer.assign([SRC, KEPT])
    read_all(consumer)
    with Consumer(other, group_id="g") as member:
        member.subscribe("results")
        consumer.close()
    assert committed(log) == set()
    assert "could not commit kept-0 at 20, src-2 at 20: group 'g' has members" in caplog.text


def only_the_rest_is_committed(
    log: Log, monkeypatch: pytest.MonkeyPatch, step: Step, change: Callable[[], object]
) -> None:
    """A member with automatic commits has read all, and meets the change as it closes."""
    consumer = Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=True)
    consumer.subscribe(["src", "kept"])
    read_all(consumer)
    is_changed_at(monkeypatch, step, change)
    consumer.close()
    lag = log.lag("g")
    assert (lag[KEPT], lag[SRC]) == (0, len(VALUES))


def test_an_automatic_commit_takes_the_rest_if_the_topic_is_missing_for_a_moment(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def is_missing_for_a_moment() -> None:
        other.rename_topic("src", "tmp")
        is_changed_at(monkeypatch, AT_THE_LOCK, lambda: other.rename_topic("tmp", "src"))

    only_the_rest_is_committed(log, monkeypatch, (CommitTracker, "commit"), is_missing_for_a_moment)
    assert "src-2 at 20: topic 'src' got another name or other partitions meanwhile" in caplog.text


def test_an_automatic_commit_takes_what_another_member_has_not_got(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that joins notices that the topic is missing, which has its name again then."""

    def is_noticed_as_missing() -> None:
        other.rename_topic("src", "tmp")
        with Consumer(other, group_id="g") as joining:
            joining.subscribe("kept")
            other.rename_topic("tmp", "src")

    only_the_rest_is_committed(log, monkeypatch, AT_THE_LOCK, is_noticed_as_missing)
    assert re.search(r"could not commit src-0 at 0, src-1 at 0, src-2 at 20: src-. is not assigned", caplog.text)


@changes
def test_a_consumer_that_closes_loses_a_changed_topic_and_commits_the_rest(
    log: Log, other: Log, change: Change
) -> None:
    lost: list[TopicPartition] = []
    consumer = Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.subscribe(["src", "kept"], on_revoked=lambda _: consumer.commit(), on_lost=lost.extend)
    read_all(consumer)
    change(other)
    consumer.close()
    assert SRC in lost
    assert KEPT not in lost
    assert log.lag("g")[KEPT] == 0


def test_a_callback_that_raises_costs_no_commit_of_what_is_still_there(log: Log, other: Log) -> None:
    def raises(_: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    consumer = Consumer(log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=True)
    consumer.subscribe(["src", "kept"], on_lost=raises)
    read_all(consumer)
    is_renamed(other)
    with pytest.raises(ZeroDivisionError):
        consumer.close()
    assert log.lag("g")[KEPT] == 0


@pytest.mark.parametrize("change", [gets_more_partitions, gets_fewer_partitions])
@pytest.mark.parametrize("step", [(CommitTracker, "_held"), AT_THE_SYNC])
def test_a_poll_goes_on_if_the_topic_changes_before_the_group_holds_it(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch, step: Step, change: Change
) -> None:
    """No group began here: nothing is committed for it by the change."""
    log.alter_topic("src", retention="consumed")
    with Consumer(log, group_id="g", auto_offset_reset="none") as consumer:
        consumer.subscribe("src")
        consumer.seek_to_beginning()
        is_changed_at(monkeypatch, step, lambda: change(other))
        consumer.poll()
        consumer.poll()
        consumer.seek_to_beginning()
        read: list[bytes | None] = []
        while len(read) < len(VALUES):
            read += [record.value for record in consumer.poll(1.0)]
        assert read == VALUES


# Deleted topics


def is_deleted(log: Log) -> None:
    log.delete_topic("src")


def is_created_again_with_fewer_partitions(log: Log) -> None:
    log.delete_topic("src")
    log.create_topic("src")


deletions = pytest.mark.parametrize("change", [is_deleted, is_created_again_with_fewer_partitions])


@deletions
@pytest.mark.parametrize("step", [None, BEFORE_IT_OPENS, AT_THE_SYNC, AT_THE_LOCK])
def test_of_a_deleted_topic_nothing_is_committed(
    log: Log, other: Log, reader: Consumer, monkeypatch: pytest.MonkeyPatch, step: Step | None, change: Change
) -> None:
    if step is None:
        change(other)
    else:
        is_changed_at(monkeypatch, step, lambda: change(other))
    reader.commit()
    assert log.lag("g") == {KEPT: 0}


@deletions
@pytest.mark.parametrize("what", ["is damaged", "is of a later version", "is half renamed"])
def test_another_topic_keeps_no_commit_of_a_deleted_one_from_being_left_out(
    log: Log, other: Log, reader: Consumer, what: str, change: Change
) -> None:
    log.create_topic("third")
    path = Path(log.manager.layout.topic("third"))
    change(other)
    if what == "is half renamed":
        decide(other, topic="third")
    elif what == "is damaged":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        path.write_text(re.sub('"config": *{', '"config": {"of a later version": 1, ', path.read_text()))
    reader.commit()
    assert committed(log) == {len(VALUES)}


def test_what_is_committed_already_is_no_loss_after_another_member_has_noticed_the_deletion(
    log: Log, other: Log, reader: Consumer
) -> None:
    reader.commit()
    other.delete_topic("src")
    if reader.subscription():
        with Consumer(other, group_id="g") as another:
            another.subscribe("results")
            reader.commit()
    reader.commit()
    assert log.lag("g") == {KEPT: 0}


def test_a_consumer_without_anything_to_commit_takes_no_lock(
    log: Log, other: Log, reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.commit()
    other.delete_topic("src")
    other.delete_topic("kept")
    with monkeypatch.context() as patch:
        patch.setattr(GroupLock, "holding", lambda *_: pytest.fail("it needs no lock"))
        reader.commit()


def test_all_deleted_partitions_are_looked_for_at_once(
    log: Log, other: Log, reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's lock is held, and each look describes all topics."""
    asked: list[object] = []
    monkeypatch.setattr(ownership, "changed", lambda *given: asked.append(given) or changed(*given))
    other.delete_topic("src")
    other.delete_topic("kept")
    reader.commit()
    assert len(asked) == 1


def its_positions(consumer: Consumer, _: Log) -> Callable[[], object]:
    return consumer.commit


def a_transaction(consumer: Consumer, log: Log) -> Callable[[], object]:
    producer = Producer(log, transactional_id="t")
    producer.init_transactions()

    def commit() -> None:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: 1}, consumer.group_metadata())
        producer.commit_transaction()

    return commit


def commit_and_rename(first: Callable[[Consumer, Log], Callable[[], object]], strategy: Strategy) -> list[str]:
    """What is wrong after one process commits for a group that has no files yet, and another one
    renames the topic."""
    world = World(Machine())
    committing, renaming = world.actor(), world.actor()
    committing.create("t")
    committing.log.partition("t", 0).append([ProducerRecord(b"0")], acks="all")
    with Consumer(committing.log, group_id="older") as older:
        older.commit({T0: 1})
    consumer = Consumer(committing.log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([T0])
    assert len(consumer.poll()) == 1
    commit = first(consumer, committing.log)
    assert renaming.log
    told: list[int | None] = []

    def commits() -> None:
        try:
            commit()
        except (CommitFailed, TopicNotFound):
            told.append(None)
        else:
            told.append(1)

    schedule = WhereTopicsAndCommitsAre(world.machine, strategy)
    schedule.add(committing.process, commits)
    schedule.add(renaming.process, lambda: renaming.log.rename_topic("t", "u"))
    schedule.run()
    groups = world.actor().log.manager.part(GroupAdmin)
    found = groups.committed("g").get(TopicPartition("u", 0))
    left = None if found is None else found.offset
    return [] if [left] == told else [f"told {told}, committed {left}"]


@pytest.mark.slow
@pytest.mark.parametrize("first", [its_positions, a_transaction])
def test_no_first_commit_of_a_group_is_lost_with_a_rename_in_any_order(
    first: Callable[[Consumer, Log], Callable[[], object]],
) -> None:
    assert in_all_orders(partial(commit_and_rename, first), 1) > 100


def delete_and_rename(strategy: Strategy) -> list[str]:
    """What is wrong after one process deletes a group, and another one renames its topic."""
    world = World(Machine())
    deleting, renaming = world.actor(), world.actor()
    deleting.create("t")
    deleting.log.partition("t", 0).append([ProducerRecord(b"0")], acks="all")
    with Consumer(deleting.log, group_id="g") as consumer:
        consumer.commit({T0: 1})
    assert renaming.log
    schedule = WhereTopicsAndCommitsAre(world.machine, strategy)
    schedule.add(deleting.process, lambda: deleting.log.delete_group("g"))
    schedule.add(renaming.process, lambda: renaming.log.rename_topic("t", "u"))
    schedule.run()
    left = world.actor().log.manager.part(GroupAdmin).committed("g")
    return [f"a deleted group has committed {left}"] if left else []


@pytest.mark.slow
def test_a_group_stays_deleted_whatever_its_topic_is_renamed_to_in_any_order() -> None:
    assert in_all_orders(delete_and_rename, 1) > 100
