"""Files and locks that are closed while they are idle: the same file is opened again, or it is said
that it is gone."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from pylog import Log, ProducerRecord, TopicPartition
from pylog.errors import OffsetOutOfRange, StorageError
from pylog.storage import AppendableFile, OsFileSystem, descriptor_pool, open_safely, os_filesystem
from pylog.storage.descriptor_pool import POOL, Identity, identity_of
from tests.system import names_of_open_files, of_the_system

FS = OsFileSystem()


def close_all() -> None:
    """Every file that may be closed."""
    while POOL.close_some(1 << 20):
        pass


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nearly every use opens its file again."""
    close_all()
    monkeypatch.setattr(POOL, "limit", 1)
    monkeypatch.setattr(POOL, "_most", 0)
    yield
    monkeypatch.setattr(POOL, "_most", 0)


def test_an_idle_file_is_closed_and_opened_again(tmp_path: Path) -> None:
    file = FS.open_appendable(f"{tmp_path}/f")
    file.close_when_idle()
    file.pwrite(b"abc", 0)
    before = len(names_of_open_files())
    close_all()
    assert len(names_of_open_files()) < before
    assert (file.pread(3, 0), file.size()) == (b"abc", 3)
    close_all()
    file.pwrite(b"d", 3)
    close_all()
    file.sync()
    close_all()
    file.truncate(2)
    assert file.pread(9, 0) == b"ab"
    close_all()
    file.close()
    with pytest.raises(StorageError, match="Bad file descriptor"):
        file.pread(1, 0)


def test_a_file_that_nobody_allowed_to_be_closed_stays_open(tmp_path: Path) -> None:
    file = FS.open_appendable(f"{tmp_path}/f")
    close_all()
    os.unlink(f"{tmp_path}/f")
    file.pwrite(b"abc", 0)
    assert file.pread(3, 0) == b"abc"
    file.close()


@pytest.mark.parametrize("change", ["removed", "replaced", "made again"])
def test_another_file_in_its_place_is_not_taken_for_it(tmp_path: Path, change: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    file = FS.open_readable(str(path))
    file.close_when_idle()
    close_all()
    if change == "replaced":
        (tmp_path / "g").write_bytes(b"new")
        (tmp_path / "g").rename(path)
    else:
        born = os.stat(path).st_ctime_ns
        path.unlink()
        while change == "made again" and not (path.exists() and os.stat(path).st_ctime_ns > born):
            path.write_bytes(b"new")  # it may have the number of the one before; file times are as coarse as a tick
            if os.stat(path).st_ctime_ns <= born:
                path.unlink()
    with pytest.raises(FileNotFoundError):
        file.pread(3, 0)
    with pytest.raises(FileNotFoundError):
        file.size()
    file.close()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    file = FS.within(str(tmp_path)).open_readable(f"{tmp_path}/f")
    file.close_when_idle()
    close_all()
    (tmp_path / "f").rename(tmp_path / "g")
    (tmp_path / "f").symlink_to("g")
    with pytest.raises(StorageError, match="symbolic link") as caught:
        file.pread(3, 0)
    assert caught.value.facts["reopening"]
    file.close()


def test_a_lock_that_is_held_is_never_closed(tmp_path: Path) -> None:
    lock, other = FS.lock(f"{tmp_path}/l"), FS.lock(f"{tmp_path}/l")
    for _ in range(3):
        assert lock.try_acquire()
        close_all()
        assert not other.try_acquire()
        assert lock.is_in_place()
        lock.release()
        lock.close_when_idle()
        close_all()
        assert other.try_acquire()
        assert not lock.try_acquire()
        lock.close_when_idle()
        other.release()
    lock.close()
    other.close()


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_lock_whose_file_went_while_it_was_idle_is_not_in_place(tmp_path: Path, change: str) -> None:
    lock = FS.lock(f"{tmp_path}/l")
    assert lock.try_acquire()
    lock.release()
    lock.close_when_idle()
    close_all()
    os.unlink(f"{tmp_path}/l")
    if change == "replaced":
        (tmp_path / "n").touch()
        (tmp_path / "n").rename(tmp_path / "l")
    assert lock.try_acquire()
    assert not lock.is_in_place()
    lock.release()
    assert os.path.exists(tmp_path / "l") == (change == "replaced"), "opening it again makes nothing"
    lock.close()


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_keeps_no_lock_alive_that_was_opened_again(tmp_path: Path) -> None:
    lock = FS.lock(f"{tmp_path}/l")
    lock.close_when_idle()
    close_all()
    assert lock.try_acquire()
    is_over, over = os.pipe()
    child = os.fork()
    if not child:
        os.close(over)
        os.read(is_over, 1)
        os._exit(0)
    try:
        lock.abandon()  # what the parent's death does
        other = FS.lock(f"{tmp_path}/l")
        while not other.try_acquire():  # until the child has come to the end of its fork
            pass
        other.close()
    finally:
        os.close(over)
        os.close(is_over)
        os.waitpid(child, 0)


@pytest.fixture
def just_before(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType, str, Callable[[], object]], None]:
    """What another thread does once, just before a system call whose arguments are settled by
    then."""

    def patch(module: ModuleType, call: str, act: Callable[[], object]) -> None:
        real = getattr(module, call)

        def called(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(module, call, real)
            act()
            return real(*arguments, **options)

        monkeypatch.setattr(module, call, called)

    return patch


USES: dict[str, tuple[Callable[[AppendableFile], object], object, bytes]] = {
    "pread": (lambda file: file.pread(3, 0), b"min", b"mine"),
    "lseek": (lambda file: file.size(), 4, b"mine"),
    "fdatasync": (lambda file: file.sync(), None, b"mine"),
    "pwrite": (lambda file: file.pwrite(b"new", 0), None, b"newe"),
    "ftruncate": (lambda file: file.truncate(2), None, b"mi"),
}


@pytest.mark.parametrize("call", USES)
def test_a_call_never_meets_the_file_that_is_opened_once_another_thread_has_closed_its_own(
    call: str, just_before: Callable[..., None], tmp_path: Path
) -> None:
    """The new file had the number of the closed one: it was written, or read, in its place."""
    use, result, content = USES[call]
    (tmp_path / "other").write_bytes(b"other")
    file, others = FS.open_appendable(f"{tmp_path}/f"), []
    file.pwrite(b"mine", 0)

    def close_and_open() -> None:
        file.close()
        others.append(FS.open_appendable(f"{tmp_path}/other"))

    just_before(os, call, close_and_open)
    assert use(file) == result
    assert ((tmp_path / "f").read_bytes(), (tmp_path / "other").read_bytes()) == (content, b"other")
    with pytest.raises(StorageError, match="Bad file descriptor"):
        use(file)
    before = len(names_of_open_files())
    others.pop().close()
    assert len(names_of_open_files()) == before - 1, "what no call uses is closed at once"


def test_a_lock_that_another_thread_closes_is_not_taken_in_the_file_that_is_opened_next(
    just_before: Callable[..., None], tmp_path: Path
) -> None:
    lock, others = FS.lock(f"{tmp_path}/l"), []

    def close_and_open() -> None:
        lock.close()
        others.append(FS.lock(f"{tmp_path}/other"))

    just_before(fcntl, "fcntl", close_and_open)
    with pytest.raises(StorageError, match="was closed"):
        lock.try_acquire()
    assert FS.lock(f"{tmp_path}/other").try_acquire()
    assert FS.lock(f"{tmp_path}/l").try_acquire()


def test_the_release_of_a_closed_lock_does_not_free_that_of_the_file_that_is_opened_next(tmp_path: Path) -> None:
    lock = FS.lock(f"{tmp_path}/l")
    assert lock.try_acquire()
    release = lock.release  # which a thread is about to call
    lock.close()
    other = FS.lock(f"{tmp_path}/other")
    assert other.try_acquire()
    release()
    assert not FS.lock(f"{tmp_path}/other").try_acquire()


IDENTITIES: dict[str, Callable[[Callable[[], None], int], Identity | None]] = {
    "before its number is read": lambda close, _: (close(), identity_of(-1))[1],
    "before it is identified": lambda close, number: (close(), identity_of(number))[1],
    "after it is identified": lambda close, number: (identity_of(number), close())[0],
}


@pytest.mark.parametrize("moment", IDENTITIES)
@pytest.mark.parametrize("kind", ["file", "lock"])
def test_what_another_thread_closes_while_the_pool_does_so_stays_closed(
    kind: str, moment: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The pool raised a bare ``OSError``, in a thread that had opened some other file; or the file
    opened again."""
    close_all()
    item: Any = FS.lock(f"{tmp_path}/f") if kind == "lock" else FS.open_appendable(f"{tmp_path}/f")
    item.close_when_idle()
    monkeypatch.setattr(descriptor_pool, "identity_of", partial(IDENTITIES[moment], item.close))
    close_all()
    monkeypatch.undo()
    with pytest.raises(StorageError, match=r"was closed|Bad file descriptor"):
        item.try_acquire() if kind == "lock" else item.size()


def test_a_file_that_another_thread_closes_while_it_is_opened_again_stays_closed(
    just_before: Callable[..., None], tmp_path: Path
) -> None:
    file = FS.open_appendable(f"{tmp_path}/f")
    file.close_when_idle()
    close_all()
    just_before(os_filesystem, "identity_of", file.close)
    for _ in range(2):
        with pytest.raises(StorageError, match="Bad file descriptor"):
            file.size()


class Listed:
    """What the pool may close, and what happens as it does so."""

    is_used = False

    def __init__(self, act: Callable[[], object] = bool) -> None:
        self._act = act

    def close_idle(self) -> bool:
        self._act()
        return False


def test_a_file_that_is_listed_in_the_place_of_one_that_was_freed_stays_listed() -> None:
    """The pool removed it, if it had not looked at the freed one yet: its descriptor then stayed
    open for good."""
    close_all()
    freed, new = [Listed()], Listed()
    new.is_used = True
    key = id(freed[0])

    def free_and_add() -> None:
        freed.clear()
        assert key not in POOL._files
        POOL._files[key] = weakref.ref(new)

    first = Listed(free_and_add)
    POOL.add(first)
    POOL.add(freed[0])
    POOL.close_some(1)
    assert POOL._files.pop(key)() is new


@pytest.mark.parametrize("kind", ["file", "lock"])
def test_what_another_thread_closes_just_before_the_pool_does_so_is_not_counted_as_closed_by_it(
    kind: str, tmp_path: Path
) -> None:
    close_all()
    item: Any = FS.lock(f"{tmp_path}/f") if kind == "lock" else FS.open_appendable(f"{tmp_path}/f")
    first = Listed(item.close)  # the pool has read its list by then
    POOL.add(first)
    item.close_when_idle()
    item.is_used = False
    assert not POOL.close_some(2)
    with pytest.raises(StorageError, match=r"was closed|Bad file descriptor"):
        item.try_acquire() if kind == "lock" else item.size()


class ClosedWhenLookedAt(Listed):
    """A file that another thread closes after the pool has seen that it is used."""

    @property
    def is_used(self) -> bool:
        return True

    @is_used.setter
    def is_used(self, _: bool) -> None:
        POOL.discard(self)


def test_a_file_that_another_thread_closes_as_the_pool_looks_at_it_is_not_listed_again() -> None:
    close_all()
    file = ClosedWhenLookedAt()
    POOL.add(file)
    assert not POOL.close_some(1)
    assert id(file) not in POOL._files


class BornAt:
    """What macOS answers of a file: the time of its birth is among the rest."""

    def __init__(self, status: os.stat_result, born_s: float) -> None:
        self._status = status
        self.st_birthtime = born_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._status, name)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_where_the_system_tells_a_files_birth_by_itself_that_identifies_an_idle_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    file = FS.open_readable(f"{tmp_path}/f")
    file.close_when_idle()
    fstat, born_s = os.fstat, [1_700_000_000.25]
    monkeypatch.setattr(os, "fstat", lambda descriptor: BornAt(fstat(descriptor), born_s[0]))
    monkeypatch.setattr(descriptor_pool, "_statx", lambda: None)
    close_all()
    assert opened_files(tmp_path) == []
    if is_replaced:  # by a file that has got its number
        born_s[0] += 0.5
        with pytest.raises(FileNotFoundError):
            file.pread(3, 0)
    else:
        assert file.pread(3, 0) == b"old"
    file.close()


@pytest.mark.parametrize("answer", ["no such call", "no such time", "an error"])
def test_a_file_whose_birth_nobody_knows_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """It could not be told from another file at its path."""
    file = FS.open_appendable(f"{tmp_path}/f")
    file.close_when_idle()
    monkeypatch.setattr(descriptor_pool, "_known_statx", [])
    if answer == "no such call":
        monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    else:
        descriptor_pool._known_statx.append(lambda *_: 0 if answer == "no such time" else -1)
    close_all()
    assert opened_files(tmp_path) == [f"{tmp_path}/f"]
    os.unlink(f"{tmp_path}/f")
    file.pwrite(b"abc", 0)
    assert file.pread(3, 0) == b"abc"
    file.close()


def opened_files(directory: Path) -> list[str]:
    return [name for name in names_of_open_files() if name.startswith(f"{directory}/")]


@pytest.mark.slow
def test_threads_that_read_and_write_meet_no_other_file(few: None, tmp_path: Path, seed: int) -> None:
    failures: list[BaseException] = []
    is_over = threading.Event()

    def evict() -> None:
        try:
            while not is_over.is_set():
                POOL.close_some(3)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    def work(number: int) -> None:
        random = Random(seed + number)
        try:
            with Log(tmp_path / f"log{number % 2}", create=True) as log:
                log.create_topic(f"t{number}", partitions=5, if_not_exists=True)
                wanted: list[list[bytes]] = [[] for _ in range(5)]
                for turn in range(30):
                    at = random.randrange(5)
                    value = b"%d %d" % (number, turn)
                    log.partition(f"t{number}", at).append([ProducerRecord(value)], acks=random.choice([1, "all"]))
                    wanted[at].append(value)
                for at in range(5):
                    assert [record.value for record in log.partition(f"t{number}", at).scan()] == wanted[at]
                assert log.verify().problems == []
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    for name in ("log0", "log1"):
        Log(tmp_path / name, create=True).close()
    evictor = threading.Thread(target=evict)
    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in (evictor, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    is_over.set()
    evictor.join()
    assert failures == []


def test_a_reader_whose_segment_was_deleted_while_it_was_closed_is_told(few: None, tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log, Log(tmp_path / "log") as other:
        log.create_topic("t")
        partition, reader = log.partition("t", 0), other.partition("t", 0)
        for number in range(3):
            partition.append([ProducerRecord(b"%d" % number)])
            partition.log.roll()
        assert [record.offset for record in reader.read(0)][:1] == [0]
        close_all()
        log.delete_records(TopicPartition("t", 0), 2)
        with pytest.raises(OffsetOutOfRange):
            reader.read(0)
        assert [record.value for record in reader.read(2)] == [b"2"]


def test_what_the_application_has_open_is_room_taken_from_idle_files(tmp_path: Path) -> None:
    files = [FS.open_appendable(f"{tmp_path}/{number}") for number in range(60)]
    for file in files:
        file.close_when_idle()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 3, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        FS.open_appendable(f"{tmp_path}/one more").close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)
        for file in files:
            file.close()


def test_an_error_for_want_of_descriptors_names_the_limit_and_the_remedy(tmp_path: Path) -> None:
    close_all()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"may have 0.*ulimit -n"):
            FS.open_appendable(f"{tmp_path}/f")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_an_error_for_want_of_descriptors_of_the_machine_names_the_other_processes_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_all()
    attempts: list[str] = []

    @of_the_system
    def refuse(name: str, *_: object, **__: object) -> None:
        attempts.append(name)
        raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    monkeypatch.setattr(open_safely, "open_descriptor", refuse)
    with pytest.raises(StorageError, match=r"on this machine; close files in other processes.*fs\.file-max") as caught:
        FS.open_appendable(f"{tmp_path}/f")
    assert (caught.value.errno, attempts) == (errno.ENFILE, [f"{tmp_path}/f"])


_MANY = """
import resource, sys
limit, partitions = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
from pylog import Consumer, Log, Producer, TopicPartition
log = Log(sys.argv[1])
log.create_topic("t", partitions=partitions)
with Producer(log, acks=1) as producer:
    sent = [producer.send("t", b"x", partition=number) for _ in range(2) for number in range(partitions)]
    sent += producer.send_many("t", [b"x"] * partitions, keys=[b"%d" % number for number in range(partitions)])
    for delivery in sent:
        delivery.result()
with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
    consumer.subscribe("t")
    found = 0
    while found < len(sent):
        found += len(consumer.poll(1.0, max_records=5_000))
    consumer.poll(0.01)
assert not log.verify().problems
for number in range(0, partitions, 10):
    log.delete_records(TopicPartition("t", number), 1)
log.delete_topic("t")
log.close()
print("all", found)
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(("partitions", "limit"), [(60, 64), (1_000, 1_024)])
def test_more_partitions_than_descriptors_are_written_and_read(tmp_path: Path, partitions: int, limit: int) -> None:
    command = [sys.executable, "-c", _MANY, str(tmp_path / "log"), str(limit), str(partitions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"all {3 * partitions}\n", done.stderr
