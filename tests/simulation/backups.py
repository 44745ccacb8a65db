"""A log on the simulated machine, its backups, and what must hold of a copy whatever happened while
it was made."""

from __future__ import annotations

from pylog import Log, Producer, ProducerRecord, TopicPartition
from pylog.testing.machine import Machine
from pylog.testing.machine.disk import walk

ROOT, COPY = "/log", "/copies/copy"
SEGMENT = 1024
Contents = dict[str, object]


def write(log: Log, round_: int) -> None:
    """Plain records, a committed transaction over both partitions with offsets, an aborted one, and
    newest records by key."""
    for number in range(2):
        partition = log.partition("a", number)
        partition.append([ProducerRecord(b"%d" % round_ * 300, timestamp_ms=1000)], acks="all")
    with Producer(log, transactional_id="t", linger_ms=0) as producer:
        producer.init_transactions()
        for is_committed in (True, False):
            producer.begin_transaction()
            for number in range(2):
                producer.send("a", b"%d-%d" % (round_, is_committed), partition=number)
            if is_committed:
                end = log.partition("a", 0).latest_offset
                producer.send_offsets_to_transaction({TopicPartition("a", 0): end}, "g")
            producer.commit_transaction() if is_committed else producer.abort_transaction()
    for key in (b"k", b"l"):
        log.partition("c", 0).append([ProducerRecord(b"%d" % round_, key=key, timestamp_ms=1000)], acks="all")
    log.partition("c", 0).log.roll()


def staged(seed: int, rounds: int = 3) -> Machine:
    machine = Machine(seed)
    with machine.process().open_log(ROOT) as log:
        log.create_topic("a", partitions=2, segment_bytes=SEGMENT)
        log.create_topic("c", cleanup_policy="compact", segment_bytes=SEGMENT)
        for round_ in range(rounds):
            write(log, round_)
    sync_all(machine)
    return machine


def sync_all(machine: Machine) -> None:
    """What a loss of power takes is then of what follows."""
    for _, node in list(walk(machine.disk.root)):
        node.sync()


def contents(log: Log) -> Contents:
    """All that readers see: records of both isolation levels, committed offsets, the topics."""
    found: Contents = {}
    for name in log.topics():
        for number in log.describe_topic(name).numbers:
            for level in ("read_committed", "read_uncommitted"):
                partition = log.partition(name, number)
                records = tuple((r.offset, r.key, r.value) for r in partition.scan(isolation_level=level))
                found[f"{name}-{number} {level}"] = (partition.earliest_offset, records)
    if "g" in log.groups():
        positions = log.describe_group("g").partitions
        found["g"] = {str(name): progress.committed for name, progress in positions.items()}
        for place, progress in positions.items():
            end = log.partition(*place).latest_offset
            assert progress.committed is None or progress.committed.offset <= end
    return found


def copied(machine: Machine, path: str = COPY) -> Contents | None:
    """The copy, as one without write permission sees it, after ``verify``. None if there is
    none."""
    if machine.disk.look(f"{path}/.pylog/manifest.json") is None:
        assert machine.disk.look(path) is None or path != COPY
        return None
    with machine.process().open_log(path, read_only=True) as copy:
        assert not (found := copy.verify().problems), found
        return contents(copy)


def check_goes_on(machine: Machine, expected: Contents) -> None:
    """A writer of the copy finds the same, and can append."""
    with machine.process().open_log(COPY) as copy:
        assert contents(copy) == expected
        write(copy, 9)
        assert not (found := copy.verify().problems), found
