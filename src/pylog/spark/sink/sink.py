"""The sink: ``df.write.format("pylog")`` and ``df.writeStream.format("pylog")``.

Tasks stage encoded batches (``staging.py``); the driver commits them (``commit.py``) under the
query's id, which the checkpoint keeps, and the micro-batch's number: they identify a replayed
batch. Spark gives both to the tasks, and the tasks send them to the driver.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pylog.clock import Clock, SystemClock
from pylog.errors import ConfigError, LogNotFound, PylogError
from pylog.interrupts import own, suppress
from pylog.spark.sink.columns import check_columns, tables
from pylog.spark.sink.commit import SinkCommit
from pylog.spark.sink.directory import SinkDirectory, is_sink_id, new_save_id
from pylog.spark.sink.options import SinkOptions
from pylog.spark.sink.staging import Staged, StagedFile, StagedLog
from pylog.storage import FileSystem, OsFileSystem

if TYPE_CHECKING:
    from pylog.log import Log

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_IS_CONTINUOUS = "__is_continuous_processing"
_NEVER_MS = 1e9  # a batch waits until it is full or the task ends
_KEPT_MAX = 8
_KEPT: dict[tuple[str, str, int], SinkCommit] = {}
"""Of the queries that this process has committed for last: to open a log, and take an id over,
takes long.

Spark has one process commit one micro-batch after the other.
"""


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What a task sends to the driver. A task without rows sends no ``staged``."""

    sink_id: str
    batch_id: int
    staged: Staged | None


class Sink:
    """Common to both sinks. Plain values: Spark sends it to executors, which open the log."""

    def __init__(self, options: SinkOptions, filesystem: FileSystem | None = None, clock: Clock | None = None) -> None:
        self.options = options
        self.filesystem = filesystem or OsFileSystem()
        self.clock = clock or SystemClock()

    @classmethod
    def on_the_driver(cls, given: Any, schema: StructType, overwrite: bool) -> Sink:
        """Check everything before any task runs. With ``autoCreateTopics`` it creates a missing
        log."""
        from pylog.producer.config import ProducerConfig

        options = SinkOptions.parse(given)
        if overwrite:
            raise ConfigError(
                "a log is only appended to: use mode('append'), or of a stream outputMode('append')", option="mode"
            )
        check_columns(schema, options.topic)
        sink = cls(options)
        with closing(sink._open_or_create()) as log:
            log.manager.require_writable()
            if options.topic is not None:
                partitioner = ProducerConfig(**options.producer).partitioner
                topic = log.manager.topic_to_send_to(options.topic)
                partitioner.key_hash(options.topic, topic.config.partitioner)  # may refuse
        return sink

    def _open_or_create(self) -> Log:
        try:
            return self.open(create=self.options.auto_create_topics)
        except own(LogNotFound) as error:
            if self.options.auto_create_topics:  # a file is there
                raise
            raise LogNotFound(
                f"{error}; or set the option autoCreateTopics, which creates one", **error.facts
            ) from error

    def open(self, *, create: bool = False) -> Log:
        from pylog.log import Log

        return Log(
            self.options.path, create=create, auto_create_topics=self.options.auto_create_topics,
            filesystem=self.filesystem, clock=self.clock,
        )  # fmt: skip

    def directory_of(self, sink_id: str) -> SinkDirectory:
        return SinkDirectory.of(self.filesystem, self.options.path, sink_id)

    # In a task

    def stage(self, batches: Iterable[pa.RecordBatch], sink_id: str, batch_id: int, task_attempt: int) -> TaskMessage:
        """Encode as ``Producer.send_arrow`` does, into this attempt's file."""
        file = StagedFile(self.directory_of(sink_id), batch_id, task_attempt)
        try:
            with closing(self.open()) as log:
                self._encode(batches, log, file)
            return TaskMessage(sink_id, batch_id, file.finish())
        except BaseException:
            with suppress(PylogError):
                file.discard()
            raise

    def _encode(self, batches: Iterable[pa.RecordBatch], log: Log, file: StagedFile) -> None:
        from pylog.producer import Producer

        producer = Producer(
            StagedLog(log.manager, file), acks=1, enable_idempotence=False,
            linger_ms=_NEVER_MS, delivery_timeout_ms=_NEVER_MS, **self.options.producer,
        )  # fmt: skip
        with producer:
            for batch in batches:
                for topic, rows in tables(batch, self.options.topic):
                    try:
                        producer.send_arrow(topic, rows)
                    except own(PylogError) as error:
                        raise _located(error, topic, rows) from error
                if file.failure is not None:
                    raise file.failure

    # On the driver

    def commit(self, sink_id: str, batch_id: int, messages: Sequence[WriterCommitMessage | None]) -> None:
        with closing(self.open_commit(sink_id)) as commit:
            commit.commit(batch_id, _staged(messages))

    def commit_batch(self, sink_id: str, batch_id: int, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The same for a query, whose next batch this process probably commits, too."""
        key = self.options.path, sink_id, self.options.delivery_timeout_ms
        kept = _KEPT.pop(key, None)
        if kept is not None and not kept.is_owner():
            kept.close()
            kept = None
        commit = kept or self.open_commit(sink_id)
        try:
            commit.commit(batch_id, _staged(messages))
        except BaseException:
            commit.close()
            raise
        _KEPT[key] = commit
        if len(_KEPT) > _KEPT_MAX:
            _KEPT.pop(next(iter(_KEPT))).close()

    def open_commit(self, sink_id: str) -> SinkCommit:
        return SinkCommit(self.open(), self.directory_of(sink_id), self.options.delivery_timeout_ms)

    def abort(self, sink_id: str, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what was staged. Spark calls it also if only the answer of a commit was lost."""
        self.directory_of(sink_id).remove(staged.name for staged in _staged(messages))


def _located(error: PylogError, topic: str, rows: pa.RecordBatch) -> PylogError:
    """The same error, with the row's topic and key."""
    index = error.facts.get("index")
    if index is None:
        return error
    key = f" with key {reprlib.repr(rows['key'][index].as_py())}" if "key" in rows.schema.names else ""
    return type(error)(f"a row for topic {topic!r}{key}: {error}", **{**error.facts, "topic": topic})


class BatchSink(DataSourceArrowWriter):
    """``df.write``: each save is a separate sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._sink_id = new_save_id(sink.filesystem)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        return self._sink.stage(iterator, self._sink_id, 0, _context().taskAttemptId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.commit(self._sink_id, 0, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.abort(self._sink_id, messages)


class StreamSink(DataSourceStreamArrowWriter):
    """``df.writeStream``: a query is one sink as long as its checkpoint exists."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        context = _context()
        query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if context.getLocalProperty(_IS_CONTINUOUS) == "true":
            raise ConfigError("the sink has no continuous processing; use another trigger", option="trigger")
        if not is_sink_id(query_id) or batch_id is None or not batch_id.isdecimal():
            raise ConfigError(
                f"this Spark does not tell its tasks which query and batch they belong to ({_QUERY_ID} is {query_id!r:.80}, "
                f"{_BATCH_ID} {batch_id!r:.80}), so a batch that comes again would not be known; save each with foreachBatch",
                option="format",
            )
        return self._sink.stage(iterator, str(query_id), int(batch_id), context.taskAttemptId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        for sink_id in _sink_ids(messages):
            self._sink.commit_batch(sink_id, batchId, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for sink_id in _sink_ids(messages):
            self._sink.abort(sink_id, messages)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None  # Spark calls ``write`` in a task
    return context


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """What the tasks staged, in the order of the tasks."""
    return [m.staged for m in messages if isinstance(m, TaskMessage) and m.staged is not None]


def _sink_ids(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    """The query's id from the tasks' messages; empty if no task sent one."""
    return list(dict.fromkeys(m.sink_id for m in messages if isinstance(m, TaskMessage)))
