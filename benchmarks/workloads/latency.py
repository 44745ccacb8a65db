"""From ``send`` to ``poll``, at a thousand records a second: between two threads, between two
processes. And what a consumer that waits costs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.rivals import raw_file
from benchmarks.settings import TOPIC, Scale, fresh, percentile
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from pylog import Consumer, Log, Producer
from pylog.storage.os_watch import OsWatch

PERIOD_S = 0.001
SECONDS = 5
_SPAWN = get_context("spawn")


def _send_steadily(log: Log, count: int) -> None:
    """One record a period, which carries the time it was sent at: the clock is the same in all
    processes."""
    with Producer(log, acks=1, linger_ms=0) as producer:
        due = time.perf_counter()
        for _ in range(count):
            due += PERIOD_S
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            producer.send(TOPIC, b"%d" % time.perf_counter_ns())


def _receive(log: Log, count: int, ready: threading.Event | Connection) -> list[float]:
    """Microseconds from ``send`` to the return of ``poll``, of each record."""
    took: list[float] = []
    with Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(TOPIC)
        consumer.poll(0.0)
        if isinstance(ready, Connection):
            ready.send(None)
        else:
            ready.set()
        while len(took) < count:
            records = consumer.poll(10.0)
            now = time.perf_counter_ns()
            if not records:
                raise RuntimeError(f"{len(took)} records of {count} came")
            took += [(now - int(record.value or b"0")) / 1e3 for record in records]
    return took


def _sample(took: list[float]) -> Sample:
    took.sort()
    return {"p50_us": percentile(took, 0.5), "p99_us": percentile(took, 0.99), "p999_us": percentile(took, 0.999)}


def _receive_elsewhere(directory: Path, count: int, answer: Connection) -> None:
    with Log(directory, create=False) as log:
        answer.send(_receive(log, count, answer))


@contextmanager
def _between_threads(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(round(SECONDS / PERIOD_S), at_least=100)

    def measure() -> Sample:
        with fresh(place) as directory, Log(directory / "log") as log:
            log.create_topic(TOPIC)
            ready = threading.Event()
            took: list[float] = []
            receiver = threading.Thread(target=lambda: took.extend(_receive(log, count, ready)))
            receiver.start()
            if not ready.wait(60.0):
                raise RuntimeError("the consumer's thread does not start")
            _send_steadily(log, count)
            receiver.join()
        return _sample(took)

    yield measure


@contextmanager
def _between_processes(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(round(SECONDS / PERIOD_S), at_least=100)

    def measure() -> Sample:
        with fresh(place) as directory, Log(directory / "log") as log:
            log.create_topic(TOPIC)
            here, there = _SPAWN.Pipe()
            receiver = _SPAWN.Process(target=_receive_elsewhere, args=(directory / "log", count, there))
            receiver.start()
            there.close()
            here.recv()
            _send_steadily(log, count)
            took = here.recv()
            receiver.join()
        return _sample(took)

    yield measure


def _receive_raw(path: str, count: int, answer: Connection) -> None:
    watch = OsWatch([path])
    slots = os.open(path, os.O_RDONLY)
    took: list[float] = []
    answer.send(None)
    last = b""
    while len(took) < count:
        watch.wait(10.0)
        stamp = os.pread(slots, raw_file.SLOT_BYTES, 0).rstrip(b"\0")
        if stamp != last:
            took.append((time.perf_counter_ns() - int(stamp)) / 1e3)
            last = stamp
    answer.send(took)


@contextmanager
def _system_calls(place: Path, scale: Scale) -> Iterator[Measure]:
    count = scale.of(round(SECONDS / PERIOD_S), at_least=100)

    def measure() -> Sample:
        with fresh(place) as directory:
            calls = raw_file.AppendCalls(directory)
            here, there = _SPAWN.Pipe()
            receiver = _SPAWN.Process(target=_receive_raw, args=(calls.slots_path, count, there))
            receiver.start()
            there.close()
            here.recv()
            while not here.poll(PERIOD_S):  # until it has seen enough: one that comes too fast is not seen
                calls.append(b"%d" % time.perf_counter_ns())
            took = here.recv()
            receiver.join()
            calls.close()
        return _sample(took)

    yield measure


@contextmanager
def _idle(place: Path, scale: Scale) -> Iterator[Measure]:
    wait_s = scale.of(3_000, at_least=300) / 1_000
    with Log(place / "log") as log:
        log.create_topic(TOPIC)
        with Producer(log, acks=1) as producer:
            producer.send(TOPIC, b"the last for a while")

        def measure() -> Sample:
            with Consumer(log, auto_offset_reset="latest") as consumer:
                consumer.subscribe(TOPIC)
                consumer.poll(0.0)
                cpu, wall = time.process_time(), time.perf_counter()
                consumer.poll(wait_s)
                used = time.process_time() - cpu
                return {"core_percent": 100 * used / (time.perf_counter() - wall)}

        yield measure


def _figures(name: str, p50_us: float) -> tuple[Figure, ...]:
    return (
        Figure(f"between {name}, median", Value(name, "p50_us"), at_most=p50_us, unit="µs"),
        Figure(f"between {name}, 99.9 %", Value(name, "p999_us"), at_most=1_000, unit="µs"),
    )


WORKLOADS = [
    Workload(
        "latency_thread",
        "from send to poll in another thread, 1,000 records a second",
        (Contender("threads", "acks=1, linger_ms=0; the consumer waits in poll", _between_threads),),
        _figures("threads", 50),
    ),
    Workload(
        "latency_process",
        "from send to poll in another process, 1,000 records a second; and what a consumer costs that waits",
        (
            Contender("processes", "acks=1, linger_ms=0; the consumer waits in poll", _between_processes),
            Contender(
                "system calls",
                "those of pylog's append; a wait for the slots (inotify), and one read of them",
                _system_calls,
            ),
            Contender("idle consumer", "one partition, nothing comes, poll waits", _idle),
        ),
        (
            *_figures("processes", 100),
            Figure("idle consumer, of a core", Value("idle consumer", "core_percent"), at_most=1, unit="%"),
        ),
    ),
]
