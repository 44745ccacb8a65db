"""Named producers: the sequences are the application's, and nothing is appended twice, however late
it is sent again."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer
from pylog.catalog.layout import ENCODED_BYTES_MAX
from pylog.errors import ConfigError, ForkedHandle, LogLocked, NotAppended, OutcomeUnknown, OutOfOrderSequence
from pylog.model import TopicPartition
from pylog.partition.producers import state as producer_state
from pylog.partition.producers.packed import FIRST_NAMED_ID
from pylog.partition.producers.snapshots import PRODUCER_EXPIRATION_MS
from pylog.producer.named import producer_id_of
from pylog.testing.manual_clock import ManualClock
from tests.processes.sharing import forked, result_of
from tests.storage.filesystems import Faulty, full, io_error, nothing

SECOND_LAST = 2**31 - 2


@pytest.fixture
def topic(log: Log) -> str:
    log.create_topic("t", partitions=2)
    return "t"


def values(log: Log, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    with Consumer(log) as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        consumer.seek_to_beginning()
        found: list[bytes | None] = []
        while records := consumer.poll(timeout=0):
            found += [record.value for record in records]
        return found


def numbered(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def send(producer: Producer, *numbers: int, partition: int = 0) -> list[int]:
    sent = [producer.send("t", b"%d" % number, partition=partition, sequence=number) for number in numbers]
    return [delivery.result().offset for delivery in sent]


def test_a_repeated_record_is_not_appended_again_and_has_the_offset_of_the_first(log: Log, topic: str) -> None:
    with Producer(log, name="import-7") as producer:
        assert send(producer, 0, 1, 2) == [0, 1, 2]
        assert send(producer, 1, 2, 3) == [1, 2, 3]
    assert values(log) == numbered(0, 1, 2, 3)


def test_a_gap_closes_the_batch_and_a_sequence_inside_it_is_not_appended_later(log: Log, topic: str) -> None:
    with Producer(log, name="a", linger_ms=60_000) as producer:
        assert send(producer, 3, 4, 9, 10) == [0, 1, 2, 3]
        assert send(producer, 5, 9) == [-1, 2]
        batches = list(log.manager.partition("t", 0).last_batches(producer_id_of("a")))
    assert [(b.first_sequence, b.last_sequence) for b in batches] == [(3, 4), (9, 10)]
    assert values(log) == numbered(3, 4, 9, 10)


def test_sequences_are_counted_in_each_partition(log: Log, topic: str) -> None:
    with Producer(log, name="a") as producer:
        assert send(producer, 5, partition=0) == [0]
        assert send(producer, 3, partition=1) == [0]
        assert (producer.last_sequence("t", 0), producer.last_sequence("t", 1)) == (5, 3)


def test_a_later_process_continues_after_the_last_sequence(log: Log, topic: str) -> None:
    with Producer(log, name="a") as producer:
        assert producer.last_sequence("t", 0) is None
        send(producer, 0, 1, 2)
    with Log(log.path) as again, Producer(again, name="a") as producer:
        assert producer.last_sequence("t", 0) == 2
        many = producer.send_many("t", numbered(*range(6)), partition=0, sequence=0)
        assert [metadata.offset for metadata in many.result()] == [0, 1, 2, 3, 4, 5]
    assert values(log) == numbered(*range(6))


def test_records_that_are_under_way_are_known_as_repeats(log: Log, topic: str) -> None:
    with Producer(log, name="a", linger_ms=60_000) as producer:
        first = producer.send("t", b"0", partition=0, sequence=0)
        again = producer.send("t", b"0", partition=0, sequence=0)
        assert not again.done()
        many = producer.send_many("t", numbered(0, 1, 2), partition=0, sequence=0)
        assert producer.last_sequence("t", 0) is None
        assert first.result().offset == again.result().offset == 0
        assert [metadata.offset for metadata in many.result()] == [0, 1, 2]
    assert values(log) == numbered(0, 1, 2)


@pytest.mark.parametrize("batch_bytes", [120, 1024 * 1024])
def test_any_pieces_of_an_input_sent_in_any_way_are_appended_once(tmp_path: Path, seed: int, batch_bytes: int) -> None:
    choice = random.Random(seed)
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        end = 0
        while end < 400:
            with Producer(log, name="a", batch_bytes=batch_bytes) as producer:
                for _ in range(choice.randrange(1, 5)):
                    start = choice.randrange(end + 1)
                    stop = start + choice.randrange(1, 60)
                    if choice.random() < 0.5:
                        producer.send_many("t", numbered(*range(start, stop)), sequence=start)
                    else:
                        for number in range(start, stop):
                            producer.send("t", b"%d" % number, sequence=number)
                    end = max(end, stop)
                    if choice.random() < 0.3:
                        producer.flush()
                producer.flush()
                assert producer.last_sequence("t") == end - 1
        assert values(log) == numbered(*range(end))


def test_the_greatest_sequence_is_the_last(log: Log, topic: str) -> None:
    with Producer(log, name="a") as producer:
        assert send(producer, SECOND_LAST, SECOND_LAST + 1, SECOND_LAST + 1) == [0, 1, 1]
        with pytest.raises(ConfigError, match="sequence"):
            producer.send_many("t", [b"x", b"y"], partition=0, sequence=SECOND_LAST + 1)
    with Producer(log, name="a") as producer:
        assert send(producer, 0, SECOND_LAST + 1) == [-1, 1]
    assert len(values(log)) == 2


@pytest.mark.parametrize("wrong", [-1, 2**31, True, "1", 1.0])
def test_other_sequences_are_refused(log: Log, topic: str, wrong: Any) -> None:
    with Producer(log, name="a") as producer, pytest.raises(ConfigError, match="sequence"):
        producer.send("t", b"x", partition=0, sequence=wrong)


def test_what_a_named_producer_cannot_place_or_number_is_refused(log: Log, topic: str) -> None:
    log.create_topic("one")
    with Producer(log, name="a") as producer:
        with pytest.raises(ConfigError, match="partition="):
            producer.send("t", b"x", sequence=0)
        with pytest.raises(ConfigError, match="sequence="):
            producer.send("t", b"x", partition=0)
        with pytest.raises(ConfigError, match="sequence="):
            producer.send_many("t", [b"x"], partition=0)
        assert producer.send("one", b"x", sequence=0).result().offset == 0
        assert producer.partitions_for("t") == {0, 1}
    with Producer(log) as producer, pytest.raises(ConfigError, match="name="):
        producer.send("t", b"x", partition=0, sequence=0)


@pytest.mark.parametrize(
    "options", [{"acks": 0}, {"enable_idempotence": False}, {"transactional_id": "x"}, {"name": ""}, {"name": 7}]
)
def test_options_that_a_named_producer_cannot_have(log: Log, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="name"):
        Producer(log, **{"name": "a", **options})
    with pytest.raises(ConfigError, match="name"):
        Producer(log, name="x" * (ENCODED_BYTES_MAX + 1))


def test_a_second_producer_of_a_name_is_refused_until_the_first_is_closed(log: Log, topic: str) -> None:
    first = Producer(log, name="a/b é")
    with Log(log.path) as other:
        with pytest.raises(LogLocked, match="a/b é"):
            Producer(other, name="a/b é")
        with Producer(other, name="a"):
            pass
        first.close()
        with Producer(other, name="a/b é") as second:
            assert send(second, 0) == [0]


def test_a_closed_log_gives_the_name_back_after_its_records_are_written(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.create_topic("t")
    producer = Producer(log, name="a", linger_ms=60_000)
    producer.send("t", b"0", sequence=0)
    log.close()
    with Log(tmp_path / "log") as log, Producer(log, name="a") as again:
        assert again.last_sequence("t") == 0
    del producer


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_send_under_its_parents_name(log: Log, topic: str) -> None:
    with Producer(log, name="a") as producer:
        send(producer, 0)

        def refused() -> str:
            with pytest.raises(ForkedHandle):
                producer.send("t", b"1", partition=0, sequence=1)
            return "refused"

        assert result_of(forked(refused)) == "refused"
        assert send(producer, 1) == [1]


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_kill_the_whole_input_is_sent_again_and_nothing_is_there_twice(log: Log, topic: str, seed: int) -> None:
    choice = random.Random(seed)
    for attempt in range(12):
        appends = choice.randrange(1, 40)
        child = os.fork()
        if child == 0:
            try:
                with Log(log.path) as mine, Producer(mine, name="a", acks=1, batch_bytes=200) as producer:
                    for number in range(600):
                        producer.send("t", b"%d" % number, partition=0, sequence=number)
                        if number == attempt * 30 + appends:
                            os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    with Producer(log, name="a") as producer:
        producer.send_many("t", numbered(*range(600)), partition=0, sequence=0)
    assert values(log) == numbered(*range(600))


# Failures


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[tuple[Log, Faulty]]:
    filesystem = Faulty()
    with Log(tmp_path / "log", filesystem=filesystem) as log:
        log.create_topic("t")
        yield log, filesystem


def fail(filesystem: Faulty, operation: str, error: Any) -> None:
    def hook(happening: str, path: str) -> None:
        if happening == operation and "/t-0/" in path:
            raise error(path)

    filesystem.hook = hook


def test_after_a_failed_record_no_later_one_is_taken_before_it_is_sent_again(faulty: tuple[Log, Faulty]) -> None:
    log, filesystem = faulty
    with Producer(log, name="a", linger_ms=60_000) as producer:
        send(producer, 0)
        fail(filesystem, "pwrite", full)
        lost = producer.send("t", b"1", sequence=1)
        with pytest.raises(NotAppended):
            lost.result()
        filesystem.hook = nothing
        with pytest.raises(OutOfOrderSequence, match="from sequence 1 on"):
            producer.send("t", b"2", sequence=2)
        with pytest.raises(OutOfOrderSequence):
            producer.send_many("t", [b"2"], sequence=2)
        assert producer.last_sequence("t") == 0
        assert send(producer, 0, 1, 2) == [0, 1, 2]
    assert values(log) == numbered(0, 1, 2)


def test_what_was_sent_before_a_failure_was_known_fails_with_it(faulty: tuple[Log, Faulty]) -> None:
    log, filesystem = faulty
    with Producer(log, name="a", linger_ms=60_000) as producer:
        fail(filesystem, "pwrite", full)
        lost = producer.send("t", b"1", sequence=1)
        late = producer.send("t", b"7", sequence=2)  # in the same batch
        with pytest.raises(NotAppended):
            producer.send("t", b"8", sequence=8)  # the gap writes the batch
        filesystem.hook = nothing
        for delivery in (lost, late):
            assert isinstance(delivery.exception(), NotAppended)
        assert send(producer, 1, 2, 8) == [0, 1, 2]


def test_a_batch_that_was_opened_after_a_failed_one_fails_too(faulty: tuple[Log, Faulty]) -> None:
    log, filesystem = faulty
    value = b"x" * 100
    with Producer(log, name="a", linger_ms=60_000, batch_bytes=250) as producer:
        failures = [full]

        def hook(happening: str, path: str) -> None:
            if happening == "pwrite" and path.endswith(".log") and failures:
                raise failures.pop()(path)

        filesystem.hook = hook
        first = producer.send("t", value, sequence=1)
        second = producer.send("t", value, sequence=2)  # the batch of the first is full: it is written, and fails
        assert isinstance(first.exception(), NotAppended)
        assert isinstance(second.exception(), OutOfOrderSequence)
        again = [producer.send("t", value, sequence=sequence) for sequence in (1, 2)]
        assert [delivery.result().offset for delivery in again] == [0, 1]


def test_a_batch_whose_sync_failed_is_known_and_not_appended_again(faulty: tuple[Log, Faulty]) -> None:
    log, filesystem = faulty
    with Producer(log, name="a", linger_ms=60_000) as producer:
        fail(filesystem, "sync", io_error)
        unsure = producer.send("t", b"0", sequence=0)
        with pytest.raises(OutcomeUnknown):
            unsure.result()
        filesystem.hook = nothing
        assert producer.last_sequence("t") == 0
        assert send(producer, 0, 1) == [0, 1]
    assert values(log) == numbered(0, 1)


def test_what_an_earlier_process_left_unsynced_is_synced_before_its_repeat_succeeds(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        with Producer(log, name="a", acks=1) as producer:
            send(producer, 0)
            assert log.partition("t", 0).durable_offset == 0
        with Producer(log, name="a") as producer:
            assert send(producer, 0) == [0]
            assert log.partition("t", 0).durable_offset == 1


# Never forgotten


def test_a_day_without_records_and_deleted_segments_forget_no_named_producer(tmp_path: Path) -> None:
    clock = ManualClock()
    with Log(tmp_path / "log", clock=clock) as log:
        log.create_topic("t")
        with Producer(log, name="a") as producer:
            send(producer, 0, 1, 2)
    clock.advance(10 * PRODUCER_EXPIRATION_MS / 1000)
    for _ in range(3):
        with Log(tmp_path / "log", clock=clock) as log:
            with Producer(log) as producer:
                producer.send("t", b"other").result()
            log.manager.partition("t", 0).roll()
    with Log(tmp_path / "log", clock=clock) as log:
        log.delete_records(TopicPartition("t", 0), log.partition("t", 0).latest_offset)
    with Log(tmp_path / "log", clock=clock) as log, Producer(log, name="a") as producer:
        assert producer.last_sequence("t") == 2
        end = log.partition("t", 0).latest_offset
        assert send(producer, 0, 1, 2) == [0, 1, 2]
        assert log.partition("t", 0).latest_offset == end


def test_very_many_producers_push_out_no_named_one(log: Log, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 40)
    monkeypatch.setattr(producer_state, "_FORGOTTEN_AT_ONCE", 4)
    with Producer(log, name="a") as named:
        send(named, 0)
        for _ in range(60):
            with Producer(log, acks=1) as producer:
                producer.send("t", b"other", partition=0)
        assert len(log.manager.partition("t", 0).writable()._end.producers) < 60
        assert named.last_sequence("t", 0) == 0


def test_names_have_ids_of_their_own_that_no_file_remembers() -> None:
    assert producer_id_of("a") == 8261255677138628466
    ids = {producer_id_of(f"import-{n}") for n in range(10_000)}
    assert len(ids) == 10_000
    assert all(FIRST_NAMED_ID <= number < 2**63 for number in ids)


def test_a_topic_created_again_takes_everything(log: Log, topic: str) -> None:
    with Producer(log, name="a", linger_ms=0) as producer:
        send(producer, 0, 1)
        log.delete_topic("t")
        log.create_topic("t")
        assert producer.last_sequence("t") is None
        assert send(producer, 0, 1, 2) == [0, 1, 2]
