"""After any history of a topic, a table is a dict made by a scan: whatever it saved, and whenever
it was closed or killed.

``PYLOG_TEST_TABLE_HISTORIES`` sets the number of histories of each store.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Log, Producer, ProducerRecord, TopicPartition
from pylog.errors import OffsetConflict
from tests.tables.scans import STORES_AND_VALUES, crash, options, scan

HISTORIES = int(os.environ.get("PYLOG_TEST_TABLE_HISTORIES", "3"))
STEPS = 60
KEYS = [b"%d" % number for number in range(12)]


class History:
    """A topic to which random things happen, and the table of it."""

    def __init__(self, path: Path, store: str, values: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = Log(path / "log", segment_bytes=1024)
        self.partitions = self.random.choice([1, 1, 3])
        self.log.create_topic("t", partitions=self.partitions)
        self.is_open = False
        self.start_producers()
        self.isolation_level = self.random.choice(["read_committed", "read_uncommitted"])
        self.options = {
            **options(store, values, path / "table"),
            "isolation_level": self.isolation_level,
            "snapshot_records": self.random.choice([1, 10, 1000]),
            "changelog": True,
            "delivery_timeout_ms": 0,
            "acks": 1,
        }
        self.table = self.start()

    def start(self) -> Any:
        return pylog.table(self.log, "t", **self.options)

    def start_producers(self) -> None:
        self.producer = Producer(self.log, acks=1)
        self.open = Producer(self.log, transactional_id="open")
        self.open.init_transactions()

    def key(self) -> bytes:
        return self.random.choice(KEYS)

    def value(self) -> bytes | None:
        return (
            None if self.random.random() < 0.3 else b"%d" % self.random.randrange(1000) * self.random.choice([0, 1, 40])
        )

    def send(self) -> None:
        for _ in range(self.random.randrange(1, 20)):
            self.producer.send("t", self.value(), key=self.key() if self.random.random() < 0.9 else None)
        self.producer.flush()

    def transact(self) -> None:
        if not self.is_open:
            self.open.begin_transaction()
            self.open.send("t", self.value(), key=self.key())
            self.open.flush()
        elif self.random.random() < 0.5:
            self.open.commit_transaction()
        else:
            self.open.abort_transaction()
        self.is_open = not self.is_open

    def delete(self) -> None:
        number = self.random.randrange(self.partitions)
        partition = self.log.partition("t", number)
        end = partition.last_stable_offset
        before = self.random.randint(partition.earliest_offset, end)
        self.log.delete_records(TopicPartition("t", number), before)

    def write(self) -> None:
        key, value = self.key(), self.value()
        if value is None:
            self.table.delete(key)
        else:
            self.table[key] = value
        assert self.table.get(key) == value

    def write_many(self) -> None:
        values = {self.key(): b"%d" % number for number in range(5)}
        self.table.update(values)
        assert {key: self.table[key] for key in values} == values
        assert values.items() <= {**self.table}.items()
        assert len(self.table) == len(list(self.table))

    def compare_and_set(self) -> None:
        if self.is_open and self.isolation_level == "read_committed":
            return  # it would wait for the transaction
        key = self.key()
        _, offset = self.table.get_with_offset(key)
        if self.random.random() < 0.3:
            self.log.partition("t", self.table.put(key, b"other").partition).append([ProducerRecord(b"o", key)], acks=1)
            with pytest.raises(OffsetConflict):
                self.table.put(key, b"mine", expected_offset=offset)
        else:
            self.table.put(key, b"mine", expected_offset=offset)
            assert self.table[key] == b"mine"

    def restart(self) -> None:
        self.table.close()
        self.table = self.start()

    def kill(self) -> None:
        crash(self.table)
        self.table = self.start()

    def recreate(self) -> None:
        if self.random.random() < 0.3 and not self.is_open:
            self.producer.close()  # for a moment both would fill a batch for the topic that is gone
            self.open.close()
            self.log.delete_topic("t")
            self.log.create_topic("t", partitions=self.partitions)
            self.start_producers()

    def compare(self) -> None:
        self.table.refresh()
        if not self.table._own:  # else it is ahead of what others may read
            expected = scan(self.log, "t", self.isolation_level)
            assert dict(self.table) == expected
            assert len(self.table) == len(expected)
            for key in KEYS:
                assert self.table.get(key) == expected.get(key)
                assert (key in self.table) == (key in expected)

    def run(self) -> list[str]:
        steps = [self.send, self.send, self.transact, self.delete, self.write, self.write_many, self.compare_and_set]
        done = []
        for _ in range(STEPS):
            step = self.random.choice([*steps, self.restart, self.kill, self.recreate])
            done.append(step.__name__)
            try:
                step()
                self.compare()
            except Exception as error:
                raise AssertionError(f"after {done}: {type(error).__name__}: {error}") from error
        if self.is_open:
            self.open.abort_transaction()
        self.compare()
        assert not self.table._own
        self.table.close()
        self.producer.close()
        self.open.close()
        self.log.close()
        return done


@pytest.mark.slow
@pytest.mark.parametrize(("store", "values"), STORES_AND_VALUES)
def test_a_table_is_a_scan_of_its_topic_after_any_history(tmp_path: Path, store: str, values: str, seed: int) -> None:
    for number in range(HISTORIES):
        print(f"history {number}, seed {seed + number}")
        History(tmp_path / str(number), store, values, seed + number).run()
