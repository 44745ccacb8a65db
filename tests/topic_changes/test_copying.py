"""What a repartition does when its copy takes long, or is outdated."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog import Log, Producer, ProducerRecord, TopicPartition
from pylog.errors import LogLocked
from pylog.manager.manager import LogManager
from pylog.partition.partition_log import PartitionLog
from pylog.testing import ManualClock
from pylog.topic_changes import switch
from pylog.topic_changes.copying import TopicCopy
from tests.topic_changes.test_repartition import fill, numbers, records


@pytest.mark.parametrize("times", [1, 5])
def test_records_deleted_before_they_are_copied(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """As by retention, which a topic at its bound meets at each roll."""
    monkeypatch.setattr("pylog.topic_changes.copying._STEP_BYTES", 1)
    monkeypatch.setattr("pylog.topic_changes.copying._READ_BYTES_MIN", 1)
    monkeypatch.setattr("pylog.topic_changes.copying._READ_BYTES", 1)
    monkeypatch.setattr("pylog.topic_changes.merging.RECORDS_AT_ONCE", 1)
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        before = log.create_topic("t", partitions=1)
        for n in range(200):
            log.partition("t", 0).append([ProducerRecord(b"%d" % n, key=b"k")])
        ends = [20 * (n + 1) for n in range(times)]

        def delete(_: int) -> None:
            if ends:
                other.delete_records(TopicPartition("t", 0), ends.pop(0))

        if times == 5:
            with pytest.raises(LogLocked, match="call again with cleanup_policy='none'") as caught:
                log.repartition("t", 2, delete)
            assert caught.value.facts["cleanup_policy"] == "delete"
            assert log.describe_topic("t") == before
        log.repartition("t", 2, delete)
        assert numbers(records(log)) == list(range(20 * times, 200))


def test_what_is_kept_of_the_copied_records_is_little(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry for each new partition and step, not for each part that was read."""
    monkeypatch.setattr("pylog.topic_changes.copying._STEP_BYTES", 40_000)
    monkeypatch.setattr("pylog.topic_changes.copying._READ_BYTES_MIN", 1)
    monkeypatch.setattr("pylog.topic_changes.copying._READ_BYTES", 1000)
    sync, steps = TopicCopy.sync, []

    def kept(copy: TopicCopy) -> None:
        steps.append(len(copy._steps))
        sync(copy)

    monkeypatch.setattr(TopicCopy, "sync", kept)
    with Log(tmp_log_dir) as log:
        log.create_topic("t", partitions=2)
        fill(log, 0, 4000)
        size = sum(each.size_bytes for each in log.describe_partitions("t"))
        log.repartition("t", 50)
        assert steps[0] <= size // 40_000 + 2


def test_the_time_of_a_long_copy_does_not_count_as_waiting(tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that was open for a moment after it did not stay open for 30 s."""
    clock, settled = ManualClock(), []
    with Log(tmp_log_dir, clock=clock) as log, Log(tmp_log_dir, clock=clock) as other:
        log.create_topic("t", partitions=2)
        fill(log, 0, 10)
        with Producer(other, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"10", key=b"0")
            producer.flush()
            settle = switch._settle

            def end(manager: LogManager, partitions: list[PartitionLog]) -> None:
                settled.append(manager)
                if len(settled) == 3:
                    producer.commit_transaction()
                settle(manager, partitions)

            monkeypatch.setattr(switch, "_settle", end)
            log.repartition("t", 3, lambda _: clock.advance(40))
        assert numbers(records(log)) == list(range(11))
