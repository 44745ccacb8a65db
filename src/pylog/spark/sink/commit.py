"""The driver's part of a sink: one commit of the staged batches, all or nothing, once.

    1  finish what the sink has begun; skip a batch that is in the log already
    2  check the staged files and write the intent: the commit point
    3  append their batches to the partitions, and sync
    4  write the state (of a query), remove the intent and the files

The sink's lock is held throughout. A crash before the commit point leaves unnamed files, which a
later commit removes. After a later crash the next commit of any sink finishes the intent.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pylog.errors import LogLocked, OutcomeUnknown, PylogError, StorageError
from pylog.interrupts import own, suppress
from pylog.spark.sink.directory import SinkDirectory, batch_of, is_sink_id, while_holding_sink
from pylog.spark.sink.intents import Intent, SinkState, read_intent, read_state, write_intent, write_state
from pylog.spark.sink.publishing import Publication, prepare
from pylog.spark.sink.staging import Staged

if TYPE_CHECKING:
    from pylog.log import Log

logger = logging.getLogger("pylog.spark")

LEFTOVER_NS = 7 * 86_400 * 1_000_000_000
"""Files staged longer ago than this and never committed are garbage."""


class SinkCommit:
    """Commits for one sink."""

    def __init__(self, log: Log, place: SinkDirectory, timeout_ms: int) -> None:
        self._log = log
        self._place = place
        self._timeout_ms = timeout_ms
        self._decided_ns: int | None = None  # by the filesystem's clock

    def commit(self, batch_id: int, files: Sequence[Staged]) -> None:
        """On return the files' records are in the log and durable. A batch in the log is skipped.

        ``OutcomeUnknown``: the commit is decided. A later commit finishes it once the cause is
        fixed. Any other error: nothing was written, and nothing will be.
        """
        if files or self._place.is_there():
            while_holding_sink(self._place, partial(self._commit, batch_id, files), self._timeout_ms / 1000)
        try:
            finish_others(self._log, self._place, self._timeout_ms, self._decided_ns)
        except own(PylogError) as error:  # the commit itself stands
            logger.warning("could not look for what other sinks have not finished: %s", error)

    def abort(self, files: Collection[Staged]) -> None:
        """Remove undecided files: Spark also aborts a commit if only its answer was lost."""
        if self._place.is_there():
            with suppress(FileNotFoundError):
                while_holding_sink(self._place, partial(self._abort, files), self._timeout_ms / 1000)

    # The steps, with the lock held

    def _commit(self, batch_id: int, files: Sequence[Staged]) -> None:
        state = self.recover()
        if state is not None and batch_id <= state.batch_id:
            self._tell_of(batch_id, state.batch_id)
            self._clean(batch_id)
        elif files:
            producer_id = self._log.manager.next_producer_id() if state is None else state.producer_id
            self._publish(prepare(self._log, self._place, batch_id, producer_id, files, self._timeout_ms))

    def _tell_of(self, batch_id: int, last: int) -> None:
        """Only the last batch comes again after a crash; an earlier one may differ."""
        if batch_id == last:
            logger.info("batch %d of %s is in the log already", batch_id, self._place.sink_id)
            return
        logger.warning(
            "batch %d of query %s is passed over, the log has its batches up to %d: was its checkpoint set back, or does another "
            "driver run it? What it reads anew is written with a new checkpointLocation only",
            batch_id,
            self._place.sink_id,
            last,
        )

    def _publish(self, intent: Intent) -> None:
        place = self._place
        place.filesystem.sync_directory(place.directory)  # the names of the files
        publication = Publication(self._log, place, intent, self._timeout_ms)
        try:
            write_intent(place, intent)
            self._decided_ns = place.filesystem.modified_ns(place.intent)
            publication.run(again=False)
            self._published(intent)
        except own(Exception) as error:  # even MemoryError: the caller must know whether it is decided
            outcome = self._unfinished(error) if publication.may_have_begun else self._withdrawn(error)
            if outcome is error:
                raise
            raise outcome from error

    def _withdrawn(self, error: Exception) -> Exception:
        """Nothing is in the log: undo the decision. Returns the error to raise."""
        try:
            self._place.filesystem.remove(self._place.intent)
        except own(StorageError):
            return self._unfinished(error)
        try:
            self._place.filesystem.sync_directory(self._place.directory)
        except own(StorageError) as second:
            return OutcomeUnknown(
                f"nothing was written: {error}; but the disk may still hold what was decided ({second}), and after a loss of "
                "power it would be carried out: look into the log then, before you write again",
                path=self._place.intent,
                cause=str(error),
            )
        return error

    def _unfinished(self, error: Exception) -> OutcomeUnknown:
        what = "this save" if self._place.is_save else "this batch"
        cause = str(error) or type(error).__name__
        advice = "don't run it again" if self._place.is_save else "start the query again from its checkpoint"
        return OutcomeUnknown(
            f"{what} is decided, but not all of it may be in the log yet: {cause}. Put that right, and {advice}: the rest "
            "follows with the next commit of any sink to this log, or with pylog.spark.finish_commits(path)",
            path=self._place.intent,
            cause=cause,
        )

    def recover(self) -> SinkState | None:
        """Finish a begun commit. Returns what is published; None if nothing is recorded."""
        place = self._place
        intent, state = read_intent(place), read_state(place)
        if intent is None:
            return state
        if state is None or state.batch_id < intent.batch_id:
            Publication(self._log, place, intent, self._timeout_ms).run(again=True)
        return self._published(intent)

    def _published(self, intent: Intent) -> SinkState:
        """All of it is in the log and synced: record that, then remove the intent."""
        place = self._place
        state = SinkState(intent.batch_id, intent.producer_id)
        if not place.is_save:
            write_state(place, state)
        place.filesystem.remove(place.intent)
        if place.is_save:  # no state would show that an intent, back after a power failure, was carried out
            place.filesystem.sync_directory(place.directory)
        self._clean(intent.batch_id)
        return state

    def _clean(self, batch_id: int) -> None:
        """Remove files up to this batch: of failed or lost attempts, or of a batch in the log."""
        for name in self._place.staged_names():
            if batch_of(name) <= batch_id:
                self._place.filesystem.remove(self._place.staged(name))
        self._leave()

    def _leave(self) -> None:
        """Remove the directory of a save, and its lock, unless a task is still staging there."""
        place = self._place
        if place.is_save and not place.staged_names():
            place.filesystem.remove(f"{place.intent}.tmp")
            place.filesystem.remove(place.lock)
            with suppress(StorageError):  # a task has just begun to stage
                place.filesystem.remove_directory(place.directory)

    def _abort(self, files: Collection[Staged]) -> None:
        intent = read_intent(self._place)
        decided = () if intent is None else intent.files
        for staged in files:
            if staged not in decided:
                self._place.filesystem.remove(self._place.staged(staged.name))
        if intent is None:
            self._leave()

    def leftovers(self, now_ns: int) -> list[str]:
        """Unchanged for ``LEFTOVER_NS``: staged files, or the directory of an empty save."""
        place = self._place
        paths = [place.staged(name) for name in place.staged_names()]
        if place.is_save and not paths:
            paths = [place.directory]
        return [path for path in paths if place.filesystem.modified_ns(path) < now_ns - LEFTOVER_NS]

    def sweep(self, leftovers: Collection[str]) -> None:
        """Remove the leftovers."""
        for path in leftovers:
            if path != self._place.directory:
                self._place.filesystem.remove(path)
        self._leave()


def finish_others(log: Log, place: SinkDirectory, timeout_ms: int, now_ns: int | None = None) -> int:
    """Finish other sinks' decided commits if their lock is free. Returns how many failed.

    With ``now_ns`` also remove their old leftovers.
    """
    failed = 0
    for name in _others(place):
        other = place._replace(sink_id=name)
        sink = SinkCommit(log, other, timeout_ms)
        try:
            if place.filesystem.exists(other.intent):
                while_holding_sink(other, sink.recover, 0)
            elif now_ns is not None and (leftovers := sink.leftovers(now_ns)):
                while_holding_sink(other, partial(sink.sweep, leftovers), 0)
        except own(LogLocked, FileNotFoundError):
            continue  # its own driver holds the lock, or was faster
        except own(PylogError) as error:
            failed += 1
            logger.warning("what sink %s has decided could not be finished: %s", name, error)
    return failed


def _others(place: SinkDirectory) -> list[str]:
    try:
        names = place.filesystem.names(place.sinks)
    except own(FileNotFoundError):
        return []
    return [name for name in names if is_sink_id(name) and name != place.sink_id]
