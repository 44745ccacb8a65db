"""Whose an exception is: a signal handler's, or an answer to what pylog has asked. And what holds
wherever one can come."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress as contextlib_suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest

import pylog
from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.cli.main import _termination_interrupts as termination_interrupts
from pylog.errors import CorruptSegment, LogLocked, OutcomeUnknown, PylogError, StorageError, TopicNotFound
from pylog.interrupts import WeakSet, is_foreign, is_of_handler, own, start_thread, suppress
from pylog.partition.producers import snapshots
from pylog.partition.repair import recovery
from pylog.producer.buffer import PartitionBuffer
from pylog.storage import OsFileSystem
from pylog.storage.os_filesystem import OsReadableFile
from pylog.testing.machine import Machine
from tests.consumer.interrupts import interrupt_at
from tests.soak.signal_trials import EXCEPTIONS
from tests.system import fail, names_of_open_files, of_the_system

PACKAGE = re.escape(str(Path(pylog.__file__).parent))
SYNCING = re.compile(PACKAGE + "/(storage|partition/(write/durability|repair/failed_syncs)|interrupts)")
CLOSING = re.compile(PACKAGE + "/(log|storage|partition/(partition|write/(writer|log_end|lock)|commit_slots))")
ROOMS = re.compile(PACKAGE + "/(?!cli|spark|testing)")


@pytest.fixture
def installed() -> Iterator[Callable[[Any], object]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield partial(signal.signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def caught_from(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - that is what is asked for
        return error
    raise AssertionError("nothing was raised")


class Handlers:
    def method(self, *_: object) -> None:
        raise LogLocked("of the handler")

    def __call__(self, *_: object) -> None:
        raise LogLocked("of the handler")


def function(*_: object) -> None:
    raise LogLocked("of the handler")


@pytest.mark.parametrize(
    "handler", [function, Handlers().method, Handlers(), partial(function, 1), partial(partial(Handlers(), 1), 2)]
)
def test_an_installed_handler_is_recognized_whatever_it_raises(handler: Any, installed: Callable[[Any], None]) -> None:
    error = caught_from(handler)
    assert not is_foreign(error)  # an error of pylog, and nobody knows this function
    installed(handler)
    assert is_foreign(error)
    assert is_of_handler(error)
    installed(signal.SIG_DFL)
    assert not is_of_handler(error)


def test_the_handler_of_a_command_is_recognized_although_it_is_of_pylog() -> None:
    with termination_interrupts():
        assert is_of_handler(caught_from(partial(signal.raise_signal, signal.SIGTERM)))


@pytest.mark.parametrize(
    ("module", "foreign"),
    [
        ("pylog_app.handlers", True),
        ("pylogger", True),
        ("application.cli.main", True),
        ("pylog.storage.x", False),
        ("namedtuple_Point", False),
    ],
)
def test_who_raised_an_exception_is_told_by_the_package_of_its_function(module: str, foreign: bool) -> None:
    names: dict[str, Any] = {"__name__": module}
    exec("def raise_it(): raise TimeoutError", names)
    assert is_foreign(caught_from(names["raise_it"])) is foreign


@pytest.mark.parametrize("error", [TimeoutError(), OSError(errno.EIO, ""), ValueError(), FileNotFoundError()])
def test_what_a_function_of_the_application_raises_is_foreign_and_what_the_system_raises_is_not(
    error: Exception,
) -> None:
    assert is_foreign(caught_from(lambda: raise_it(error)))
    error.__traceback__ = None
    assert not is_foreign(caught_from(lambda: fail(error)))


def raise_it(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (partial(os.stat, "/nowhere"), FileNotFoundError),
        (partial(json.loads, "{"), ValueError),
        ([].pop, IndexError),
    ],
)
def test_an_answer_is_caught(call: Callable[[], object], kind: type[Exception]) -> None:
    def answered() -> str:
        try:
            call()
        except own(kind):
            return "answered"
        return ""

    assert answered() == "answered"
    with suppress(kind, KeyError):
        call()


@pytest.mark.parametrize("error", [kind() for kind in EXCEPTIONS.values()], ids=list(EXCEPTIONS))
def test_what_a_handler_raises_is_not_caught(error: BaseException) -> None:
    def passed() -> None:
        try:
            raise_it(error)
        except own(OSError, ValueError, SystemExit, KeyboardInterrupt) as taken:
            raise AssertionError("taken for an answer") from taken

    assert caught_from(passed) is error
    assert error.__cause__ is None

    def suppressed() -> None:
        with suppress(BaseException):
            raise_it(error)

    assert caught_from(suppressed) is error


def test_what_a_handler_raises_while_a_thread_starts_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython forgets the thread once more, and finds that it has begun: ``KeyError``."""
    name = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"
    right, ends = getattr(threading, name), threading.Event()
    thread = threading.Thread(target=ends.wait, daemon=True)

    def interrupted(*arguments: Any, **options: Any) -> None:
        right(*arguments, **options)
        while thread in threading._limbo:  # type: ignore[attr-defined]
            pass
        raise TimeoutError("of a handler")

    monkeypatch.setattr(threading, name, interrupted)
    with pytest.raises(TimeoutError, match="of a handler"):
        start_thread(thread)
    ends.set()
    thread.join()


def test_a_weak_set_forgets_what_is_gone() -> None:
    class Item:
        pass

    items, first, second = WeakSet[Item](), Item(), Item()
    for item in (first, second, first):
        items.add(item)
    assert sorted(map(id, items)) == sorted(map(id, (first, second)))
    items.discard(second)
    items.discard(second)
    assert list(items) == [first]
    item = first
    del first, item
    gc.collect()
    assert list(items) == []
    assert not items._references


def test_no_exception_is_lost_in_what_python_runs_when_an_object_is_freed() -> None:
    """Python drops what is raised in a ``__del__``, so none may be a function of Python."""
    found = [
        f"{name}.{item.__name__}"
        for name, module in sys.modules.copy().items()
        if name.startswith("pylog.")
        for item in vars(module).values()
        if isinstance(item, type) and item.__module__ == name and "__del__" in vars(item)
    ]
    assert found == ["pylog.storage.descriptors.PythonDescriptor"]
    callbacks = re.compile("weakref.*(Weak(Set|KeyDictionary|ValueDictionary)|finalize)")
    assert [str(path) for path in Path(pylog.__file__).parent.rglob("*.py") if callbacks.search(path.read_text())] == [
        str(Path(pylog.__file__).parent / "interrupts.py")  # whose docstring names one
    ]


def test_what_a_hook_of_the_simulated_machine_raises_is_an_answer_of_the_system() -> None:
    machine = Machine()
    process = machine.process()
    process.filesystem.make_directory("/d")
    machine.before_step.append(lambda _process, _step: raise_it(FileNotFoundError(errno.ENOENT, "of the hook")))
    is_suppressed = True
    with suppress(FileNotFoundError):
        process.filesystem.names("/d")
        is_suppressed = False
    assert is_suppressed


@pytest.mark.parametrize("refused", [".log", ".index"])
def test_a_failed_sync_of_a_closed_segment_is_remembered_though_a_handler_raises_next(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was noted only when all files of the segment had been closed."""
    close = OsReadableFile.close

    def closing(file: OsReadableFile) -> None:
        close(file)
        if file.path.endswith(f"{0:020}{refused}"):
            raise_it(TimeoutError("of the handler"))

    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        partition = log.partition("t", 0)
        partition.append([ProducerRecord(b"1")], acks=1)
        partition.log.roll()
        partition.append([ProducerRecord(b"2")], acks=1)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refusing(f"{0:020}{refused}"))
            patched.setattr(OsReadableFile, "close", closing)
            with contextlib_suppress(TimeoutError):
                partition.log.sync(2)
        assert partition.log.writable().failed_syncs.is_marked(0)
        partition.log.sync(2)
        assert not partition.log.writable().failed_syncs.is_marked(0)


def test_a_failed_sync_in_a_recovery_is_remembered_though_a_handler_raises_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(b"1")], acks=1)
    (tmp_path / "log" / "t-0" / ".commit").unlink()
    with Log(tmp_path / "log") as log:
        partition = log.partition("t", 0)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", refusing(f"{0:020}.log"))
            patched.setattr(recovery.logger, "warning", lambda *_: raise_it(TimeoutError("of the handler")))
            with pytest.raises(TimeoutError):
                partition.append([ProducerRecord(b"2")], acks=1)
        assert partition.log.writable().failed_syncs.is_marked(0)
        partition.append([ProducerRecord(b"2")])
        assert not partition.log.writable().failed_syncs.is_marked(0)


def refusing(name: str) -> Callable[[int], None]:
    """Stands in for ``os.fdatasync``: the disk fails for files of this name."""
    sync = os.fdatasync

    @of_the_system
    def fdatasync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(name):
            raise OSError(errno.EIO, "of the disk")
        sync(descriptor)

    return fdatasync


def test_a_lock_is_free_after_an_interrupted_close_however_long_the_exception_is_kept(tmp_path: Path) -> None:
    """The frames of the exception kept the lock's descriptor open, and closing again did not find
    it."""
    kept = []
    with Log(tmp_path / "other") as other:
        for step in count(1, 3):
            other.create_topic(f"t{step}")
            log = Log(tmp_path / "other")
            log.partition(f"t{step}", 0).append([ProducerRecord(b"1")], acks=1)
            error = TimeoutError()
            with contextlib_suppress(TimeoutError), interrupt_at(step, CLOSING, error) as passed:
                log.close()
            kept.append(error)
            log.close()
            other.partition(f"t{step}", 0).append([ProducerRecord(b"2")], acks=1, timeout_ms=0)
            if passed[0] < step:
                break
    assert step > 50


class Everything:
    """Any attribute of it is itself."""

    def __getattr__(self, name: str) -> Everything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object) -> None: ...


@pytest.mark.parametrize("handler", [mock.Mock(), mock.MagicMock(), Everything(), mock.Mock(spec=partial)])
def test_a_handler_that_has_every_attribute_is_looked_at_once(handler: Any) -> None:
    """It was asked for its function, which was asked for its function, and so on."""
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with suppress(ValueError):
            fail(ValueError("of the library"))
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", [CorruptSegment, StorageError, TopicNotFound])
def test_an_error_of_pylog_that_an_installed_handler_raises_is_not_taken_for_damage(
    kind: type[PylogError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot was passed over, and the call went on."""

    def handler(*_: object) -> None:
        raise error

    error = kind("of the handler")
    with Log(tmp_path / "log") as log, Producer(log) as producer:
        log.create_topic("t")
        producer.send("t", b"1").result()
        log.partition("t", 0).log.roll()
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with Log(tmp_path / "log") as log, monkeypatch.context() as patched:
            patched.setattr(snapshots, "read", lambda *_: signal.raise_signal(signal.SIGUSR1))
            with pytest.raises(kind) as caught:
                log.partition("t", 0).append([ProducerRecord(b"2")], acks=1)
            assert caught.value is error
    finally:
        signal.signal(signal.SIGUSR1, before)


class World:
    """A log in which each call has something to do, and what was told of it."""

    def __init__(self, path: Path) -> None:
        self.log = Log(path)
        self.log.create_topic("t", partitions=1, segment_bytes=1024)
        self.producer = Producer(self.log, linger_ms=10_000)
        self.consumer = Consumer(self.log, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
        self.consumer.subscribe(["t"])
        self.consumer.poll(0)
        self.delivery = self.producer.send("t", b"1")
        self.returned: list[int] = []

    def result(self) -> None:
        assert self.delivery.result(timeout=10).offset == 0

    def flush(self) -> None:
        self.producer.flush(timeout=10)

    def poll(self) -> None:
        self.returned += [record.offset for record in self.consumer.poll(0)]

    def commit(self) -> None:
        self.consumer.commit()

    def close_producer(self) -> None:
        self.producer.close()

    def close_consumer(self) -> None:
        self.consumer.close()

    def close_log(self) -> None:
        self.log.close()

    def finish(self, path: Path, interrupted: str) -> None:
        if interrupted != "close_log":
            self.result()
            if interrupted != "close_consumer":
                self.poll()
                assert self.returned == [0]
                self.commit()
                assert self.consumer.committed(TopicPartition("t", 0)) == 1
        self.consumer.close()
        self.producer.close()
        self.log.close()
        with Log(path) as log:
            assert [record.value for record in log.partition("t", 0).scan()] == [b"1"]
            assert log.verify().problems == []


@pytest.mark.one_in(8)
@pytest.mark.slow
@pytest.mark.parametrize("call", ["result", "flush", "poll", "commit", "close_producer", "close_consumer", "close_log"])
def test_an_exception_at_any_place_of_a_call_reaches_the_caller_unchanged(
    call: str, tmpfs_dir: Path, seed: int
) -> None:
    random = Random(seed)
    before = len(names_of_open_files())
    step, kinds, passed_before = 0, list(EXCEPTIONS.values()), 0
    for number in count():
        step += random.randrange(1, 80)
        error = random.choice([*kinds, FileNotFoundError])()
        path = tmpfs_dir / str(number)
        world = World(path)
        if call in ("poll", "commit"):
            world.result()
        if call == "commit":
            world.poll()
        raised: BaseException | None = None
        try:
            with interrupt_at(step, ROOMS, error) as passed:
                getattr(world, call)()
        except BaseException as caught:  # noqa: BLE001 - which one it is, is the question
            raised = caught
        went_on = passed[0] < step
        assert raised is (None if went_on else error), f"{error!r} at place {step}"
        error.__traceback__ = None
        del raised
        world.finish(path, call)
        del world
        if went_on:
            break
        passed_before = step
    assert passed_before > 50
    gc.collect()
    assert len(names_of_open_files()) <= before


@pytest.mark.slow
@pytest.mark.parametrize("call", ["open_readable", "open_appendable", "lock", "is_locked", "names", "sync_directory"])
def test_an_exception_at_any_place_leaves_no_descriptor(
    call: str, tmp_path: Path, open_files: Callable[[], list[str]]
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "f").touch()
    filesystem = OsFileSystem().within(str(tmp_path))
    path = f"{tmp_path}/a/b" if call in ("names", "sync_directory") else f"{tmp_path}/a/b/f"
    getattr(filesystem, call)(path)
    before = open_files()
    for step in count(1):
        error = TimeoutError()
        with contextlib_suppress(TimeoutError), interrupt_at(step, ROOMS, error) as passed:
            getattr(filesystem, call)(path)
        error.__traceback__ = None  # whose frames know the tracer, and that the error
        assert open_files() == before, f"place {step}"
        if passed[0] < step:
            break
    assert step > 10


def test_a_handlers_error_in_a_sync_is_not_taken_for_the_disks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        producer = Producer(log, acks="all", linger_ms=10_000)
        delivery = producer.send("t", b"1")
        error = TimeoutError("of the handler")
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", lambda _: raise_it(error))
            assert caught_from(delivery.result) is error
        assert not delivery.done()
        assert caplog.messages == []  # no segment was copied
        assert delivery.result().offset == 0
        producer.close()


def test_a_batch_interrupted_right_after_its_append_is_finished_by_the_next_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was in the log, and still in its place in the buffer: ``result`` waited for it until its
    time was over."""
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        producer = Producer(log, linger_ms=10_000)
        delivery = producer.send("t", b"1")
        with monkeypatch.context() as patched:
            patched.setattr(PartitionBuffer, "finish_in_flight", lambda _: raise_it(TimeoutError("of the handler")))
            assert str(caught_from(delivery.result)) == "of the handler"
        assert delivery.result(timeout=1).offset == 0
        producer.close()


@pytest.mark.one_in(8)
@pytest.mark.slow
def test_a_sync_that_failed_while_a_handler_raised_is_answered_with_a_new_file(
    tmpfs_dir: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The system reports a failure once: forgotten, the next sync would succeed without the
    records."""
    random, step, interrupted_after, sync = Random(seed), 0, 0, os.fdatasync
    for number in count():
        step += random.randrange(1, 12)
        with Log(tmpfs_dir / str(number)) as log:
            log.create_topic("t")
            producer = Producer(log, acks="all", linger_ms=10_000)
            delivery = producer.send("t", b"1")
            log.partition("t", 0).append([ProducerRecord(b"0")], acks=1)
            log.manager.next_producer_id()  # whose file is synced here, and not below
            file, failed = tmpfs_dir / str(number) / "t-0" / f"{0:020}.log", []
            inode = file.stat().st_ino

            @of_the_system
            def refuse(descriptor: int, failed: list[int] = failed) -> None:
                failed.append(1)
                if len(failed) == 1:
                    raise OSError(errno.EIO, "of the disk")
                sync(descriptor)

            error = TimeoutError()
            with contextlib_suppress(TimeoutError, OutcomeUnknown), monkeypatch.context() as patched:
                patched.setattr(os, "fdatasync", refuse)
                with interrupt_at(step, SYNCING, error) as passed:
                    delivery.result()
            error.__traceback__ = None
            delivery.exception()
            assert not failed or file.stat().st_ino != inode, f"place {step}"
            interrupted_after += bool(failed) and passed[0] >= step
            producer.close()
        if passed[0] < step:
            break
    assert interrupted_after > 5


def test_a_handlers_error_of_pylog_is_not_the_outcome_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: Callable[[Any], None]
) -> None:
    installed(function)
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        producer = Producer(log, acks="all", linger_ms=10_000)
        delivery = producer.send("t", b"1")
        for name in ("pwrite", "fdatasync"):
            with monkeypatch.context() as patched:
                patched.setattr(os, name, function)
                assert isinstance(caught_from(delivery.result), LogLocked)
            assert not delivery.done()
        assert delivery.result().offset == 0
        producer.close()


def test_a_handlers_exception_in_a_callback_of_the_application_passes_and_its_own_does_not(
    tmp_path: Path, installed: Callable[[Any], None]
) -> None:
    def interrupted(*_: object) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)

    def handler(*_: object) -> None:
        raise ValueError("of the handler")

    def failing(*_: object) -> Any:
        raise ValueError("of the callback")

    installed(handler)
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        for callback, told in ((interrupted, True), (failing, False)):
            with Producer(log, on_delivery=callback, linger_ms=10_000) as producer:
                delivery = producer.send("t", b"1")
                if told:
                    with pytest.raises(ValueError, match="of the handler"):
                        producer.flush()
                assert delivery.exception() is None
            with (
                Producer(log, value_serializer=callback) as producer,
                pytest.raises(ValueError if told else PylogError),
            ):
                producer.send("t", "x")
        for callback, told in ((interrupted, True), (failing, False)):
            with Consumer(log, auto_offset_reset="earliest", value_deserializer=callback) as consumer:
                consumer.subscribe(["t"])
                with pytest.raises(ValueError if told else PylogError):
                    consumer.poll(0)
