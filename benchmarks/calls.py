"""Counts the Python calls inside pylog that one operation takes: python -m benchmarks.calls
[--json]

Calls are counted with ``sys.setprofile``: every frame whose code is in the package, in the calling
thread, after the operation has run several times. The counts do not depend on the machine; the time
a durable append takes does, and most of it is these calls.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pylog
from pylog import Consumer, Log, Producer
from pylog.codec import COMPILED

PACKAGE = str(Path(pylog.__file__).parent)
TOPIC = "calls"
_WARM_UP = 20
_ROUNDS = 3  # the least of them counts: now and then a call asks whether the topic has changed


class Trace(NamedTuple):
    """One operation: its calls by ``file:function``."""

    operation: str
    calls: Counter[str]

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    @property
    def files(self) -> int:
        return len({name.partition(":")[0] for name in self.calls})


def traced(operation: str, work: Callable[[], object]) -> Trace:
    """Run ``work`` once and count the frames of the package."""
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            calls[f"{file[len(PACKAGE) + 1 :]}:{frame.f_code.co_qualname}"] += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return Trace(operation, calls)


@contextmanager
def _log() -> Iterator[Log]:
    with tempfile.TemporaryDirectory(prefix="pylog-calls-") as directory, Log(directory) as log:
        log.create_topic(TOPIC)
        yield log


def _send(producer: Producer) -> object:
    return producer.send(TOPIC, b"value", key=b"key")


def flush() -> Iterator[Trace]:
    """One batch of one record: appended, synced, acknowledged."""
    with _log() as log, Producer(log, acks="all", linger_ms=60_000) as producer:
        for _ in range(_WARM_UP):
            _send(producer)
            producer.flush()
        rounds = [
            (
                traced("send that opens a batch", lambda: _send(producer)),
                traced("send into an open batch", lambda: _send(producer)),
                traced('flush of one batch, acks="all"', producer.flush),
            )
            for _ in range(_ROUNDS)
        ]
        for same in zip(*rounds, strict=True):
            yield min(same, key=lambda trace: trace.total)


def poll() -> Iterator[Trace]:
    """One batch that is there, and an answer that there is nothing."""
    with _log() as log, Producer(log, acks=1) as producer, Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(TOPIC)
        for _ in range(_WARM_UP):
            producer.send_many(TOPIC, [b"value"] * 10)
            producer.flush()
            consumer.poll(0)
        producer.send_many(TOPIC, [b"value"] * 10)
        producer.flush()
        yield traced("poll of one batch", lambda: consumer.poll(0))
        yield traced("poll, nothing new", lambda: consumer.poll(0))


def commit() -> Iterator[Trace]:
    """A group member commits the position after one batch."""
    with (
        _log() as log,
        Producer(log, acks=1) as producer,
        Consumer(log, group_id="group", auto_offset_reset="earliest") as member,
    ):
        member.subscribe(TOPIC)
        for _ in range(_WARM_UP):
            _send(producer)
            producer.flush()
            member.poll(10.0)
            member.commit()
        _send(producer)
        producer.flush()
        member.poll(10.0)
        yield traced("commit() of a group member", member.commit)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one object a line, with the calls by function")
    parser.add_argument("--show", metavar="PART", help="also the functions of operations whose name contains this")
    options = parser.parse_args(arguments)
    if not options.json:
        print(
            f"{'operation':34} {'calls':>6} {'functions':>10} {'files':>6}   ({'compiled' if COMPILED else 'readable'} codec)"
        )
    for operation in (flush, poll, commit):
        for trace in operation():
            if options.json:
                print(json.dumps({"operation": trace.operation, "count": trace.total, "calls": trace.calls}))
                continue
            print(f"{trace.operation:34} {trace.total:6} {len(trace.calls):10} {trace.files:6}")
            if options.show and options.show in trace.operation:
                for name, count in trace.calls.items():
                    print(f"    {count:4} {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
