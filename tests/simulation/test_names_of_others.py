"""What another process has made, and died before it synced it, is durable once a record in it is acknowledged so."""

from __future__ import annotations

from pylog import Log, ProducerRecord
from pylog.errors import TopicNotFound
from pylog.testing.machine import Image, Killed, Machine, Process, Step
from pylog.testing.machine.images import pending_units
from pylog.testing.machine.machine import SECTOR_BYTES

ROOT = "/var/lib/log"


def open_log(machine: Machine) -> Log:
    process = machine.process()
    return Log(ROOT, filesystem=process.filesystem, clock=process.clock)


def killed_at(number: int, work: str) -> Machine | None:
    """A machine on which whoever made the log, or did ``work`` to it, was killed at a step; None if it took fewer."""
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
    """Whether a record acknowledged as durable in this partition is there after the power takes all it may."""
    with open_log(machine) as log:
        try:
            partition = log.partition("t", number)
        except TopicNotFound:
            partition = log.create_topic("t") and log.partition("t", number)
        partition.append([ProducerRecord(b"kept")])
    nothing = Image((0,) * len(pending_units(machine.disk, SECTOR_BYTES)), "natural")
    return [record.value for record in open_log(machine.after_power_loss(nothing)).partition("t", number).scan()] == [
        b"kept"
    ]


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
        nothing = Image((0,) * len(pending_units(machine.disk, SECTOR_BYTES)), "natural")
        assert open_log(machine.after_power_loss(nothing)).topics() == ["t"], f"killed at step {number}"
        number += 1
    assert there > 2
