"""Consumer groups: how soon others read what a member leaves, what pauses when one joins, and what
a group costs."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from benchmarks.settings import TOPIC, Scale, fresh, percentile
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from pylog import Consumer, Log, Producer, TopicPartition
from pylog.errors import Wakeup
from pylog.group.admin import GroupAdmin
from pylog.group.lock import read_group

GROUP = "readers"
PARTITIONS = 12
PATIENCE_S = 60.0
CONTEXT = get_context("forkserver")  # a process costs milliseconds, not a start of Python
CONTEXT.set_forkserver_preload([__name__])


class Member:
    """A consumer in a process of its own, told what to do through a pipe."""

    def __init__(self, directory: Path, consumers: int = 1) -> None:
        self.pipe, there = CONTEXT.Pipe()
        self.process: BaseProcess = CONTEXT.Process(target=_live, args=(directory, consumers, there), daemon=True)
        self.process.start()
        there.close()

    def tell(self, word: str) -> None:
        self.pipe.send(word)

    def hear(self) -> Any:
        if not self.pipe.poll(PATIENCE_S):
            raise RuntimeError("a member of the group does not answer")
        return self.pipe.recv()

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def _members(log: Log, count: int, consumers: int = 1) -> Iterator[list[Member]]:
    """Processes that are ready to join; killed at the end of the block."""
    members = [Member(log.path, consumers) for _ in range(count)]
    try:
        for member in members:
            member.hear()
        yield members
    finally:
        for member in members:
            member.end()


def _consumer(log: Log) -> Consumer:
    return Consumer(log, group_id=GROUP, auto_offset_reset="earliest")


def _live(directory: Path, consumers: int, pipe: Connection) -> None:
    """``join``, then poll until told to ``stop``: when each partition's records came is what it
    answers."""
    with Log(directory, create=False) as log:
        pipe.send("ready")
        pipe.recv()
        members = [_consumer(log) for _ in range(consumers)]
        came: dict[int, list[float]] = {}
        began = _processor_s()

        def consume(consumer: Consumer) -> None:
            consumer.subscribe(TOPIC)
            with suppress(Wakeup):
                while True:
                    for record in consumer.poll(1.0):
                        came.setdefault(record.partition, []).append(time.perf_counter())
            consumer.close()

        threads = [threading.Thread(target=consume, args=(member,)) for member in members]
        for thread in threads:
            thread.start()
        pipe.recv()
        spent = _processor_s() - began
        for member in members:
            member.wakeup()
        pipe.send(time.perf_counter())
        for thread in threads:
            thread.join()
        pipe.send((came, spent))


def _processor_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _wait_until_stable(log: Log, members: int, poll: Callable[[float], object] = time.sleep) -> None:
    """Looks at the state alone: a description looks at every partition as well, on the processor
    that members need.

    A member of this process must ``poll`` meanwhile: it may be the one that the group waits for.
    """
    place = log.manager.part(GroupAdmin).directory(GROUP)
    deadline = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < deadline:
        group = read_group(place)
        if group.is_settled and len(group.members) == members:
            return
        poll(0.002)
    raise RuntimeError(f"the group does not settle with {members} members")


@contextmanager
def _log_of(place: Path, partitions: int) -> Iterator[Log]:
    with fresh(place) as directory, Log(directory / "log") as log:
        log.create_topic(TOPIC, partitions=partitions)
        with Producer(log, acks=1) as producer:
            for number in range(partitions):
                producer.send(TOPIC, b"v", partition=number)
        yield log


def _handover_ms(log: Log, *, kill: bool) -> float:
    """From the end of another member to the first record here of a partition that it had."""
    other = Member(log.path)
    try:
        other.hear()
        with _consumer(log) as consumer:
            consumer.subscribe(TOPIC)
            other.tell("join")
            while len(consumer.assignment()) != PARTITIONS // 2:
                consumer.poll(0.01)
            _wait_until_stable(log, 2, consumer.poll)
            mine = consumer.assignment()
            if kill:
                began = time.perf_counter()
                assert other.process.pid is not None
                os.kill(other.process.pid, signal.SIGKILL)
            else:
                other.tell("stop")
                began = float(str(other.hear()))
            while not any(TopicPartition(r.topic, r.partition) not in mine for r in consumer.poll(1.0)):
                if time.perf_counter() - began > PATIENCE_S:
                    raise RuntimeError("nobody reads what another member has left")
            return (time.perf_counter() - began) * 1e3
    finally:
        other.end()


@contextmanager
def _killed(place: Path, scale: Scale) -> Iterator[Measure]:
    def measure() -> Sample:
        with _log_of(place, PARTITIONS) as log:
            took = sorted(_handover_ms(log, kill=True) for _ in range(scale.of(200, at_least=1)))
        return {"p50_ms": percentile(took, 0.5), "p99_ms": percentile(took, 0.99)}

    yield measure


@contextmanager
def _leaving(place: Path, scale: Scale) -> Iterator[Measure]:
    def measure() -> Sample:
        with _log_of(place, PARTITIONS) as log:
            took = sorted(_handover_ms(log, kill=False) for _ in range(scale.of(20, at_least=1)))
        return {"p50_ms": percentile(took, 0.5), "worst_ms": took[-1]}

    yield measure


@contextmanager
def _joining(place: Path, scale: Scale) -> Iterator[Measure]:
    """Three members, to whom a fourth comes, while every partition gets a record every 5 ms."""
    seconds = 1.0 if scale.share < 1 else 4.0

    def measure() -> Sample:
        with _log_of(place, PARTITIONS) as log, _members(log, 4) as members:
            for count, member in enumerate(members[:3], 1):
                member.tell("join")
                _wait_until_stable(log, count)
            before = {p for m in log.describe_group(GROUP).members for p in m.assigned}
            owned = [set(m.assigned) for m in log.describe_group(GROUP).members]
            stop = threading.Event()
            sender = threading.Thread(target=_send_steadily, args=(log, stop))
            sender.start()
            time.sleep(seconds / 2)
            began = time.perf_counter()  # what was read before is of the first three's coming
            members[3].tell("join")
            _wait_until_stable(log, 4)
            time.sleep(seconds / 2)
            after = [set(m.assigned) for m in log.describe_group(GROUP).members]
            ended = time.perf_counter()  # what is read later is read again, by those who are told to stop last
            stop.set()
            sender.join()
            came: dict[int, list[float]] = {}
            for member in members:
                member.tell("stop")
                member.hear()
                received, _ = member.hear()
                for number, times in received.items():
                    came.setdefault(number, []).extend(times)
        kept = {p for some in owned for p in some if any(p in others and some >= others for others in after)}
        steady = {p: sorted(at for at in came[p.partition] if began <= at <= ended) for p in kept}
        gaps = [later - earlier for times in steady.values() for earlier, later in pairwise(times)]
        return {"moved": float(len(before - kept)), "worst_gap_ms": max(gaps) * 1e3}

    yield measure


def _send_steadily(log: Log, stop: threading.Event) -> None:
    with Producer(log, acks=1, linger_ms=0) as producer:
        while not stop.is_set():
            for number in range(PARTITIONS):
                producer.send(TOPIC, b"v", partition=number)
            stop.wait(0.005)


@contextmanager
def _many_members(place: Path, scale: Scale) -> Iterator[Measure]:
    processes, each = (8, 8) if scale.share >= 1 else (2, 2)

    def measure() -> Sample:
        with _log_of(place, 64) as log, _members(log, processes, each) as members:
            began = time.perf_counter()
            for member in members:
                member.tell("join")
            _wait_until_stable(log, processes * each)
            return {"settle_s": time.perf_counter() - began}

    yield measure


@contextmanager
def _many_partitions(place: Path, scale: Scale) -> Iterator[Measure]:
    def measure() -> Sample:
        with _log_of(place, scale.of(1000, at_least=10)) as log, _members(log, 3) as members:
            for count, member in enumerate(members, 1):
                began = time.perf_counter()
                member.tell("join")
                _wait_until_stable(log, count)
                took = time.perf_counter() - began
            return {"rebalance_s": took}

    yield measure


@contextmanager
def _idle(place: Path, scale: Scale) -> Iterator[Measure]:
    seconds = 0.5 if scale.share < 1 else 10.0

    def measure() -> Sample:
        with _log_of(place, PARTITIONS) as log, _members(log, 8 if scale.share >= 1 else 2) as members:
            for member in members:
                member.tell("join")
            _wait_until_stable(log, len(members))
            time.sleep(1.0 if scale.share >= 1 else 0.1)  # what joining costs is not asked
            before = [_spent_s(member) for member in members]
            time.sleep(seconds)
            spent = sum(_spent_s(member) for member in members) - sum(before)
            return {"core_percent": spent / seconds * 100}

    yield measure


def _spent_s(member: Member) -> float:
    """Processor time of the process's threads so far. By ``schedstat``, in nanoseconds: ``stat``
    counts ticks of 10 ms."""
    threads = Path(f"/proc/{member.process.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


WORKLOADS = [
    Workload(
        "groups",
        "consumer groups: members killed, leaving, joining; many members, many partitions; and an idle group",
        (
            Contender(
                "killed",
                f"2 members in processes, {PARTITIONS} partitions, one killed with SIGKILL, 200 times",
                _killed,
            ),
            Contender("leaving", "the same, one closes", _leaving),
            Contender("joining", f"a fourth member, {PARTITIONS} partitions, a record every 5 ms in each", _joining),
            Contender("64 members", "in 8 processes, joining at once, 64 partitions", _many_members),
            Contender("1,000 partitions", "a third member joins two", _many_partitions),
            Contender("idle", "8 members in processes, each in poll(1.0), nothing sent", _idle),
        ),
        (
            Figure("what a killed member had is read, p99", Value("killed", "p99_ms"), at_most=1000, unit="ms"),
            Figure("what a member that leaves had is read", Value("leaving", "worst_ms"), at_most=200, unit="ms"),
            Figure("partitions that move when a fourth joins", Value("joining", "moved"), at_most=3, unit=""),
            Figure("longest pause of those that don't", Value("joining", "worst_gap_ms"), at_most=50, unit="ms"),
            Figure("64 members settle", Value("64 members", "settle_s"), at_most=5, unit="s"),
            Figure("1,000 partitions are divided again", Value("1,000 partitions", "rebalance_s"), at_most=1, unit="s"),
            Figure("an idle group of 8 costs of a core", Value("idle", "core_percent"), at_most=2, unit="%"),
        ),
        rounds_max=1,
    ),
]
