"""Anomalies of order: of reads, of acknowledgements, and of the log.

Offsets that no process ever saw (transaction markers, compacted records) and deleted offsets are
not a gap: only skipped records count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from pylog.testing.checker.anomaly import Anomaly
from pylog.testing.checker.index import NOBODY, NOWHERE, Index, Jump


def poll_skip(index: Index) -> Iterator[Anomaly]:
    """A process continued reading after records that it had not read."""
    yield from _skips(index, "poll-skip", inside=False)


def int_poll_skip(index: Index) -> Iterator[Anomaly]:
    """One poll skipped records in its middle."""
    yield from _skips(index, "int-poll-skip", inside=True)


def _skips(index: Index, kind: str, *, inside: bool) -> Iterator[Anomaly]:
    for jump in index.jumps:
        if jump.inside == inside and jump.after > jump.before:
            partition = index.partitions[jump.partition]
            offsets = partition.offsets()
            first = bisect_left(offsets, max(jump.before + 1, partition.deleted_to))
            missed = bisect_left(offsets, jump.after) - first
            if missed > 0:
                text = (
                    f"process {jump.process} went on from offset {jump.before} to {jump.after}, past {missed} records"
                )
                yield Anomaly(kind, text, jump.partition, jump.after)


def nonmonotonic_poll(index: Index) -> Iterator[Anomaly]:
    """A process read a record again, or an earlier one, without seeking."""
    yield from _read_back(index, "nonmonotonic-poll", inside=False)


def int_nonmonotonic_poll(index: Index) -> Iterator[Anomaly]:
    """One poll returned a record twice, or an earlier one after a later one."""
    yield from _read_back(index, "int-nonmonotonic-poll", inside=True)


def _read_back(index: Index, kind: str, *, inside: bool) -> Iterator[Anomaly]:
    for jump in index.jumps:
        if jump.inside == inside and jump.after <= jump.before:
            yield _went(kind, jump, "read")


def nonmonotonic_send(index: Index) -> Iterator[Anomaly]:
    """A process sent a record after another and got an earlier offset, or the same."""
    for jump in index.sends_back:
        if not jump.inside and jump.after <= jump.before:
            yield _went("nonmonotonic-send", jump, "was acknowledged")


def int_nonmonotonic_send(index: Index) -> Iterator[Anomaly]:
    """A record of one operation got an earlier offset than the one before it, or the same."""
    for jump in index.sends_back:
        if jump.inside and jump.after <= jump.before:
            yield _went("int-nonmonotonic-send", jump, "was acknowledged")


def int_send_skip(index: Index) -> Iterator[Anomaly]:
    """Records of one operation have others between them. Kafka allows this."""
    for jump in index.sends_back:
        if jump.inside and jump.after > jump.before:
            yield _went("int-send-skip", jump, "was acknowledged")


def _went(kind: str, jump: Jump, did: str) -> Anomaly:
    text = f"process {jump.process} {did} offset {jump.before}, then offset {jump.after}"
    return Anomaly(kind, text, jump.partition, jump.after)


def order_per_producer(index: Index) -> Iterator[Anomaly]:
    """In the log, a record is after one that its process sent later."""
    for partition in index.partitions.values():
        last: dict[int, int] = {}
        for offset in partition.offsets():
            number = partition.at[offset]
            process = partition.process[number]
            if partition.node[number] == NOBODY:
                continue
            before = last.get(process, NOWHERE)
            if number < before:
                values = partition.values
                text = f"value {values[number]} of process {process} is at offset {offset}, behind {values[before]}, sent later"
                yield Anomaly("order-per-producer", text, partition.name, offset)
            last[process] = max(before, number)


def realtime_order(index: Index) -> Iterator[Anomaly]:
    """A record got an offset before one that any process had acknowledged before it was sent."""
    for partition in index.partitions.values():
        for number, offset in enumerate(partition.acked_at):
            if NOWHERE < offset <= partition.floor[number]:
                text = (
                    f"value {partition.values[number]} got offset {offset}, though offset {partition.floor[number]} was "
                    "acknowledged before it was sent"
                )
                yield Anomaly("realtime-order", text, partition.name, offset)


def stuck(index: Index) -> Iterator[Anomaly]:
    """A live process waited too long for an answer, or for existing records, without any stop."""
    for wait in index.waits:
        yield Anomaly("stuck", f"process {wait.process} waited {wait.seconds:.1f} s for {wait.what}")
