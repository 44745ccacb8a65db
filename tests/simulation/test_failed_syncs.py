"""After a sync that failed nothing is acknowledged that the medium does not have, whichever file it
was and whatever it left."""

from __future__ import annotations

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import OutcomeUnknown, StorageError
from pylog.testing.machine import Killed, Machine, Process, Step, SyncFailure
from tests.partition.logs import batch, marker, topic_of

BEHAVIOURS = ("dirty", "clean", "lost")


class FailingSync:
    """Lets the first sync of a file of this kind fail."""

    def __init__(self, suffix: str, behaviour: str) -> None:
        self.suffix = suffix
        self.behaviour = behaviour
        self.synced: list[str] = []

    def __call__(self, _process: Process, step: Step) -> None:
        if step.name == "sync" and step.path.endswith(self.suffix):
            self.synced.append(step.path)
            if len(self.synced) == 1:
                raise SyncFailure(self.behaviour)


def open_log(machine: Machine) -> Log:
    return machine.process().open_log("/log")


def with_a_closed_segment(machine: Machine) -> Log:
    """Offsets 0 to 3 in a closed segment, 4 in the active one; nothing of it was synced."""
    log = open_log(machine)
    partition = topic_of(log, "t", index_interval_bytes=64)
    for number in range(4):
        partition.append([ProducerRecord(b"%d" % number * 40)], acks=1)
    partition.log.roll()
    partition.append([ProducerRecord(b"4" * 40)], acks=1)
    return log


def durable_offsets(machine: Machine, end: int) -> set[int]:
    """Those below ``end`` that are there after each of some losses of power."""
    found = set(range(end))
    for number, image in enumerate(machine.power_losses(samples=5)):
        if number == 40:
            break
        partition = open_log(image).partition("t", 0)
        found &= {record.offset for record in partition.scan() if record.value == b"%d" % record.offset * 40}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("suffix", ["0000.log", "0004.log", ".index", ".timeindex", ".snapshot"])
def test_what_is_acknowledged_after_a_failed_sync_is_durable(suffix: str, behaviour: str) -> None:
    machine = Machine()
    log = with_a_closed_segment(machine)
    failing = FailingSync(suffix, behaviour)
    machine.before_step.append(failing)
    partition = log.partition("t", 0)
    is_of_a_log = suffix.endswith(".log")
    try:
        partition.log.sync(5)
        acknowledged = True
    except OutcomeUnknown:
        acknowledged = False
    assert failing.synced, "nothing failed"
    assert acknowledged is not (is_of_a_log and behaviour == "lost")  # only then nobody has the bytes any more
    if acknowledged:
        assert durable_offsets(machine, 5) == {0, 1, 2, 3, 4}
        assert log.verify().problems == []


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_no_file_of_a_segment_is_synced_again_after_it_failed(behaviour: str) -> None:
    for suffix in ("0000.log", ".index", ".timeindex", ".snapshot"):
        machine = Machine()
        log = with_a_closed_segment(machine)
        inodes: list[int] = []

        def note(process: Process, step: Step, inodes: list[int] = inodes, suffix: str = suffix) -> None:
            if step.name == "sync" and step.path.endswith(suffix):
                inodes.append(process.machine.disk.look(step.path).number)  # type: ignore[union-attr]
                if len(inodes) == 1:
                    raise SyncFailure(behaviour)

        machine.before_step.append(note)
        for _ in range(3):
            try:
                log.partition("t", 0).log.sync(5)
            except OutcomeUnknown:
                continue
        assert inodes.count(inodes[0]) == 1, suffix


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.one_in(6)
def test_slots_that_a_failed_sync_took_back_are_put_back(behaviour: str) -> None:
    machine = Machine()
    log = with_a_closed_segment(machine)
    log.partition("t", 0).log.sync(5)
    machine.before_step.append(FailingSync(".commit", behaviour))
    with pytest.raises(StorageError):
        log.partition("t", 0).log.delete_before(2)
    machine.before_step.clear()
    log.partition("t", 0).append([ProducerRecord(b"5" * 40)], acks="all")
    assert [record.offset for record in open_log(machine).partition("t", 0).scan()] == [2, 3, 4, 5]
    for image in machine.power_losses():
        assert open_log(image).partition("t", 0).latest_offset == 6


def test_no_reader_sees_aborted_records_while_a_segment_is_made_again() -> None:
    machine = Machine()
    log = open_log(machine)
    partition = topic_of(log, "t")
    partition.log.append_batch(batch(b"aborted", producer_id=7, epoch=0, sequence=0, transactional=True))
    partition.log.append_batch(marker(7, 0, commit=False))
    partition.log.roll()
    partition.append([ProducerRecord(b"plain")], acks=1)
    reader = open_log(machine).partition("t", 0)
    failing, seen, looking = FailingSync("0000.log", "clean"), set(), []

    def look(process: Process, step: Step) -> None:
        if not looking:
            looking.append(True)
            seen.add(tuple(record.value for record in reader.read(0, isolation_level="read_committed")))
            looking.clear()

    machine.before_step += [failing, look]
    partition.log.sync(3)
    assert failing.synced
    assert seen == {(b"plain",)}


@pytest.mark.slow
def test_deleting_records_again_finishes_what_a_failed_sync_left() -> None:
    machine = Machine()
    log = with_a_closed_segment(machine)
    machine.before_step.append(FailingSync(".commit", "clean"))
    with pytest.raises(StorageError):
        log.partition("t", 0).log.delete_before(4)
    assert log.partition("t", 0).log.delete_before(4) == 4
    assert "/log/t-0/00000000000000000000.log" not in machine.disk.contents()
    for image in machine.power_losses():
        assert open_log(image).partition("t", 0).earliest_offset == 4


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_log_start_that_another_ones_failed_sync_left_is_durable_before_it_is_relied_on(behaviour: str) -> None:
    machine = Machine()
    log = with_a_closed_segment(machine)
    machine.before_step.append(FailingSync(".commit", behaviour))
    with pytest.raises(StorageError):
        log.partition("t", 0).log.delete_before(3)
    assert open_log(machine).partition("t", 0).log.delete_before(2) == 3
    for image in machine.power_losses():
        assert open_log(image).partition("t", 0).earliest_offset == 3


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_slots_whose_sync_failed_for_a_process_that_died_are_written_before_they_are_synced(behaviour: str) -> None:
    machine = Machine()
    log = with_a_closed_segment(machine)
    failing = FailingSync(".commit", behaviour)

    def kill(process: Process, step: Step) -> None:
        if failing.synced and step.name == "pwrite" and step.path.endswith(".commit"):
            process.kill()
            raise Killed

    machine.before_step += [kill, failing]
    with pytest.raises(Killed):
        log.partition("t", 0).log.delete_before(3)
    machine.before_step.clear()
    start = open_log(machine).partition("t", 0).log.delete_before(2)
    assert start >= 2
    for image in machine.power_losses():
        assert open_log(image).partition("t", 0).earliest_offset == start
