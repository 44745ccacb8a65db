"""How transactions without a marker ended: the driver asks, and ships the answers with the plan.

An executor may be on another host, where nothing shows whether a transaction's owner lives. So the
state that is shipped says that all below its last stable offset is decided, and the plan names the
aborted transactions there that have no marker yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pylog.index import AbortedTransaction
from pylog.partition.commit_slots import CommitState
from pylog.partition.read.visibility import READ_COMMITTED
from pylog.spark.source.directory import PartitionSource

if TYPE_CHECKING:
    from pylog.log import Log


class Decided(NamedTuple):
    """The published state, with all decided below its last stable offset."""

    published: CommitState
    aborted: tuple[AbortedTransaction, ...] = ()


class Decisions:
    """About the transactions of one log. Opens it, to read, when there is something to ask."""

    def __init__(self, root: str | None, isolation_level: str) -> None:
        """``root`` is the log's directory; None if it is unknown, or Kafka's: then markers alone
        decide."""
        self._root = root if isolation_level == READ_COMMITTED else None
        self._log: Log | None = None

    def of(self, source: PartitionSource, published: CommitState) -> Decided:
        if self._root is None or published.last_stable_offset >= published.high_watermark:
            return Decided(published)
        from pylog.log import Log

        log = self._log
        if log is None:
            log = self._log = Log(self._root, read_only=True)
        partition = log.manager.partition(*source.topic_partition)
        if partition.topic_id != source.topic_id:  # created again since it was listed
            return Decided(published)
        undecided = partition.reader.undecided(state=published)
        return Decided(published._replace(last_stable_offset=undecided.end), undecided.aborted)

    def close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log.close()
