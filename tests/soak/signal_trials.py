"""A signal handler raises at random moments of what an application calls; the very exception must
reach the caller.

    python -m tests.soak signals --seconds 60
    python -m tests.soak.signal_trials --trials 1000 --seed 7

A trial is one call of ``send``, ``result``, ``flush``, ``commit``, ``poll`` or ``close`` in the
main thread, in which the handler of a timer has raised an exception while a function of pylog was
running. The exception reached the caller unchanged if the call raised that very object. Then the
application goes on. In the end every record that was accepted is in the log, none is there twice,
each poll has gone on where the one before it ended, ``verify`` finds nothing, another process can
append, and no descriptor is left open.
"""

from __future__ import annotations

import argparse
import errno
import gc
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from pylog import Consumer, Delivery, Log, Producer, TopicPartition
from pylog.errors import NotAppended, OutcomeUnknown, PylogError
from tests.soak.part import Outcome

TOPIC = "events"
PARTITIONS = 2
EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "TimeoutError": lambda: TimeoutError("of the handler"),
    "OSError(EIO)": lambda: OSError(errno.EIO, "of the handler"),
    "ValueError": lambda: ValueError("of the handler"),
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
}
FURTHER: dict[str, Callable[[], BaseException]] = {
    "FileNotFoundError": lambda: FileNotFoundError(errno.ENOENT, "of the handler"),
    "KeyError": lambda: KeyError("of the handler"),
    "OutcomeUnknown": lambda: OutcomeUnknown("of the handler"),
}
PYLOG = f"{os.sep}pylog{os.sep}"
IN_ANOTHER_PROCESS = """
import sys
from pylog import Log, Producer
with Log(sys.argv[1]) as log, Producer(log, acks="all") as producer:
    print(producer.send("events", b"of another process", partition=0).result(timeout=20).offset)
    print(sum(log.partition("events", number).latest_offset for number in range(2)))
"""


def padded(text: str) -> bytes:
    """A serializer in Python."""
    return text.encode() + b" "


def number_of(value: bytes) -> bytes:
    """A deserializer in Python."""
    return value.rstrip()


class Trials:
    """One application, which is interrupted, and what it was told."""

    def __init__(self, root: Path, seed: int) -> None:
        self.path = root / "log"
        self.random = random.Random(seed)
        self.figures: Counter[str] = Counter()
        self.problems: list[str] = []
        self.sent = 0
        self.deliveries: list[tuple[int, Delivery]] = []  # not looked at yet
        self.accepted: set[int] = set()
        self.refused: set[int] = set()
        self.unknown: set[int] = set()
        self.next: dict[TopicPartition, int] = {}  # what the consumer's next poll must begin with
        self.read: dict[TopicPartition, int] = {}  # where all that was polled ends, of each consumer there was
        self.called_back = 0
        self.durations: dict[str, float] = {}
        self.error: BaseException | None = None  # what the handler is to raise, once
        self.raised: BaseException | None = None
        self.place = ""
        self.eaten_by = ""
        with Log(self.path) as log:
            log.create_topic(TOPIC, partitions=PARTITIONS, segment_bytes=40_000)
        self.open()

    def open(self) -> None:
        self.log = Log(self.path)
        serializer = self.random.choice([None, padded])
        self.producer = Producer(
            self.log,
            acks=self.random.choice(["all", 1]),
            batch_bytes=2_000,
            on_delivery=self.random.choice([None, self.delivered]),
            value_serializer=serializer,
        )
        self.serializes = serializer is not None
        self.consumer = Consumer(
            self.log,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=self.random.random() < 0.5,
            auto_commit_interval_ms=5,
            value_deserializer=self.random.choice([None, number_of]),
        )
        self.consumer.subscribe([TOPIC])
        self.next = {}

    # The calls, each as an application makes it

    def value(self) -> Any:
        self.sent += 1
        text = str(self.sent) + " " * self.random.randrange(300)
        return text if self.serializes else text.encode()

    def send(self) -> None:
        value, number = self.value(), self.sent
        self.deliveries.append((number, self.producer.send(TOPIC, value)))

    def send_many(self) -> None:
        first = self.sent + 1
        values = [self.value() for _ in range(self.random.randrange(30))]
        self.deliveries.extend(enumerate(self.producer.send_many(TOPIC, values), first))

    def delivered(self, delivery: Delivery) -> None:
        self.called_back += delivery.done()

    def result(self) -> None:
        if self.deliveries:
            _, delivery = self.random.choice(self.deliveries)
            delivery.result(timeout=20)

    def flush(self) -> None:
        self.producer.flush(timeout=20)

    def poll(self) -> None:
        for record in self.consumer.poll(self.random.choice([0, 0, 0.001])):
            name = TopicPartition(record.topic, record.partition)
            expected = self.next.get(name)
            if expected is not None and record.offset != expected:
                self.problems.append(f"{name}: a poll went on at {record.offset}, the one before ended at {expected}")
            if record.offset > self.read.get(name, 0):
                self.problems.append(f"{name}: {self.read.get(name, 0)} to {record.offset} were passed over")
            self.next[name] = record.offset + 1
            self.read[name] = max(self.read.get(name, 0), record.offset + 1)

    def commit(self) -> None:
        self.consumer.commit()

    def close_producer(self) -> None:
        self.producer.close(timeout=20)

    def close_consumer(self) -> None:
        self.consumer.close()

    def close_log(self) -> None:
        self.log.close()

    def warm_up(self) -> None:
        """Make every call once: what Python raises while it imports a module, it may drop by
        itself."""
        for call in (self.send, self.send_many, self.result, self.flush, self.poll, self.commit):
            call()
        self.consumer.poll(0.01)
        self.settle()
        self.open()

    # A trial

    def trial(self, kind: str, exception: Callable[[], BaseException]) -> None:
        """Calls until the handler has raised in one."""
        while True:
            call = self.random.choice(
                ["send", "send_many"] * 2
                + ["result", "flush", "poll", "commit"] * 4
                + ["close_producer", "close_consumer", "close_log"]
            )
            if call in ("result", "flush"):
                for _ in range(self.random.randrange(4)):
                    self.send()
            if self.interrupted(call, kind, exception()):
                return

    def interrupted(self, call: str, kind: str, error: BaseException) -> bool:
        """Whether the handler has raised during the call."""
        operation = getattr(self, call)
        before, wanted = (self.committed(), self.positions()) if call == "commit" else ({}, {})
        self.raised, self.place, self.eaten_by = None, "", ""
        outcome: BaseException | None = None
        began = time.perf_counter()
        try:
            self.error = error
            signal.setitimer(signal.ITIMER_REAL, max(2e-6, self.random.random() * self.durations.get(call, 1e-3)))
            operation()
            self.error = None
        except BaseException as caught:  # noqa: BLE001 - what it is, is the question
            outcome = caught
        finally:
            self.error = None
            signal.setitimer(signal.ITIMER_REAL, 0)
        raised = self.raised
        if raised is None:
            took = time.perf_counter() - began
            self.durations[call] = 0.8 * self.durations.get(call, took) + 0.2 * took
            if outcome is not None:
                self.problems.append(f"{call} without a signal: {outcome!r}")
        else:
            self.figures[f"{kind}: trials"] += 1
            self.figures[f"{kind}: in {call}"] += 1
            if outcome is raised:
                self.figures[f"{kind}: unchanged"] += 1
            else:
                what = "swallowed" if outcome is None else f"became {type(outcome).__name__}"
                where = f" by {self.eaten_by}" if self.eaten_by else ""
                self.problems.append(f"{kind} in {call} at {self.place}: {what}{where}")
        raised = error = outcome = None  # type: ignore[assignment]  # its frames hold what was open
        self.raised = None
        if call == "commit" and (after := self.committed()) not in (before, wanted):
            self.problems.append(f"{before} was committed, then {after} of {wanted}")
        if call.startswith("close"):
            self.open_again(call)
        return bool(self.place)

    def handler(self, _signal: int, frame: FrameType | None) -> None:
        error, innermost, at = self.error, frame, frame
        while at is not None and PYLOG not in at.f_code.co_filename:
            at = at.f_back
        if error is None:
            return
        if at is None or innermost is None:  # between the calls: come again
            signal.setitimer(signal.ITIMER_REAL, 2e-5)
            return
        self.error = None
        place = f"{innermost.f_code.co_filename.rpartition(PYLOG)[2]}:{innermost.f_lineno}"
        self.raised, self.place = error, f"{place} ({innermost.f_code.co_name})"
        raise error

    def committed(self) -> dict[TopicPartition, int]:
        found = {name: self.consumer.committed(name) for name in self.consumer.assignment()}
        return {name: offset for name, offset in found.items() if offset is not None}

    def positions(self) -> dict[TopicPartition, int]:
        return {name: self.consumer.position(name) for name in self.consumer.assignment()}

    def unraisable(self, what: sys.UnraisableHookArgs) -> None:
        """A finalizer or a callback of a weak reference: Python drops what is raised there."""
        self.eaten_by = f"Python, which ignores it in {what.object!r:.60}"

    def open_again(self, call: str) -> None:
        """After a close that may have been interrupted: close again, which goes on with it, then
        open."""
        try:
            self.consumer.close()
            self.producer.close(timeout=20)
        except PylogError as error:
            self.problems.append(f"closing again after {call}: {error!r}")
        self.look_at_deliveries()
        self.log.close()
        self.open()

    def look_at_deliveries(self) -> None:
        for number, delivery in self.deliveries:
            error = delivery.exception(timeout=20)
            if error is None:
                self.accepted.add(number)
            elif isinstance(error, NotAppended):
                self.refused.add(number)
                self.problems.append(f"record {number} was refused: {error!r}")
            else:
                self.unknown.add(number)
                self.problems.append(f"of record {number} nothing is known: {error!r}")
        self.deliveries.clear()

    # Whether it went on

    def settle(self) -> int:
        """Close all; how many descriptors are open then."""
        self.open_again("settle")
        self.consumer.close()
        self.producer.close(timeout=20)
        self.log.close()
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def check(self) -> None:
        """With everything closed."""
        command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(self.path)]
        other = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if other.returncode:
            self.problems.append(f"another process could not append: {other.stderr[-1000:]}")
        with Log(self.path) as log:
            found = Counter(
                int(record.value) for number in range(PARTITIONS) for record in log.partition(TOPIC, number).scan()
                if record.value != b"of another process"
            )  # fmt: skip
            self.problems += [str(problem) for problem in log.verify().problems]
        self.figures["records"] += len(self.accepted)
        self.figures["lost"] += len(self.accepted - found.keys())
        self.figures["twice"] += sum(count > 1 for count in found.values())
        self.figures["refused, and there"] += len(self.refused & found.keys())
        for name in ("lost", "twice", "refused, and there"):
            if self.figures[name]:
                self.problems.append(f"{self.figures[name]} records {name}")


def run_trials(
    root: Path, seed: int, kinds: dict[str, Callable[[], BaseException]], trials: int, seconds: float
) -> Outcome:
    """So many trials of each kind, or as many as fit into the time. In the main thread."""
    until_s = time.monotonic() + seconds
    state = Trials(root, seed)
    before = signal.signal(signal.SIGALRM, state.handler)
    hook, sys.unraisablehook = sys.unraisablehook, state.unraisable
    callbacks, gc.callbacks[:] = gc.callbacks[:], []  # of others (hypothesis), in which Python drops what is raised
    logging.disable()  # what keeps the records of a log keeps the errors in them, and what their frames have open
    try:
        state.warm_up()
        descriptors = state.settle()
        state.open()
        done = 0
        while done < trials and time.monotonic() < until_s:
            for kind, exception in kinds.items():
                state.trial(kind, exception)
            done += 1
        leaked = state.settle() - descriptors
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
        logging.disable(logging.NOTSET)
        gc.callbacks[:] = callbacks
    state.figures["descriptors left open"] = leaked
    if leaked > 0:
        state.problems.append(f"{leaked} descriptors were left open")
    state.check()
    return Outcome(dict(state.figures), state.problems)


def run(seconds: float, seed: int, directory: Path) -> Outcome:
    """As a part of a soak."""
    return run_trials(directory, seed, {**EXCEPTIONS, **FURTHER}, 10**9, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.signal_trials", description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1000, help="of each exception")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--further", action="store_true", help="other exceptions, too")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as directory:
        kinds = {**EXCEPTIONS, **FURTHER} if options.further else EXCEPTIONS
        outcome = run_trials(Path(directory), options.seed, kinds, options.trials, options.seconds)
    for name, count in sorted(outcome.figures.items()):
        print(f"{count:>8,.10g}  {name}")
    for problem, count in Counter(outcome.problems).most_common(60):
        print(f"{count:>6} x {problem}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
