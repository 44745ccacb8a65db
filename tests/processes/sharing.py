"""Producers and consumers share one topic for a while; every consumer must see the same sequence,
with dense offsets.

python -m tests.processes.sharing --seconds 60 [--directory DIR] [--producers 3] [--consumers 3]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pylog import Consumer, Log, Producer, TopicPartition

TOPIC = "shared"
PARTITIONS = 2


class Seen(NamedTuple):
    """What one consumer saw of each partition: how many records, a hash over all of them, and
    breaks in the offsets."""

    counts: list[int]
    digests: list[str]
    breaks: list[str]


def forked(work: Callable[[], Any]) -> tuple[int, int]:
    """Run ``work`` in a forked child; its pid, and a pipe that gives the pickled result."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            data = pickle.dumps(work())
            data = len(data).to_bytes(8, "big") + data  # not the end of the pipe: a grandchild may keep that open
            while data:
                data = data[os.write(writer, data) :]
            code = 0
        except BaseException:  # noqa: BLE001  (a child tells what failed and ends, whatever it was)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    return pid, reader


def result_of(child: tuple[int, int]) -> Any:
    """The result of a child of ours. Raises if it failed."""
    pid, reader = child
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read(int.from_bytes(pipe.read(8), "big"))
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"child {pid} ended with status {status}")
    return pickle.loads(data)


def produce(directory: str, number: int, seconds: float) -> int:
    """Send numbered records until the time is over; how many."""
    sent = 0
    until = time.monotonic() + seconds
    with Log(directory) as log, Producer(log, acks=1, linger_ms=number) as producer:
        while time.monotonic() < until:
            for _ in range(200):
                producer.send(TOPIC, b"%d:%d:" % (number, sent) + bytes(sent % 300), key=b"%d" % (sent % 50))
                sent += 1
            time.sleep(0.002)  # leave the consumers some of two cores
    return sent


def consume(directory: str, total: Callable[[], int | None]) -> Seen:
    """Read everything from the beginning, until as many records were seen as were sent."""
    digests = [hashlib.sha256() for _ in range(PARTITIONS)]
    expected = [0] * PARTITIONS
    breaks: list[str] = []
    with Log(directory, read_only=True) as log, Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        target: int | None = None
        while target is None or sum(expected) < target:
            for record in consumer.poll(0.05):
                if record.offset != expected[record.partition]:
                    breaks.append(
                        f"partition {record.partition}: offset {record.offset}, expected {expected[record.partition]}"
                    )
                expected[record.partition] = record.offset + 1
                digests[record.partition].update(b"%d|" % record.offset + (record.key or b"") + b"|" + record.value)
            if target is None:
                target = total()
    return Seen(expected, [digest.hexdigest() for digest in digests], breaks)


def run(directory: Path, *, seconds: float, producers: int, consumers: int) -> tuple[int, list[Seen]]:
    """The number of records sent, and what each consumer saw."""
    with Log(directory / "log") as log:
        log.create_topic(TOPIC, partitions=PARTITIONS, segment_bytes=4 << 20)
    told = directory / "total"

    def total() -> int | None:
        return int(told.read_text()) if told.exists() else None

    readers = [forked(lambda: consume(str(directory / "log"), total)) for _ in range(consumers)]
    writers = [
        forked(lambda number=number: produce(str(directory / "log"), number, seconds)) for number in range(producers)
    ]
    sent = sum(result_of(child) for child in writers)
    (directory / "total.new").write_text(str(sent))
    (directory / "total.new").rename(told)
    return sent, [result_of(child) for child in readers]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--directory")
    parser.add_argument("--producers", type=int, default=3)
    parser.add_argument("--consumers", type=int, default=3)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(dir=options.directory, prefix="pylog-sharing-"))
    sent, seen = run(directory, seconds=options.seconds, producers=options.producers, consumers=options.consumers)
    for number, view in enumerate(seen):
        digests = " ".join(digest[:12] for digest in view.digests)
        print(f"consumer {number}: {sum(view.counts)} records, {digests}, {len(view.breaks)} breaks")
    same = all(view == seen[0] for view in seen)
    right = same and not seen[0].breaks and sum(seen[0].counts) == sent
    print(f"{sent} records sent; every consumer saw the same sequence with dense offsets: {right}")
    shutil.rmtree(directory)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
