"""A signal handler's exception (Ctrl-C) at any bytecode of an append, survived: nothing stays
locked, nothing is torn."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import NotAppended, OutcomeUnknown
from pylog.partition import Partition
from pylog.partition.write.log_end import LogEnd
from tests.partition.logs import batch, durability_of, everything, in_turn, one, open_partition

ROUNDS = int(os.environ.get("PYLOG_TEST_INTERRUPTS", "100"))


class Interrupted(BaseException):
    """What the handler raises."""


@contextmanager
def interrupts(seed: int) -> Iterator[random.Random]:
    """A SIGVTALRM raises in this thread; the timer is the caller's to set."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        yield random.Random(seed)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def interrupted_appends(partition: Partition, chance: random.Random, acks: int | str, attempted: list[bytes]) -> None:
    """Append until an interrupt comes."""
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, chance.uniform(1e-5, 2e-3))
        for _ in range(10_000):  # an interrupt may come in a __del__, where Python drops it
            attempted.append(b"%d" % len(attempted))
            partition.append(one(attempted[-1].decode()), acks=acks)
    except Interrupted:
        pass
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("acks", [1, "all"])
def test_interrupted_anywhere_a_partition_goes_on_here_and_elsewhere(tmpfs_dir: Path, acks: int | str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    directory = tmpfs_dir / "t-0"
    partition, neighbour = (open_partition(directory, segment_bytes=20_000) for _ in range(2))
    attempted: list[bytes] = []
    with interrupts(seed) as chance:
        for number in range(ROUNDS):
            with suppress(Interrupted):  # it may come behind the ``finally`` that turns the timer off
                interrupted_appends(partition, chance, acks, attempted)
            for which in (partition, neighbour):
                which.append(one(f"after {number}"), acks=acks, timeout_ms=2000)
    values = [value for _, value in everything(neighbour)]
    again = iter(attempted)
    assert all(value in again for value in values if not value.startswith(b"after")), "reordered, or there twice"
    assert [v for v in values if v.startswith(b"after")] == [b"after %d" % (n // 2) for n in range(2 * ROUNDS)]
    missing = len(attempted) - sum(not value.startswith(b"after") for value in values)
    assert missing <= ROUNDS  # of each round at most the record it was interrupted at


def test_a_batch_of_others_that_an_interrupt_left_half_taken_in_is_known_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, other = (open_partition(tmp_path / "t-0") for _ in range(2))
    other.append(one("first"))
    for sequence in range(3):
        partition.log.append_batch(batch(b"%d" % sequence, producer_id=7, epoch=0, sequence=sequence))
    fold, folded = LogEnd.fold, []

    def interrupted_at_the_last(*args: Any) -> None:
        folded.append(args)
        if len(folded) == 3:
            raise Interrupted
        fold(*args)

    with monkeypatch.context() as patched:
        patched.setattr(LogEnd, "fold", interrupted_at_the_last)
        with pytest.raises(Interrupted):
            other.append(one("second"))
    other.log.roll()  # with a snapshot of what it knows of the producers
    assert partition.log.append_batch(batch(b"2", producer_id=7, epoch=0, sequence=2)).duplicate
    assert not partition.log.append_batch(batch(b"3", producer_id=7, epoch=0, sequence=3)).duplicate
    assert [value for _, value in everything(other)] == [b"first", b"0", b"1", b"2", b"3"]


def test_a_signal_handler_that_appends_to_the_partition_it_interrupted_is_refused(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    with pytest.raises(NotAppended, match="signal handler"):
        partition.log.writable()._lock.holding(1000, lambda _: partition.append(one("inside"), acks=1))
    with in_turn(durability_of(partition).turn), pytest.raises(OutcomeUnknown, match="signal handler"):
        partition.append(one("synced inside"), acks="all")
    partition.append(one("after"), acks="all")
    assert [value for _, value in everything(partition)] == [b"synced inside", b"after"]


def test_a_signal_handler_that_closes_the_partition_it_interrupted_ends_it_without_harm(directory: Path) -> None:
    partition = open_partition(directory)
    partition.append(one("a"), acks=1)
    partition.log.writable()._lock.holding(1000, lambda _: partition.close())
    other = open_partition(directory)
    other.append(one("b"), acks=1, timeout_ms=1000)
    assert [value for _, value in everything(other)] == [b"a", b"b"]


def test_a_thread_that_waits_for_another_thread_gives_up_in_its_time(tmp_path: Path) -> None:
    from pylog.errors import DeliveryTimeout

    partition = open_partition(tmp_path / "t-0")
    inside, done = threading.Event(), threading.Event()

    def work(_: object) -> None:
        inside.set()
        done.wait()

    thread = threading.Thread(target=lambda: partition.log.writable()._lock.holding(1000, work))
    thread.start()
    try:
        inside.wait()
        with pytest.raises(DeliveryTimeout):
            partition.append(one("too early"), acks=1, timeout_ms=20)
    finally:
        done.set()
        thread.join()
    partition.append(one("in time"), acks=1)
    assert [value for _, value in everything(partition)] == [b"in time"]
