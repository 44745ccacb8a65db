"""A range of offsets of one partition, as the driver plans it. It is plain values: executors get
it."""

from __future__ import annotations

from dataclasses import dataclass

from pylog.index import AbortedTransaction
from pylog.model import OffsetRange
from pylog.partition.commit_slots import CommitState
from pylog.spark.source.decisions import Decided
from pylog.spark.source.directory import PartitionSource
from pylog.spark.source.options import SourceOptions


@dataclass(frozen=True)
class PartitionRange:
    """Offsets ``start`` to ``end`` (exclusive) of a partition as it was ``published``.

    ``size_bytes``: about the stored size, 0 if unknown. ``skip_damage``: continue after damage.
    ``aborted``: transactions that have no marker yet.
    """

    source: PartitionSource
    published: CommitState
    start: int
    end: int
    isolation_level: str
    fail_on_data_loss: bool
    size_bytes: int = 0
    skip_damage: bool = False
    aborted: tuple[AbortedTransaction, ...] = ()

    @classmethod
    def of(
        cls, source: PartitionSource, decided: Decided, offsets: OffsetRange, options: SourceOptions
    ) -> PartitionRange:
        return cls(
            source, decided.published, *offsets, options.isolation_level, options.fail_on_data_loss,
            skip_damage=options.skip_damage, aborted=decided.aborted,
        )  # fmt: skip
