"""A process compacts a topic and is stopped, killed, forked or refused at its steps, and what must
hold afterwards.

python -m tests.processes.compactors --kills 1000 [--seed 1] [--directory /dev/shm]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from pylog import Log, ProducerRecord, TopicPartition
from pylog.errors import PylogError
from pylog.partition.compact.engine import IS_BUSY, compact
from pylog.partition.compact.options import CompactionOptions, CompactionReport
from pylog.partition.compact.swap import SegmentsChanged
from tests.processes.sharing import forked

TOPIC = "t"
KEYS = 12
TIME_MS = 1_700_000_000_000
OPTIONS = CompactionOptions(delete_retention_ms=3_600_000, memory_bytes=1 << 16)
Newest = dict[bytes | None, tuple[int, bytes | None]]


class History:
    """A topic, and what was acknowledged in it: the newest record of each key, tombstones too."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.newest: Newest = {}
        self.written: dict[int, tuple[bytes | None, bytes | None]] = {}
        self._random = random.Random(seed)
        with Log(root) as log:
            log.create_topic(TOPIC, segment_bytes=4096, index_interval_bytes=256)

    def append(self, log: Log, count: int, *, timeout_ms: int = 30_000) -> None:
        for _ in range(count):
            number = len(self.written)
            key = b"%d" % self._random.randrange(KEYS)
            value = None if self._random.random() < 0.2 else b"%d " % number + bytes(self._random.randrange(200))
            record = ProducerRecord(value, key=key, timestamp_ms=TIME_MS)
            offset = log.partition(TOPIC, 0).append([record], acks="all", timeout_ms=timeout_ms).base_offset
            self.written[offset] = key, value
            self.newest[key] = offset, value

    def rounds(self, log: Log, count: int = 3) -> None:
        for _ in range(count):
            self.append(log, 8)
            log.partition(TOPIC, 0).log.roll()
        self.append(log, 1)

    def problems(self, log: Log, start: int = 0) -> list[str]:
        """Of what a reader sees. Records before ``start`` may be deleted."""
        found = {record.offset: (record.key, record.value) for record in log.partition(TOPIC, 0).scan()}
        strange = {at: record for at, record in found.items() if self.written.get(at) != record}
        lost = {key: at for key, (at, _) in self.newest.items() if at >= start and at not in found}
        return [f"{name}: {what}" for name, what in (("strange", strange), ("lost", lost)) if what]

    def check(self, start: int = 0) -> None:
        """By a reader, the next writer and the next compaction."""
        with Log(self.root, read_only=True) as log:
            assert self.problems(log, start) == []
        with Log(self.root) as log:
            self.append(log, 1)
            assert self.problems(log, start) == []
            report = compacted(log)
            assert IS_BUSY not in report.skipped
            assert self.problems(log, start) == []
            assert log.verify().problems == []
            names = log.partition(TOPIC, 0).log.directory.names()
            assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))], names


def compacted(log: Log) -> CompactionReport:
    return compact(log.partition(TOPIC, 0).log, OPTIONS)


def compact_again_and_again(root: Path) -> None:
    """Until this process is killed."""
    with Log(root) as log:
        while True:
            log.partition(TOPIC, 0).log.roll()
            try:
                compacted(log)
            except SegmentsChanged:
                continue


def kills(root: Path, count: int, seed: int) -> list[str]:
    """Compactors are killed at random moments while records are appended and sometimes deleted.
    Returns what was wrong."""
    history, draws, wrong = History(root, seed), random.Random(seed), list[str]()
    start = 0
    with Log(root) as log:
        for number in range(count):
            history.rounds(log, 2)
            child = forked(lambda: compact_again_and_again(root))
            end_s = time.monotonic() + draws.uniform(0, 0.08)
            while time.monotonic() < end_s:
                history.append(log, 1)
            if draws.random() < 0.1:
                start = max(start, log.partition(TOPIC, 0).latest_offset - 40)
                log.delete_records(TopicPartition(TOPIC, 0), start)
            os.kill(child[0], signal.SIGKILL)
            _, status = os.waitpid(child[0], 0)
            os.close(child[1])
            if not os.WIFSIGNALED(status):
                wrong.append(f"kill {number}: the compactor has failed before")
            try:
                wrong += [f"kill {number}: {problem}" for problem in history.problems(log, start)]
                if number % 20 == 0:
                    wrong += [f"kill {number}: {problem}" for problem in log.verify().problems]
            except PylogError as error:
                wrong.append(f"kill {number}: {type(error).__name__}: {error}")
            if wrong:
                return wrong
    history.check(start)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills of compacting processes.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--directory")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(dir=options.directory))
    wrong = kills(place / "log", options.kills, options.seed)
    print(f"{options.kills} kills, seed {options.seed}: {len(wrong)} problems")
    for problem in wrong:
        print(f"  {problem}")
    if not wrong:
        shutil.rmtree(place)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
