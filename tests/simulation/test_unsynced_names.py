"""What another process has made, and died before it synced it, is durable once a record in it is
acknowledged so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pylog import Log, ProducerRecord
from pylog.catalog import TopicDescription
from pylog.errors import TopicNotFound
from pylog.testing.machine import Image, Killed, Machine, Process, Step
from pylog.testing.machine.images import pending_units
from pylog.testing.machine.machine import SECTOR_BYTES

ROOT = "/var/lib/log"


def open_log(machine: Machine) -> Log:
    return machine.process().open_log(ROOT)


def all_lost(machine: Machine) -> Machine:
    """After a loss of power now that takes all it may take."""
    return machine.after_power_loss(Image((0,) * len(pending_units(machine.disk, SECTOR_BYTES)), "natural"))


def killed_at(number: int, work: str) -> Machine | None:
    """A machine on which whoever made the log, or did ``work`` to it, was killed at a step; None if
    it took fewer."""
    machine = Machine()
    if work != "create":
        open_log(machine).create_topic("t")
    taken = 0

    def kill(process: Process, _step: Step) -> None:
        nonlocal taken
        taken += 1
        if taken == number:
            process.kill()
            raise Killed

    machine.before_step.append(kill)
    try:
        log = open_log(machine)
        if work == "create":
            log.create_topic("t")
        else:
            log.add_partitions("t", 2)
    except Killed:
        machine.before_step.clear()
        return machine
    return None


def is_durable(machine: Machine, number: int) -> bool:
    """Whether a record acknowledged as durable in this partition is there after the power takes all
    it may."""
    with open_log(machine) as log:
        try:
            partition = log.partition("t", number)
        except TopicNotFound:
            partition = log.create_topic("t") and log.partition("t", number)
        partition.append([ProducerRecord(b"kept")])
    return [record.value for record in open_log(all_lost(machine)).partition("t", number).scan()] == [b"kept"]


@pytest.mark.slow
def test_the_power_leaves_a_topic_and_the_log_whose_maker_was_killed_at_any_step() -> None:
    number = 1
    while (machine := killed_at(number, "create")) is not None:
        assert is_durable(machine, 0), f"killed at step {number}"
        number += 1
    assert number > 50


def test_the_power_leaves_a_partition_whose_maker_was_killed_at_any_step() -> None:
    number, added = 1, 0
    while (machine := killed_at(number, "add")) is not None:
        is_there = open_log(machine).describe_topic("t").partitions == 2
        added += is_there
        assert is_durable(machine, int(is_there)), f"killed at step {number}"
        number += 1
    assert added > 2


def test_a_topic_that_is_there_already_is_durable_when_a_second_creation_returns() -> None:
    number, there = 1, 0
    while (machine := killed_at(number, "create")) is not None:
        with open_log(machine) as log:
            there += "t" in log.topics()
            log.create_topic("t", if_not_exists=True)
        assert open_log(all_lost(machine)).topics() == ["t"], f"killed at step {number}"
        number += 1
    assert there > 2


def kill_before_it_is_durable(machine: Machine, change: Callable[[], object]) -> None:
    """Kill the process that makes the change to a topic when others see it, and no loss of power
    would leave it."""

    def kill(process: Process, step: Step) -> None:
        if step.name == "sync_directory" and step.path.endswith("topics"):
            process.kill()
            raise Killed

    machine.before_step.append(kill)
    with pytest.raises(Killed):
        change()
    machine.before_step.clear()


def deletion_killed_before_it_is_durable() -> Machine:
    machine = Machine()
    with open_log(machine) as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(b"kept")])
    deleter = open_log(machine)
    kill_before_it_is_durable(machine, lambda: deleter.delete_topic("t"))
    return machine


@pytest.mark.parametrize("work", ["open", "create"])
def test_a_deletion_of_another_is_durable_before_anything_of_the_topic_goes(work: str) -> None:
    machine = deletion_killed_before_it_is_durable()
    found = []

    def look(_process: Process, _step: Step) -> None:
        log = open_log(all_lost(machine))
        values = [record.value for name in log.topics() for record in log.partition(name, 0).scan()]
        found.append((values, [str(problem) for problem in log.verify().problems]))

    machine.before_step.append(look)
    log = open_log(machine)
    if work == "create":
        log.create_topic("t")
    assert len(found) > 20
    assert [entry for entry in found if entry not in (([b"kept"], []), ([], []))] == []


def test_who_is_told_that_a_topic_is_gone_finds_it_gone_after_a_loss_of_power() -> None:
    machine = deletion_killed_before_it_is_durable()
    lock = machine.process().filesystem.lock("/var/lib/log/.pylog/catalog.lock")
    assert lock.try_acquire()
    log = open_log(machine)  # doesn't finish the deletion, which may be under way
    lock.release()
    with pytest.raises(TopicNotFound):
        log.delete_topic("t")
    assert open_log(all_lost(machine)).topics() == []


def test_a_topic_created_anew_while_another_looks_at_it_is_durable_when_that_returns() -> None:
    """Described as it is, and made durable then: between the two, the other order has room for a
    third process."""
    machine = Machine()
    first = open_log(machine)
    first.create_topic("t")
    second = open_log(machine)
    described = second.manager.describe_topic

    def after_a_third(name: str) -> TopicDescription:
        first.delete_topic("t")
        third = open_log(machine)
        kill_before_it_is_durable(machine, lambda: third.create_topic("t"))
        return described(name)

    second.manager.describe_topic = after_a_third
    topic = second.create_topic("t", if_not_exists=True)
    assert open_log(all_lost(machine)).describe_topic("t") == topic
