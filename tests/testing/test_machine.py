"""Processes of a simulated machine: what one does and another sees, how they die, and how a write
or a sync fails."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, ProducerRecord
from pylog.errors import StorageError, StorageFull
from pylog.storage.os_errors import storage_error
from pylog.testing import ManualClock
from pylog.testing.machine import Interrupted, Killed, Machine, Process, Step, SyncFailure
from tests.testing.test_power_loss import left, machine_with, write


def at_step(machine: Machine, name: str, strike: Callable[[Process], object], *, number: int = 1) -> list[Step]:
    """Call ``strike`` before the n-th step of this name, once; all steps taken from here on."""
    steps: list[Step] = []

    def before(process: Process, step: Step) -> None:
        steps.append(step)
        if [done.name for done in steps].count(name) == number and step.name == name:
            strike(process)

    machine.before_step.append(before)
    return steps


def raising(error: BaseException) -> Callable[[Process], object]:
    def strike(_process: Process) -> None:
        raise error

    return strike


def content(machine: Machine, name: str = "f") -> bytes | None:
    return machine.disk.contents()[f"/{name}"]


# Determinism


def program(machine: Machine) -> None:
    """Two processes with a log."""
    for number in range(2):
        process = machine.process()
        with process.open_log("/log") as log:
            log.create_topic("t", if_not_exists=True)
            log.partition("t", 0).append([ProducerRecord(b"%d" % number)])
            process.clock.sleep(1)


def test_the_same_seed_and_the_same_calls_give_the_same_bytes_and_steps(seed: int) -> None:
    def found(number: int) -> tuple[Any, list[Step], list[Any]]:
        machine = Machine(number)
        steps = at_step(machine, "", raising(AssertionError()))
        program(machine)
        return machine.disk.contents(), steps, [after.disk.contents() for after in machine.power_losses(samples=3)]

    first, second, other = found(seed), found(seed), found(seed + 1)
    assert first == second
    assert first[0] != other[0], "ids are drawn from the seed"
    assert [step.name for step in first[1]] == [step.name for step in other[1]]


# One disk, several processes


def test_what_one_process_writes_another_reads() -> None:
    machine = Machine()
    writer, reader = machine.process(), machine.process()
    file = write(writer.filesystem, "f", b"AAAA")
    seen = reader.filesystem.open_readable("/f")
    assert seen.pread(99, 0) == b"AAAA"
    file.pwrite(b"x", 4)
    assert (seen.pread(99, 0), seen.size(), seen.path) == (b"AAAAx", 5, "/f")
    assert writer.filesystem.process_id() != reader.filesystem.process_id()


def test_paths_are_taken_from_the_root() -> None:
    machine = machine_with(f=b"AAAA")
    filesystem = machine.process().filesystem
    for path in ("f", "/f", "./f", "//f"):
        assert filesystem.size(path) == 4
    assert filesystem.names(".") == filesystem.names("/") == filesystem.names("") == ["f"]


def test_a_copy_shares_nothing() -> None:
    machine = machine_with(f=b"AAAA", g=b"gone" * 2, d=b"")
    process = machine.process()
    filesystem = process.filesystem
    open_and_removed = filesystem.open_appendable("/g")
    filesystem.remove("/g")
    filesystem.sync_directory("/")
    write(filesystem, "f", b"B")
    machine.seconds, machine.wall_offset_ms = 5.0, 7
    assert filesystem.lock("/f").try_acquire()
    before = left(machine)

    copy = machine.copy()
    assert left(copy) == before
    twin = copy.process()
    assert twin.clock.now_ms() == process.clock.now_ms()
    assert twin.filesystem.modified_ns("/f") == filesystem.modified_ns("/f")
    assert twin.filesystem.lock("/f").try_acquire(), "nobody lives there"
    write(twin.filesystem, "f", b"CCCC", 4)
    write(twin.filesystem, "new", b"x").sync()
    twin.filesystem.remove("/d")
    twin.clock.sleep(1)
    assert left(machine) == before
    open_and_removed.pwrite(b"GONE" * 2, 0)
    write(filesystem, "f", b"x").sync()
    assert content(copy) == b"BAAACCCC"
    found = b"".join(data or b"" for after in left(copy) for data in after.values())
    assert b"gone" in found, "what it left in its blocks"
    assert b"GONE" not in found


def test_a_copy_draws_no_name_that_was_drawn_before() -> None:
    machine = Machine()
    drawn = machine.process().filesystem.random_bytes(16)
    copy = machine.copy()
    again = copy.process().filesystem.random_bytes(16)
    assert drawn != again == machine.process().filesystem.random_bytes(16)


def test_a_removed_file_that_a_loss_of_power_may_bring_back_is_one_file_in_a_copy() -> None:
    machine = machine_with(f=b"AAAA")
    machine.process().filesystem.remove("/f")
    assert left(machine.copy()) == left(machine) == [{"/f": b"AAAA"}, {}]


# Death


def test_a_kill_frees_the_locks_and_leaves_the_page_cache() -> None:
    machine = Machine()
    dying, other = machine.process(), machine.process()
    locks = [dying.filesystem.lock(f"/{name}") for name in "ab"]
    assert all(lock.try_acquire() for lock in locks)
    assert other.filesystem.lock("/c").try_acquire()
    write(dying.filesystem, "f", b"AAAA")
    dying.kill()
    assert content(machine) == b"AAAA"
    assert [other.filesystem.lock(f"/{name}").try_acquire() for name in "abc"] == [True, True, False]


def test_a_dead_process_changes_nothing_and_sees_nothing() -> None:
    machine = machine_with(f=b"AAAA")
    machine.process().filesystem.make_directory("/d")
    dead, other = machine.process(), machine.process()
    filesystem = dead.filesystem
    file, lock, late = filesystem.open_appendable("/f"), filesystem.lock("/l"), filesystem.lock("/l")
    assert lock.try_acquire()
    dead.kill()
    taken = other.filesystem.lock("/l")
    assert taken.try_acquire()
    before, steps = machine.disk.contents(), dead.steps
    for call in (
        lambda: file.pwrite(b"x", 0),
        lambda: file.pread(1, 0),
        file.size,
        file.sync,
        lambda: file.truncate(0),
        late.try_acquire,
        lambda: filesystem.open_readable("/f"),
        lambda: filesystem.open_appendable("/new"),
        lambda: filesystem.lock("/new"),
        lambda: filesystem.locks_exclude("/new"),
        lambda: filesystem.exists("/f"),
        lambda: filesystem.is_directory("/d"),
        lambda: filesystem.names("/"),
        lambda: filesystem.size("/f"),
        lambda: filesystem.modified_ns("/f"),
        lambda: filesystem.make_directory("/new"),
        lambda: filesystem.replace("/f", "/g"),
        lambda: filesystem.remove("/f"),
        lambda: filesystem.remove("/none"),
        lambda: filesystem.remove_directory("/d"),
        lambda: filesystem.sync_directory("/"),
        lambda: dead.clock.sleep(1),
    ):
        with pytest.raises(Killed):
            call()
    for harmless in (file.close, lock.release, lock.close, late.abandon):
        harmless()
    assert (machine.disk.contents(), dead.steps, machine.seconds) == (before, steps, 0.0)
    assert not other.filesystem.lock("/l").try_acquire(), "the living holder keeps it"


def test_a_process_killed_before_a_step_has_not_taken_it() -> None:
    machine = machine_with(f=b"AAAA")
    process = machine.process()
    at_step(machine, "pwrite", lambda process: process.kill())
    with pytest.raises(Killed):
        write(process.filesystem, "f", b"x")
    assert not process.is_alive
    assert content(machine) == b"AAAA"


def test_every_change_is_a_step_that_says_so() -> None:
    machine = Machine()
    steps = at_step(machine, "", raising(AssertionError()))
    filesystem = machine.process().filesystem
    file = write(filesystem, "f", b"AAAA")
    file.truncate(1)
    file.sync()
    filesystem.make_directory("/d")
    filesystem.make_directory("/d/e")
    filesystem.replace("/f", "/g")
    filesystem.remove("/g")
    filesystem.remove_directory("/d/e")
    filesystem.sync_directory("/")
    changes = len(steps)
    assert all(step.changes for step in steps)
    assert steps[:2] == [Step("create", "/f"), Step("pwrite", "/f", 4)]
    assert [step.path for step in steps if step.name == "mkdir"] == ["/d", "/d/e"]
    filesystem.exists("/f")
    filesystem.remove("/f")
    filesystem.make_directory("/d")
    filesystem.names("/")
    assert not any(step.changes for step in steps[changes:])


def test_what_another_process_does_before_a_step_counts() -> None:
    """Each answer is that of the moment at which the step is taken, not of the call."""
    machine = machine_with(f=b"AAAA")
    other, process = machine.process().filesystem, machine.process()
    filesystem = process.filesystem

    def just_before(name: str, work: Callable[[], object]) -> None:
        def before(acting: Process, step: Step) -> None:
            if acting is process and step.name == name:
                machine.before_step.clear()
                work()

        machine.before_step.append(before)

    filesystem.make_directory("/d")
    just_before("mkdir", lambda: other.remove_directory("/d"))
    with pytest.raises(StorageError, match="No such file"):
        filesystem.make_directory("/d/e")
    filesystem.make_directory("/d")
    just_before("mkdir", lambda: other.make_directory("/d/e"))
    filesystem.make_directory("/d/e")
    just_before("rmdir", lambda: other.remove_directory("/d/e"))
    filesystem.remove_directory("/d/e")
    write(filesystem, "d/f", b"")
    just_before("remove", lambda: (other.remove("/d/f"), other.remove_directory("/d")))
    filesystem.remove("/d/f")
    just_before("create", lambda: write(other, "new", b"AAAA"))
    assert filesystem.open_appendable("/new").size() == 4
    just_before("open", lambda: other.remove("/f"))
    with pytest.raises(FileNotFoundError):
        filesystem.open_readable("/f")
    assert machine.disk.contents() == {"/new": b"AAAA"}


# Writes and syncs that fail


@pytest.mark.parametrize("written", range(5))
@pytest.mark.parametrize(
    "error", [Killed(), storage_error("write", "/f", OSError(errno.ENOSPC, "")), KeyboardInterrupt()]
)
def test_a_torn_write_leaves_exactly_its_beginning(written: int, error: BaseException) -> None:
    machine = machine_with(f=b"AAAA")
    at_step(machine, "pwrite", raising(Interrupted(written, error)))
    process = machine.process()
    with pytest.raises(type(error)) as caught:
        write(process.filesystem, "f", b"xyzw", 2)
    assert caught.value is error
    assert content(machine) == (b"AA" + b"xyzw"[:written]).ljust(4, b"A")


def test_a_process_killed_during_a_write_leaves_what_it_wrote_and_no_more() -> None:
    machine = machine_with(f=b"")

    def strike(process: Process) -> None:
        process.kill()
        raise Interrupted(2, Killed())

    at_step(machine, "pwrite", strike)
    with pytest.raises(Killed):
        write(machine.process().filesystem, "f", b"xyzw")
    assert content(machine) == b"xy"


def test_a_process_killed_before_a_write_that_fails_writes_nothing() -> None:
    machine = machine_with(f=b"")

    def strike(process: Process) -> None:
        process.kill()
        raise Interrupted(2, KeyboardInterrupt())

    at_step(machine, "pwrite", strike)
    with pytest.raises(KeyboardInterrupt):
        write(machine.process().filesystem, "f", b"xyzw")
    assert content(machine) == b""


def test_no_space_left_is_what_pylog_takes_it_for() -> None:
    machine = Machine()
    process = machine.process()
    log = process.open_log("/log")
    log.create_topic("t")
    at_step(machine, "pwrite", raising(Interrupted(3, storage_error("write", "/f", OSError(errno.ENOSPC, "")))))
    with pytest.raises(StorageFull):
        log.partition("t", 0).append([ProducerRecord(b"x")])
    assert log.partition("t", 0).append([ProducerRecord(b"x")]).base_offset == 0


@pytest.mark.parametrize(
    ("behaviour", "read", "lost", "after_another_sync", "after_another_write"),
    [
        ("dirty", b"Axxx", [b"AAAA", b"Axxx"], b"Axxx", b"Axyx"),
        ("clean", b"Axxx", [b"AAAA"], b"AAAA", b"Axyx"),
        ("lost", b"AAAA", [b"AAAA"], b"AAAA", b"AAyA"),
    ],
)
def test_a_sync_fails_as_filesystems_do(
    behaviour: str, read: bytes, lost: list[bytes], after_another_sync: bytes, after_another_write: bytes
) -> None:
    machine = machine_with(f=b"AAAA")
    at_step(machine, "sync", raising(SyncFailure(behaviour)))
    file = write(machine.process().filesystem, "f", b"xxx", 1)
    with pytest.raises(StorageError, match="sync") as caught:
        file.sync()
    assert (caught.value.errno, caught.value.path) == (errno.EIO, "/f")
    assert file.pread(9, 0) == read
    assert [contents["/f"] for contents in left(machine)] == lost
    file.sync()
    assert left(machine) == [{"/f": after_another_sync}], "a sync that succeeds later says nothing of what was let go"
    file.pwrite(b"y", 2)
    file.sync()
    assert left(machine) == [{"/f": after_another_write}], "a page is written whole"


def test_a_sync_fails_in_no_other_way() -> None:
    machine = machine_with(f=b"AAAA")
    at_step(machine, "sync", raising(SyncFailure("politely")))
    with pytest.raises(ValueError, match="politely"):
        machine.process().filesystem.open_appendable("/f").sync()


def test_a_torn_write_is_seen_half_done_by_others() -> None:
    machine = Machine(tear_writes=True)
    reader = machine.process().filesystem
    file = machine.process().filesystem.open_appendable("/f")
    seen: list[bytes] = []
    at_step(machine, "pwrite", lambda _process: seen.append(reader.open_readable("/f").pread(99, 0)), number=2)
    file.pwrite(b"0123456789A", 0)
    assert seen == [b"01234567"]
    assert content(machine) == b"0123456789A"
    steps = at_step(machine, "", raising(AssertionError()))
    file.pwrite(b"x", 0)
    assert steps == [Step("pwrite", "/f", 1)], "one byte is not torn"
    assert machine.copy().tear_writes
    assert all(after.tear_writes for after in machine.power_losses())


# Time


def test_the_clock_stands_until_somebody_sleeps() -> None:
    machine = Machine()
    one, other = machine.process().clock, machine.process().clock
    wall, monotonic = one.now_ms(), one.monotonic()
    assert (other.now_ms(), other.monotonic()) == (wall, monotonic)
    one.sleep(2.5)
    condition = threading.Condition()
    with condition:
        other.wait(condition, 0.5)
    assert (one.now_ms(), one.monotonic()) == (wall + 3000, monotonic + 3)
    machine.wall_offset_ms = -60_000
    assert (one.now_ms(), one.monotonic()) == (wall - 57_000, monotonic + 3)


def test_a_manual_clock_is_moved_by_whoever_waits() -> None:
    clock = ManualClock(start_ms=5)
    assert (clock.now_ms(), clock.monotonic()) == (5, 0.0)
    clock.advance(1)
    clock.sleep(0.5)
    clock.wait(None, 0.25)
    assert (clock.now_ms(), clock.monotonic()) == (1755, 1.75)


def test_a_poll_moves_a_manual_clock_by_as_long_as_it_would_have_waited(tmp_path: Path) -> None:
    clock = ManualClock(start_ms=5)
    with Log(tmp_path / "log", clock=clock) as log:
        log.create_topic("t")
        with Consumer(log) as consumer:
            consumer.subscribe("t")
            before = clock.monotonic()
            assert consumer.poll() == []
            assert clock.monotonic() == before
            assert consumer.poll(5.0) == []
            assert clock.monotonic() == pytest.approx(before + 5)
            log.partition("t", 0).append([ProducerRecord(b"v")], acks=1)
            before = clock.monotonic()
            assert len(consumer.poll(5.0)) == 1
            assert clock.monotonic() == before


def test_a_schedule_decides_what_a_sleep_is() -> None:
    machine = Machine()
    process = machine.process()
    slept: list[float] = []
    machine.sleeper = slept.append
    process.clock.sleep(2.5)
    assert slept == [2.5]
    assert machine.seconds == 0.0


def test_file_times_are_coarse() -> None:
    machine = Machine()
    filesystem = machine.process().filesystem
    times = []
    for _ in range(8):
        write(filesystem, "f", b"x")
        times.append(filesystem.modified_ns("/f"))
        machine.seconds += 0.001
    assert times == sorted(times)
    assert len(set(times)) == 2


def test_file_times_of_another_boot_are_later() -> None:
    machine = machine_with(f=b"AAAA")
    (after,) = machine.power_losses()
    filesystem = after.process().filesystem
    before = filesystem.modified_ns("/f")
    write(filesystem, "f", b"x")
    assert filesystem.modified_ns("/f") > before == machine.process().filesystem.modified_ns("/f")


@pytest.mark.processes
def test_the_pytest_plugin_does_not_load_the_machine() -> None:
    program = (
        "import sys, pylog.testing.pytest_plugin; print([name for name in sys.modules if 'testing.machine' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


# What the system answers


def test_a_full_disk_that_a_hook_makes_is_the_error_of_a_full_disk() -> None:
    """For a program it is one thing: ``StorageFull``, nothing appended, and the next append goes
    on."""
    machine = Machine()
    process = machine.process()
    with process.open_log("/log") as log:
        log.create_topic("t")
        partition = log.partition("t", 0)
        partition.append([ProducerRecord(b"a")])

        def full(_process: Process, step: Step) -> None:
            if step.name == "pwrite" and step.path.endswith(".log"):
                raise OSError(errno.ENOSPC, "No space left on device")

        machine.before_step.append(full)
        with pytest.raises(StorageFull, match="No space left on device; free space and try again"):
            partition.append([ProducerRecord(b"b")])
        machine.before_step.clear()
        assert partition.append([ProducerRecord(b"c")]).base_offset == 1
        assert [record.value for record in partition.read(0)] == [b"a", b"c"]


CALLS: dict[str, Callable[[Any], object]] = {
    "open": lambda fs: fs.open_readable("/f"),
    "create": lambda fs: fs.open_appendable("/new"),
    "pread": lambda fs: fs.open_readable("/f").pread(1, 0),
    "pwrite": lambda fs: fs.open_appendable("/f").pwrite(b"B", 0),
    "truncate": lambda fs: fs.open_appendable("/f").truncate(0),
    "sync": lambda fs: fs.open_appendable("/f").sync(),
    "lock": lambda fs: fs.lock("/f").try_acquire(),
    "is_locked": lambda fs: fs.is_locked("/f"),
    "exists": lambda fs: fs.exists("/f"),
    "is_directory": lambda fs: fs.is_directory("/f"),
    "names": lambda fs: fs.names("/"),
    "size": lambda fs: fs.size("/f"),
    "modified": lambda fs: fs.modified_ns("/f"),
    "set_modified": lambda fs: fs.set_modified_ns("/f", 0),
    "mkdir": lambda fs: fs.make_directory("/d"),
    "replace": lambda fs: fs.replace("/f", "/g"),
    "remove": lambda fs: fs.remove("/f"),
    "rmdir": lambda fs: fs.remove_directory("/f"),
    "sync_directory": lambda fs: fs.sync_directory("/"),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_of_the_system_is_answered_as_the_real_filesystem_does(name: str) -> None:
    for number, kind in ((errno.EIO, StorageError), (errno.ENOSPC, StorageFull)):
        machine = machine_with(f=b"AAAA")
        at_step(machine, name, raising(OSError(number, "x")))
        with pytest.raises(StorageError, match=r"^cannot [a-z]+ ") as caught:
            CALLS[name](machine.process().filesystem)
        assert (type(caught.value), caught.value.errno) == (kind, number)
        assert caught.value.path in ("/f", "/new", "/d", "/")


def test_a_write_that_stops_half_way_is_answered_so_too() -> None:
    machine = machine_with(f=b"AAAA")
    at_step(machine, "pwrite", raising(Interrupted(2, OSError(errno.ENOSPC, "x"))))
    with pytest.raises(StorageFull, match="cannot write '/f'"):
        machine.process().filesystem.open_appendable("/f").pwrite(b"BBBB", 0)
    assert content(machine) == b"BBAA"


@pytest.mark.parametrize("error", [TimeoutError("of a handler"), FileNotFoundError(errno.ENOENT, "x"), ValueError("x")])
def test_what_is_no_refusal_of_the_system_goes_through_as_it_is(error: Exception) -> None:
    machine = machine_with(f=b"AAAA")
    at_step(machine, "pread", raising(error))
    with pytest.raises(type(error)) as caught:
        machine.process().filesystem.open_readable("/f").pread(1, 0)
    assert caught.value is error
    process = machine.process()
    at_step(machine, "sleep", raising(OSError(errno.EIO, "x")))
    with pytest.raises(OSError, match="x"):
        process.clock.sleep(1)
