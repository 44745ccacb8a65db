"""Anomalies of records: lost, duplicated, altered, moved, read after a failed send, removed.

Each function takes the index and yields anomalies, independent of the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from pylog.testing.checker.anomaly import Anomaly
from pylog.testing.checker.index import IS_ACKNOWLEDGED, IS_REFUSED, NOBODY, NOWHERE, Index, PartitionIndex


def inconsistent_offsets(index: Index) -> Iterator[Anomaly]:
    """Two values were seen at one offset."""
    for partition in index.partitions.values():
        for offset, number in sorted(partition.conflicts):
            values = partition.values[partition.at[offset]], partition.values[number]
            text = f"offset {offset} has the value {values[0]}, and the value {values[1]}"
            yield Anomaly("inconsistent-offsets", text, partition.name, offset)


def duplicate(index: Index) -> Iterator[Anomaly]:
    """One value was seen at two offsets."""
    for partition in index.partitions.values():
        for number, offset in sorted(partition.repeats):
            first = partition.first_at[number]
            text = f"value {partition.values[number]} is at offset {first}, and at offset {offset}"
            yield Anomaly("duplicate", text, partition.name, offset)


def lost_write(index: Index) -> Iterator[Anomaly]:
    """A value was acknowledged and no process ever read it, although a later one was read."""
    for partition in index.partitions.values():
        for number, offset in _acknowledged_unread(partition):
            if NOWHERE < offset <= partition.read_max:
                text = f"value {partition.values[number]}, acknowledged at offset {offset}, was never read; later ones were"
                yield Anomaly("lost-write", text, partition.name, offset)


def unseen(index: Index) -> Iterator[Anomaly]:
    """A value was acknowledged, and the final reads ended before it."""
    for partition in index.partitions.values():
        if partition.has_final:
            for number, offset in _acknowledged_unread(partition):
                if offset == NOWHERE or offset > partition.read_max:
                    text = f"value {partition.values[number]}, acknowledged at offset {offset}, was never read"
                    yield Anomaly("unseen", text, partition.name, offset)


def _acknowledged_unread(partition: PartitionIndex) -> Iterator[tuple[int, int]]:
    """The number and offset of each value that was acknowledged, not deleted, and never read."""
    for number, outcome in enumerate(partition.outcome):
        if outcome == IS_ACKNOWLEDGED and partition.read_at[number] == NOWHERE:
            offset = partition.acked_at[number]
            if offset == NOWHERE or offset >= partition.gone_to():
                yield number, offset


def aborted_read(index: Index) -> Iterator[Anomaly]:
    """A value was read although its send had certainly failed (Adya's G1a)."""
    for partition in index.partitions.values():
        for number, outcome in enumerate(partition.outcome):
            offset = partition.read_at[number]
            if outcome == IS_REFUSED and offset != NOWHERE:
                text = f"value {partition.values[number]} was read at offset {offset}, though its send failed"
                yield Anomaly("aborted-read", text, partition.name, offset)


def precommitted_read(index: Index) -> Iterator[Anomaly]:
    """A transaction read a value that it had sent itself."""
    for process, name, value in index.own_reads:
        yield Anomaly(
            "precommitted-read", f"process {process} read value {value} in the transaction that sent it", name
        )


def corrupt_value(index: Index) -> Iterator[Anomaly]:
    """A value was read whose checksum is wrong, or that no process sent to this partition."""
    for partition in index.partitions.values():
        for offset in sorted(partition.altered):
            yield Anomaly("corrupt-value", f"the value at offset {offset} was altered", partition.name, offset)
        for number, node in enumerate(partition.node):
            if node == NOBODY:
                offset = partition.first_at[number]
                text = f"value {partition.values[number]} at offset {offset} was never sent to this partition"
                yield Anomaly("corrupt-value", text, partition.name, offset)


def vanished_read(index: Index) -> Iterator[Anomaly]:
    """A value was read and not deleted, but the final reads do not have it at that offset."""
    for partition in index.partitions.values():
        if not partition.has_final:
            continue
        gone_to = partition.gone_to()
        for number, offset in enumerate(partition.read_at):
            if offset >= gone_to and offset != partition.final_at[number]:
                at = partition.final_at[number]
                where = "nowhere" if at == NOWHERE else f"at offset {at}"
                text = f"value {partition.values[number]} was read at offset {offset}, and is {where} in the end"
                yield Anomaly("vanished-read", text, partition.name, offset)


def torn_batch(index: Index) -> Iterator[Anomaly]:
    """Only a part of an atomic batch is in the log, or its records are not successive."""
    for partition in index.partitions.values():
        if not partition.has_final:
            continue
        for first, count in partition.batches:
            offsets = partition.final_at[first : first + count]
            kept = [(offset - place, offset) for place, offset in enumerate(offsets) if offset != NOWHERE]
            base = kept[-1][0] if kept else 0
            wrong = [want for want, offset in enumerate(offsets, base) if offset != want]
            if kept and any(want >= partition.gone_to() for want in wrong):
                text = f"of the batch of {count} records from value {partition.values[first]} on, {len(kept)} are there"
                yield Anomaly("torn-batch", text, partition.name, kept[0][1])


def torn_transaction(index: Index) -> Iterator[Anomaly]:
    """Only a part of a transaction's records is in the final log."""
    for records in index.transactions.values():
        there: set[bool] = set()
        for name, number in records:
            partition = index.partitions[name]
            offset = max(partition.first_at[number], partition.final_at[number])
            if partition.has_final and not NOWHERE < offset < partition.gone_to():
                there.add(partition.final_at[number] != NOWHERE)
        if len(there) == 2:
            values = [index.partitions[name].values[number] for name, number in records]
            yield Anomaly("torn-transaction", f"a part of the transaction that sent the values {values[:9]} is there")


def retention_early(index: Index) -> Iterator[Anomaly]:
    """The log begins after the greatest offset up to which any process asked to delete."""
    for partition in index.partitions.values():
        if partition.final_from > partition.deleted_to:
            text = f"the log begins at offset {partition.final_from}; nothing from offset {partition.deleted_to} on was to go"
            yield Anomaly("retention-early", text, partition.name, partition.final_from)
