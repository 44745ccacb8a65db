"""A process with a table in RocksDB is killed with SIGKILL at any step of the log or of the store:
the next is a scan.

``PYLOG_TEST_TABLE_KILLS`` sets the number of kills.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Log, Producer, TopicPartition
from pylog.tables.rocks_store import RocksStore
from tests.outbox.killing import Steps, is_killed
from tests.processes.sharing import forked, result_of
from tests.storage.filesystems import Faulty
from tests.tables.scans import needs_rocksdict, scan

KILLS = int(os.environ.get("PYLOG_TEST_TABLE_KILLS", "60"))
STRIDE = 37  # has no divisor in common with a number of steps, so each step is hit

pytestmark = [
    needs_rocksdict,
    pytest.mark.one_in(8),
    pytest.mark.processes,
    pytest.mark.timeout(60 + 2 * KILLS),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


class Worker:
    """Each round writes and reads other records, and sometimes removes old ones."""

    def __init__(self, path: Path, values: str, seed: int) -> None:
        self.path, self.seed = path, seed
        self.options: dict[str, Any] = {"store": "rocksdict", "values": values, "directory": path / "table"}
        self.round = 0

    def __call__(self, steps: Steps) -> None:
        choice = random.Random(f"{self.seed} {self.round}")
        for name in ("apply", "forget", "begin", "save", "close", "_write"):
            setattr(RocksStore, name, _counted(steps, getattr(RocksStore, name)))
        with Log(self.path / "log", filesystem=Faulty(steps.happens), segment_bytes=4096) as log:
            log.create_topic("t", partitions=2, if_not_exists=True)
            with pylog.table(log, "t", **self.options, changelog=True, acks=1) as table:
                for _ in range(4):
                    with Producer(log, acks=1) as producer:
                        for _ in range(choice.randrange(50)):
                            value = None if choice.random() < 0.3 else b"%d" % self.round
                            producer.send("t", value, key=b"%d" % choice.randrange(40))
                    table.refresh()
                    table[b"own"] = b"%d" % self.round
                    if choice.random() < 0.2:
                        partition = log.partition("t", 0)
                        before = choice.randint(partition.earliest_offset, partition.latest_offset)
                        log.delete_records(TopicPartition("t", 0), before)


def _counted(steps: Steps, method: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any, **more: Any) -> Any:
        steps.happens()
        result = method(*arguments, **more)
        steps.happens()
        return result

    return counted


def checked(path: Path, options: dict[str, Any]) -> tuple[int, int]:
    """Compare the table with a scan. The records that it read, and all there are."""
    with Log(path / "log") as log, pylog.table(log, "t", **options) as table:
        assert dict(table) == scan(log)
        return table.metrics()["records"], sum(log.partition("t", number).latest_offset for number in range(2))


def kill_and_check(path: Path, values: str, seed: int, kills: int) -> None:
    """In a process that does not use RocksDB itself: it could not fork then."""
    work, done, steps = Worker(path, values, seed), 0, 64
    while is_killed(work, steps):
        done, steps = done + 1, steps * 2
        work.round += 1
    offset = random.Random(seed).randrange(steps)
    read, whole = 0, 0
    while done < kills:
        work.round += 1
        done += is_killed(work, (offset + work.round * STRIDE) % steps)
        new, all_records = result_of(forked(lambda: checked(path, work.options)))
        read, whole = read + new, whole + all_records
    print(f"{done} kills in {work.round} rounds; the next starts read {read} of {whole} records")
    assert read < whole / 2


@pytest.mark.parametrize("values", ["stored", "positions"])
def test_a_table_in_rocksdb_is_a_scan_after_kills_at_any_step(tmp_path: Path, values: str, seed: int) -> None:
    command = [sys.executable, "-m", "tests.tables.test_kills", str(tmp_path), values, str(seed), str(KILLS)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60 + 2 * KILLS)
    print(run.stdout, run.stderr, f"seed {seed}")
    assert run.returncode == 0


if __name__ == "__main__":
    kill_and_check(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
