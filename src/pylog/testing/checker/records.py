"""Anomalies of records: lost, duplicated, altered, moved, read after a failed send, removed.

Each function takes a partition, or the index, and yields the anomalies of one kind. The functions
of a partition yield texts and offsets.
"""

from __future__ import annotations

from collections.abc import Iterator

from pylog.testing.checker.anomaly import Finding
from pylog.testing.checker.index import Index
from pylog.testing.checker.partition_index import IS_ACKNOWLEDGED, IS_REFUSED, NO_OFFSET, NO_OPERATION, PartitionIndex

Located = Iterator[tuple[str, int]]


def inconsistent_offsets(partition: PartitionIndex) -> Located:
    """Two values were seen at one offset."""
    for offset, number in sorted(partition.conflicts):
        values = partition.values[partition.at[offset]], partition.values[number]
        yield f"offset {offset} has the value {values[0]}, and the value {values[1]}", offset


def duplicate(partition: PartitionIndex) -> Located:
    """One value was seen at two offsets."""
    for number, offset in sorted(partition.repeats):
        first = partition.first_at[number]
        yield f"value {partition.values[number]} is at offset {first}, and at offset {offset}", offset


def lost_write(partition: PartitionIndex) -> Located:
    """A value was acknowledged and no process ever read it, although a later one was read."""
    for text, offset in _acknowledged_unread(partition):
        if NO_OFFSET < offset <= partition.read_max:
            yield f"{text}; later ones were", offset


def unseen(partition: PartitionIndex) -> Located:
    """A value was acknowledged, and the final reads ended before it."""
    for text, offset in _acknowledged_unread(partition):
        if partition.has_final and (offset == NO_OFFSET or offset > partition.read_max):
            yield text, offset


def _acknowledged_unread(partition: PartitionIndex) -> Located:
    """Each value that was acknowledged, not deleted, and never read."""
    for number, outcome in enumerate(partition.outcome):
        if outcome == IS_ACKNOWLEDGED and partition.read_at[number] == NO_OFFSET:
            offset = partition.acked_at[number]
            if offset == NO_OFFSET or offset >= partition.gone_to():
                yield f"value {partition.values[number]}, acknowledged at offset {offset}, was never read", offset


def aborted_read(partition: PartitionIndex) -> Located:
    """A value was read although its send had certainly failed (Adya's G1a)."""
    for number, outcome in enumerate(partition.outcome):
        offset = partition.read_at[number]
        if outcome == IS_REFUSED and offset != NO_OFFSET:
            yield f"value {partition.values[number]} was read at offset {offset}, though its send failed", offset


def precommitted_read(index: Index) -> Iterator[Finding]:
    """A value was read before its transaction was to be committed, also by that transaction."""
    for process, name, number in index.early_reads:
        partition = index.partitions[name]
        if partition.outcome[number] != IS_REFUSED:
            value = partition.values[number]
            yield Finding(f"process {process} read value {value} before the commit of its transaction", name)


def corrupt_value(partition: PartitionIndex) -> Located:
    """A value was read whose checksum is wrong, or that no process sent to this partition."""
    for offset in sorted(partition.altered):
        yield f"the value at offset {offset} was altered", offset
    for number, node in enumerate(partition.node):
        if node == NO_OPERATION:
            offset = partition.first_at[number]
            yield f"value {partition.values[number]} at offset {offset} was never sent to this partition", offset


def vanished_read(partition: PartitionIndex) -> Located:
    """A value was read and not deleted, but the final reads do not have it at that offset."""
    gone_to = partition.gone_to()
    for number, offset in enumerate(partition.read_at):
        at = partition.final_at[number]
        if partition.has_final and offset >= gone_to and offset != at:
            where = "nowhere" if at == NO_OFFSET else f"at offset {at}"
            yield f"value {partition.values[number]} was read at offset {offset}, and is {where} in the end", offset


def torn_batch(partition: PartitionIndex) -> Located:
    """Only a part of an atomic batch is in the log, or its records are not successive."""
    for first, count in partition.batches if partition.has_final else ():
        offsets = partition.final_at[first : first + count]
        kept = [(offset - index, offset) for index, offset in enumerate(offsets) if offset != NO_OFFSET]
        base = kept[-1][0] if kept else 0
        wrong = [want for want, offset in enumerate(offsets, base) if offset != want]
        if kept and any(want >= partition.gone_to() for want in wrong):
            values = f"of the batch of {count} records from value {partition.values[first]} on"
            yield f"{values}, {len(kept)} are there", kept[0][1]


def torn_transaction(index: Index) -> Iterator[Finding]:
    """Only a part of a transaction's records is in the final log."""
    for node, records in index.transactions.records.items():
        there: set[bool] = set()
        for name, number in records:
            partition = index.partitions[name]
            offset = max(partition.first_at[number], partition.final_at[number])
            if offset == NO_OFFSET and partition.gone_to() > index.transactions.deleted_to[node][name]:
                continue  # it may have been deleted before anybody saw it
            if partition.has_final and not NO_OFFSET < offset < partition.gone_to():
                there.add(partition.final_at[number] != NO_OFFSET)
        if len(there) == 2:
            values = [index.partitions[name].values[number] for name, number in records]
            yield Finding(f"a part of the transaction that sent the values {values[:9]} is there")


def retention_early(partition: PartitionIndex) -> Located:
    """The log begins after a record that no process asked to delete."""
    first, deleted_to = partition.final_from, partition.deleted_to
    if any(deleted_to <= offset < first for offset in partition.at):
        yield f"the log begins at offset {first}; nothing from offset {deleted_to} on was to go", first
