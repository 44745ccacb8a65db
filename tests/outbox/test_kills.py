"""Killed between any two steps, the business table and the log agree: outbox to the log, log to the
inbox.

The steps are every statement of the database and every change of a file of the log. Each kill is at
another step. ``PYLOG_TEST_OUTBOX_KILLS`` sets the number of kills; the long form of the promise is
1000.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from pylog import Consumer, Log, Producer
from pylog.database import Database
from pylog.errors import PylogError
from pylog.outbox import Outbox, relay
from tests.outbox.databases import Base, OnServer, Sqlite
from tests.outbox.killing import Steps, is_killed
from tests.storage.filesystems import Faulty

KILLS = int(os.environ.get("PYLOG_TEST_OUTBOX_KILLS", "40"))
STRIDE = 37  # has no divisor in common with a number of steps, so each step is hit

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(60 + 2 * KILLS),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.engine)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Base:
    if request.param == "sqlite":
        return Sqlite(tmp_path / "app.db")
    return OnServer(request.getfixturevalue("postgres"))


class Sender:
    """A business that writes, and a relay. Numbers are given out once, also by a process that is
    killed."""

    def __init__(self, store: Base, path: Path, seed: int) -> None:
        self.store, self.path, self.seed = store, path, seed
        self.round = 0

    def __call__(self, steps: Steps) -> None:
        choice = random.Random(f"{self.seed} {self.round}")
        connection = self.store.connect()
        database = Database(connection)
        for number in range(choice.randrange(1, 4)):
            value = b"%d" % (self.round * 100 + number)
            for _ in range(choice.randrange(1, 3)):
                database.change("INSERT INTO done (number, value) VALUES (?, ?)", self.round, value)
                Outbox(connection).add(f"t{choice.randrange(2)}", value)
            (database.rollback if choice.random() < 0.2 else database.commit)()
        connection.close()
        with Log(self.path, filesystem=Faulty(steps.happens)) as log:
            relay(log, self.store.connect, batch_rows=choice.choice([1, 2, 100]))


def kills(work: Sender | Receiver, seed: int) -> int:
    """Kill it at steps that are spread over all that it takes. Returns how often it was killed."""
    done, steps = 0, 32
    while is_killed(work, steps):
        done, steps = done + 1, steps * 2
        work.round += 1
    offset = random.Random(seed).randrange(steps)
    while done < KILLS:
        work.round += 1
        done += is_killed(work, (offset + work.round * STRIDE) % steps)
    return done


def all_values(log: Log) -> list[bytes | None]:
    with Consumer(log, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t0", "t1"])
        found: list[bytes | None] = []
        while taken := consumer.poll(timeout=0):
            found += [record.value for record in taken]
        return found


@pytest.mark.slow
def test_a_relay_that_is_killed_between_any_two_steps_loses_and_doubles_nothing(
    store: Base, tmp_path: Path, seed: int
) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t0")
        log.create_topic("t1", partitions=2)
    sender = Sender(store, tmp_path / "log", seed)
    assert kills(sender, seed) >= KILLS
    with Log(tmp_path / "log") as log:
        relay(log, store.connect)
        in_the_log = sorted(all_values(log))  # type: ignore[type-var]
    business = sorted(bytes(value) for (value,) in store.query("SELECT value FROM done"))
    assert in_the_log == business
    assert len(business) > KILLS // 4
    assert store.waiting() == []


class Receiver:
    """A consumer that copies records into the business table, with its positions."""

    def __init__(self, store: Base, path: Path, seed: int) -> None:
        self.store, self.path, self.seed = store, path, seed
        self.round = 0

    def __call__(self, steps: Steps) -> None:
        choice = random.Random(f"{self.seed} {self.round}")
        connection = self.store.connect()
        database = Database(connection)
        options = {"group_id": "g"} if choice.random() < 0.5 else {}
        with Log(self.path, filesystem=Faulty(steps.happens)) as log:
            consumer = Consumer(log, auto_offset_reset="earliest", max_poll_records=choice.randrange(1, 9), **options)
            offsets = consumer.offsets_in(connection, name="inbox")
            consumer.subscribe(["t0", "t1"])
            for _ in range(3):
                try:
                    with offsets.transaction():
                        for record in consumer.poll(timeout=0):
                            database.change(
                                "INSERT INTO done (number, value) VALUES (?, ?)", record.offset, record.value
                            )
                        if choice.random() < 0.1:
                            raise _Undone
                except _Undone:
                    pass
            consumer.close()
        connection.close()


class _Undone(PylogError):
    def __init__(self) -> None:
        super().__init__("undone")


@pytest.mark.slow
def test_a_consumer_that_is_killed_between_any_two_steps_processes_each_record_once(
    store: Base, tmp_path: Path, seed: int
) -> None:
    count = 40 * KILLS
    with Log(tmp_path / "log") as log:
        log.create_topic("t0")
        log.create_topic("t1", partitions=2)
        with Producer(log) as producer:
            for number in range(count):
                producer.send(f"t{number % 2}", b"%d" % number)
    receiver = Receiver(store, tmp_path / "log", seed)
    assert kills(receiver, seed) >= KILLS
    partly = store.query("SELECT value FROM done")
    assert len(partly) > KILLS // 4
    connection = store.connect()
    with Log(tmp_path / "log") as log, Consumer(log, auto_offset_reset="earliest") as consumer:
        offsets = consumer.offsets_in(connection, name="inbox")
        consumer.subscribe(["t0", "t1"])
        is_over = False
        while not is_over:
            with offsets.transaction():
                records = consumer.poll(timeout=0)
                for record in records:
                    Database(connection).change("INSERT INTO done (number, value) VALUES (?, ?)", 0, record.value)
            is_over = not records
    connection.close()
    done = sorted(int(bytes(value)) for (value,) in store.query("SELECT value FROM done"))
    assert done == list(range(count))
