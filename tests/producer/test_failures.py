"""What a failed append or sync leaves behind: the right outcome for each record, and a producer
that goes on."""

from __future__ import annotations

import logging
import signal
from random import Random
from typing import Any

import pytest

from pylog.codec.batch import build_batch
from pylog.errors import (
    BufferTimeout,
    Closed,
    DeliveryTimeout,
    NotAppended,
    OutcomeUnknown,
    OutOfOrderSequence,
    PylogError,
    RecordTooLarge,
    StorageError,
    StorageFull,
    TopicNotFound,
)
from pylog.producer.batch import ProducerBatch
from pylog.producer.buffer import PartitionBuffer
from tests.producer.fakes import FakeLog, Late, call_in_thread
from tests.system import of_the_system

LOCKED = DeliveryTimeout("the partition is locked by another process")


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (StorageFull("full"), StorageFull),
        (NotAppended("no"), NotAppended),
        (RecordTooLarge("large"), RecordTooLarge),
        (Closed("the log is closed"), NotAppended),
        (TopicNotFound("gone"), NotAppended),
        (OutcomeUnknown("who knows"), OutcomeUnknown),
        (StorageError("disk"), OutcomeUnknown),
        (OSError(5, "disk"), OutcomeUnknown),
        (MemoryError(), OutcomeUnknown),
        (ValueError("a bug"), OutcomeUnknown),
    ],
    ids=repr,
)
def test_every_error_of_an_append_is_one_of_the_outcomes(raised: Exception, outcome: type[PylogError]) -> None:
    log = FakeLog()
    log.partition("t").script.append(raised)
    with log.producer() as producer:
        error = producer.send("t", b"v").exception()
        assert type(error) is outcome
        assert outcome is type(raised) or error.__cause__ is raised
        assert producer.send("t", b"after").result().offset == 0
    assert producer.metrics()["records_failed"] == 1
    assert producer.metrics()["records_unknown"] == (outcome is OutcomeUnknown)
    assert producer.metrics()["reserved_bytes"] == 0


def test_a_partition_that_cannot_be_opened_appends_nothing() -> None:
    log = FakeLog(partitions=2)
    with log.producer() as producer:
        delivery = producer.send("t", b"v", partition=1)
        log.descriptions["t"] = log.descriptions["t"]._replace(partitions=1)
        assert isinstance(delivery.exception(), NotAppended)


def test_a_batch_that_cannot_be_built_appends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    @of_the_system
    def broken(*_: Any, **__: Any) -> bytearray:
        raise MemoryError

    log = FakeLog()
    with log.producer() as producer:
        producer.send("t", b"v").result()
        with monkeypatch.context() as patch:
            patch.setattr("pylog.producer.batch.build_batch", broken)
            assert isinstance(producer.send("t", b"v").exception(), NotAppended)
        assert producer.send("t", b"after").result().offset == 1


@pytest.mark.parametrize("raised", [OutcomeUnknown("the disk refused"), OSError(5, "io")])
def test_a_sync_that_fails_leaves_the_outcome_unknown(raised: Exception) -> None:
    log = FakeLog()
    log.partition("t").sync_script.append(raised)
    with log.producer() as producer:
        assert isinstance(producer.send("t", b"v").exception(), OutcomeUnknown)
        assert producer.send("t", b"after").result().offset == 1


def test_a_failed_batch_is_logged_once_with_its_size_and_place(caplog: pytest.LogCaptureFixture) -> None:
    log = FakeLog()
    log.partition("t").script.append(StorageFull("no space left"))
    with log.producer() as producer:
        for delivery in producer.send_many("t", [b"v"] * 7):
            delivery.exception()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("pylog.producer", logging.WARNING)
    assert record.getMessage() == "batch of 7 records to t-0 failed: StorageFull: no space left"


def test_a_failure_belongs_to_its_batch_and_not_to_the_send_that_met_it() -> None:
    log = FakeLog()
    log.partition("t").script.append(StorageFull("full"))
    with log.producer(batch_bytes=1000) as producer:
        deliveries = [producer.send("t", b"v" * 90) for _ in range(40)]
        errors = [delivery.exception() for delivery in deliveries]
    failed = [error is not None for error in errors]
    assert failed == sorted(failed, reverse=True)
    assert 5 < sum(failed) < 12
    assert len(log.partition("t").values) == 40 - sum(failed)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_batch_interrupted_in_its_append_is_written_again_and_the_log_knows_it(late: bool) -> None:
    log = FakeLog()
    log.partition("t").script.append(Late(KeyboardInterrupt()) if late else KeyboardInterrupt())
    with log.producer() as producer:
        first = producer.send("t", b"1")
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        assert not first.done()
        second = producer.send("t", b"2")
        assert [first.result().offset, second.result().offset] == [0, 1]
    assert log.partition("t").values == [b"1", b"2"]
    assert log.producer_ids == 1


@pytest.mark.parametrize("late", [False, True], ids=["closed", "out of time"])
def test_an_interrupted_batch_that_cannot_be_written_again_in_time_may_be_in_the_log(late: bool) -> None:
    log = FakeLog()
    script = log.partition("t").script
    script.append(Late(KeyboardInterrupt()))
    script.extend(DeliveryTimeout("locked") for _ in range(2))
    producer = log.producer()
    delivery = producer.send("t", b"1")
    with pytest.raises(KeyboardInterrupt):
        producer.flush()
    if late:  # its own time is over
        log.clock.seconds += 200
    with pytest.raises(OutcomeUnknown):
        producer.close(timeout=0)
    assert isinstance(delivery.exception(), OutcomeUnknown)
    assert producer.metrics()["records_unknown"] == 1
    assert log.partition("t").values == [b"1"]


def test_what_a_signal_handler_sends_in_the_midst_of_a_send_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog()
    with log.producer() as producer:
        make_current = PartitionBuffer.make_current

        def handler_comes_first(buffer: PartitionBuffer, batch: ProducerBatch) -> bool:
            monkeypatch.setattr(PartitionBuffer, "make_current", make_current)
            producer.send("t", b"handler")
            return make_current(buffer, batch)

        monkeypatch.setattr(PartitionBuffer, "make_current", handler_comes_first)
        producer.send("t", b"main")
    assert log.partition("t").values == [b"handler", b"main"]


@pytest.mark.parametrize("call", ["flush", "result", "close"])
def test_a_signal_handler_between_an_append_and_its_note_waits_no_longer_than_it_said(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FakeLog()
    producer = log.producer()
    finish_in_flight = PartitionBuffer.finish_in_flight
    seen: list[str] = []

    def handler_comes_first(buffer: PartitionBuffer) -> None:
        monkeypatch.setattr(PartitionBuffer, "finish_in_flight", finish_in_flight)
        waits = {
            "flush": lambda: producer.flush(1),
            "result": lambda: first.result(1),
            "close": lambda: producer.close(1),
        }
        try:
            waits[call]()
        except TimeoutError:
            seen.append("timeout")
        else:
            seen.append("done")
        finish_in_flight(buffer)

    first = producer.send("t", b"1")
    monkeypatch.setattr(PartitionBuffer, "finish_in_flight", handler_comes_first)
    assert first.result().offset == 0
    assert seen == ["done" if call == "close" else "timeout"]


def test_what_a_signal_handler_sends_while_a_batch_is_closed_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = FakeLog()
    producer = log.producer(batch_bytes=1000)
    first = producer.send("t", b"1")
    refused: list[BaseException] = []

    def handler_comes_first(encoder: Any, **options: Any) -> bytearray:
        monkeypatch.undo()
        (buffer,) = producer._topics.known["t"].buffers
        buffer.open, full = first.batch, buffer.open  # closed and not yet away
        try:
            producer.send("t", b"handler")
        except BufferTimeout as error:
            refused.append(error)
        buffer.open = full
        return build_batch(encoder, **options)

    monkeypatch.setattr("pylog.producer.batch.build_batch", handler_comes_first)
    assert first.result().offset == 0
    assert "signal handler" in str(refused[0])


def test_what_a_signal_handler_does_in_the_midst_of_an_append_waits_for_it() -> None:
    log = FakeLog()
    seen: list[object] = []

    def handler() -> None:
        inner = producer.send("t", b"handler")
        with pytest.raises(TimeoutError):
            inner.result()
        seen.append(inner)

    log.partition("t").script.append(handler)
    with log.producer() as producer:
        outer = producer.send("t", b"main")
        assert outer.result().offset == 0
        assert seen[0].result().offset == 1  # type: ignore[attr-defined]


def test_a_signal_handler_that_closes_in_the_midst_of_an_append_does_not_fail_what_is_being_written() -> None:
    log = FakeLog()
    producer = log.producer()
    log.partition("t").script.append(lambda: producer.close(timeout=0))
    assert producer.send("t", b"v").result().offset == 0
    producer.close()


def test_a_batch_in_the_log_gives_its_bytes_back_before_it_is_synced() -> None:
    log = FakeLog()
    held: list[object] = []
    with log.producer() as producer:
        log.partition("t").sync_script.append(lambda: held.extend(batch.data for batch in producer._incomplete.batches))
        producer.send("t", b"v").result()
    assert held == [None]


def test_without_idempotence_an_interrupted_append_leaves_the_outcome_unknown() -> None:
    log = FakeLog()
    log.partition("t").script.append(Late(KeyboardInterrupt()))
    with log.producer(enable_idempotence=False) as producer:
        delivery = producer.send("t", b"1")
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        assert isinstance(delivery.exception(), OutcomeUnknown)
        assert producer.send("t", b"2").result().offset == 1


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_batch_interrupted_while_it_is_built_is_built_again(is_taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(encoder: Any, **_: Any) -> bytearray:
        if is_taken:
            encoder.take_batch()
        raise KeyboardInterrupt

    log = FakeLog()
    with log.producer() as producer:
        delivery = producer.send("t", b"1")
        with monkeypatch.context() as patch:
            patch.setattr("pylog.producer.batch.build_batch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.flush()
        assert delivery.result().offset == 0
    assert log.partition("t").values == [b"1"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not hasattr(signal, "SIGVTALRM"), reason="this system has no timer for processor time")
@pytest.mark.parametrize("options", [{"acks": 1}, {"linger_ms": 0}, {"buffer_bytes": 2000}], ids=str)
@pytest.mark.one_in(6)
def test_interrupted_anywhere_a_producer_loses_nothing_and_goes_on(options: dict[str, Any], seed: int) -> None:
    log = FakeLog()
    random = Random(seed)
    accepted: list[int] = []
    number = 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    producer = log.producer(**{"batch_bytes": 2000, "linger_ms": 0.5, **options})
    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        for _ in range(100):
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, random.uniform(1e-5, 3e-3))
                for _ in range(10_000):  # an interrupt may come in a __del__, where Python drops it
                    number += 1
                    producer.send("t", b"%d" % number)
                    accepted.append(number)
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)  # a late one would come where nobody expects it
            except KeyboardInterrupt:
                pass
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    for thread in [call_in_thread(lambda: producer.send("t", b"0").result()) for _ in range(3)]:
        thread.join()  # a lock left locked would hold them forever
    try:
        producer.close()
    except PylogError as error:
        assert "interrupted before" in str(error)  # noqa: PT017 - or no error at all
    stored = [int(value or b"") for value in log.partition("t").values if value != b"0"]
    assert stored == sorted(set(stored))
    assert len(set(accepted) - set(stored)) <= producer.metrics()["records_failed"]
    assert producer.metrics()["records_failed"] < len(accepted) / 20


def test_ctrl_c_in_a_sync_is_raised_and_the_next_one_decides() -> None:
    log = FakeLog()
    log.partition("t").sync_script.append(KeyboardInterrupt())
    with log.producer() as producer:
        delivery = producer.send("t", b"v")
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        assert not delivery.done()
        assert delivery.result().offset == 0


def test_ctrl_c_in_a_callback_is_raised_and_the_other_callbacks_still_run() -> None:
    log = FakeLog()
    seen: list[object] = []

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with log.producer() as producer:
        first, second = producer.send("t", b"1"), producer.send("t", b"2")
        first.add_done_callback(interrupt)
        second.add_done_callback(seen.append)
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        producer.flush()
        assert seen == [second]


# A partition locked by another process


def test_a_locked_partition_is_tried_until_the_delivery_timeout_and_the_batch_keeps_its_place() -> None:
    log = FakeLog()
    partition = log.partition("t")
    with log.producer(delivery_timeout_ms=60_000) as producer:
        partition.script.extend([LOCKED, LOCKED])
        first = producer.send("t", b"1")
        with pytest.raises(TimeoutError):
            first.result(timeout=0)
        second = producer.send("t", b"2")
        assert second.result().offset == 1
        assert first.result().offset == 0
    assert partition.values == [b"1", b"2"]
    assert [header.base_sequence for header in partition.headers] == [0, 1]


def test_a_partition_locked_beyond_the_delivery_timeout_fails_the_batch() -> None:
    log = FakeLog()

    def wait_in_vain() -> None:
        log.clock.seconds += 31
        raise LOCKED

    log.partition("t").script.extend([wait_in_vain, wait_in_vain])
    with log.producer(linger_ms=1000, delivery_timeout_ms=60_000) as producer:
        delivery = producer.send("t", b"v")
        assert isinstance(delivery.exception(), DeliveryTimeout)
        assert producer.send("t", b"after").result().offset == 0
    assert log.partition("t").timeouts_ms == [60_000, 29_000, 60_000]


def test_a_batch_whose_time_is_over_before_its_first_try_is_tried_once() -> None:
    log = FakeLog()
    with log.producer(delivery_timeout_ms=60_000) as producer:
        delivery = producer.send("t", b"v")
        log.clock.seconds += 1000  # the machine slept
        assert delivery.result().offset == 0
    assert log.partition("t").timeouts_ms == [0]


def test_a_send_that_meets_a_batch_given_up_in_a_fraction_of_a_millisecond_goes_on_with_the_next() -> None:
    """The wait for the partition was cut to whole milliseconds, ended before the batch's time, and
    the send was refused."""
    log = FakeLog()
    partition = log.partition("t")

    def wait_in_vain() -> None:
        log.clock.seconds += partition.timeouts_ms[-1] / 1000
        raise LOCKED

    partition.script.append(wait_in_vain)
    with log.producer(batch_bytes=200, linger_ms=100, delivery_timeout_ms=200, max_block_ms=60_000) as producer:
        first = producer.send("t", b"v" * 100)
        log.clock.seconds += 0.0337
        second = producer.send("t", b"w" * 100)
        assert isinstance(first.exception(), DeliveryTimeout)
        assert second.result().offset == 0


def test_a_send_waits_for_a_locked_partition_up_to_max_block_ms_and_then_says_so() -> None:
    log = FakeLog()

    def wait_in_vain() -> None:
        log.clock.seconds += 5
        raise LOCKED

    log.partition("t").script.append(wait_in_vain)
    with log.producer(batch_bytes=200, max_block_ms=5000) as producer:
        sent = [producer.send("t", b"v" * 100)]
        with pytest.raises(BufferTimeout, match="t-0") as caught:
            producer.send("t", b"refused" * 20)
        assert caught.value.max_block_ms == 5000
        sent.append(producer.send("t", b"v" * 101))
        assert [delivery.result().offset for delivery in sent] == [0, 1]
    assert log.partition("t").timeouts_ms[0] == 5000
    assert len(log.partition("t").values) == 2


def test_close_with_a_timeout_gives_up_what_is_locked_and_says_so() -> None:
    log = FakeLog(partitions=2)
    log.partition("t", 0).script.extend([LOCKED] * 10)
    producer = log.producer()
    stuck = [producer.send("t", b"1", partition=0), producer.send("t", b"2", partition=0)]
    seen: list[object] = []
    stuck[1].add_done_callback(seen.append)
    fine = producer.send("t", b"3", partition=1)
    with pytest.raises(DeliveryTimeout):
        producer.close(timeout=0)
    assert all(isinstance(delivery.exception(), DeliveryTimeout) for delivery in stuck)
    assert seen == [stuck[1]]
    assert fine.result().offset == 0
    assert producer.metrics()["reserved_bytes"] == 0
    producer.close()
    assert log.partition("t", 0).values == []


def test_giving_up_waits_as_long_as_it_was_told_for_all_partitions_together() -> None:
    log = FakeLog(partitions=3)
    with log.producer(linger_ms=100_000) as producer:
        for number in range(3):
            producer.send("t", b"1", partition=number)
        waits: list[float] = []

        def held_by_another_thread(blocking: bool = True, timeout: float = -1) -> bool:
            waits.append(timeout)
            log.clock.seconds += timeout
            return False

        turns = [buffer.writing for buffer in producer._incomplete.batches.values()]
        takes = [turn.take for turn in turns]
        for turn in turns:
            turn.take = held_by_another_thread
        try:
            producer._sender.give_up(wait_s=30)
        finally:
            for turn, take in zip(turns, takes, strict=True):
                turn.take = take
        assert waits == [30, 0, 0]


def test_a_flush_that_times_out_can_be_repeated() -> None:
    log = FakeLog()
    log.partition("t").script.extend([LOCKED, LOCKED])
    with log.producer() as producer:
        producer.send("t", b"1")
        with pytest.raises(TimeoutError, match="1 batches"):
            producer.flush(timeout=0)
        producer.flush(timeout=0)
    assert log.partition("t").values == [b"1"]


# Idempotence


def test_batches_carry_the_producers_id_and_follow_one_another() -> None:
    log = FakeLog(partitions=2)
    with log.producer() as producer:
        assert log.producer_ids == 0
        for count in (3, 1, 2):
            for number in (0, 1):
                producer.send_many("t", [b"v"] * count, partition=number)
            producer.flush()
    for number in (0, 1):
        headers = log.partition("t", number).headers
        assert [(h.producer_id, h.producer_epoch, h.base_sequence) for h in headers] == [
            (1, 0, 0),
            (1, 0, 3),
            (1, 0, 4),
        ]
    assert log.producer_ids == 1


def test_without_idempotence_no_id_is_taken() -> None:
    log = FakeLog()
    with log.producer(enable_idempotence=False) as producer:
        producer.send("t", b"v")
    assert (log.producer_ids, log.partition("t").headers[0].producer_id) == (0, -1)


def test_a_batch_that_was_not_appended_takes_no_sequence_numbers() -> None:
    log = FakeLog()
    partition = log.partition("t")
    with log.producer() as producer:
        producer.send("t", b"1").result()
        partition.script.append(StorageFull("full"))
        for delivery in producer.send_many("t", [b"lost"] * 5):
            assert isinstance(delivery.exception(), StorageFull)
        for delivery in producer.send_many("t", [b"2", b"3"]):
            delivery.result()
    assert [header.base_sequence for header in partition.headers] == [0, 1]


@pytest.mark.parametrize("script", ["script", "sync_script"])
@pytest.mark.parametrize("raised", [OutcomeUnknown("?"), Late(OutcomeUnknown("?")), Late(OutOfOrderSequence("gap"))])
def test_after_an_uncertain_outcome_all_goes_on_under_a_new_id(script: str, raised: Any) -> None:
    log = FakeLog(partitions=2)
    if script == "sync_script" and isinstance(raised, Late):
        raised = raised.error
    with log.producer() as producer:
        producer.send("t", b"1", partition=0).result()
        producer.send("t", b"1", partition=1).result()
        getattr(log.partition("t", 0), script).append(raised)
        assert producer.send("t", b"?", partition=0).exception() is not None
        producer.send("t", b"2", partition=0).result()
        producer.send("t", b"2", partition=1).result()
        producer.send("t", b"3", partition=1).result()
    assert log.producer_ids == 2
    identified = [(h.producer_id, h.base_sequence) for h in log.partition("t", 1).headers]
    assert identified == [(1, 0), (2, 0), (2, 1)]
    assert (log.partition("t", 0).headers[-1].producer_id, log.partition("t", 0).headers[-1].base_sequence) == (2, 0)


def test_sequence_numbers_wrap_to_zero() -> None:
    log = FakeLog()
    with log.producer() as producer:
        producer.send("t", b"1").result()
        (buffer,) = producer._topics.known["t"].buffers
        buffer.next_sequence = 2**31 - 2
        for delivery in producer.send_many("t", [b"2"] * 5):
            delivery.result()
        producer.send("t", b"3").result()
    assert [header.base_sequence for header in log.partition("t").headers] == [0, 2**31 - 2, 3]


def test_an_id_that_cannot_be_had_fails_the_batch_and_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog()
    with log.producer() as producer:
        with monkeypatch.context() as patch:
            patch.setattr(log, "next_producer_id", lambda: (_ for _ in ()).throw(StorageFull("full")))
            assert isinstance(producer.send("t", b"v").exception(), StorageFull)
        assert producer.send("t", b"v").result().offset == 0
