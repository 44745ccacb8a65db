"""A log under steady load, with every kind of retention: what it takes of the disk, of descriptors
and of memory stays the same.

Two producers write at a steady rate to topics that are bounded by size, by time, by what a group
has consumed, by compaction, and by the bound of the whole log alone. Two housekeepers write as
well, and one of them maintains the log. Members of a group commit what they read, a reader follows
all topics, and another one is so slow that retention overtakes it. One of each kind is killed now
and then, and started again, until the last part of the run, which is calm.

Each sample adds up all files of each partition, those that wait for deletion included. Allowed are
the bound, one segment of each partition, and what is written after the last maintenance that ended
had begun: a housekeeper tells the time. Without housekeeping it would be two segments: after a roll
a partition may have ``retention_bytes`` and almost a segment, and then the active one grows. No
maintenance may be older than ``LATE_S``.

Deleted files that a process has open take space, too. A process keeps what it last read and what it
last wrote of a partition, until it uses that again: here at most ``HELD_SEGMENTS``, as many as a
member reads at once after the pauses of two members.

Descriptors and resident memory of each process that lives long enough are compared with what it had
when it was warm.

    python -m tests.soak retention --hours 1 [--seed N] [--directory DIR]
    python -m tests.soak retention-100-topics --minutes 10
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import random
import struct
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pylog import Consumer, Log, Producer, TopicPartition
from pylog.catalog.topic import OWN_TOPICS_OPTIONS
from pylog.checks import OFFSETS_TOPIC
from pylog.cleaner.cleaner import Cleaner
from pylog.cleaner.report import MaintenanceReport
from pylog.errors import CommitFailed, GroupNotFound
from tests.soak.part import Outcome

GROUP = "readers"
BY_SIZE, BY_TIME, CONSUMED, COMPACTED, BOUNDED = "by-size", "by-time", "consumed", "compacted", "bounded"
KEYS = 400
HEADER = struct.Struct(">IQI")  # the writer, its number, the length of the value
RECORD_BYTES = 1000
STORED_BYTES = RECORD_BYTES + 100  # of a record alone in its batch, with its share of the indexes, at most
BATCH_BYTES = 16 << 10
INTERNAL_SEGMENT_BYTES: int = OWN_TOPICS_OPTIONS["segment_bytes"]

SIDE_BYTES = 128 << 10  # of a partition: commit slots, seals, and snapshots that know hundreds of killed producers
LATE_S = 60.0
WARM_S = 15.0
CALM_SHARE = 0.3  # of the time: nobody is killed any more
GROWTH_BYTES = 8 << 20  # of the resident memory of a process
GROWTH_DESCRIPTORS = 16  # who takes over the maintenance opens some
HELD_SEGMENTS = 4
START_S = 120.0
PATIENCE_S = 30.0
PROBLEMS_MAX = 8


class Settings(NamedTuple):
    """``rate_bytes``: written to each partition in a second, by all. ``topics``: more of them, with
    the log's bound alone."""

    segment_bytes: int = 1 << 20
    partitions: int = 2
    rate_bytes: int = 100_000
    retention_ms: int = 20_000
    max_bytes: int = 40 << 20
    interval_ms: int = 500
    kill_every_s: float = 5.0
    sample_every_s: float = 1.0
    topics: int = 0

    @property
    def retention_bytes(self) -> int:
        return 4 * self.segment_bytes

    @property
    def names(self) -> list[str]:
        """The topics that are written."""
        if self.topics:
            return [f"bounded-{number}" for number in range(self.topics)]
        return [BY_SIZE, BY_TIME, CONSUMED, COMPACTED, BOUNDED]


SOAK = Settings()
SHORT = Settings(
    segment_bytes=256 << 10,
    rate_bytes=60_000,
    retention_ms=4_000,
    max_bytes=12 << 20,
    kill_every_s=2.0,
    sample_every_s=0.5,
)
HUNDRED_TOPICS = Settings(segment_bytes=64 << 10, partitions=1, rate_bytes=8_000, max_bytes=16 << 20, topics=100)


def run(seconds: float, seed: int, directory: Path) -> Outcome:
    """For ``scripts/soak``."""
    return run_load(seconds, seed, directory, SOAK if seconds > 120 else SHORT)


def run_hundred_topics(seconds: float, seed: int, directory: Path) -> Outcome:
    """The bound of the whole log, with a hundred topics."""
    return run_load(seconds, seed, directory, HUNDRED_TOPICS)


def run_load(seconds: float, seed: int, directory: Path, settings: Settings) -> Outcome:
    controller = Controller(seed, directory / "log", settings)
    try:
        controller.run(seconds)
    finally:
        controller.kill_all()
    controller.finish()
    return Outcome({name: float(figure) for name, figure in controller.figures.items()}, controller.problems)


# The workers


class Orders(NamedTuple):
    """``serial`` is no other worker's. ``writers`` share the rate. ``maintained_s``: when the last
    maintenance began that has ended."""

    role: str
    directory: Path
    serial: int
    settings: Settings
    writers: int
    maintained_s: ctypes.c_double


def _work(orders: Orders, pipe: Connection) -> None:
    """Until the pipe says stop. Tells figures once a second, and what was wrong."""
    logging.disable(logging.WARNING)  # that positions are reset is what this is about
    teller = Teller(pipe)
    _tell_of_maintenance(orders.maintained_s, teller)
    try:
        {
            "producer": _produce,
            "housekeeper": _produce,
            "member": _consume_in_group,
            "reader": _read,
            "slow reader": _read,
        }[orders.role](orders, teller)
    except Exception as error:  # noqa: BLE001 - told to the controller, whatever it was
        teller.problems.append(f"{orders.role} ended: {error!r}")
    teller.tell()


def _tell_of_maintenance(maintained_s: ctypes.c_double, teller: Teller) -> None:
    """In this process, which is its housekeeper's if it maintains the log at all."""
    maintain = Cleaner.maintain

    def told(*arguments: Any, **options: Any) -> MaintenanceReport:
        began_s = time.monotonic()
        report = maintain(*arguments, **options)
        maintained_s.value = began_s
        teller.figures["maintenances"] += 1
        return report

    Cleaner.maintain = told


class Teller:
    """Tells the controller once a second."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._told_s = time.monotonic()
        self.figures: Counter[str] = Counter()
        self.problems: list[str] = []

    def is_over(self) -> bool:
        if time.monotonic() - self._told_s >= 1:
            self.tell()
        return self._pipe.poll()

    def tell(self) -> None:
        self._told_s = time.monotonic()
        with suppress(BrokenPipeError):
            self._pipe.send((dict(self.figures), self.problems))
        self.figures, self.problems = Counter(), []


def _opened(orders: Orders) -> Log:
    return Log(
        orders.directory,
        create=False,
        housekeeping=orders.role == "housekeeper",
        housekeeping_interval_ms=orders.settings.interval_ms,
    )


def _produce(orders: Orders, teller: Teller) -> None:
    """At a steady rate: what it could not write in time, it does not write later."""
    settings, rng = orders.settings, random.Random(orders.serial)
    topics = [(name, number) for name in settings.names for number in range(settings.partitions)]
    per_s = settings.rate_bytes * len(topics) / STORED_BYTES / orders.writers
    with _opened(orders) as log, Producer(log, acks=1, linger_ms=5, batch_bytes=BATCH_BYTES) as producer:
        number, due, last_s = 0, 0.0, time.monotonic()
        while not teller.is_over():
            now_s = time.monotonic()
            due, last_s = min(due + (now_s - last_s) * per_s, per_s / 10), now_s
            while due >= 1:
                due -= 1
                name, partition = topics[number % len(topics)]
                key = b"%d" % rng.randrange(KEYS) if name == COMPACTED else None
                value = HEADER.pack(orders.serial, number, RECORD_BYTES) + rng.randbytes(RECORD_BYTES - HEADER.size)
                producer.send(name, value, key=key, partition=partition)
                number += 1
                teller.figures["sent"] += 1
            time.sleep(0.01)


def _checked(value: bytes | None) -> None:
    if value is None or len(value) != RECORD_BYTES or HEADER.unpack_from(value)[2] != RECORD_BYTES:
        raise AssertionError(f"a record that nobody has written: {value!r}")


def _consume_in_group(orders: Orders, teller: Teller) -> None:
    """Nothing that the group has not committed may be gone: the offsets of what it reads have no
    gaps.

    Now and then it pauses until segments are closed that it has not read.
    """
    settings, rng, expected = orders.settings, random.Random(orders.serial), dict[int, int]()
    pause_s = 1.5 * settings.segment_bytes / settings.rate_bytes
    next_pause_s = time.monotonic() + pause_s
    with _opened(orders) as log, Consumer(log, group_id=GROUP, auto_offset_reset="earliest") as consumer:

        def begin(partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                expected[partition.partition] = consumer.committed(partition) or 0

        consumer.subscribe(CONSUMED, on_assigned=begin)
        while not teller.is_over():
            polled = consumer.poll(0.2)
            for record in polled:
                _checked(record.value)
                if record.offset != expected.setdefault(record.partition, record.offset):
                    teller.problems.append(
                        f"retention='consumed' deleted what was not consumed: {expected[record.partition]} was due in "
                        f"partition {record.partition}, {record.offset} came"
                    )
                expected[record.partition] = record.offset + 1
            teller.figures["consumed"] += len(polled)
            with suppress(CommitFailed):  # another member has the partition now
                consumer.commit()
            if time.monotonic() >= next_pause_s:
                time.sleep(pause_s)
                next_pause_s = time.monotonic() + rng.uniform(1, 3) * pause_s


def _read(orders: Orders, teller: Teller) -> None:
    """Without a group. The slow one is overtaken by retention."""
    is_slow = orders.role == "slow reader"
    names = [name for name in orders.settings.names if name != CONSUMED]
    count = 20 if is_slow else 500
    with _opened(orders) as log, Consumer(log, auto_offset_reset="earliest", max_poll_records=count) as consumer:
        consumer.assign(
            [TopicPartition(name, number) for name in names for number in range(orders.settings.partitions)]
        )
        following: dict[TopicPartition, int] = {}
        while not teller.is_over():
            for record in consumer.poll(0.2):
                partition = TopicPartition(record.topic, record.partition)
                _checked(record.value)
                if record.offset < following.get(partition, 0):
                    teller.problems.append(f"{partition} went back from {following[partition]} to {record.offset}")
                if record.topic != COMPACTED and record.offset > following.get(partition, record.offset):
                    teller.figures["overtaken by retention"] += 1
                following[partition] = record.offset + 1
                teller.figures["read"] += 1
            if is_slow:
                time.sleep(0.5)


# The controller


class Worker:
    """A process, and what the samples saw of it."""

    def __init__(self, role: str, *, is_mortal: bool, process: BaseProcess, pipe: Connection) -> None:
        self.role, self.is_mortal, self.process, self.pipe = role, is_mortal, process, pipe
        self.began_s = float("inf")  # when it told what it has done for the first time
        self.maintains_since_s = float(
            "-inf"
        )  # a housekeeper stands by until another one dies, and then has more to hold
        self.resident: list[tuple[float, int]] = []  # when, and bytes
        self.descriptors: list[int] = []

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid


class Usage(NamedTuple):
    """``files`` and ``blocks``: by partition. ``held``: deleted, but held open, by process and
    partition."""

    files: dict[str, int]
    blocks: dict[str, int]
    held: dict[tuple[int, str], int]
    waiting: int


class Controller:
    """Starts and kills the workers, and takes the samples."""

    def __init__(self, seed: int, directory: Path, settings: Settings) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.settings = settings
        self.figures: Counter[str] = Counter()
        self.problems: list[str] = []
        self.workers: list[Worker] = []
        self.serial = 0
        self.lags: deque[tuple[float, dict[str, int]]] = deque()
        self.context = multiprocessing.get_context("spawn")
        self.maintained_s = self.context.RawValue(ctypes.c_double)  # without a lock that a kill would leave locked
        self.log = Log(directory)
        self._create_topics()
        self.writers = 4

    def _create_topics(self) -> None:
        settings, log = self.settings, self.log
        common: dict[str, Any] = {"partitions": settings.partitions, "segment_bytes": settings.segment_bytes}
        own: dict[str, dict[str, Any]] = {
            BY_SIZE: {"retention_bytes": settings.retention_bytes},
            BY_TIME: {"retention_ms": settings.retention_ms},
            CONSUMED: {"retention": "consumed"},
            COMPACTED: {"cleanup_policy": "compact", "delete_retention_ms": 1000},
        }
        for name in settings.names:
            log.create_topic(name, **common, **own.get(name, {}))
        log.alter(max_bytes=settings.max_bytes)

    def run(self, seconds: float) -> None:
        self._fill()
        self.maintained_s.value = time.monotonic()  # as if: the log is at its bounds, and nobody has written more
        self.lags.append((self.maintained_s.value, {}))
        roles = ["producer", "housekeeper", "reader"] + ([] if self.settings.topics else ["member", "slow reader"])
        for role in roles:
            self._start(role, is_mortal=False)
            self._start(role, is_mortal=role != "slow reader")
        began_s = time.monotonic()
        while any(worker.began_s == float("inf") for worker in self.workers) and not self.problems:
            time.sleep(self.settings.sample_every_s)
            self._hear()
            if time.monotonic() > began_s + START_S:
                self.problems.append(f"not all have begun: {[worker.role for worker in self.workers]}")
        began_s = time.monotonic()
        next_kill_s = began_s + self.settings.kill_every_s
        while (now_s := time.monotonic()) < began_s + seconds and len(self.problems) < PROBLEMS_MAX:
            self._hear()
            self._sample()
            if now_s >= next_kill_s and now_s < began_s + seconds * (1 - CALM_SHARE):
                self._kill_one()
                next_kill_s += self.rng.uniform(0.5, 1.5) * self.settings.kill_every_s
            time.sleep(max(now_s + self.settings.sample_every_s - time.monotonic(), 0))
        self.figures["seconds"] = round(time.monotonic() - began_s)

    def _fill(self) -> None:
        """Nobody waits for the first retention: the log is at its bounds."""
        settings = self.settings
        names = settings.names if settings.topics else [BY_SIZE, BOUNDED]
        each_bytes = settings.max_bytes // settings.topics if settings.topics else settings.retention_bytes
        with Producer(self.log, acks=1, batch_bytes=BATCH_BYTES) as producer:
            for number in range(each_bytes // STORED_BYTES):
                for name in names:
                    for partition in range(settings.partitions):
                        value = HEADER.pack(0, number, RECORD_BYTES) + bytes(RECORD_BYTES - HEADER.size)
                        producer.send(name, value, partition=partition)

    # The processes

    def _start(self, role: str, *, is_mortal: bool) -> None:
        self.serial += 1
        here, there = self.context.Pipe()
        orders = Orders(role, self.directory, self.serial, self.settings, self.writers, self.maintained_s)
        process = self.context.Process(target=_work, args=(orders, there), daemon=True)
        process.start()
        there.close()
        self.workers.append(Worker(role, is_mortal=is_mortal, process=process, pipe=here))

    def _hear(self) -> None:
        for worker in self.workers:
            with suppress(EOFError):
                while worker.pipe.poll():
                    self._take(worker)
            if not worker.process.is_alive():
                self.problems.append(f"{worker.role} {worker.pid} ended with status {worker.process.exitcode}")

    def _take(self, worker: Worker) -> None:
        figures, problems = worker.pipe.recv()
        self.figures.update(figures)
        self.problems += problems
        if figures:
            worker.began_s = min(worker.began_s, time.monotonic())
        if figures.get("maintenances") and worker.maintains_since_s < 0:
            worker.maintains_since_s = time.monotonic()

    def _kill_one(self) -> None:
        """Any housekeeper, or another one that may die."""
        worker = self.rng.choice([w for w in self.workers if w.is_mortal or w.role == "housekeeper"])
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._judge(worker)
        self.workers.remove(worker)
        self.figures["kills"] += 1
        self.figures["of housekeepers"] += worker.role == "housekeeper"
        self._start(worker.role, is_mortal=worker.is_mortal)

    def kill_all(self) -> None:
        for worker in self.workers:
            if worker.process.is_alive():
                with suppress(BrokenPipeError):
                    worker.pipe.send("stop")
        for worker in self.workers:
            worker.process.join(PATIENCE_S)
            if worker.process.is_alive():
                self.problems.append(f"{worker.role} does not stop")
                worker.process.kill()
                worker.process.join()

    # The samples

    def _sample(self) -> None:
        self.figures["samples"] += 1
        now_s = time.monotonic()
        for worker in self.workers:
            with suppress(OSError):
                worker.descriptors.append(len(os.listdir(f"/proc/{worker.pid}/fd")))
                worker.resident.append((now_s, resident_bytes(worker.pid)))
        since_s = self._note_lag(now_s)
        used = usage(self.directory, [worker.pid for worker in self.workers])
        late_s = time.monotonic() - since_s
        self._highest("housekeeping: latest, s", late_s)
        if late_s > LATE_S:
            self.problems.append(f"no maintenance was done in {late_s:.0f} s")
        self._check_disk(used, late_s)

    def _note_lag(self, now_s: float) -> float:
        """Returns the time since when lags are known: that of the last maintenance, or before
        it."""
        since_s = self.maintained_s.value
        if self.settings.topics:
            return since_s
        lag = {
            f"{CONSUMED}-{number}": self.log.partition(CONSUMED, number).latest_offset
            for number in range(self.settings.partitions)
        }
        with suppress(GroupNotFound):
            lag |= {f"{name.topic}-{name.partition}": offsets for name, offsets in self.log.lag(GROUP).items()}
        self.lags.append((now_s, lag))
        while len(self.lags) > 1 and self.lags[1][0] <= since_s:
            self.lags.popleft()
        return min(since_s, self.lags[0][0])

    def _check_disk(self, used: Usage, late_s: float) -> None:
        settings = self.settings
        late_bytes = settings.rate_bytes * late_s + BATCH_BYTES + SIDE_BYTES
        total = sum(used.files.values())
        for name, size in used.files.items():
            topic = name.rpartition("-")[0]
            bound = self._bound(topic, name)
            if bound is not None:
                self._check(topic, name, size, bound, settings.segment_bytes + late_bytes)
        count = len(settings.names) * settings.partitions
        self._check("log", "the log", total, settings.max_bytes, count * (settings.segment_bytes + late_bytes))
        for (pid, name), size in used.held.items():
            role = next(worker.role for worker in self.workers if worker.pid == pid)
            segment_bytes = INTERNAL_SEGMENT_BYTES if name.startswith(OFFSETS_TOPIC) else settings.segment_bytes
            more = HELD_SEGMENTS * (segment_bytes + SIDE_BYTES)
            self._check(f"held by {role}", f"{name}, deleted and held by {role},", size, 0, more)
        self._highest("log: most blocks, MB", sum(used.blocks.values()) / 1e6)
        self._highest("log: most held open after deletion, MB", sum(used.held.values()) / 1e6)
        self._highest("most files waiting for deletion", used.waiting)

    def _bound(self, topic: str, name: str) -> int | None:
        """Of a partition, without the segment that comes on top."""
        settings = self.settings
        compacted = KEYS * STORED_BYTES  # each key once
        return {
            BY_SIZE: settings.retention_bytes,
            BY_TIME: settings.rate_bytes * settings.retention_ms // 1000,
            CONSUMED: max((lag.get(name, 0) for _, lag in self.lags), default=0) * STORED_BYTES,
            # as much again is dirty before it is due, whole segments of it, and a compaction copies
            # what it keeps
            COMPACTED: 3 * compacted + settings.segment_bytes,
            OFFSETS_TOPIC: 3 * INTERNAL_SEGMENT_BYTES,
        }.get(topic)

    def _check(self, kind: str, name: str, size: int, bound: int, more: float) -> None:
        self._highest(f"{kind}: most, % of what is allowed", 100 * size / (bound + more))
        if size > bound + more:
            self.problems.append(
                f"{name} takes {size} bytes of the disk; its bound is {bound}, and {more:.0f} more are allowed; after "
                f"{self.figures['samples']} samples; {sorted(file.name for file in (self.directory / name).glob('*'))}"
            )

    def _highest(self, name: str, value: float) -> None:
        self.figures[name] = max(self.figures[name], round(value, 1))  # type: ignore[assignment]

    # The processes' resources

    def _judge(self, worker: Worker) -> None:
        """Of one that has lived long enough, the last fifth is compared with the first fifth after
        it was warm: after ``WARM_S``, and a third of its life. One that took over the maintenance
        lives from then on."""
        since_s = max(worker.began_s, worker.maintains_since_s)
        life_s = time.monotonic() - since_s
        warm = [each for each in worker.resident if each[0] >= since_s + max(WARM_S, life_s / 3)]
        fifth = len(warm) // 5
        if fifth < 2:
            return
        sizes = [size for _, size in warm]
        grown = median(sizes[-fifth:]) - median(sizes[:fifth])
        hours = (warm[-1][0] - warm[0][0]) / 3600
        self._highest(f"{worker.role}: resident, MB", max(sizes) / 1e6)
        self._highest(f"{worker.role}: most growth when warm, kB", grown / 1e3)
        if grown > GROWTH_BYTES:
            self.problems.append(
                f"{worker.role} {worker.pid} grew by {grown} bytes in {hours * 60:.1f} minutes: {sizes[:: max(fifth // 2, 1)]}"
            )
        counts = worker.descriptors[-len(warm) :]
        more = median(counts[-fifth:]) - median(counts[:fifth])
        self._highest(f"{worker.role}: most descriptors", max(counts))
        if more > GROWTH_DESCRIPTORS:
            self.problems.append(
                f"{worker.role} {worker.pid} has {more} descriptors more: {counts[:: max(fifth // 2, 1)]}"
            )

    def finish(self) -> None:
        """All processes are gone, so nothing is held open: what is left is verified."""
        for worker in self.workers:
            self._judge(worker)
            with suppress(EOFError, OSError):
                while worker.pipe.poll():
                    self._take(worker)
        with self.log as log:
            report = log.maintain()
            self.problems += report.problems
            self.problems += [str(problem) for problem in log.verify().problems]
        left = [str(file) for file in self.directory.rglob("*.deleted")]
        if left:
            self.problems.append(f"deleted files are left: {left}")
        del self.problems[PROBLEMS_MAX:]


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def usage(directory: Path, pids: list[int]) -> Usage:
    """Each file once, however often a process has it open."""
    files: dict[str, int] = defaultdict(int)
    blocks: dict[str, int] = defaultdict(int)
    held: dict[tuple[int, str], int] = defaultdict(int)
    waiting = 0
    for place in [each for each in directory.iterdir() if each.is_dir() and not each.name.startswith(".")]:
        for entry in os.scandir(place):
            with suppress(FileNotFoundError):
                status = entry.stat()
                files[place.name] += status.st_size
                blocks[place.name] += status.st_blocks * 512
                waiting += entry.name.endswith(".deleted")
    for pid in pids:
        for path, size in set(_deleted_but_open(directory, pid)):
            held[pid, path.parent.name] += size
    return Usage(files, blocks, held, waiting)


def _deleted_but_open(directory: Path, pid: int) -> Iterator[tuple[Path, int]]:
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                name = os.readlink(f"/proc/{pid}/fd/{number}")
                if name.endswith(" (deleted)") and name.startswith(f"{directory}/"):
                    yield Path(name.removesuffix(" (deleted)")), os.stat(f"/proc/{pid}/fd/{number}").st_size
