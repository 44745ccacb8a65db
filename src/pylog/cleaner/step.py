"""One kind of maintenance, and what it works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pylog.cleaner.report import PartitionMaintenance
from pylog.codec.format import INT64_MAX
from pylog.limits import DEFAULT_TIMEOUT_MS

if TYPE_CHECKING:
    from pylog.catalog import TopicDescription
    from pylog.catalog.topic import TopicConfig
    from pylog.partition.partition_log import PartitionLog


class Target(NamedTuple):
    """What a step works on. ``set_ms``: nothing was due before, since the options were others; 0:
    unknown. ``bytes_max``: a compaction that reads more is left to maintenance."""

    partition: PartitionLog
    config: TopicConfig
    now_ms: int
    dry_run: bool
    set_ms: int = 0
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    may_roll: bool = True
    bytes_max: int = INT64_MAX

    def report(self, step: str, log_start_offset: int) -> PartitionMaintenance:
        """A report of this step, to be filled in with ``_replace``."""
        return PartitionMaintenance(self.partition.topic, self.partition.number, step, log_start_offset)

    def overdue_ms(self, since_ms: int | None) -> int:
        """For how long what is due since then has been due; 0 if nothing is."""
        return 0 if since_ms is None else max(self.now_ms - max(since_ms, self.set_ms), 0)


class Step(NamedTuple):
    """``applies``: whether a policy of this topic asks for it. ``run`` does what is due, and says
    so; None if there is nothing to say."""

    name: str
    applies: Callable[[TopicDescription], bool]
    run: Callable[[Target], PartitionMaintenance | None]
