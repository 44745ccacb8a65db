"""How much a micro-batch takes: partitions share by lag, as in Spark's Kafka source."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pylog.model import TopicPartition
from pylog.spark.source.options import Limits

Range = tuple[int, int]  # offsets, the second exclusive
Weigh = Callable[[TopicPartition, Range], int]  # about the bytes stored there, or any number over the limit
Cut = Callable[[TopicPartition, Range, int], int]  # an offset after the first, with about that many bytes before it


def share_of_offsets(new: Mapping[TopicPartition, Range], limits: Limits) -> dict[TopicPartition, int]:
    """The batch's ends (``KafkaMicroBatchStream.rateLimit``). No partition starves."""
    total = sum(end - start for start, end in new.values())
    if not limits.offsets_max or total <= limits.offsets_max:
        return {partition: end for partition, (_, end) in new.items()}
    return {
        partition: min(end, start + _rounded(limits.offsets_max * (end - start) / total))
        for partition, (start, end) in new.items()
    }


def _rounded(share: float) -> int:
    return math.ceil(share) if share < 1 else math.floor(share)


def share_of_bytes(
    new: Mapping[TopicPartition, Range], limits: Limits, weigh: Weigh, cut: Cut
) -> dict[TopicPartition, int]:
    """The batch's ends, by stored bytes. Record batches are not cut: a partition may take one more.

    Larger lags than the limit count the same, so that a backlog costs no more than a batch.
    """
    ends = {partition: end for partition, (_, end) in new.items()}
    if not limits.bytes_max:
        return ends
    lagging = {partition: offsets for partition, offsets in new.items() if offsets[0] < offsets[1]}
    sizes = {p: min(weigh(p, offsets), limits.bytes_max + 1) for p, offsets in lagging.items()}
    total = sum(sizes.values())
    if total > limits.bytes_max:
        for p, offsets in lagging.items():
            ends[p] = cut(p, offsets, max(1, limits.bytes_max * sizes[p] // total))
    return ends
