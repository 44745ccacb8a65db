"""Anomalies of order: of reads, of acknowledgements, and of the log.

Offsets that no process ever saw (transaction markers, compacted records) and deleted offsets are
not a gap: only skipped records count. ``inside``: within one operation, else from one to the next.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from pylog.testing.checker.anomaly import Finding
from pylog.testing.checker.index import Index, Jump
from pylog.testing.checker.partition_index import NO_OFFSET, NO_OPERATION, PartitionIndex
from pylog.testing.checker.records import Located


def skips(index: Index, *, inside: bool) -> Iterator[Finding]:
    """A process continued reading after records that it had not read."""
    for jump in index.jumps:
        if jump.inside == inside and jump.after > jump.before:
            partition = index.partitions[jump.partition]
            offsets = partition.offsets()
            first = bisect_left(offsets, max(jump.before + 1, partition.deleted_to))
            missed = bisect_left(offsets, jump.after) - first
            if missed > 0:
                text = f"process {jump.process} jumped from offset {jump.before} to {jump.after}, past {missed} records"
                yield Finding(text, jump.partition, jump.after)


def reads_back(index: Index, *, inside: bool) -> Iterator[Finding]:
    """A process read a record again, or an earlier one, without seeking."""
    return _jumps(index.jumps, "read", inside=inside, back=True)


def sends_back(index: Index, *, inside: bool) -> Iterator[Finding]:
    """A process sent a record after another and got an earlier offset, or the same."""
    return _jumps(index.sends_back, "was acknowledged", inside=inside, back=True)


def send_skips(index: Index) -> Iterator[Finding]:
    """Records of one operation have others between them. Kafka allows this."""
    return _jumps(index.sends_back, "was acknowledged", inside=True, back=False)


def _jumps(jumps: Iterable[Jump], did: str, *, inside: bool, back: bool) -> Iterator[Finding]:
    for jump in jumps:
        if jump.inside == inside and (jump.after <= jump.before) == back:
            text = f"process {jump.process} {did} offset {jump.before}, then offset {jump.after}"
            yield Finding(text, jump.partition, jump.after)


def order_per_producer(partition: PartitionIndex) -> Located:
    """In the log, a record is after one that its process sent later."""
    last: dict[int, int] = {}
    values = partition.values
    for offset in partition.offsets():
        number = partition.at[offset]
        process = partition.process[number]
        if partition.node[number] == NO_OPERATION:
            continue
        before = last.get(process, NO_OFFSET)
        if number < before:
            text = f"value {values[number]} of process {process} is at offset {offset}"
            yield f"{text}, after {values[before]}, sent later", offset
        last[process] = max(before, number)


def realtime_order(partition: PartitionIndex) -> Located:
    """A record got an offset before one that any process had acknowledged before it was sent."""
    for number, offset in enumerate(partition.acked_at):
        floor = partition.floor[number]
        if NO_OFFSET < offset <= floor:
            text = f"value {partition.values[number]} got offset {offset}"
            yield f"{text}, though offset {floor} was acknowledged before it was sent", offset


def stuck(index: Index) -> Iterator[Finding]:
    """A live process waited too long for an answer, or for existing records, without any stop."""
    for wait in index.waits:
        yield Finding(f"process {wait.process} waited {wait.seconds:.1f} s for {wait.what}")
