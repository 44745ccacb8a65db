from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable

import pytest

from pylog.errors import DeliveryTimeout, StorageFull
from pylog.producer.linger import LINGER, Linger
from tests.producer.fakes import FakeLog, blocking, call_in_thread, wait_until
from tests.system import of_the_system


class Waiting:
    """A sender as the linger thread sees it; ``answers`` are what its looks come to."""

    def __init__(self, *answers: float | Exception | None, after: Callable[[], None] = lambda: None) -> None:
        self.is_watched = False
        self.answers = list(answers)
        self.looks = 0
        self.flushed = 0
        self.waiting = False
        self.done = threading.Event()
        self._after = after

    def flush_due(self) -> float | None:
        self.looks += 1
        answer = self.answers.pop(0) if self.answers else None
        self._after()
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def flush(self, timeout_s: float | None) -> bool:
        self.flushed += 1
        return True

    def is_waiting(self) -> bool:
        return self.waiting


# The rules, looked at from one thread


def test_records_are_due_when_the_first_of_their_batch_has_lingered() -> None:
    log = FakeLog(partitions=2)
    with log.producer(linger_ms=10_000) as producer:
        producer.send("t", b"1", partition=0)
        log.clock.seconds = 4
        producer.send("t", b"2", partition=1)
        producer.send("t", b"3", partition=0)
        assert producer._sender.flush_due() == 6
        log.clock.seconds = 10
        producer._sender.flush_due()
        assert log.partition("t", 0).values == [b"1", b"3"]
        assert log.partition("t", 1).values == []
        assert producer._sender.flush_due() == 4
        log.clock.seconds = 14
        producer._sender.flush_due()
        assert log.partition("t", 1).values == [b"2"]
        assert producer._sender.flush_due() is None


@pytest.mark.parametrize("error", [None, StorageFull("full")])
def test_after_a_flush_nobody_is_looked_after(error: Exception | None) -> None:
    log = FakeLog()
    if error:
        log.partition("t").script.append(error)
    with log.producer() as producer:
        delivery = producer.send("t", b"v")
        producer.flush()
        assert not producer._sender.is_waiting()
        assert isinstance(delivery.exception(), StorageFull) == (error is not None)


def test_a_locked_partition_does_not_keep_the_linger_thread_from_the_others() -> None:
    log = FakeLog(partitions=2)
    log.partition("t", 0).script.append(DeliveryTimeout("locked"))
    with log.producer(linger_ms=1000) as producer:
        producer._sender.is_watched = True  # the linger thread does not look at the same time
        producer.send("t", b"1", partition=0)
        producer.send("t", b"2", partition=1)
        log.clock.seconds = 1
        wait_s = producer._sender.flush_due()
        assert wait_s is not None
        assert wait_s < 0.1
        assert log.partition("t", 0).timeouts_ms == [50]
        assert [log.partition("t", number).values for number in (0, 1)] == [[], [b"2"]]
        producer._sender.flush_due()
        assert log.partition("t", 0).values == [b"1"]


def test_a_partition_that_another_thread_is_writing_is_left_to_it() -> None:
    log = FakeLog()
    entered, leave, block = blocking()
    log.partition("t").script.append(block)
    with log.producer(linger_ms=1000) as producer:
        producer.send("t", b"1")
        writer = call_in_thread(producer.flush)
        entered.wait()
        producer.send("t", b"2")
        log.clock.seconds = 1
        assert producer._sender.flush_due() is not None
        leave.set()
        writer.join()
    assert [header.count for header in log.partition("t").headers] == [1, 1]


def test_linger_0_writes_each_record_before_send_returns_and_needs_no_thread() -> None:
    log = FakeLog()
    with log.producer(linger_ms=0) as producer:
        assert [producer.send("t", b"v").done() for _ in range(3)] == [True] * 3
        assert not producer._sender.is_watched
    assert len(log.partition("t").batches) == 3


# The thread


def test_the_thread_writes_what_has_lingered() -> None:
    log = FakeLog()
    log.clock.monotonic = iter(range(10**9)).__next__  # every look is a second later
    written = threading.Event()
    with log.producer(linger_ms=1, on_delivery=lambda delivery: written.set()) as producer:
        delivery = producer.send("t", b"v")
        assert written.wait(10)
        assert delivery.done()


def test_a_sender_is_watched_from_its_first_waiting_batch_to_its_last() -> None:
    log = FakeLog()
    with log.producer() as producer:
        assert not producer._sender.is_watched
        producer.send("t", b"v")
        assert producer._sender.is_watched
        assert producer._sender in LINGER._senders
        producer.flush()
        assert LINGER.watch(producer._sender)
        wait_until(lambda: not producer._sender.is_watched)
    assert producer._sender not in LINGER._senders


def test_the_thread_sleeps_as_long_as_nothing_is_due_and_looks_when_called() -> None:
    linger = Linger()
    sender = Waiting(1000.0, 1000.0, None)
    assert linger.watch(sender)
    wait_until(lambda: sender.looks >= 1)
    assert linger.watch(sender)
    wait_until(lambda: sender.looks >= 2)
    assert sender.is_watched
    assert linger.watch(sender)
    assert sender.done.wait(10)
    assert linger._thread is not None
    assert linger._thread.daemon
    assert threading.active_count() >= 2


def test_a_batch_that_comes_in_just_as_its_sender_is_let_go_is_not_forgotten() -> None:
    linger = Linger()
    sender = Waiting(None, None)
    sender.waiting = True  # what a send does between the look and the letting go; it sees is_watched and does not call
    assert linger.watch(sender)
    assert sender.done.wait(10)
    assert sender.looks >= 2
    sender.waiting = False


def test_an_error_while_looking_is_logged_and_the_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    linger = Linger()
    broken, fine = Waiting(ValueError("a bug"), None), Waiting(None)
    assert linger.watch(broken)
    assert linger.watch(fine)
    assert fine.done.wait(10)
    wait_until(lambda: any("a bug" in str(record.exc_info) for record in caplog.records))
    assert caplog.records[0].levelno == logging.ERROR
    linger.watch(broken)


def test_where_no_thread_can_be_started_the_sender_writes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    @of_the_system
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    log = FakeLog()
    linger = Linger()
    monkeypatch.setattr("pylog.producer.accumulator.LINGER", linger)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with log.producer() as producer:
            assert producer.send("t", b"v").done()
    with log.producer() as producer:
        linger.know(producer._sender)
        delivery = producer.send("t", b"v")
        assert not delivery.done()
        linger.flush_all()
        assert delivery.done()
        assert producer.send("t", b"v").done()


def test_a_producer_dropped_without_close_has_its_records_written_and_is_then_let_go() -> None:
    log = FakeLog()
    written = threading.Event()
    log.partition("t").script.append(written.set)
    producer = log.producer(linger_ms=1)
    producer.send("t", b"v")
    sender = weakref.ref(producer._sender)
    gone = weakref.ref(producer)
    del producer
    gc.collect()
    assert gone() is None
    log.clock.seconds += 1
    assert written.wait(10)
    wait_until(lambda: gc.collect() is None or sender() is None)
    assert log.partition("t").values == [b"v"]


def test_a_batch_whose_thread_was_interrupted_before_its_acknowledgement_is_looked_after() -> None:
    log = FakeLog()
    log.partition("t").sync_script.append(KeyboardInterrupt())
    with log.producer(linger_ms=1000) as producer:
        delivery = producer.send("t", b"v")
        with pytest.raises(KeyboardInterrupt):
            delivery.result()
        assert not delivery.done()
        assert producer._sender.flush_due() == 2
        log.clock.seconds = 2
        assert producer._sender.flush_due() is None
        assert delivery.done()
