"""The table of anomalies, and the verdict on a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from pylog.testing.checker import cycles, groups, order, records
from pylog.testing.checker.anomaly import Anomaly
from pylog.testing.checker.index import IS_ACKNOWLEDGED, IS_REFUSED, Index
from pylog.testing.history import Operation

SHOWN_MAX = 20
STUCK_S = 5.0


class Kind(NamedTuple):
    """A kind of anomaly. If Kafka's model allows it, it is reported but is not a failure."""

    find: Callable[[Index], Iterator[Anomaly]]
    allowed: bool = False


KINDS: dict[str, Kind] = {
    "inconsistent-offsets": Kind(records.inconsistent_offsets),
    "duplicate": Kind(records.duplicate),
    "lost-write": Kind(records.lost_write),
    "unseen": Kind(records.unseen),
    "aborted-read": Kind(records.aborted_read),
    "precommitted-read": Kind(records.precommitted_read),
    "corrupt-value": Kind(records.corrupt_value),
    "vanished-read": Kind(records.vanished_read),
    "torn-batch": Kind(records.torn_batch),
    "torn-transaction": Kind(records.torn_transaction),
    "retention-early": Kind(records.retention_early),
    "poll-skip": Kind(order.poll_skip),
    "nonmonotonic-poll": Kind(order.nonmonotonic_poll),
    "int-poll-skip": Kind(order.int_poll_skip),
    "int-nonmonotonic-poll": Kind(order.int_nonmonotonic_poll),
    "nonmonotonic-send": Kind(order.nonmonotonic_send),
    "int-nonmonotonic-send": Kind(order.int_nonmonotonic_send),
    "int-send-skip": Kind(order.int_send_skip, allowed=True),
    "order-per-producer": Kind(order.order_per_producer),
    "realtime-order": Kind(order.realtime_order),
    "zombie-commit": Kind(groups.zombie_commit),
    "commit-regression": Kind(groups.commit_regression),
    "commit-ahead": Kind(groups.commit_ahead),
    "group-overlap": Kind(groups.group_overlap),
    "stuck": Kind(order.stuck),
    "G0": Kind(cycles.g0, allowed=True),
    "G0-process": Kind(cycles.g0_process, allowed=True),
    "G0-realtime": Kind(cycles.g0_realtime, allowed=True),
    "G1c": Kind(cycles.g1c),
    "G1c-process": Kind(cycles.g1c_process),
    "G1c-realtime": Kind(cycles.g1c_realtime),
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
        found = kind.find(index)
        for anomaly in found:
            counts[name] = counts.get(name, 0) + 1
            if counts[name] <= SHOWN_MAX:
                shown.append(anomaly)
    outcomes = Counter(chain.from_iterable(partition.outcome for partition in index.partitions.values()))
    acknowledged, refused = outcomes[IS_ACKNOWLEDGED], outcomes[IS_REFUSED]
    return Verdict(counts, shown, index.operations, acknowledged, refused, index.polled, index.lag_max_s)
