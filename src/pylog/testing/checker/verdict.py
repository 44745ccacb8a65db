"""The table of anomalies, and the verdict on a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from pylog.testing.checker import groups, order, records
from pylog.testing.checker.anomaly import Anomaly, Finding
from pylog.testing.checker.cycles import cycles, process, realtime, wr, ww
from pylog.testing.checker.index import Index
from pylog.testing.checker.partition_index import IS_ACKNOWLEDGED, IS_REFUSED, PartitionIndex
from pylog.testing.history import Operation

SHOWN_MAX = 20
STUCK_S = 5.0


Find = Callable[[Index], Iterator[Finding]]


class Kind(NamedTuple):
    """A kind of anomaly. If Kafka's model allows it, it is reported but is not a failure."""

    find: Find
    allowed: bool = False


def _in_each(find: Callable[[PartitionIndex], records.Located]) -> Kind:
    """A kind that is found in one partition."""
    return Kind(lambda index: (Finding(text, p.name, at) for p in index.partitions.values() for text, at in find(p)))


KINDS: dict[str, Kind] = {
    "inconsistent-offsets": _in_each(records.inconsistent_offsets),
    "duplicate": _in_each(records.duplicate),
    "lost-write": _in_each(records.lost_write),
    "unseen": _in_each(records.unseen),
    "aborted-read": _in_each(records.aborted_read),
    "precommitted-read": Kind(records.precommitted_read),
    "corrupt-value": _in_each(records.corrupt_value),
    "vanished-read": _in_each(records.vanished_read),
    "torn-batch": _in_each(records.torn_batch),
    "torn-transaction": Kind(records.torn_transaction),
    "retention-early": _in_each(records.retention_early),
    "poll-skip": Kind(partial(order.skips, inside=False)),
    "nonmonotonic-poll": Kind(partial(order.reads_back, inside=False)),
    "int-poll-skip": Kind(partial(order.skips, inside=True)),
    "int-nonmonotonic-poll": Kind(partial(order.reads_back, inside=True)),
    "nonmonotonic-send": Kind(partial(order.sends_back, inside=False)),
    "int-nonmonotonic-send": Kind(partial(order.sends_back, inside=True)),
    "int-send-skip": Kind(order.send_skips, allowed=True),
    "order-per-producer": _in_each(order.order_per_producer),
    "realtime-order": _in_each(order.realtime_order),
    **{kind: Kind(partial(groups.commits, kind=kind)) for kind in groups.CONTRADICTIONS},
    "group-overlap": Kind(groups.group_overlap),
    "stuck": Kind(order.stuck),
    "G0": Kind(cycles(ww), allowed=True),
    "G0-process": Kind(cycles(ww, process), allowed=True),
    "G0-realtime": Kind(cycles(ww, process, realtime), allowed=True),
    "G1c": Kind(cycles(wr)),
    "G1c-process": Kind(cycles(wr, process)),
    "G1c-realtime": Kind(cycles(wr, process, realtime)),
}


class Verdict(NamedTuple):
    """The number of anomalies of each kind, the first of each, and how much was checked."""

    counts: dict[str, int]
    shown: list[Anomaly]
    operations: int
    acknowledged: int
    refused: int
    polled: int
    lag_max_s: float

    @property
    def ok(self) -> bool:
        """Whether all anomalies found are allowed."""
        return self.anomalies == 0

    @property
    def anomalies(self) -> int:
        """The number of anomalies that are not allowed."""
        return sum(count for kind, count in self.counts.items() if not KINDS[kind].allowed)

    def __str__(self) -> str:
        records = f"{self.acknowledged} records acknowledged, {self.refused} refused, {self.polled} read"
        counts = [f"{count} {kind}{' (allowed)' * KINDS[kind].allowed}" for kind, count in self.counts.items()]
        lines = [
            f"{self.operations} operations, {records}; worst lag {self.lag_max_s:.3f} s; {self.anomalies} anomalies",
            *counts,
        ]
        return "\n".join([*lines, *(str(anomaly) for anomaly in self.shown if not KINDS[anomaly.kind].allowed)])


def check(operations: Iterable[Operation], *, stuck_s: float = STUCK_S) -> Verdict:
    """Look for all anomalies. Reads an iterator once; memory grows with records sent, not polls.

    It also reports ``lag_max_s``, the worst lag: for how long at least a record was acknowledged
    when a process that reads its partition asked for records and did not get that far.
    """
    index = Index(operations, stuck_s=stuck_s)
    counts: dict[str, int] = {}
    shown: list[Anomaly] = []
    for name, kind in KINDS.items():
        for finding in kind.find(index):
            counts[name] = counts.get(name, 0) + 1
            if counts[name] <= SHOWN_MAX:
                shown.append(Anomaly(name, *finding))
    outcomes = Counter(chain.from_iterable(partition.outcome for partition in index.partitions.values()))
    acknowledged, refused = outcomes[IS_ACKNOWLEDGED], outcomes[IS_REFUSED]
    return Verdict(counts, shown, index.operations, acknowledged, refused, index.polled, index.lag_max_s)
