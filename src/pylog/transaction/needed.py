"""Which records of ``__transaction_state`` are needed though newer ones have their key.

Compaction keeps the newest record of a transactional id. Two older ones may be needed, too:

- a commit whose markers are not durable: the power could take a marker, and without the record its
  transaction would be aborted. So the missing markers are written, and synced, first;
- the record that tells whose a producer id is, while the id's state file names that producer: the
  next owner has appended its own record, and may have died before it published its state. Without
  the record, the transaction of a producer that lives would have no owner, and be aborted. Of ids
  that Kafka may have given, the record is always needed: a transaction of theirs without owner
  stays open.

Whatever else is superseded is decided: its markers are durable, or "no record" is the right answer.
"""

from __future__ import annotations

import logging

from pylog.cleaner.compaction import Needed
from pylog.codec.format import INT64_MAX
from pylog.errors import InvalidPartition, PylogError, TopicNotFound
from pylog.interrupts import own, suppress
from pylog.manager.manager import LogManager
from pylog.manager.producer_ids import LIKE_KAFKA_BELOW
from pylog.partition.partition_log import PartitionLog
from pylog.storage import LOCK_TIMEOUT_MS
from pylog.transaction.directory import TransactionDirectory
from pylog.transaction.outcomes import Outcomes
from pylog.transaction.records import Decision
from pylog.transaction.table import Found, TransactionTable, decisions_in

logger = logging.getLogger("pylog.transaction")

UNMARKED = "the markers of a commit are not durable"
NAMED = "it tells whose a producer id is"


def first_needed(manager: LogManager, log: PartitionLog) -> Needed:
    """The first record of this partition that is needed all the same."""
    table = manager.part(TransactionTable)
    unmarked = {found.decision.transaction for found in table.all_unfinished(log) if not finish(manager, found)}
    found = list(_decisions(log))
    latest = {decision.transactional_id: decision.producer_id for _, decision in found}
    needed: dict[tuple[str, int], bool] = {}
    for offset, decision in found:
        if decision.transaction in unmarked:
            return Needed(offset, UNMARKED)
        name = decision.transactional_id, decision.producer_id
        if decision.producer_id == latest[decision.transactional_id]:
            continue  # the newest record has it
        if name not in needed:
            needed[name] = _is_named(manager, *name)
        if needed[name]:
            return Needed(offset, NAMED)
    return Needed()


def _decisions(log: PartitionLog) -> list[tuple[int, Decision]]:
    found: list[tuple[int, Decision]] = []
    for fetched in log.reader.fetches(log.earliest_offset, INT64_MAX):
        for view in fetched.batches:
            found += [(view.header.base_offset, decision) for decision in decisions_in(view, log)]
    return found


def finish(manager: LogManager, found: Found) -> bool:
    """Whether every marker of a commit is durable now. Writes those that are missing: any process
    may."""
    producer_id, epoch = found.decision.transaction
    try:
        found.sync()
        for name in found.decision.partitions:
            with suppress(TopicNotFound, InvalidPartition):  # deleted with its records
                log = manager.partition(*name)
                log.append_marker(producer_id, epoch, committed=True, timeout_ms=LOCK_TIMEOUT_MS)
                log.sync(log.latest_offset, LOCK_TIMEOUT_MS)
    except own(PylogError) as error:
        logger.warning("%r: its commit stays unfinished for now: %s", found.decision.transactional_id, error)
        return False
    return True


def _is_named(manager: LogManager, transactional_id: str, producer_id: int) -> bool:
    """Whether it matters whose this superseded producer id is."""
    if producer_id < LIKE_KAFKA_BELOW:
        return True
    directory = TransactionDirectory.of(manager.filesystem, manager.layout, transactional_id, manager.boot)
    state = manager.part(Outcomes).state(directory)
    if state is None:  # of this boot; or it was lost, and an owner that lives may still commit
        return any(map(directory.is_alive, directory.owners()))
    return state.producer_id == producer_id
