"""What a disk, a lock or a foreign file refuses in the middle of a transaction, and what others see
of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import pytest

from pylog import Consumer, ProducerRecord, TopicPartition
from pylog.checks import TRANSACTIONS_TOPIC
from pylog.codec.checksum import crc32c
from pylog.errors import (
    CorruptSegment,
    ForkedHandle,
    InvalidTransactionState,
    LogLocked,
    OffsetOutOfRange,
    OutcomeUnknown,
    ReadOnlyLog,
    StorageError,
    TopicNotFound,
    TransactionAborted,
)
from pylog.group.admin import GroupAdmin
from pylog.group.offsets import OffsetStore
from pylog.manager.producer_ids import LIKE_KAFKA_BELOW
from pylog.partition.partition_log import PartitionLog
from pylog.partition.read.undecided import OpenTransaction, Outcome
from pylog.testing.machine import Killed, Process, Step
from pylog.transaction.admin import TransactionAdmin
from pylog.transaction.directory import TransactionDirectory
from pylog.transaction.offsets import LOCKS_MAX
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.owner import TransactionOwner
from pylog.transaction.records import Decision, encode_key, encode_value
from pylog.transaction.state import Status
from pylog.transaction.state_file import SLOT_BYTES, StateFile
from pylog.transaction.table import TransactionTable
from pylog.transaction.unfinished import FINISHED_AT_ONCE, UNFINISHED_MAX
from tests.system import fail
from tests.transaction.stage import ROOT, Owner, Stage, values_of
from tests.transaction.test_producer import each, refused
from tests.transaction.test_rules_prevent_losses import kill_at

BOTH = {0: "T1", 1: "T1"}
DIRECTORY = f"{ROOT}/.pylog/transactions/app"
LATE_S = 2.0


def at_next(stage: Stage, name: str, path: str, do: Callable[[Process, str], object]) -> None:
    """Do this once, before the next such step of any process."""

    def before(process: Process, step: Step) -> None:
        if step.name == name and step.path.endswith(path):
            stage.machine.before_step.remove(before)
            do(process, step.path)

    stage.machine.before_step.append(before)


def killed_before_its_decision_is_durable(stage: Stage) -> Owner:
    owner = stage.owner()
    owner.begin(BOTH)
    kill_at(owner, "sync", TRANSACTIONS_TOPIC)
    with pytest.raises(Killed):
        owner.producer.commit_transaction()
    stage.machine.before_step.pop()
    return owner


# Others decide


def test_a_late_transaction_stays_hidden_while_a_stopped_process_holds_its_lock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.owner(timeout_ms=1_000).begin(BOTH)
    stage.machine.seconds += LATE_S
    lock = stage.machine.process().filesystem.lock(f"{DIRECTORY}/lock")
    assert lock.try_acquire()
    with caplog.at_level(logging.WARNING, "pylog.transaction"):
        assert stage.read(read_only=False)[0] == ["?"]
    assert "'app': its transaction is not decided yet" in caplog.text
    lock.close()
    assert stage.read(read_only=False) == {0: [], 1: [], 2: [], 3: []}


def test_an_id_that_is_taken_over_just_before_another_process_decides_is_left_to_its_new_owner() -> None:
    stage = Stage()
    dead = stage.owner()
    dead.begin(BOTH)
    dead.process.kill()
    new: list[Owner] = []
    at_next(stage, "lock", "app/lock", lambda *_: new.append(stage.owner()))
    assert stage.read(read_only=False)[0] == []
    new[0].commit({0: "T2", 1: "T2"})
    assert stage.read() == {0: ["T2"], 1: ["T2"], 2: [], 3: []}


def test_a_decision_whose_sync_is_refused_is_not_acted_on_and_counts_later(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    killed_before_its_decision_is_durable(stage)
    with each(stage, "sync", TRANSACTIONS_TOPIC, refused), caplog.at_level(logging.WARNING, "pylog.transaction"):
        assert stage.read(read_only=False)[0] == ["?"]
    assert "a decision of 'app' is not durable yet" in caplog.text
    assert stage.read(read_only=False)[0] == stage.read(read_only=False)[1] == ["T1"]
    stage.lose_power()
    assert stage.read()[0] == stage.read()[1] == ["T1"]


def test_a_decision_is_found_and_made_durable_though_the_state_is_lost() -> None:
    stage = Stage()
    killed_before_its_decision_is_durable(stage)
    stage.machine.process().filesystem.remove(f"{DIRECTORY}/state")
    assert stage.read(read_only=False)[0] == ["T1"]
    stage.lose_power()
    assert stage.read()[0] == stage.read()[1] == ["T1"]


def test_what_was_decided_meanwhile_is_not_aborted() -> None:
    """The owner decides just before the other process has the id's lock."""
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    with stage.machine.process().open_log(ROOT) as log:
        at_next(stage, "lock", "app/lock", lambda *_: owner.producer.commit_transaction())
        with pytest.raises(InvalidTransactionState, match="its state is CompleteCommit"):
            log.abort_transaction("app")
    assert stage.read()[0] == ["T1"]


def test_ids_like_kafka_s_end_below_the_first_one_of_ours() -> None:
    """What no table knows is aborted if only pylog can have given the id; of Kafka's nobody can
    know."""
    owner = Stage().owner()
    partition = owner.log.manager.partition("t", 0)
    for producer_id, outcome, note in (
        (LIKE_KAFKA_BELOW - 1, Outcome.UNDECIDED, "which Kafka may know"),
        (LIKE_KAFKA_BELOW, Outcome.ABORTED, "the next writer or reader aborts it"),
    ):
        assert owner.log.manager.part(Outcomes).outcome(producer_id, 0) is outcome
        found = [(partition.topic_partition, OpenTransaction(producer_id, 0, 0, 0))]
        assert note in next(owner.log.manager.part(TransactionAdmin).notes(found))


def test_a_log_that_may_not_be_written_says_so_before_it_looks_for_what_to_abort() -> None:
    stage = Stage()
    stage.owner().begin(BOTH)
    with stage.machine.process().open_log(ROOT, read_only=True) as log:
        for offset in (0, 7):
            with pytest.raises(ReadOnlyLog):
                log.abort_transaction_at(TopicPartition("t", 0), offset)


# The table


def test_a_process_reads_on_after_records_of_the_table_that_were_deleted_since() -> None:
    stage = Stage()
    owner = stage.owner()
    with stage.machine.process().open_log(ROOT) as other:
        table = other.manager.part(TransactionTable)
        owner.begin(BOTH)
        with each(stage, "pwrite", "/t-1/", refused):
            owner.producer.commit_transaction()
        (found,) = table.unfinished_commits("app")
        assert found.decision.transaction == owner.identity
        owner.commit({2: "T2", 3: "T2"})
        partition = owner.log.manager.partition(TRANSACTIONS_TOPIC, 0)
        partition.delete_before(partition.latest_offset)
        assert table.unfinished_commits("app") == []
        later = stage.owner("later")
        assert table.transactional_id(later.identity[0]) == "later"
        later.commit({0: "T3", 1: "T3"})
        assert [each_.decision.transaction for each_ in table.unfinished_commits("later")] == [later.identity]


def test_a_table_that_cannot_be_read_where_it_begins_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    owner = stage.owner()
    with stage.machine.process().open_log(ROOT) as other:
        table = other.manager.part(TransactionTable)
        assert table.transactional_id(owner.identity[0]) == "app"
        owner.commit(BOTH)
        log = other.manager.partition(TRANSACTIONS_TOPIC, 0)
        here = table._partitions[0].next_offset

        def out_of_range(*_: object) -> object:
            raise OffsetOutOfRange("damaged", earliest=here, latest=here, offset=here)

        monkeypatch.setattr(type(log.reader), "fetches", out_of_range)
        with pytest.raises(OffsetOutOfRange):
            table.latest()


def test_only_its_first_record_of_a_commit_counts_and_another_one_does_not_move_its_end() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    table = owner.log.manager.part(TransactionTable)
    decision = Decision("app", *owner.identity, 1, Status.PREPARE_COMMIT, frozenset(), 1, 1)
    first = table.append("app", [decision], bool)
    table.append("app", [decision], bool)
    found = table.commit_of(*owner.identity)
    assert found is not None
    assert found.end_offset == first.end_offset
    assert table.commit_of(owner.identity[0], owner.identity[1] + 1) is None


def test_commits_to_a_topic_that_was_deleted_are_forgotten() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.log.create_topic("gone", partitions=2)
    owner.producer.begin_transaction()
    for partition in (0, 1):
        owner.producer.send("gone", b"T1", partition=partition)
    owner.producer.commit_transaction()
    first = owner.identity
    table = owner.log.manager.part(TransactionTable)
    assert table.commit_of(*first) is not None
    owner.log.delete_topic("gone")
    for _ in range(FINISHED_AT_ONCE):
        owner.commit(BOTH)
    assert table.commit_of(*first) is None


@pytest.mark.slow
def test_what_is_touched_once_is_synced_for_the_table_to_forget_it(caplog: pytest.LogCaptureFixture) -> None:
    """Each transaction in partitions of its own: no later one syncs the markers of those before.
    During one, the disk refuses."""
    stage = Stage()
    owner = stage.owner()
    count = UNFINISHED_MAX + 4
    owner.log.create_topic("wide", partitions=2 * count)
    table = owner.log.manager.part(TransactionTable)
    for number in range(count):
        owner.producer.begin_transaction()
        for partition in (2 * number, 2 * number + 1):
            owner.producer.send("wide", b"T", partition=partition)
        with each(stage, "sync", "/wide-0/", refused, times=-int(number == UNFINISHED_MAX)):
            owner.producer.commit_transaction()
    assert len([text for text in caplog.messages if "are not durable yet: /log/wide-0: " in text]) == 1
    assert UNFINISHED_MAX <= len(table.unfinished_commits("app")) <= UNFINISHED_MAX + 2


def test_a_decision_that_another_process_made_durable_meanwhile_is_not_synced_again() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.commit(BOTH)
    with stage.machine.process().open_log(ROOT) as log:
        (found,) = log.manager.part(TransactionTable).unfinished_commits("app")
        synced: list[str] = []
        stage.machine.before_step.append(lambda _, step: synced.append(step.path) if step.name == "sync" else None)
        assert found.is_made_durable()
        assert synced == []


def test_of_a_batch_of_the_table_whose_first_records_were_deleted_only_the_others_count() -> None:
    stage = Stage()
    owner = stage.owner()
    table = owner.log.manager.part(TransactionTable)
    decisions = [
        Decision("app", owner.identity[0], epoch, 1, Status.PREPARE_COMMIT, frozenset(), 1, 1) for epoch in (1, 2)
    ]
    found = table.append("app", decisions, bool)
    found.log.delete_before(found.end_offset - 1)
    with stage.machine.process().open_log(ROOT) as log:
        of_another = log.manager.part(TransactionTable)
        assert of_another.commit_of(owner.identity[0], 1) is None
        assert of_another.commit_of(owner.identity[0], 2) is not None


def test_an_id_that_has_begun_nothing_has_no_start_as_in_kafka_s_table() -> None:
    owner = Stage().owner()
    table = owner.log.manager.part(TransactionTable)
    assert table.latest()["app"].start_ms == -1
    owner.commit(BOTH)
    assert table.latest()["app"].start_ms >= 0


def test_a_log_without_a_table_has_no_commit_of_an_id() -> None:
    with Stage().machine.process().open_log(ROOT) as log:
        table = log.manager.part(TransactionTable)
        assert table.settled_commit_of("app", 1, 1) is None
        assert table.last_commit_of(1, 1) is None
        assert table.latest() == {}


def test_a_tombstone_of_kafka_s_in_the_table_says_nothing() -> None:
    """Of an id that Kafka may have given, no record does not mean aborted. Of others a tombstone
    decides nothing either."""
    stage = Stage()
    owner = stage.owner()
    with stage.machine.process().open_log(ROOT) as log:
        kafkas = Decision("kafka", 7, 0, 60_000, Status.EMPTY, frozenset(), 0, -1)
        log.manager.part(TransactionTable).append("kafka", [kafkas], bool)
        for name in ("app", "kafka", "unknown"):
            log.manager.partition(TRANSACTIONS_TOPIC, 0).append_records(
                [ProducerRecord(None, encode_key(name))], expected_offset=None, timeout_ms=1, process_id=None
            )
    assert owner.log.transactions() == ["kafka"]
    owner.commit(BOTH)
    assert stage.read()[0] == ["T1"]
    assert owner.log.transactions() == ["app", "kafka"]


def test_an_unpublished_record_of_another_transaction_is_not_its_commit() -> None:
    """One owner dies with a decision that is in the log and not published; another one had decided
    nothing."""
    stage = Stage()
    other = stage.owner("other")
    other.begin({2: "T2", 3: "T2"})
    owner = stage.owner()
    owner.begin(BOTH)
    kill_at(owner, "pwrite", f"{TRANSACTIONS_TOPIC}-0/.commit")
    with pytest.raises(Killed):
        owner.producer.commit_transaction()
    stage.machine.before_step.pop()
    other.process.kill()
    assert stage.read() == {0: ["T1"], 1: ["T1"], 2: [], 3: []}


# The owner


def test_a_batch_of_an_earlier_transaction_of_the_same_owner_is_refused() -> None:
    owner = Stage().owner()
    owner.commit(BOTH)
    earlier = owner.identity
    owner.begin(BOTH)
    with pytest.raises(TransactionAborted, match="is over: 'app' has begun another one"):
        owner._owner.require_ongoing(*earlier)
    owner._owner.require_ongoing(*owner.identity)


def test_a_commit_that_was_begun_cannot_be_aborted() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    with pytest.raises(OutcomeUnknown), each(stage, "sync", TRANSACTIONS_TOPIC, refused):
        owner.producer.commit_transaction()
    with pytest.raises(InvalidTransactionState, match="the commit of 'app' was begun"):
        owner._owner.abort([])
    owner.producer.commit_transaction()
    stage.lose_power()  # the repetition has made it durable
    assert stage.read()[0] == stage.read()[1] == ["T1"]


@pytest.mark.parametrize("number", [6, 7])
def test_a_status_that_only_kafka_has_says_nothing(number: int) -> None:
    """``Dead`` and ``PrepareEpochFence``, which a broker never writes to its log: nothing is
    forgotten either."""
    stage = Stage()
    owner = stage.owner()
    with stage.machine.process().open_log(ROOT) as log:
        value = bytearray(encode_value(log.manager.part(TransactionTable).latest()["app"]))
        assert value[16] == Status.EMPTY
        value[16] = number
        for name in ("app", "other"):
            log.manager.partition(TRANSACTIONS_TOPIC, 0).append_records(
                [ProducerRecord(bytes(value), encode_key(name))], expected_offset=None, timeout_ms=1, process_id=None
            )
        assert log.transactions() == ["app"]
    owner.commit(BOTH)
    assert stage.read()[0] == ["T1"]


def test_an_interrupt_behind_the_end_of_a_transaction_makes_it_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    owner = stage.owner()
    complete = TransactionOwner.complete

    def interrupted(self: TransactionOwner, marked: Collection[tuple[PartitionLog, int]]) -> None:
        complete(self, marked)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(TransactionOwner, "complete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        owner.commit(BOTH)
    owner.producer.commit_transaction()
    owner.commit({0: "T2"})
    assert stage.read()[0] == ["T1", "T2"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(FileNotFoundError(), "", id="rolled"),
        pytest.param(TopicNotFound("deleted"), "", id="deleted"),
        pytest.param(CorruptSegment("this batch", topic="t", partition=0), "stay hidden: this batch", id="damaged"),
    ],
)
def test_a_take_over_does_not_need_every_partition(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    stage.owner().begin(BOTH)
    unpublished = PartitionLog.unpublished_batches
    monkeypatch.setattr(
        PartitionLog, "unpublished_batches", lambda log: fail(error) if log.topic == "t" else unpublished(log)
    )
    stage.owner().commit({0: "T2"})
    assert stage.read()[0] == ["T2"]
    told = [text for text in caplog.messages if "batches of an earlier owner" in text]
    assert [said in text for text in told] == [True] * bool(said)


@pytest.mark.parametrize("is_reader", [False, True])
def test_a_child_forked_while_its_parent_decides_for_another_publishes_nothing(
    monkeypatch: pytest.MonkeyPatch, is_reader: bool
) -> None:
    stage = Stage()
    stage.owner(timeout_ms=1_000).begin(BOTH)
    stage.machine.seconds += LATE_S
    with stage.machine.process().open_log(ROOT) as log:
        outcomes, settled_commit_of = log.manager.part(Outcomes), TransactionTable.settled_commit_of
        filesystem = outcomes._filesystem
        process_id = filesystem.process_id()

        def fork(*arguments: object) -> object:
            monkeypatch.setattr(type(filesystem), "process_id", lambda _: process_id + 1)
            return settled_commit_of(*arguments)

        monkeypatch.setattr(TransactionTable, "settled_commit_of", fork)
        monkeypatch.setattr(StateFile, "publish", lambda *_: fail(AssertionError("published")))
        with pytest.raises(ForkedHandle) as caught:
            values_of(log, 0) if is_reader else log.abort_transaction("app")
        assert str(caught.value) == (
            f"{DIRECTORY}/lock was held by this thread when a signal handler forked; the parent process continues with it, "
            "the child must not"
        )
        assert caught.value.facts == {"path": f"{DIRECTORY}/lock", "transactional_id": "app"}
        monkeypatch.undo()


def test_a_forked_child_has_neither_the_id_nor_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this process were the child: what it inherits of its parent must not publish."""
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    live, manager = owner._owner, owner.log.manager
    directory = TransactionDirectory.of(manager.filesystem, manager.layout, "app", manager.boot)
    file = StateFile(manager.filesystem.open_appendable(directory.state), manager.boot)
    state = file.read()
    assert state is not None
    parent = manager.filesystem.process_id() + 1
    with monkeypatch.context() as in_parent:
        in_parent.setattr(manager.filesystem, "process_id", lambda: parent)
        check_process = directory.same_process()
    with pytest.raises(ForkedHandle, match="lock was held by this thread when a signal handler forked") as forked:
        manager.part(Outcomes).decide_now(directory, file, state, check_process)
    assert forked.value.facts["transactional_id"] == "app"
    file._close_in_child()
    with pytest.raises((StorageError, ValueError)):
        file.publish(state)
    file.close()
    with monkeypatch.context() as in_child:
        in_child.setattr(live, "_process_id", parent)
        with pytest.raises(ForkedHandle, match="the transactional id 'app' is the parent process's"):
            live.check_process()
    owner.producer.commit_transaction()
    assert stage.read()[0] == ["T1"]


def test_two_threads_use_the_lock_of_an_id_one_after_the_other() -> None:
    """A descriptor that one thread has locked does not keep another thread out: the second one
    waits with its own."""
    stage = Stage()
    owner = stage.owner()
    live = owner._owner
    with pytest.raises(LogLocked):
        live.holding(lambda: live.holding(lambda: pytest.fail("both hold it")))
    owner.commit(BOTH)
    assert stage.read()[0] == ["T1"]


def test_an_append_of_a_transaction_that_is_over_is_refused_by_how_it_ended() -> None:
    owner = Stage().owner()
    owner.commit(BOTH)
    live = owner._owner
    with pytest.raises(InvalidTransactionState, match="the transaction of 'app' is COMPLETE_COMMIT, not ONGOING"):
        live.require_ongoing(*owner.identity)


@pytest.mark.parametrize(("name", "path"), [("create", "app/state"), ("pwrite", "app/state"), ("create", ".owner")])
def test_an_id_that_cannot_be_taken_over_can_be_later(name: str, path: str) -> None:
    stage = Stage()
    with pytest.raises(StorageError), each(stage, name, path, refused, times=1):
        stage.owner()
    owner = stage.owner()
    owner.commit(BOTH)
    assert stage.read()[0] == ["T1"]


def test_an_owner_s_file_that_another_process_has_locked_is_not_taken_for_its_own() -> None:
    stage = Stage()
    other = stage.machine.process()
    locks = []

    def take(_: Process, path: str) -> None:
        locks.append(other.filesystem.lock(path))
        assert locks[0].try_acquire()

    at_next(stage, "lock", ".owner", take)
    with pytest.raises(StorageError, match="another process has locked it"):
        stage.owner()
    locks[0].close()
    stage.owner().commit(BOTH)
    assert stage.read()[0] == ["T1"]


@pytest.mark.parametrize(("at", "value"), [(22, 9), (12, 0x80), (20, 0x80), (24, 0x80)])
def test_a_state_that_cannot_be_is_none_though_its_checksum_is_right(at: int, value: int) -> None:
    """A status that there is not, a negative producer id, epoch or timeout: the owner lives, so
    nothing is decided."""
    stage = Stage()
    owner = stage.owner()
    owner.begin(BOTH)
    file = stage.machine.process().filesystem.open_appendable(f"{DIRECTORY}/state")
    for slot in (0, SLOT_BYTES):
        data = bytearray(file.pread(SLOT_BYTES, slot))
        data[at] = value
        data[:4] = crc32c(bytes(data[4:])).to_bytes(4, "big")
        file.pwrite(bytes(data), slot)
    with stage.machine.process().open_log(ROOT, read_only=True) as log:
        assert log.manager.part(Outcomes).outcome(*owner.identity) is Outcome.UNDECIDED
    assert stage.read()[0] == ["?"]


# Offsets


def test_a_producer_of_many_groups_keeps_few_of_their_locks_open() -> None:
    stage = Stage()
    owner = stage.owner()
    groups = [f"g{number}" for number in range(LOCKS_MAX + 2)]
    offsets = owner.producer._transactions._offsets  # type: ignore[union-attr]
    for chosen in (groups, groups[:2], groups):
        owner.producer.begin_transaction()
        for group in chosen:
            owner.producer.send_offsets_to_transaction({TopicPartition("t", 0): 0}, group)
        owner.producer.commit_transaction()
        assert len(offsets._locks) <= LOCKS_MAX
    with stage.machine.process().open_log(ROOT) as log:
        assert log.groups() == sorted(groups)


def test_a_member_that_commits_in_a_transaction_shows_that_it_lives() -> None:
    """Also while it waits for the group's lock: others must not take its partitions meanwhile."""
    stage = Stage()
    owner = stage.owner()
    consumer = Consumer(owner.log, group_id="g")
    consumer.subscribe("t")
    consumer.poll()
    path = owner.log.manager.part(GroupAdmin).directory("g").heartbeats
    file = owner.process.filesystem.open_readable(path)
    owner.producer.begin_transaction()
    owner.producer.send_offsets_to_transaction({TopicPartition("t", 0): 0}, consumer.group_metadata())
    before = file.pread(4096, 0)
    stage.machine.seconds += 1
    owner.producer.commit_transaction()
    assert file.pread(4096, 0) != before


def test_offsets_of_deleted_topics_alone_are_an_empty_transaction() -> None:
    stage = Stage()
    owner = stage.owner()
    owner.log.create_topic("gone")
    owner.producer.begin_transaction()
    owner.producer.send("t", b"T1", partition=0)
    owner.producer.send_offsets_to_transaction({TopicPartition("gone", 0): 0}, "g")
    owner.log.delete_topic("gone")
    owner.producer.commit_transaction()
    assert stage.read()[0] == ["T1"]
    with stage.machine.process().open_log(ROOT) as log:
        assert log.groups() == []


def test_a_checkpoint_of_offsets_that_fails_does_not_fail_the_commit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    owner = stage.owner()

    def refuse(*_: object) -> None:
        raise refused("checkpoint")

    monkeypatch.setattr(OffsetStore, "checkpoint_if_due", refuse)
    owner.producer.begin_transaction()
    owner.producer.send_offsets_to_transaction({TopicPartition("t", 0): 0}, "g")
    with caplog.at_level(logging.WARNING, "pylog.transaction"):
        owner.producer.commit_transaction()
    assert "no checkpoint of committed offsets: the disk refused" in caplog.text
    with stage.machine.process().open_log(ROOT) as log:
        assert log.manager.part(GroupAdmin).committed("g").keys() == {TopicPartition("t", 0)}
