"""Processes start children in every way there is, with pylog in every state there is: nothing is
lost, doubled or unlocked.

A child of a fork goes on with what its parent had open; any other opens the log. Both append, send
and read. Then the parent goes on.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.errors import DeliveryTimeout
from tests.processes.sharing import forked, result_of
from tests.storage.filesystems import Faulty

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # threads are part of what is tested
]
PROJECT = Path(__file__).parents[2]
TOPIC = "t"
BLOCKED = "a thread is in the midst of an append"


class Opened:
    """A log, and what the parent has open on it when the child comes."""

    def __init__(self, path: Path) -> None:
        self.filesystem = Faulty()
        self.log = Log(path, filesystem=self.filesystem)
        self.log.create_topic(TOPIC, segment_bytes=4096)
        self.producer: Producer | None = None
        self.consumer: Consumer | None = None
        self.sent = [b"first"]
        self.append(b"first")
        self.stack = ExitStack()

    def append(self, value: bytes, acks: str | int = 1) -> None:
        self.log.partition(TOPIC, 0).append([ProducerRecord(value)], acks=acks, timeout_ms=100)

    def send(self, value: bytes) -> Any:
        self.producer = self.producer or Producer(self.log, acks=1, linger_ms=60_000)
        self.sent.append(value)
        return self.producer.send(TOPIC, value)

    def consume(self) -> Consumer:
        self.consumer = Consumer(self.log, auto_offset_reset="earliest", consumer_timeout_ms=0)
        self.consumer.assign([TopicPartition(TOPIC, 0)])
        for number in range(5):
            self.sent.append(b"to read %d" % number)
            self.append(self.sent[-1])
        return self.consumer


def only_opened(opened: Opened) -> None:
    opened.log.close()
    opened.log = Log(opened.log.path)


def changed_the_catalog(opened: Opened) -> None:
    opened.log.create_topic("another")
    opened.log.alter_topic(TOPIC, segment_ms=1)


def appended(opened: Opened) -> None:
    opened.sent.append(b"second")
    opened.append(b"second")


def synced(opened: Opened) -> None:
    opened.sent.append(b"second")
    opened.append(b"second", "all")


def was_read(opened: Opened) -> None:
    assert [record.value for record in opened.log.partition(TOPIC, 0).scan()] == opened.sent


def rolled(opened: Opened) -> None:
    for number in range(20):
        opened.sent.append(b"%d" % number * 500)
        opened.append(opened.sent[-1])


def produced(opened: Opened) -> None:
    opened.send(b"produced").result()


def has_buffered(opened: Opened) -> None:
    opened.send(b"buffered 0")
    opened.send(b"buffered 1")


def has_a_callback(opened: Opened) -> None:
    opened.send(b"called back").add_done_callback(lambda delivery: opened.append(b"from the callback"))
    opened.sent.append(b"from the callback")  # by the parent alone


def polled(opened: Opened) -> None:
    assert len(opened.consume().poll(max_records=2)) == 2


def iterates(opened: Opened) -> None:
    assert next(iter(opened.consume())).value == b"first"


@contextmanager
def in_the_midst(opened: Opened) -> Iterator[None]:
    reached, go_on = threading.Event(), threading.Event()

    def wait(operation: str, path: str) -> None:
        if operation == "pwrite" and path.endswith(".log") and not reached.is_set():
            reached.set()
            go_on.wait(60)

    opened.filesystem.hook = wait
    opened.sent.append(b"in the midst")
    thread = threading.Thread(target=opened.append, args=(b"in the midst",))
    thread.start()
    assert reached.wait(60)
    try:
        yield
        with Log(opened.log.path) as other, pytest.raises(DeliveryTimeout):  # the lock is held still
            other.partition(TOPIC, 0).append([ProducerRecord(b"too early")], acks=1, timeout_ms=10)
    finally:
        go_on.set()
        thread.join()


def appends_now(opened: Opened) -> None:
    opened.stack.enter_context(in_the_midst(opened))


STATES: dict[str, Callable[[Opened], None]] = {
    "it was only opened": only_opened,
    "it changed the catalog": changed_the_catalog,
    "it appended": appended,
    "it synced": synced,
    "it was read": was_read,
    "it rolled": rolled,
    "a producer sent": produced,
    "a producer has records in its buffer": has_buffered,
    "a producer has a callback to call": has_a_callback,
    "a consumer polled": polled,
    "a consumer iterates": iterates,
    BLOCKED: appends_now,
}


def read_on(consumer: Consumer) -> list[bytes | None]:
    read: list[bytes | None] = []
    while records := consumer.poll():
        read += [record.value for record in records]
    return read


def use(log: Log, producer: Producer | None, consumer: Consumer | None, *, blocked: bool) -> None:
    """What a child does. Where its parent holds the lock, it is refused, and does nothing else."""
    partition = log.partition(TOPIC, 0)
    if blocked:
        with pytest.raises(DeliveryTimeout):
            partition.append([ProducerRecord(b"child")], acks=1, timeout_ms=10)
        return
    partition.append([ProducerRecord(b"child")], acks="all")
    sender = producer or Producer(log, acks=1)
    assert sender.send(TOPIC, b"child's own").result().offset > 0
    values = [record.value for record in partition.scan()]
    assert values[0] == b"first"
    assert values[-2:] == [b"child", b"child's own"]
    if consumer is not None:
        read = read_on(consumer)
        assert read == values[len(values) - len(read) :]
        assert len(values) - len(read) in (1, 2)  # the parent had one, or two


def use_anew(path: str, names: list[str]) -> None:
    """What a child does that is no fork, on the logs of several states."""
    for number, name in enumerate(names):
        with Log(f"{path}/{number}") as log:
            use(log, None, None, blocked=name == BLOCKED)


def go_on(name: str, opened: Opened) -> None:
    """The parent, when the child is done: its records and the child's are there, each once, and it
    goes on."""
    opened.stack.close()
    opened.sent.append(b"last")
    opened.append(b"last")
    if opened.producer is not None:
        opened.send(b"sent last")
        opened.producer.close()
    childs = [] if name == BLOCKED else [b"child", b"child's own"]
    found = [record.value for record in opened.log.partition(TOPIC, 0).scan()]
    assert Counter(found) == Counter(opened.sent + childs), name
    if opened.consumer is not None:
        read = read_on(opened.consumer)
        assert read == found[len(found) - len(read) :], name
        assert len(found) - len(read) in (1, 2), name
    assert opened.log.verify().ok, name
    opened.log.close()


def by_fork(work: Callable[[], None]) -> None:
    result_of(forked(work))


def by_multiprocessing(work: Callable[[], None]) -> None:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.parametrize("way", [by_fork, by_multiprocessing])
@pytest.mark.parametrize("name", STATES)
def test_a_fork_goes_on_with_what_its_parent_had_open(name: str, way: Callable[..., None], tmpfs_dir: Path) -> None:
    opened = Opened(tmpfs_dir / "log")
    STATES[name](opened)
    try:
        way(lambda: use(opened.log, opened.producer, opened.consumer, blocked=name == BLOCKED))
    finally:
        opened.stack.close()
    go_on(name, opened)


def by_context(method: str, *arguments: Any) -> None:
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=use_anew, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def by_subprocess(_: str, path: str, names: list[str]) -> None:
    program = f"from tests.processes.test_fork_states import use_anew\nuse_anew({path!r}, {names!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], close_fds=False, cwd=PROJECT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver", "subprocess"])
def test_a_child_that_is_no_fork_takes_nothing_from_its_parent(method: str, tmpfs_dir: Path) -> None:
    logs = {name: Opened(tmpfs_dir / str(number)) for number, name in enumerate(STATES)}
    try:
        for name, opened in logs.items():
            STATES[name](opened)
        (by_subprocess if method == "subprocess" else by_context)(method, str(tmpfs_dir), list(STATES))
    finally:
        for opened in logs.values():
            opened.stack.close()
    for name, opened in logs.items():
        go_on(name, opened)


KINDS_OF_FILE = (".lock", ".commit", ".log", ".index", ".timeindex", "leader-epoch-checkpoint", "partition.metadata")


def test_a_lock_outlives_a_thousand_foreign_openings_of_every_file(tmpfs_dir: Path) -> None:
    """What would free a POSIX lock of the process: any other descriptor of the file that is
    closed."""
    opened = Opened(tmpfs_dir / "log")
    directory = tmpfs_dir / "log" / f"{TOPIC}-0"
    with in_the_midst(opened), Log(tmpfs_dir / "log") as other:
        files = [path for path in [*directory.iterdir(), *(tmpfs_dir / "log" / ".pylog").rglob("*")] if path.is_file()]
        assert {kind for kind in KINDS_OF_FILE if any(path.name.endswith(kind) for path in files)} == set(KINDS_OF_FILE)

        def open_all() -> None:
            for _ in range(1000):
                for path in files:
                    descriptor = os.open(path, os.O_RDWR)
                    os.read(descriptor, 100)
                    os.close(descriptor)

        thread = threading.Thread(target=open_all)
        thread.start()
        while thread.is_alive():
            with pytest.raises(DeliveryTimeout):
                other.partition(TOPIC, 0).append([ProducerRecord(b"too early")], acks=1, timeout_ms=5)
        thread.join()
    go_on(BLOCKED, opened)
