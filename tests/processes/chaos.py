"""Kills producing processes at random moments and checks what the log kept.

A worker is forked, appends records of random sizes, and writes each acknowledgement to a pipe that the controller holds, so
it survives the worker's death. The controller kills a random worker after a random time, forks another in its place,
and in the end reads the log once: every acknowledged record must stand at its offset, unaltered; each worker's records must
be in the order it sent them, none twice; offsets must be dense; nothing may need repair by hand.

    python -m tests.processes.chaos --kills 1000 [--directory DIR] [--workers 3] [--partitions 2] [--seed N]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pylog import Log, Producer, ProducerRecord

TOPIC = "chaos"
_ACK = struct.Struct(">IHIq")  # worker number, partition, sequence, offset


class Outcome(NamedTuple):
    """What a run did and what was wrong."""

    kills: int
    acknowledged: int
    read: int
    rolled: int
    problems: list[str]


def make_value(worker: int, partition: int, sequence: int, size: int) -> bytes:
    """A value that says who sent it, in which place of its order, and carries its own checksum."""
    body = f"{worker}|{partition}|{sequence}|".encode() + bytes(sequence + i & 0xFF for i in range(size % 251)) * (
        1 + size // 251
    )
    return hashlib.sha256(body).digest() + body


def parse_value(value: bytes) -> tuple[int, int, int] | None:
    """Who sent it, or None if a bit of it is not as it was sent."""
    digest, body = value[:32], value[32:]
    if hashlib.sha256(body).digest() != digest:
        return None
    worker, partition, sequence, _ = body.split(b"|", 3)
    return int(worker), int(partition), int(sequence)


def append_directly(log: Log, partitions: int, random_: random.Random, worker: int, ack: Callable[..., None]) -> None:
    """Batches of several records through ``Partition.append``."""
    sequences = [0] * partitions
    while True:
        partition = random_.randrange(partitions)
        count = random_.choice((1, 1, 2, 10))
        size = random_.choice((10, 100, 4_000, 40_000))
        first = sequences[partition]
        records = [ProducerRecord(make_value(worker, partition, first + i, size)) for i in range(count)]
        result = log.partition(TOPIC, partition).append(records, acks=random_.choice((1, 1, 1, "all")))
        sequences[partition] += count
        for i in range(count):
            ack(partition, first + i, result.base_offset + i)


def send_with_producer(
    log: Log, partitions: int, random_: random.Random, worker: int, ack: Callable[..., None]
) -> None:
    """Records through ``Producer.send``, acknowledged in bulk by ``flush``."""
    sequences = [0] * partitions
    acks, compression = random_.choice((1, "all")), random_.choice((None, "zstd"))
    with Producer(log, acks=acks, compression=compression, batch_bytes=65_536) as producer:
        while True:
            waiting = []
            for _ in range(random_.choice((1, 10, 100))):
                partition = random_.randrange(partitions)
                value = make_value(worker, partition, sequences[partition], random_.choice((10, 100, 4_000)))
                waiting.append((partition, sequences[partition], producer.send(TOPIC, value, partition=partition)))
                sequences[partition] += 1
            producer.flush()
            for partition, sequence, delivery in waiting:
                ack(partition, sequence, delivery.result().offset)


def run_worker(directory: str, partitions: int, worker: int, seed: int, pipe: int) -> None:
    random_ = random.Random(seed)

    def ack(partition: int, sequence: int, offset: int) -> None:
        os.write(pipe, _ACK.pack(worker, partition, sequence, offset))

    (append_directly if worker % 2 else send_with_producer)(Log(directory), partitions, random_, worker, ack)


class Controller:
    """Forks, kills, and collects acknowledgements."""

    def __init__(self, directory: str, partitions: int, seed: int) -> None:
        self.directory = directory
        self.partitions = partitions
        self.random = random.Random(seed)
        self.acknowledged: dict[tuple[int, int], tuple[int, int]] = {}  # (partition, offset) -> (worker, sequence)
        self.problems: list[str] = []
        self.workers: dict[int, int] = {}  # pid -> number
        self.started = 0
        self.reader, self.writer = os.pipe()
        self._rest = b""

    def start_worker(self) -> None:
        self.started += 1
        seed = self.random.randrange(1 << 62)
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                os.close(self.reader)
                run_worker(self.directory, self.partitions, self.started, seed, self.writer)
            except BaseException as error:  # noqa: BLE001  (told to the controller by the exit code, to people on stderr)
                print(f"worker {self.started} failed: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(code)
        self.workers[pid] = self.started

    def kill_one(self) -> None:
        pid = self.random.choice(list(self.workers))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            self.problems.append(f"worker {self.workers[pid]} ended by itself with status {status}")
        del self.workers[pid]

    def collect(self, seconds: float) -> None:
        """Take acknowledgements from the pipe for about this long."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if not select.select([self.reader], [], [], max(left, 0))[0]:
                return
            data = self._rest + os.read(self.reader, 1 << 16)
            whole = len(data) // _ACK.size * _ACK.size
            self._rest = data[whole:]
            for worker, partition, sequence, offset in _ACK.iter_unpack(data[:whole]):
                if self.acknowledged.setdefault((partition, offset), (worker, sequence)) != (worker, sequence):
                    self.problems.append(f"offset {offset} of partition {partition} was acknowledged twice")
            if left <= 0:
                return

    def check(self) -> tuple[int, int]:
        """Read everything once, and compare; the records read and the segments there."""
        read = segments = 0
        with Log(self.directory) as log:
            for number in range(self.partitions):
                partition = log.partition(TOPIC, number)
                last: dict[int, int] = {}
                expected = 0
                for record in partition.scan():
                    if record.offset != expected:
                        self.problems.append(f"partition {number}: offset {record.offset}, expected {expected}")
                    expected = record.offset + 1
                    self._check_record(number, record.offset, record.value, last)
                read += expected
                segments += len(partition.segments)
                lost = [key for key in self.acknowledged if key[0] == number and key[1] >= expected]
                self.problems += [
                    f"partition {number}: acknowledged offset {offset} is lost" for _, offset in lost[:10]
                ]
                partition.append([ProducerRecord(make_value(0, number, 0, 1))])
        return read, segments

    def _check_record(self, number: int, offset: int, value: bytes, last: dict[int, int]) -> None:
        parsed = parse_value(value)
        if parsed is None or parsed[1] != number:
            self.problems.append(f"partition {number}, offset {offset}: altered or misplaced value {parsed}")
            return
        worker, _, sequence = parsed
        if self.acknowledged.get((number, offset), (worker, sequence)) != (worker, sequence):
            self.problems.append(f"partition {number}, offset {offset}: another record than was acknowledged there")
        if sequence <= last.get(worker, -1):
            self.problems.append(
                f"partition {number}, offset {offset}: worker {worker}: {sequence} after {last[worker]}"
            )
        last[worker] = sequence


def run(
    directory: Path, *, kills: int, workers: int, partitions: int, seed: int, segment_bytes: int = 4 << 20
) -> Outcome:
    """One run in an empty directory."""
    with Log(directory) as log:
        log.create_topic(TOPIC, partitions=partitions, segment_bytes=segment_bytes)
    controller = Controller(str(directory), partitions, seed)
    try:
        for _ in range(workers):
            controller.start_worker()
        for _ in range(kills):
            controller.collect(controller.random.expovariate(1 / 0.015) + 0.002)
            controller.kill_one()
            controller.start_worker()
    finally:
        for pid in list(controller.workers):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    os.set_blocking(controller.reader, False)
    controller.collect(0)
    while select.select([controller.reader], [], [], 0)[0]:
        controller.collect(0)
    read, segments = controller.check()
    os.close(controller.reader)
    os.close(controller.writer)
    return Outcome(kills, len(controller.acknowledged), read, segments, controller.problems)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument(
        "--directory", help="where to make the log (a new directory in it); default: the system's temporary one"
    )
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    directory = Path(tempfile.mkdtemp(dir=options.directory, prefix="pylog-chaos-"))
    outcome = run(
        directory / "log",
        kills=options.kills,
        workers=options.workers,
        partitions=options.partitions,
        seed=options.seed,
    )
    print(
        f"{outcome.kills} kills, {outcome.acknowledged} acknowledged records, {outcome.read} read, {outcome.rolled} segments, "
        f"{len(outcome.problems)} problems"
    )
    for problem in outcome.problems[:20]:
        print("  " + problem)
    if outcome.problems:
        print(f"the log is kept in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
