"""What a crash leaves beside the segments, found on simulated machines: each of these once misled
whoever came later."""

from __future__ import annotations

from contextlib import suppress

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import StorageError, StorageFull, TopicExists, TopicNotFound
from pylog.testing.machine import Killed, Machine, Process, Step, for_every_kill
from tests.partition.logs import batch, topic_of
from tests.simulation.actors import kill_at

LOG = "/log/t-0/00000000000000000001.log"
SEAL_OF_LOST = "/log/t-0/00000000000000000001.seal"
SNAPSHOT = "/log/t-0/00000000000000000001.snapshot"


def open_log(machine: Machine) -> Log:
    return machine.process().open_log("/log")


def two_segments(machine: Machine, *, acks: int | str) -> Log:
    """Offset 0 in a segment that is closed and sealed, offset 1 in another."""
    log = open_log(machine)
    log.create_topic("t")
    for value in (b"first", b"second"):
        partition = log.partition("t", 0)
        partition.append([ProducerRecord(value)], acks=acks)
        partition.log.roll()
    return log


def powered_off(machine: Machine, **files: bytes | None) -> Machine:
    """Another boot that finds everything, but for what ``files`` says of the two files above."""
    again = Machine(1, disk=machine.copy().disk, boot=2)
    filesystem = again.process().filesystem
    for name, content in files.items():
        path = {"log": LOG, "snapshot": SNAPSHOT}[name]
        filesystem.remove(path)
        if content is not None:
            filesystem.open_appendable(path).pwrite(content, 0)
    return again


def test_the_seal_of_a_segment_that_was_lost_does_not_accuse_the_next_of_its_name() -> None:
    machine = Machine()
    two_segments(machine, acks=1).close()
    assert SEAL_OF_LOST in machine.disk.contents()
    again = powered_off(machine, log=None)
    log = open_log(again)
    partition = log.partition("t", 0)
    assert partition.latest_offset == 1
    partition.log.roll()
    assert SEAL_OF_LOST not in again.disk.contents()
    partition.append([ProducerRecord(b"another")])
    partition.log.roll()
    assert [record.value for record in partition.scan()] == [b"first", b"another"]
    assert log.verify().problems == []


@pytest.mark.parametrize("torn", [b"", b"\0" * 10, b"noise"])
def test_a_snapshot_that_a_loss_of_power_has_torn_is_made_anew(torn: bytes) -> None:
    machine = Machine()
    two_segments(machine, acks=1).close()
    log = open_log(powered_off(machine, snapshot=torn))
    log.partition("t", 0).append([ProducerRecord(b"third")])
    assert log.verify().problems == []


def test_a_snapshot_inside_a_segment_that_a_loss_of_power_has_torn_is_removed() -> None:
    machine = Machine()
    two_segments(machine, acks=1).close()
    again = powered_off(machine)
    inner = "/log/t-0/00000000000000000007.snapshot"
    again.process().filesystem.open_appendable(inner).pwrite(b"noise", 0)
    log = open_log(again)
    log.partition("t", 0).append([ProducerRecord(b"%d" % number) for number in range(9)])
    assert log.verify().problems == []


def test_a_snapshot_at_the_durable_end_is_durable_itself() -> None:
    machine = Machine()
    two_segments(machine, acks=1).partition("t", 0).append([ProducerRecord(b"third")], acks="all")
    for image in machine.power_losses():
        assert image.disk.contents()[SNAPSHOT] == machine.disk.contents()[SNAPSHOT]


def test_epochs_made_again_hold_for_the_records_before_the_log_start_too() -> None:
    machine = Machine()
    log = open_log(machine)
    log.create_topic("t")
    log.partition("t", 0).append([ProducerRecord(b"first"), ProducerRecord(b"second")], acks="all")
    log.partition("t", 0).log.delete_before(1)
    again = Machine(1, disk=machine.copy().disk, boot=2)
    again.process().filesystem.open_appendable("/log/t-0/leader-epoch-checkpoint").truncate(0)
    log = open_log(again)
    assert log.partition("t", 0).earliest_offset == 1
    assert log.verify().problems == []


def test_files_of_deleted_records_that_a_loss_of_power_brought_back_go() -> None:
    machine = Machine()
    log = two_segments(machine, acks=1)
    log.partition("t", 0).append([ProducerRecord(b"third")], acks=1)
    first = machine.disk.contents()["/log/t-0/00000000000000000000.log"]
    log.partition("t", 0).log.delete_before(2)
    again = powered_off(machine)
    assert first is not None
    again.process().filesystem.open_appendable("/log/t-0/00000000000000000000.log").pwrite(first, 0)
    assert open_log(again).verify().problems == []
    reader = again.process()
    with reader.open_log("/log", read_only=True) as log:
        assert [record.value for record in log.partition("t", 0).scan()] == [b"third"]
    partition = open_log(again).partition("t", 0)
    partition.append([ProducerRecord(b"fourth")])
    assert [record.value for record in partition.scan()] == [b"third", b"fourth"]
    assert "/log/t-0/00000000000000000000.log" not in again.disk.contents()


def test_a_deletion_cut_off_at_any_step_is_finished_by_the_next_to_open() -> None:
    machine = Machine()
    two_segments(machine, acks="all").close()
    deleter = machine.process()

    def check(killed: Machine) -> None:
        with open_log(killed) as log:
            if log.topics():
                assert log.partition("t", 0).latest_offset == 2
            else:
                assert [path for path in killed.disk.contents() if "t-0" in path or ".gone" in path] == []
            assert log.verify().problems == []

    with deleter.open_log("/log") as log:
        assert for_every_kill(machine, lambda: log.delete_topic("t"), check) > 20


@pytest.mark.slow
@pytest.mark.parametrize("again", ["create", "delete", "open"])
def test_a_deletion_cut_off_at_any_step_leaves_no_directory_that_nothing_sweeps(again: str) -> None:
    """Whatever another process does next, which has the log open already: no records are left to be
    moved aside."""
    killed, steps = True, 0
    while killed:
        machine = Machine()
        other = open_log(machine)
        other.create_topic("t", partitions=2)
        for number in range(2):
            other.partition("t", number).append([ProducerRecord(b"value")], acks=1)
        deleter = machine.process()
        log = deleter.open_log("/log")
        kill_at(deleter, deleter.steps + 1 + steps)
        steps += 1
        try:
            log.delete_topic("t")
            killed = False
        except Killed:
            pass
        with suppress(TopicExists, TopicNotFound):
            if again == "create":
                other.create_topic("t", partitions=2)
            elif again == "delete":
                other.delete_topic("t")
        with open_log(machine) as log:
            allowed = {f"t-{number}" for number in range(2)} if log.topics() else set()
            assert {path.split("/")[2] for path in machine.disk.contents() if "/t-" in path} == allowed
            assert log.verify().problems == []
    assert steps > 40


@pytest.mark.parametrize("held", ["/log/.pylog/catalog.lock", "/log/t-0/.lock"])
def test_opening_does_not_wait_for_a_deletion_under_way(held: str) -> None:
    machine = Machine()
    two_segments(machine, acks="all").close()
    filesystem = machine.process().filesystem
    filesystem.replace("/log/.pylog/topics/t.json", "/log/.pylog/topics/t.gone")
    lock = filesystem.lock(held)
    assert lock.try_acquire()
    seconds = machine.seconds
    assert open_log(machine).topics() == []
    assert machine.seconds - seconds < 0.01, "more than the tick of the kernel that a new time of a directory takes"
    assert "/log/t-0" in machine.disk.contents()


def test_a_deletion_of_long_ago_that_a_copy_brought_back_removes_nothing_of_the_topic_that_is_there() -> None:
    machine = Machine()
    two_segments(machine, acks="all").close()
    filesystem = machine.process().filesystem
    file = filesystem.open_readable("/log/.pylog/topics/t.json")
    filesystem.open_appendable("/log/.pylog/topics/t.gone").pwrite(file.pread(4096, 0), 0)
    log = open_log(machine)
    assert [record.value for record in log.partition("t", 0).scan()] == [b"first", b"second"]


def test_a_deletion_that_cannot_be_finished_keeps_nobody_from_creating_other_topics() -> None:
    machine = Machine()
    two_segments(machine, acks="all").close()
    filesystem = machine.process().filesystem
    filesystem.replace("/log/.pylog/topics/t.json", "/log/.pylog/topics/t.gone")

    def refuse(_process: Process, step: Step) -> None:
        if step.name == "replace" and "/t-0" in step.path:
            raise StorageError("cannot rename", path=step.path)

    machine.before_step.append(refuse)
    log = open_log(machine)
    log.create_topic("u")
    assert log.topics() == ["u"]


@pytest.mark.slow
def test_what_producers_sent_in_deleted_records_is_known_after_a_loss_of_power() -> None:
    machine = Machine()
    log = open_log(machine)
    partition = topic_of(log, "t")
    partition.log.append_batch(batch(b"sent", producer_id=7, epoch=0, sequence=0))
    partition.log.roll()
    partition.append([ProducerRecord(b"another")], acks=1)
    partition.log.delete_before(1)
    for image in machine.power_losses():
        partition = open_log(image).partition("t", 0)
        assert partition.earliest_offset == 1
        assert partition.log.append_batch(batch(b"sent", producer_id=7, epoch=0, sequence=0)).duplicate


def test_a_deletion_cut_off_is_finished_by_who_creates_the_topic_again() -> None:
    machine = Machine()
    two_segments(machine, acks="all").close()
    log = open_log(machine)
    machine.process().filesystem.replace("/log/.pylog/topics/t.json", "/log/.pylog/topics/t.gone")
    log.create_topic("t")
    assert log.partition("t", 0).latest_offset == 0
    assert not [path for path in machine.disk.contents() if "-delete" in path or "-stray" in path or ".gone" in path]


def test_a_deletion_whose_file_is_damaged_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    two_segments(machine, acks="all").close()
    machine.process().filesystem.replace("/log/.pylog/topics/t.json", "/log/.pylog/topics/t.gone")
    machine.process().filesystem.open_appendable("/log/.pylog/topics/t.gone").pwrite(b"?", 0)
    assert open_log(machine).topics() == []
    assert LOG in machine.disk.contents()
    assert "is left as it is" in caplog.text


def test_a_snapshot_of_the_end_that_is_an_older_one_does_not_hide_what_a_producer_sent() -> None:
    """A loss of power gave it the blocks of a file that was removed: whole, of the right size, and
    of another offset."""
    machine = Machine()
    log = open_log(machine)
    partition = topic_of(log, "t")
    for sequence in range(2):
        partition.log.append_batch(batch(b"sent", producer_id=7, epoch=0, sequence=sequence))
        if sequence == 0:
            partition.log.roll()
    partition.log.sync(2)
    older = machine.disk.contents()[SNAPSHOT]
    assert older is not None
    again = powered_off(machine)
    again.process().filesystem.open_appendable("/log/t-0/00000000000000000002.snapshot").pwrite(older, 0)
    for _ in range(2):
        partition = open_log(again).partition("t", 0)
        assert partition.log.append_batch(batch(b"sent", producer_id=7, epoch=0, sequence=1)).duplicate


@pytest.mark.slow
def test_a_seal_of_an_earlier_segment_is_gone_for_good_when_the_segment_is_closed() -> None:
    """Its maker was killed between two looks at the segment, and it is durable."""
    seal = None
    for value in (b"x", b"y"):
        machine = Machine()
        log = open_log(machine)
        partition = topic_of(log, "t")
        partition.append([ProducerRecord(value)])
        if seal is not None:
            filesystem = machine.process().filesystem
            file = filesystem.open_appendable("/log/t-0/00000000000000000000.seal")
            file.pwrite(seal, 0)
            file.sync()
            filesystem.sync_directory("/log/t-0")
        partition.log.roll()
        seal = machine.disk.contents()["/log/t-0/00000000000000000000.seal"]
    partition.append([ProducerRecord(b"z")], acks=1)
    for image in machine.power_losses():
        assert [record.value for record in open_log(image).partition("t", 0).scan()] in ([b"y"], [b"y", b"z"])


def test_after_a_deletion_that_failed_the_topic_is_gone_for_all_processes_or_none_is_told_so() -> None:
    """The disk was full when its deleter gave the catalog a new time: the catalog has the time of
    the change before."""
    machine = Machine()
    deleter = open_log(machine)
    topic_of(deleter, "t")
    other, stale = open_log(machine), open_log(machine)

    def full(process: Process, step: Step) -> None:
        if step.name == "create" and step.path.endswith("/.changed"):
            raise StorageFull("no space left on device", path=step.path)

    stale.partition("t", 0).append([ProducerRecord(b"before")])
    machine.before_step.append(full)
    with pytest.raises(StorageFull):
        deleter.delete_topic("t")
    with pytest.raises(StorageFull):
        other.delete_topic("t")
    machine.before_step.clear()
    with pytest.raises(TopicNotFound):
        other.delete_topic("t")
    with pytest.raises(TopicNotFound):
        stale.partition("t", 0)
