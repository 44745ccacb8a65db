"""A compaction and a table take their steps in any order, time passes at any step, and either is
killed: a table is a scan.

``PYLOG_TEST_TABLE_RACES`` sets the number of histories.
"""

from __future__ import annotations

import os
from contextlib import suppress
from random import Random
from typing import Any

import pytest

import pylog
from pylog import Log, ProducerRecord
from pylog.codec.key_map import ENTRY_BYTES
from pylog.errors import OffsetOutOfRange
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.testing.machine import Killed, Machine, Priorities, Process, RandomWalk, Schedule, Step, Strategy
from tests.tables.scans import scan

HISTORIES = int(os.environ.get("PYLOG_TEST_TABLE_RACES", "6"))
ROUNDS = 8
STEPS = 600
LOG, TABLE = "/log", "/state/table"
KEYS = [b"%d" % number for number in range(8)]
KEPT_MS = [0, 2_000, 86_400_000]
SECONDS = [0.3, 1, 3]


class History:
    """A process that writes and compacts, a process with a table, and rounds in which they meet."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.machine = Machine(seed)
        self.kept_ms = self.random.choice(KEPT_MS)
        self.resets = 0
        with self.machine.process().open_log(LOG) as log:
            log.create_topic("t", cleanup_policy="compact", delete_retention_ms=self.kept_ms, segment_bytes=1024)
        self.restart_writer()
        self.restart_reader()

    def restart_writer(self) -> None:
        self.writer = self.machine.process()
        self.log: Log = self.writer.open_log(LOG)

    def restart_reader(self) -> None:
        self.reader = self.machine.process()
        self.read_log: Log = self.reader.open_log(LOG)
        self.table: Any = None

    # Programs

    def write(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            partition = self.log.partition("t", 0)
            for _ in range(self.random.randrange(1, 4)):
                value = (
                    None
                    if self.random.random() < 0.4
                    else b"%d" % self.random.randrange(100) * self.random.choice([1, 100])
                )
                partition.append([ProducerRecord(value, self.random.choice(KEYS))], acks=1)
            if self.random.random() < 0.2:
                self.kept_ms = self.random.choice(KEPT_MS)
                policy = self.random.choice(["compact", "compact", "delete"])
                self.log.alter_topic("t", delete_retention_ms=self.kept_ms, cleanup_policy=policy)
            if self.random.random() < 0.8:
                partition.log.roll()
                partition.log.sync(partition.latest_offset)
                memory_bytes = ENTRY_BYTES * self.random.choice([3, 1000])  # else it is done in parts
                compact(partition.log, CompactionOptions(self.kept_ms, memory_bytes=memory_bytes))

    def follow(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            with suppress(OffsetOutOfRange):  # it was compacted again and again: the next call reads on
                if self.table is None:
                    self.table = pylog.table(self.read_log, "t", directory=TABLE, snapshot_records=1)
                elif self.random.random() < 0.3:
                    self.close()
                else:
                    self.table.refresh()

    def close(self) -> None:
        if self.table is not None:
            self.resets += self.table.metrics()["resets"]
            self.table, closed = None, self.table
            closed.close()

    # Rounds

    def strategy(self) -> Strategy:
        number = self.random.randrange(1 << 30)
        if self.random.random() < 0.3:
            return RandomWalk(number, self.random.choice([0.01, 0.1]))
        return Priorities(number, 2, STEPS)  # one is stopped while the other does much

    def meet(self) -> None:
        schedule = Schedule(self.machine, self.strategy())
        schedule.add(self.writer, self.write)
        if self.random.random() < 0.7:
            schedule.add(self.reader, self.follow)
        kill_at = self.random.randrange(STEPS) if self.random.random() < 0.4 else -1

        def before(process: Process, _step: Step) -> None:
            if self.random.random() < 0.003:
                self.machine.seconds += self.random.choice(SECONDS)
            if schedule.steps == kill_at:
                process.kill()
                raise Killed

        self.machine.before_step.append(before)
        schedule.run()
        self.machine.before_step.clear()
        if not self.writer.is_alive:
            self.restart_writer()
        if not self.reader.is_alive:
            self.restart_reader()

    def check(self) -> None:
        with self.machine.copy().process().open_log(LOG) as log, pylog.table(log, "t", directory=TABLE) as table:
            assert dict(table.items()) == scan(log), f"a table that was opened then; resets {table.metrics()['resets']}"
            self.resets += table.metrics()["resets"]
        if self.table is not None:
            assert dict(self.table.items()) == scan(self.read_log), "the table that is open"

    def run(self) -> int:
        """How often a table began again with the partition."""
        for _ in range(ROUNDS):
            self.meet()
            self.check()
        self.close()
        self.read_log.close()
        self.log.close()
        return self.resets


@pytest.mark.slow
def test_a_table_is_a_scan_whatever_compaction_does_meanwhile(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.tables.follower._FETCH_BYTES", 1)
    resets = 0
    for number in range(HISTORIES):
        print(f"history {number}, seed {seed + number}")
        resets += History(seed + number).run()
    assert resets
