"""Repairs within one boot that errors cut short, any number of times: the next writer leaves a log
that is whole.

After a loss of power the slots are of another boot, so every writer recovers until one has
finished: ``test_recoveries.py``. Within one boot the slots look right to the next writer, which
must be told that a recovery is unfinished.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from pylog import Consumer, Log, ProducerRecord, TopicPartition
from pylog.errors import PylogError
from pylog.partition.commit_slots import latest
from pylog.partition.directory import boot_of
from pylog.partition.epochs import EpochStart, LeaderEpochs
from pylog.testing.machine import Image, Interrupted, Killed, Machine, Process, Step
from pylog.testing.machine.images import pending_units
from pylog.testing.machine.machine import SECTOR_BYTES
from tests.simulation.faults import FAULTS, error_of

ROOT = "/log"
DIRECTORY = f"{ROOT}/t-0"
CLOSED = f"{DIRECTORY}/00000000000000000000.log"
ACTIVE = f"{DIRECTORY}/00000000000000000003"
T0 = TopicPartition("t", 0)


def record(number: int) -> ProducerRecord:
    return ProducerRecord(b"%d" % number + b"." * 200, timestamp_ms=1_000 + number)


def two_segments() -> Machine:
    """Offsets 0 to 2 in a closed segment, of which 0 and 1 are durable; 3 and 4 in the active
    one."""
    machine = Machine()
    with machine.process().open_log(ROOT) as log:
        log.create_topic("t", segment_bytes=1024, index_interval_bytes=64)
        for number in range(5):
            log.partition("t", 0).append([record(number)], acks="all" if number < 2 else 1)
    return machine


def with_a_dead_writers_tail(*, whole: bool) -> Machine:
    """The same, and behind it what a writer has left that was killed in the midst of its append."""
    machine = two_segments()
    process = machine.process()

    def before(acting: Process, step: Step) -> None:
        if acting is process and step.name == "pwrite" and step.path.endswith(".commit" if whole else ".log"):
            process.kill()
            raise Interrupted(0 if whole else step.size_bytes // 2, Killed())

    partition = process.open_log(ROOT).partition("t", 0)
    machine.before_step.append(before)
    with pytest.raises(Killed):
        partition.append([record(5)], acks=1)
    machine.before_step.clear()
    return machine


def with_a_wrong_index() -> Machine:
    """The same without a tail. The active segment's index leads into a batch, so that a writer
    recovers of its own accord."""
    machine = two_segments()
    spoil_index(machine)
    return machine


def spoil_index(machine: Machine) -> None:
    index = machine.process().filesystem.open_appendable(f"{ACTIVE}.index")
    position = int.from_bytes(index.pread(4, index.size() - 4), "big")
    index.pwrite((position + 1).to_bytes(4, "big"), index.size() - 4)


def append_while(machine: Machine, failing: set[int], attempts: int) -> tuple[Log, int]:
    """A new writer that tries to append, while these steps of it are refused; it, and how many
    steps it took."""
    log = machine.process().open_log(ROOT)
    partition = log.partition("t", 0)
    taken = -1

    def before(_process: Process, step: Step) -> None:
        nonlocal taken
        taken += 1
        if taken in failing and "EIO" in FAULTS[step.name]:
            raise error_of("EIO", step)

    machine.before_step.append(before)
    for number in range(attempts):
        with suppress(PylogError):  # as it was meant to be
            partition.append([record(10 + number)], acks=1)
    machine.before_step.clear()
    return log, taken


def assert_whole_and_goes_on(log: Log) -> None:
    partition = log.partition("t", 0)
    for number in range(20, 23):
        partition.append([record(number)], acks=1)
    assert log.verify().problems == []
    records = list(partition.scan())
    assert [record.offset for record in records] == list(range(len(records)))
    assert [record.value[:2] for record in records[-3:]] == [b"20", b"21", b"22"]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("whole", [True, False])
def test_a_dead_writers_tail_is_repaired_after_two_errors_at_any_steps(whole: bool, seed: int) -> None:
    """The first left the segment ahead of what was published, so the next attempt recovered, and
    the second cut that short."""
    left = with_a_dead_writers_tail(whole=whole)
    random, first, steps = Random(seed), 0, 1
    while first < steps:
        for second in random.sample(range(first + 1, first + 100), 6):
            log, taken = append_while(machine := left.copy(), {first, second}, 3)
            assert_whole_and_goes_on(log)
            epochs = LeaderEpochs.load(machine.process().filesystem, DIRECTORY)
            assert epochs.starts == [(0, 0)], "nothing was lost, so there is no reason for another epoch"
            steps = max(steps, min(taken, 120))
        first += 1
    assert first > 50


@pytest.mark.one_in(8)
def test_a_recovery_within_one_boot_that_is_cut_short_at_any_step_is_finished_by_the_next_writer() -> None:
    """It left the epoch checkpoint ahead of the log, and a closed segment's time index without
    entries, for ever."""
    _, steps = append_while(with_a_wrong_index(), set(), 1)
    assert steps > 100
    for step in range(steps):
        for attempts in (1, 2):
            machine = with_a_wrong_index()
            bystander = machine.process().open_log(ROOT)
            records = bystander.partition("t", 0).read(0)
            append_while(machine, {step, step + 1}, attempts)
            assert bystander.partition("t", 0).read(0)[: len(records)] == records
            assert_whole_and_goes_on(bystander if step % 2 else machine.process().open_log(ROOT))


def without_power(machine: Machine) -> Machine:
    nothing_kept = Image((0,) * len(pending_units(machine.disk, SECTOR_BYTES)), "natural")
    return machine.after_power_loss(nothing_kept)


def commit_all(log: Log) -> int:
    """A group reads to the end, and commits that durably; where it is."""
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        while consumer.poll():
            pass
        consumer.commit()
        position = consumer.position(T0)
    assert position is not None
    return position


def resumed_at(log: Log) -> int | None:
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        consumer.poll()
        return consumer.position(T0)


@pytest.mark.slow
def test_a_group_stays_where_it_is_when_the_power_is_lost_after_a_recovery_was_cut_short(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The epoch that the recovery had begun, and nobody wrote under, made all records since look
    lost."""
    _, steps = append_while(with_a_wrong_index(), set(), 1)
    for step in range(0, steps, 4):
        machine = with_a_wrong_index()
        append_while(machine, {step}, 1)
        log = machine.process().open_log(ROOT)
        assert_whole_and_goes_on(log)
        committed = commit_all(log)
        assert committed == log.partition("t", 0).latest_offset
        caplog.clear()
        assert resumed_at(without_power(machine).process().open_log(ROOT)) == committed
        assert "lost" not in caplog.text


def test_an_epoch_that_nobody_wrote_under_is_dropped_by_the_next_recovery() -> None:
    """Of a log on which an earlier version was cut short: batches decide which epochs there
    were."""
    machine = two_segments()
    process = machine.process()
    log = process.open_log(ROOT)
    committed = commit_all(log)
    log.partition("t", 0).log.sync(committed)
    log.close()
    epochs = LeaderEpochs([EpochStart(0, 0), EpochStart(1, 2), EpochStart(2, 4)])
    epochs.save(process.filesystem, DIRECTORY, durable=True)
    again = without_power(machine)
    process = again.process()
    log = process.open_log(ROOT)
    assert resumed_at(log) == committed
    log.partition("t", 0).append([record(6)])
    assert log.verify().problems == []
    assert LeaderEpochs.load(process.filesystem, DIRECTORY).starts == [(0, 0), (3, committed)]


@pytest.mark.slow
def test_a_closed_segments_indexes_stay_whole_if_its_copy_after_a_failed_sync_is_cut_short_at_any_step() -> None:
    """Its time index stayed without entries until somebody synced again."""
    steps = steps_after_a_failed_sync(two_segments(), 0)
    assert steps > 40
    for failing in range(1, steps):
        machine = two_segments()
        steps_after_a_failed_sync(machine, failing)
        with machine.process().open_log(ROOT) as log:
            assert log.verify().problems == []


def steps_after_a_failed_sync(machine: Machine, failing: int) -> int:
    """How many steps a process takes after a sync of the closed segment was refused; one of them is
    refused, too."""
    partition = machine.process().open_log(ROOT).partition("t", 0)
    taken = -1

    def before(_process: Process, step: Step) -> None:
        nonlocal taken
        if taken >= 0 or (step.name == "sync" and step.path == CLOSED):
            taken += 1
        if taken == 0:
            raise error_of("dirty", step)
        if taken == failing and "EIO" in FAULTS[step.name]:
            raise error_of("EIO", step)

    machine.before_step.append(before)
    with suppress(PylogError):  # as it was meant to be
        partition.log.sync(5)
    machine.before_step.clear()
    return taken


def test_a_sync_that_meets_an_unfinished_recovery_finishes_it_before_it_acknowledges() -> None:
    machine = two_segments()
    process = machine.process()
    partition = process.open_log(ROOT).partition("t", 0)
    partition.append([record(5)], acks=1)
    is_cut_short = False

    def before(acting: Process, step: Step) -> None:
        nonlocal is_cut_short
        if acting is process and step.name == "sync" and not is_cut_short:
            is_cut_short = True
            spoil_index(machine)
            begin_a_recovery(machine)

    machine.before_step.append(before)
    partition.log.sync(6)
    assert is_cut_short
    state = latest(machine.disk.contents()[f"{DIRECTORY}/.commit"] or b"")
    assert state is not None
    assert (state.boot, state.durable_offset) == (boot_of(process.filesystem), 6)
    with machine.process().open_log(ROOT) as log:
        assert log.partition("t", 0).durable_offset == 6
        assert log.verify().problems == []


def begin_a_recovery(machine: Machine) -> None:
    """By a process that is killed when it has published that it recovers."""
    process = machine.process()
    published = 0

    def before(acting: Process, step: Step) -> None:
        nonlocal published
        if acting is process:
            if published:
                process.kill()
                raise Killed
            published += step.name == "pwrite" and step.path.endswith(".commit")

    machine.before_step.append(before)
    with pytest.raises(Killed):
        process.open_log(ROOT).partition("t", 0).append([record(6)], acks=1)
    machine.before_step.remove(before)
