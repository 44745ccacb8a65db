"""Backups of a log in use, some killed while they run: each that ends opens, verifies, and holds
what was acknowledged.

Producers with ``acks="all"``, a producer of transactions over four partitions with a group's
offsets, one of a compacted topic, and maintenance run all the time, each in a process of its own,
and are killed and started again now and then. What was acknowledged is in files of their own. The
controller notes that, has a process take a backup, and kills it at a random moment or lets it end.
Then it looks at the copy: as one that may not write, and as a writer of a duplicate.

    python -m tests.soak backup --minutes 10 [--seed N] [--directory DIR]
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from pylog import Log, Producer, TopicPartition
from pylog.errors import PylogError
from tests.soak.part import Outcome

PLAIN, PAIRS, TABLE, SHORT, GROUP = "plain", "pairs", "table", "short", "g"
PARTITIONS, KEYS = 4, 200
BACKUPS_IN_A_LOG = 20  # then another log: what is checked must not grow for hours
PAUSE_S = 0.01  # of each writer after each batch: the checks read all of it
_CONTEXT = multiprocessing.get_context("forkserver")  # a process begins in milliseconds
_COMMITTED = "read_committed"


class Acknowledged:
    """A file of lines ``<incarnation> <number>``: all numbers up to this one are acknowledged."""

    def __init__(self, place: Path, name: str) -> None:
        self.path = place / f"{name}.acknowledged"

    def add(self, incarnation: int, number: int) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{incarnation} {number}\n".encode())
        os.close(descriptor)

    def read(self) -> dict[int, int]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return {int(line.split()[0]): int(line.split()[1]) for line in lines}


# The load: each runs in a process of its own, until it is killed


def plain(place: Path, incarnation: int) -> None:
    acknowledged = Acknowledged(place, PLAIN)
    with Log(place / "log") as log, Producer(log, acks="all") as producer:
        number = 0
        while True:
            for _ in range(10):
                producer.send(PLAIN, b"%d %d %s" % (incarnation, number, b"x" * 80), key=b"%d" % number)
                number += 1
            producer.flush()
            acknowledged.add(incarnation, number - 1)
            time.sleep(PAUSE_S)


def pairs(place: Path, incarnation: int) -> None:
    """Each transaction has a record in every partition, and commits the position that the records
    name."""
    acknowledged = Acknowledged(place, PAIRS)
    with Log(place / "log") as log, Producer(log, transactional_id="pairs") as producer:
        producer.init_transactions()
        number = 0
        while True:
            position = log.partition(PLAIN, 0).latest_offset
            is_aborted = number % 5 == 4
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                value = b"%d %d %d %d" % (incarnation, number, position, is_aborted)
                producer.send(PAIRS, value, partition=partition)
            producer.send_offsets_to_transaction({TopicPartition(PLAIN, 0): position}, GROUP)
            if is_aborted:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                acknowledged.add(incarnation, number)
            number += 1
            time.sleep(PAUSE_S)


def table(place: Path, incarnation: int) -> None:
    acknowledged = Acknowledged(place, TABLE)
    with Log(place / "log") as log, Producer(log, acks="all") as producer:
        number = 0
        while True:
            for _ in range(20):
                producer.send(TABLE, b"%d %d %s" % (incarnation, number, b"y" * 40), key=b"%d" % (number % KEYS))
                number += 1
            producer.flush()
            acknowledged.add(incarnation, number - 1)
            time.sleep(PAUSE_S)


def short(place: Path, incarnation: int) -> None:
    with Log(place / "log") as log, Producer(log, acks=1) as producer:
        while True:
            for _ in range(50):
                producer.send(SHORT, b"z" * 200)
            producer.flush()
            time.sleep(PAUSE_S)


def maintain(place: Path, incarnation: int) -> None:
    """Retention and compaction; topics come and go."""
    with Log(place / "log") as log:
        number = 0
        while True:
            log.maintain()
            name = f"passing-{incarnation}-{number}"
            log.create_topic(name, partitions=2, if_not_exists=True)
            log.partition(name, 0).log.roll()
            time.sleep(5 * PAUSE_S)
            log.delete_topic(name)
            number += 1


LOAD: tuple[Callable[[Path, int], None], ...] = (plain, pairs, table, short, maintain)


def take(place: Path, copy: str) -> None:
    """A backup, in a process of its own. Its figures are in a file."""
    with Log(place / "log") as log:
        report = log.backup(copy)
    (place / "report").write_text(f"{report.copied_bytes} {report.kept_bytes} {report.duration_ms}")


# The check of a copy


def problems_of(copy: Path, acknowledged: dict[str, dict[int, int]], *, goes_on: bool = True) -> list[str]:
    """As one that may not write; then a writer of a duplicate, which continues in it."""
    found = []
    with Log(copy, read_only=True) as log:
        found += [f"verify: {problem}" for problem in log.verify().problems]
        found += _missing(log, acknowledged)
    if not goes_on:
        return found
    duplicate = copy.with_name(f"{copy.name}-duplicate")
    shutil.rmtree(duplicate, ignore_errors=True)
    shutil.copytree(copy, duplicate)
    with Log(duplicate) as log:
        found += [f"to a writer: {problem}" for problem in _missing(log, acknowledged)]
        with Producer(log, transactional_id="pairs") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for name in (PLAIN, PAIRS, TABLE):
                producer.send(name, b"9999 0 0 0", key=b"k", partition=0)
            producer.commit_transaction()
        found += [f"verify, after an append: {problem}" for problem in log.verify().problems]
        end = [record.value for record in log.partition(PLAIN, 0).scan()][-1]
        found += [] if end == b"9999 0 0 0" else [f"the copy does not continue: {end!r}"]
    shutil.rmtree(duplicate)
    return found


def _missing(log: Log, acknowledged: dict[str, dict[int, int]]) -> list[str]:
    found: list[str] = []
    there: set[tuple[int, int]] = set()
    for number in range(PARTITIONS):
        for record in log.partition(PLAIN, number).scan():
            incarnation, each = record.value.split()[:2]
            there.add((int(incarnation), int(each)))
    for incarnation, last in acknowledged[PLAIN].items():
        lost = [number for number in range(last + 1) if (incarnation, number) not in there]
        found += (
            [f"{PLAIN}: {len(lost)} acknowledged records of {incarnation} are lost, first {lost[0]}"] if lost else []
        )
    newest: dict[bytes, tuple[int, int]] = {}
    for record in log.partition(TABLE, 0).scan():
        newest[record.key] = (int(record.value.split()[0]), int(record.value.split()[1]))
    for incarnation, last in acknowledged[TABLE].items():
        for number in range(max(0, last - KEYS + 1), last + 1):
            if newest.get(b"%d" % (number % KEYS), (-1, -1)) < (incarnation, number):
                found.append(
                    f"{TABLE}: key {number % KEYS} has {newest.get(b'%d' % (number % KEYS))}, not {incarnation} {number}"
                )
    return found + _torn(log, acknowledged[PAIRS])


def _torn(log: Log, acknowledged: dict[int, int]) -> list[str]:
    found: list[str] = []
    seen = [
        [record.value for record in log.partition(PAIRS, n).scan(isolation_level=_COMMITTED)] for n in range(PARTITIONS)
    ]
    if any(each != seen[0] for each in seen):
        found.append(f"{PAIRS}: the partitions have {[len(each) for each in seen]} committed records, or others: torn")
    transactions = [tuple(map(int, value.split())) for value in seen[0]]
    found += [f"{PAIRS}: an aborted transaction is there" for _, _, _, is_aborted in transactions if is_aborted]
    there = {(incarnation, number) for incarnation, number, _, _ in transactions}
    for incarnation, last in acknowledged.items():
        lost = [number for number in range(last + 1) if number % 5 != 4 and (incarnation, number) not in there]
        found += (
            [f"{PAIRS}: {len(lost)} acknowledged transactions of {incarnation} are lost, first {lost[0]}"]
            if lost
            else []
        )
    if transactions:
        progress = log.describe_group(GROUP).partitions[TopicPartition(PLAIN, 0)]
        position = progress.committed.offset if progress.committed is not None else -1
        if position != transactions[-1][2]:
            found.append(f"the group is at {position}, the last transaction committed {transactions[-1][2]}")
        if position > log.partition(PLAIN, 0).latest_offset:
            found.append(f"the group is at {position}, beyond the end")
    for number in range(2):
        offsets = [record.offset for record in log.partition(SHORT, number).scan()]
        if offsets and offsets != list(range(offsets[0], offsets[-1] + 1)):
            found.append(f"{SHORT}-{number}: offsets are missing")
    return found


# The controller


class Controller:
    def __init__(self, place: Path, seed: int, figures: Counter[str]) -> None:
        self.place = place
        self.random = random.Random(seed)
        self.figures = figures
        self.copy = place / "copies" / "copy"
        self.running: dict[str, BaseProcess] = {}
        self.incarnation = 0
        self.usual_s = 0.3
        self.known: dict[str, dict[int, int]] = {
            name: {} for name in (PLAIN, PAIRS, TABLE)
        }  # in the copy that is there
        place.mkdir()
        with Log(place / "log") as log:
            log.create_topic(PLAIN, partitions=PARTITIONS, segment_bytes=60_000)
            log.create_topic(PAIRS, partitions=PARTITIONS, segment_bytes=20_000)
            log.create_topic(TABLE, segment_bytes=40_000, cleanup_policy="compact", min_cleanable_dirty_ratio=0.3)
            log.create_topic(SHORT, partitions=2, segment_bytes=30_000, retention_bytes=100_000)

    def acknowledged(self) -> dict[str, dict[int, int]]:
        return {name: Acknowledged(self.place, name).read() for name in (PLAIN, PAIRS, TABLE)}

    def keep_up(self, *, kill: bool) -> None:
        """Start what does not run; kill one now and then."""
        for work in LOAD:
            process = self.running.get(work.__name__)
            if process is not None and process.is_alive() and not (kill and self.random.random() < 0.1):
                continue
            if process is not None:
                if process.is_alive():
                    self.figures["kills of writers"] += 1
                elif process.exitcode:
                    raise AssertionError(f"{work.__name__} ended with {process.exitcode}")
                end(process)
            self.incarnation += 1
            self.running[work.__name__] = _start(work, self.place, self.incarnation)

    def one(self) -> list[str]:
        """Take a backup, or kill one; what is wrong with the copy that is there then."""
        self.keep_up(kill=True)
        is_killed = self.random.random() < 0.5
        before = self.acknowledged()
        (self.place / "report").unlink(missing_ok=True)
        started_s = time.monotonic()
        process = _start(take, self.place, str(self.copy))
        process.join(self.random.uniform(0.0, 2 * self.usual_s) if is_killed else 120.0)
        was_alive = process.is_alive()
        end(process)
        if was_alive:
            self.figures["backups killed"] += 1
            if not is_killed:
                return ["a backup did not end within 120 s"]
            problems = problems_of(self.copy, self.known, goes_on=False) if self.copy.exists() else []
            if not self.copy.exists() and any(self.known.values()):
                problems.append("the earlier copy is gone")
            return [f"after a kill: {problem}" for problem in problems]
        if process.exitcode:
            return [f"a backup ended with {process.exitcode}"]
        self.usual_s = 0.8 * self.usual_s + 0.2 * (time.monotonic() - started_s)
        self.known = before
        copied, kept, duration_ms = map(int, (self.place / "report").read_text().split())
        self.figures.update({"backups": 1, "bytes copied": copied, "bytes kept": kept, "ms": duration_ms})
        left = sorted(path.name for path in self.copy.parent.iterdir())
        problems = problems_of(self.copy, before)
        return problems + ([f"left beside the copy: {left}"] if left != [self.copy.name] else [])

    def close(self) -> None:
        for process in self.running.values():
            end(process)


def _start(work: Callable[..., None], *arguments: object) -> BaseProcess:
    process = _CONTEXT.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def end(process: BaseProcess) -> None:
    if process.pid is not None and process.is_alive():
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(process.pid, signal.SIGKILL)
    process.join()


def run(seconds: float, seed: int, directory: Path) -> Outcome:
    """See the module. At least one log with one backup, however short the time."""
    _CONTEXT.set_forkserver_preload(["pylog.log", "pylog.producer", "pylog.backup.backup", __name__])
    figures: Counter[str] = Counter()
    problems: list[str] = []
    until_s = time.monotonic() + seconds
    logs = 0
    while not problems and (logs == 0 or time.monotonic() < until_s):
        place = directory / str(logs)
        controller = Controller(place, seed + logs, figures)
        try:
            begun = figures["backups"]
            while figures["backups"] < begun + BACKUPS_IN_A_LOG and not problems:
                problems = controller.one()
                if time.monotonic() >= until_s and figures["backups"] > begun:
                    break
        except (PylogError, AssertionError) as error:
            problems = [f"{type(error).__name__}: {error}"]
        finally:
            controller.close()
        logs += 1
        if not problems:
            shutil.rmtree(place)
    return Outcome({**figures, "logs": logs}, problems)
