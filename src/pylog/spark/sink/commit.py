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

    def __init__(self, log: Log, directory: SinkDirectory, timeout_ms: int) -> None:
        self._log = log
        self._directory = directory
        self._timeout_ms = timeout_ms
        self._decided_ns: int | None = None  # by the filesystem's clock

    def commit(self, batch_id: int, files: Sequence[Staged]) -> None:
        """On return the files' records are in the log and durable. A batch in the log is skipped.

        ``OutcomeUnknown``: the commit is decided. A later commit finishes it once the cause is
        fixed. Any other error: nothing was written, and nothing will be.
        """
        if files or self._directory.is_there():
            while_holding_sink(self._directory, partial(self._commit, batch_id, files), self._timeout_ms / 1000)
        try:
            finish_others(self._log, self._directory, self._timeout_ms, self._decided_ns)
        except own(PylogError) as error:  # the commit itself stands
            logger.warning("could not look for what other sinks have not finished: %s", error)

    def abort(self, files: Collection[Staged]) -> None:
        """Remove undecided files: Spark also aborts a commit if only its answer was lost."""
        if self._directory.is_there():
            with suppress(FileNotFoundError):
                while_holding_sink(self._directory, partial(self._abort, files), self._timeout_ms / 1000)

    # The steps, with the lock held

    def _commit(self, batch_id: int, files: Sequence[Staged]) -> None:
        state = self.recover()
        if state is not None and batch_id <= state.batch_id:
            self._report_repeated(batch_id, state.batch_id)
            self._clean(batch_id)
        elif files:
            producer_id = self._log.manager.next_producer_id() if state is None else state.producer_id
            self._publish(prepare(self._log, self._directory, batch_id, producer_id, files, self._timeout_ms))

    def _report_repeated(self, batch_id: int, last: int) -> None:
        """Only the last batch comes again after a crash; an earlier one may differ."""
        if batch_id == last:
            logger.info("batch %d of %s is in the log already", batch_id, self._directory.sink_id)
            return
        logger.warning(
            "batch %d of query %s is skipped, the log has its batches up to %d: was its checkpoint set back, or does another "
            "driver run it? What it reads again is written with a new checkpointLocation only",
            batch_id,
            self._directory.sink_id,
            last,
        )

    def _publish(self, intent: Intent) -> None:
        directory = self._directory
        directory.filesystem.sync_directory(directory.path)  # the names of the files
        publication = Publication(self._log, directory, intent, self._timeout_ms)
        try:
            write_intent(directory, intent)
            self._decided_ns = directory.filesystem.modified_ns(directory.intent)
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
            self._directory.filesystem.remove(self._directory.intent)
        except own(StorageError):
            return self._unfinished(error)
        try:
            self._directory.filesystem.sync_directory(self._directory.path)
        except own(StorageError) as second:
            return OutcomeUnknown(
                f"nothing was written: {error}; but the disk may still hold what was decided ({second}), and after a power "
                "failure it would be carried out: look into the log then, before you write again",
                path=self._directory.intent, cause=str(error),
            )  # fmt: skip
        return error

    def _unfinished(self, error: Exception) -> OutcomeUnknown:
        what = "this save" if self._directory.is_save else "this batch"
        cause = str(error) or type(error).__name__
        advice = "don't run it again" if self._directory.is_save else "start the query again from its checkpoint"
        return OutcomeUnknown(
            f"{what} is decided, but not all of it may be in the log yet: {cause}. Put that right, and {advice}: the rest "
            "follows with the next commit of any sink to this log, or with pylog.spark.finish_commits(path)",
            path=self._directory.intent, cause=cause,
        )  # fmt: skip

    def recover(self) -> SinkState | None:
        """Finish a begun commit. Returns what is published; None if nothing is recorded."""
        directory = self._directory
        intent, state = read_intent(directory), read_state(directory)
        if intent is None:
            return state
        if state is None or state.batch_id < intent.batch_id:
            Publication(self._log, directory, intent, self._timeout_ms).run(again=True)
        return self._published(intent)

    def _published(self, intent: Intent) -> SinkState:
        """All of it is in the log and synced: record that, then remove the intent."""
        directory = self._directory
        state = SinkState(intent.batch_id, intent.producer_id)
        if not directory.is_save:
            write_state(directory, state)
        directory.filesystem.remove(directory.intent)
        if directory.is_save:  # no state would show that an intent, back after a power failure, was carried out
            directory.filesystem.sync_directory(directory.path)
        self._clean(intent.batch_id)
        return state

    def _clean(self, batch_id: int) -> None:
        """Remove files up to this batch: of failed or lost attempts, or of a batch in the log."""
        for name in self._directory.staged_names():
            if batch_of(name) <= batch_id:
                self._directory.filesystem.remove(self._directory.file(name))
        self._leave()

    def _leave(self) -> None:
        """Remove the directory of a save, and its lock, unless a task is still staging there."""
        directory = self._directory
        if directory.is_save and not directory.staged_names():
            directory.filesystem.remove(f"{directory.intent}.tmp")
            directory.filesystem.remove(directory.lock)
            with suppress(StorageError):  # a task has just begun to stage
                directory.filesystem.remove_directory(directory.path)

    def _abort(self, files: Collection[Staged]) -> None:
        intent = read_intent(self._directory)
        decided = () if intent is None else intent.files
        for staged in files:
            if staged not in decided:
                self._directory.filesystem.remove(self._directory.file(staged.name))
        if intent is None:
            self._leave()

    def leftovers(self, now_ns: int) -> list[str]:
        """Unchanged for ``LEFTOVER_NS``: staged files, or the directory of an empty save."""
        directory = self._directory
        paths = [directory.file(name) for name in directory.staged_names()]
        if directory.is_save and not paths:
            paths = [directory.path]
        return [path for path in paths if directory.filesystem.modified_ns(path) < now_ns - LEFTOVER_NS]

    def sweep(self, leftovers: Collection[str]) -> None:
        for path in leftovers:
            if path != self._directory.path:
                self._directory.filesystem.remove(path)
        self._leave()


def finish_others(log: Log, directory: SinkDirectory, timeout_ms: int, now_ns: int | None = None) -> int:
    """Finish other sinks' decided commits if their lock is free. Returns how many failed.

    With ``now_ns`` also remove their old leftovers.
    """
    failed = 0
    try:
        names = directory.filesystem.names(directory.sinks)
    except own(FileNotFoundError):
        return 0
    for name in names:
        if not is_sink_id(name) or name == directory.sink_id:
            continue
        other = directory.other(name)
        sink = SinkCommit(log, other, timeout_ms)
        try:
            if directory.filesystem.exists(other.intent):
                while_holding_sink(other, sink.recover, 0)
            elif now_ns is not None and (leftovers := sink.leftovers(now_ns)):
                while_holding_sink(other, partial(sink.sweep, leftovers), 0)
        except own(LogLocked, FileNotFoundError):
            continue  # its own driver holds the lock, or was faster
        except own(PylogError) as error:
            failed += 1
            logger.warning("what sink %s has decided could not be finished: %s", name, error)
    return failed
