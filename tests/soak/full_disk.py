"""Fills a small filesystem and frees it, again and again, and sends against it; a private tmpfs, so
that nobody else is in it.

python -m tests.soak full-disk --seconds 60
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pylog import Log, Producer, TopicPartition
from pylog.errors import StorageFull
from pylog.testing.checker import check
from pylog.testing.history import DELETE, FAIL, INVOKE, OK, POLL, SEND, Operation, decode_value, encode_value
from tests.soak.part import Outcome

TOPIC, NAME = "events", "events-0"
PROJECT = Path(__file__).parents[2]
REFUSALS = 3  # of each cycle
KEPT = 50  # records, when older ones are deleted
IN_A_TMPFS = """
import subprocess, sys
from pathlib import Path
from tests.soak.full_disk import fill_and_free

root = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + sys.argv[2], "tmpfs", str(root)], check=True)
filled = fill_and_free(root, cycles=int(sys.argv[3]), seconds=float(sys.argv[4]))
print(*filled[:-1], sep="\\n")
print(filled.verdict)
"""


class Filled(NamedTuple):
    """What a run came to. ``resumed_s``: the longest that a send took to be acknowledged once there
    was space."""

    cycles: int
    acknowledged: int
    refused: int
    anomalies: int
    resumed_s: float
    verdict: str


def why_not() -> str:
    """Why no private filesystem can be mounted here, or ""."""
    probe = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, text=True)
    return probe.stderr.strip() if probe.returncode else ""


def fill_in_a_tmpfs(place: Path, *, size: str, cycles: int, seconds: float) -> Filled:
    """Mount a tmpfs of this size at ``place``, for a process that only sees it, and fill it."""
    command = ["unshare", "-Urm", sys.executable, "-c", IN_A_TMPFS, str(place), size, str(cycles), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    cycled, acknowledged, refused, anomalies, resumed, verdict = done.stdout.split("\n", 5)
    return Filled(int(cycled), int(acknowledged), int(refused), int(anomalies), float(resumed), verdict)


class Filler:
    """One log on a filesystem that is full more often than not; what is sent to it is a history."""

    def __init__(self, root: Path, log: Log) -> None:
        self.ballast = root / "ballast"
        self.log = log
        self.producer = Producer(log, acks="all", linger_ms=0)
        self.history: list[Operation] = [Operation(1, OK, POLL)]
        self.number = self.acknowledged = self.refused = 0

    def tell(self, type: str, f: str, **fields: object) -> None:
        self.history.append(Operation(1, type, f, time.monotonic(), **fields))

    def fill(self, step_bytes: int) -> None:
        with open(self.ballast, "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(step_bytes))

    def send(self, size: int) -> bool:
        """Whether it was acknowledged. Raises what is neither that nor a full disk."""
        value = self.number
        self.number += 1
        self.tell(INVOKE, SEND, sent={NAME: [[None, value]]})
        try:
            offset = self.producer.send(TOPIC, encode_value(value, size)).result().offset
        except StorageFull:  # a kind of NotAppended
            self.tell(FAIL, SEND, sent={NAME: [[None, value]]})
            self.refused += 1
            return False
        self.tell(OK, SEND, sent={NAME: [[offset, value]]})
        self.acknowledged += 1
        return True

    def cycle(self, number: int) -> float:
        """Fill, send until it was refused three times, free, send; how long the last send took."""
        self.fill(4096 if number % 2 else 65_536)
        before = self.refused
        while self.refused - before < REFUSALS:
            self.send(500 + 37 * (self.number % 100))
        self.ballast.unlink()
        began = time.monotonic()
        assert self.send(16), "a send was refused with space to spare"
        took = time.monotonic() - began
        if number % 10 == 9:
            before_offset = max(self.log.partition(TOPIC, 0).latest_offset - KEPT, 0)
            self.tell(INVOKE, DELETE, positions={NAME: before_offset})
            self.log.delete_records(TopicPartition(TOPIC, 0), before_offset)
            self.tell(OK, DELETE, positions={NAME: before_offset})
        return took

    def read(self) -> Iterator[list[int | None]]:
        for record in self.log.partition(TOPIC, 0).scan():
            yield [record.offset, decode_value(record.value)]


def fill_and_free(root: Path, *, cycles: int, seconds: float) -> Filled:
    """So many cycles, or for so long. Reads what is left in the end twice, the second time in a log
    opened anew."""
    until = time.monotonic() + seconds
    done, resumed_s = 0, 0.0
    with Log(root / "log") as log:
        log.create_topic(TOPIC, segment_bytes=64 << 10, segment_index_bytes=1 << 16)
        filler = Filler(root, log)
        while done < cycles and time.monotonic() < until:
            resumed_s = max(resumed_s, filler.cycle(done))
            done += 1
        filler.producer.close()
        filler.tell(OK, POLL, polled={NAME: list(filler.read())}, final=True)
    with Log(root / "log") as filler.log:
        filler.tell(OK, "assign", positions={NAME: filler.log.partition(TOPIC, 0).earliest_offset})
        filler.tell(OK, POLL, polled={NAME: list(filler.read())}, final=True)
        problems = filler.log.verify().problems
    verdict = check(filler.history)
    found = "\n".join(map(str, [verdict, *problems]))
    return Filled(done, filler.acknowledged, filler.refused, verdict.anomalies + len(problems), resumed_s, found)


def run(seconds: float, seed: int, directory: Path) -> Outcome:
    """As a part of a soak. Nothing in it is drawn, so the seed changes nothing."""
    if problem := why_not():
        return Outcome({}, [f"this system allows no private mount: {problem}"])
    filled = fill_in_a_tmpfs(directory, size="1m", cycles=10**9, seconds=seconds)
    figures: dict[str, float] = {
        "full-disk cycles": filled.cycles,
        "acknowledged": filled.acknowledged,
        "refused": filled.refused,
        "anomalies": filled.anomalies,
    }
    problems = filled.verdict.splitlines() if filled.anomalies else []
    return Outcome(figures, problems)
