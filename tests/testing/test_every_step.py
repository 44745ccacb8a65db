"""A program whose power is lost at every step: each moment is checked, each failure told, and the
program knows nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pylog.testing
from pylog import ProducerRecord
from pylog.testing import Killed, Machine, for_every_kill, for_every_power_loss
from pylog.testing.machine import Process
from tests.testing.test_power_loss import SECTOR, left, machine_with, write

every_crash = pytest.mark.parametrize("for_every", [for_every_power_loss, for_every_kill])


def appending(machine: Machine, told: list[int], acks: str | int) -> Callable[[], None]:
    """A program that appends, and notes what it was told."""

    def program() -> None:
        with machine.process().open_log("/log") as log:
            log.create_topic("t")
            for number in range(2):
                log.partition("t", 0).append([ProducerRecord(b"%d" % number)], acks=acks)
                told.append(number)

    return program


def holding(told: list[int]) -> Callable[[Machine], None]:
    """A check that what was told is there."""

    def check(machine: Machine) -> None:
        with machine.process().open_log("/log") as log:
            found = list(log.partition("t", 0).scan()) if "t" in log.topics() else []
        assert [int(record.value or b"") for record in found][: len(told)] == told

    return check


@pytest.mark.slow
def test_what_is_durable_survives_every_loss_of_power() -> None:
    machine, told = Machine(), list[int]()
    assert for_every_power_loss(machine, appending(machine, told, "all"), holding(told)) > 200
    assert told == [0, 1]


@pytest.mark.slow
def test_what_is_only_written_survives_every_kill_and_not_every_loss_of_power() -> None:
    machine, told = Machine(tear_writes=True), list[int]()
    assert for_every_kill(machine, appending(machine, told, 1), holding(told)) > 50
    machine, told = Machine(), list[int]()
    with pytest.raises(AssertionError, match=r"^the power was lost before step \d+ of process 1, \w+ /log/") as caught:
        for_every_power_loss(machine, appending(machine, told, 1), holding(told))
    assert isinstance(caught.value.__cause__, AssertionError)
    assert told == [0], "the program ended where the check failed"


@every_crash
@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_what_the_check_raises_ends_the_program_and_is_told_as_it_is(for_every: Any, error: BaseException) -> None:
    machine = machine_with(f=b"AAAA")
    process, ended = machine.process(), list[bool]()

    def program() -> None:
        try:
            write(process.filesystem, "f", b"x")
        except OSError:
            ended.append(False)

    def check(_machine: Machine) -> None:
        raise error

    with pytest.raises(AssertionError if isinstance(error, ValueError) else KeyboardInterrupt) as caught:
        for_every(machine, program, check)
    assert error in (caught.value, caught.value.__cause__)
    assert (ended, process.is_alive, machine.before_step) == ([], False, [])
    assert machine.disk.contents() == {"/f": b"AAAA"}


@every_crash
def test_a_failure_that_the_program_passes_over_is_told_all_the_same(for_every: Any) -> None:
    machine = machine_with(f=b"AAAA")

    def program() -> None:
        with pytest.raises(Killed):
            write(machine.process().filesystem, "f", b"x")

    with pytest.raises(AssertionError, match="before step 2 of process 2, pwrite /f"):
        for_every(machine, program, lambda _machine: 1 // 0)


@every_crash
def test_what_the_program_raises_is_its_own(for_every: Any) -> None:
    machine = machine_with(f=b"AAAA")

    def dies() -> None:
        process = machine.process()
        process.kill()
        write(process.filesystem, "f", b"x")

    with pytest.raises(Killed):
        for_every(machine, dies, lambda _machine: None)
    with pytest.raises(ZeroDivisionError):
        for_every(machine, lambda: 1 // 0, lambda _machine: None)
    assert machine.before_step == []


def test_the_end_of_the_program_is_a_moment_too() -> None:
    machine = machine_with(f=b"AAAA")
    seen: list[bytes | None] = []
    process = machine.process()
    checked = for_every_power_loss(
        machine,
        lambda: write(process.filesystem, "f", b"x"),
        lambda after: seen.append(after.disk.contents()["/f"]),
    )
    assert checked == len(seen) == 3
    assert seen == [b"AAAA", b"AAAA", b"xAAA"]  # before the write; after it, lost and kept
    assert process.is_alive
    seen.clear()
    for_every_power_loss(
        machine,
        lambda: write(process.filesystem, "f", b"BB", 4).sync(),
        lambda after: seen.append(after.disk.contents()["/f"]),
    )
    before_the_sync = seen[2:-1]
    assert len(before_the_sync) == len(set(before_the_sync)) > 2, "each once, whatever ways lead there"
    assert seen[-1] == b"xAAABB"


def test_a_moment_gives_each_state_once_and_at_most_so_many(seed: int) -> None:
    def run(at_most: int) -> list[bytes | None]:
        machine, seen = machine_with(f=b"A" * SECTOR * 8), list[bytes | None]()
        machine.seed = seed
        filesystem = machine.process().filesystem

        def program() -> None:
            for number in range(8):
                write(filesystem, "f", b"x", number * SECTOR)

        def check(after: Machine) -> None:
            seen.append(after.disk.contents()["/f"])

        assert for_every_power_loss(machine, program, check, at_most=at_most, sector_bytes=SECTOR) == len(seen)
        return seen

    assert len(run(999)) == sum(2**n for n in range(9))
    few = run(5)
    assert len(few) == sum(min(2**n, 5) for n in range(9))
    assert {b"A" * SECTOR * 8, b"xAAA" * 8} <= set(few[-5:])
    assert few == run(5), "the seed chooses"
    assert len(run(1)) == 9


def test_the_processes_and_their_locks_are_gone_after_a_crash() -> None:
    machine = machine_with(f=b"AAAA")
    process: Process = machine.process()
    assert process.filesystem.lock("/f").try_acquire()

    def check(after: Machine) -> None:
        assert after.processes == []
        assert after.process().filesystem.lock("/f").try_acquire()

    assert for_every_kill(machine, lambda: write(process.filesystem, "f", b"x"), check) == 2
    assert not machine.process().filesystem.lock("/f").try_acquire()
    assert len(left(machine)) == 2


def test_the_machine_is_found_where_the_helpers_are() -> None:
    for name in pylog.testing.__all__:
        assert getattr(pylog.testing, name).__module__.startswith("pylog.testing.")
    with pytest.raises(AttributeError, match="Nothing"):
        _ = pylog.testing.Nothing
