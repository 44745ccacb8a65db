"""The public face. ``send`` is the hot path; per-batch work is in other files.

topic_cache.py, partitioner.py     a topic's buffers and settings; the partition of a record
buffer.py, batch.py                a partition's batches, and their states
accumulator.py, buffer_pool.py     room for a record; the bytes that all batches may take
send_many.py, send_arrow.py        many records in one call
keys.py                            a compacted topic takes no record without a key
named.py, send_named.py            named producers, whose sequences are the application's
sender.py, linger.py               append, sync, outcome, callbacks; the background thread
delivery.py, deliveries.py         the outcome of one record, of many (metrics.py: counts)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pylog.catalog import check_topic_name
from pylog.checks import OfOneProcess, refuses_other_options, require_several, require_timeout
from pylog.codec.format import POSITIVE
from pylog.errors import ConfigError, ForkedHandle, PylogError
from pylog.interrupts import own
from pylog.kafka_names import AbsentNames, answers_kafkas_names
from pylog.manager.access import manager_of
from pylog.model import ConsumerGroupMetadata, GivenHeaders, Offsets
from pylog.producer.accumulator import Accumulator
from pylog.producer.buffer import IncompleteBatches, PartitionBuffer, TopicBuffers
from pylog.producer.buffer_pool import BufferPool
from pylog.producer.config import ACKS_ALL, KAFKAS_NAMES, ProducerConfig, Serializer, key_bytes, serialized
from pylog.producer.deliveries import Deliveries
from pylog.producer.delivery import Delivery
from pylog.producer.partitioner import UNHASHABLE, PartitionFunction
from pylog.producer.send_arrow import TableSender
from pylog.producer.send_many import BulkSender
from pylog.producer.sender import Sender
from pylog.producer.topic_cache import TopicCache
from pylog.storage import after_fork_in_child

if TYPE_CHECKING:
    import pyarrow as pa

    from pylog.manager.access import LogFace, ProducerLog
    from pylog.producer.send_named import NamedSender
    from pylog.producer.transactions import ProducerTransactions


@answers_kafkas_names
class Producer(OfOneProcess, metaclass=AbsentNames):
    """Sends records to the topics of a log. Threads may share it. It also works in a forked child.

    Of the options, ``_ms`` are milliseconds, ``_bytes`` bytes.

    | ``acks`` | a delivery is acknowledged when | the record survives |
    | --- | --- | --- |
    | ``"all"`` | the record is in the file and the file is synced to disk | power failure |
    | ``1`` | the record is in the file, in the page cache | a process's death, not power failure |
    | ``0`` | at once; errors are only logged and counted | nothing is promised |

    Records of a partition are appended in the order sent. With ``enable_idempotence`` a batch
    carries a producer id and a sequence number, so that the log recognizes a duplicate.

    A batch is written when it holds ``batch_bytes``, when its first record is ``linger_ms`` old, on
    ``flush`` and ``close``, and when a result is requested. ``linger_ms=0`` writes every record at
    once. Open batches take up to ``buffer_bytes`` together. Beyond that, ``send`` writes batches
    itself and waits for other threads up to ``max_block_ms``. If another process holds the
    partition's lock, a batch is retried until ``delivery_timeout_ms``.

    ``compression`` is none, gzip, snappy, lz4 or zstd; None uses the topic's setting. With
    ``compression_level`` gzip, lz4 and zstd use another level than their default.
    ``key_serializer`` and ``value_serializer`` turn keys and values into bytes; None (no key, a
    tombstone) stays None. ``on_delivery`` is called with the ``Delivery`` of every record once its
    outcome is known.

    The topic's hash (``TopicConfig.partitioner``) places records with a key: ``"murmur3"``
    (``(mmh3.hash(key) & 0x7fffffff) % partitions``) or ``"murmur2"`` (as Kafka's Java clients).
    Records without a key go to one partition until its batch is written, then to another.
    ``partitioner`` names another method: one of these hashes, ``"round_robin"``, ``"sticky"``, or a
    callable ``(key, partition_count) -> partition``. With a hash that is not the topic's, every
    send raises ``ConfigError``, with a key or without. The other three refuse records with a key.
    ``partitioner_override=True`` allows both: other producers then place the same keys elsewhere. A
    partition named in a call is always used.

    With a ``name``, each record has a ``sequence`` that the application counts (0 to 2**31 - 1,
    rising in each partition, with gaps or without), and a ``partition`` unless there is only one.
    A record whose sequence is not above the last one of that name and partition is not appended
    again, in this process or any later one, however late: its delivery succeeds, with the offset
    -1 if the log no longer knows it. After a failed record, only its own sequence or a lower one
    is taken, else ``OutOfOrderSequence``. One producer at a time can have a name. Callbacks of a
    delivery cannot send to the same partition.

    With a ``transactional_id`` it writes transactions. Of several producers with one id, only the
    last one that called ``init_transactions`` may. Others may abort a transaction without an append
    for ``transaction_timeout_ms``.

    Raises ``ConfigError``, ``ReadOnlyLog``, ``Closed``, ``LogLocked`` (the name is in use), or
    ``MissingCodec`` for a missing compression library.
    """

    @refuses_other_options("Producer", ProducerConfig.options(), KAFKAS_NAMES)
    def __init__(
        self,
        log: LogFace[ProducerLog],
        *,
        acks: int | str = "all",
        linger_ms: float = 5,
        batch_bytes: int = 1024 * 1024,
        buffer_bytes: int = 32 * 1024 * 1024,
        max_block_ms: float = 60_000,
        compression: str | None = None,
        compression_level: int | None = None,
        partitioner: str | PartitionFunction | None = None,
        partitioner_override: bool = False,
        enable_idempotence: bool = True,
        delivery_timeout_ms: float = 120_000,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: float = 60_000,
        name: str | None = None,
    ) -> None:
        manager = manager_of(log, "Producer")
        manager.require_writable()
        self._config = config = ProducerConfig(
            acks=acks,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            max_block_ms=max_block_ms,
            compression=compression,
            compression_level=compression_level,
            partitioner=partitioner,
            partitioner_override=partitioner_override,
            enable_idempotence=enable_idempotence,
            delivery_timeout_ms=delivery_timeout_ms,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            on_delivery=on_delivery,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            name=name,
        )
        self._pool = pool = BufferPool(config.buffer_bytes)
        self._incomplete = incomplete = IncompleteBatches()
        self._transactions = None
        if transactional_id is not None:
            from pylog.producer.transactions import ProducerTransactions  # most producers have none

            self._transactions = ProducerTransactions(manager, config, self._open_gate)
        self._named = None
        if name is not None:
            from pylog.producer.named import NamedProducer  # most producers have none

            self._named = NamedProducer(manager, config)
        self._sender = Sender(manager, config, pool, incomplete, self._transactions, self._named)
        self._topics = TopicCache(manager, config, pool, incomplete, self._sender)
        self._accumulator = Accumulator(manager.clock, config, pool, incomplete, self._sender, self._topics)
        self._bulk = BulkSender(self._accumulator, self._sender, self._topics, config)
        self._table = TableSender(self._bulk, self._accumulator, self._topics, manager.clock.now_ms)
        # What ``send`` needs for every record, one attribute away:
        self._known_topics = self._topics.known
        self._with_sequences = None
        if self._named is not None:
            from pylog.producer.send_named import NamedSender

            self._with_sequences = NamedSender(
                self._named, self._accumulator, self._bulk, self._sender, self._topics, config, manager.clock
            )
        if self._transactions is not None or self._named is not None:
            self._open_gate(False)
        self._now_ms = manager.clock.now_ms
        self._append = self._accumulator.append
        self._serializes = config.key_serializer is not None or config.value_serializer is not None
        self._has_more_to_do = config.on_delivery is not None or config.linger_s == 0
        after_fork_in_child(self._forget_parent)

    # Python's TypeError answers a positional key and timestamp=: a parameter costs 2 to 10 % of it
    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
        sequence: int | None = None,
    ) -> Delivery:
        """Send one record. Returns at once unless a batch is full. Buffers may be reused then.

        ``partition`` defaults to the partitioner's choice, ``timestamp_ms`` to the current time.
        ``headers`` are a sequence of (name, bytes or None) pairs, or a dict. ``sequence``: of named
        producers, see there. The ``Delivery`` has the outcome of the record. This call only raises
        errors of the record or of the producer, and nothing was sent then:
        ``TopicNotFound``, ``TopicChanged`` (repartitioned meanwhile: call again), ``ConfigError``
        (the partitioner is not the topic's),
        ``InvalidPartition``, ``SerializationError``, ``InvalidTimestamp``, ``RecordTooLarge``,
        ``InvalidRecord`` (no key, in a compacted topic), ``ReadOnlyTopic``, ``BufferTimeout``,
        ``Closed``, ``ForkedHandle``. For a topic that is new to the producer ``MissingCodec`` (of
        its ``compression_type``), and with ``auto_create_topics`` ``TopicExists`` (a similar name)
        and ``LogLocked``. In a named producer ``OutOfOrderSequence``, and of its look into the log
        ``DeliveryTimeout`` (after ``max_block_ms``) and ``OutcomeUnknown`` (a sync was refused).
        With a ``transactional_id`` ``InvalidTransactionState``, ``TransactionAborted``,
        ``CommitFailed`` (of the last commit), ``ProducerFenced``.
        """
        if self._serializes:
            key = serialized("key", self._config.key_serializer, key)
            value = serialized("value", self._config.value_serializer, value)
        if sequence is not None:
            return self._send_numbered(topic, value, key, partition, timestamp_ms, headers, sequence)
        try:
            topic_buffers = self._known_topics[topic]
        except own(KeyError, TypeError):
            topic_buffers = self._find_to_send(topic)
        buffers = None
        buffer = topic_buffers.only
        if buffer is None or partition is not None:
            buffers = topic_buffers.buffers
            key_hash = topic_buffers.key_hash
            if partition is not None:
                buffer = self._topics.buffer(topic_buffers, partition)
            elif key is None or key_hash is None:
                buffer = buffers[topic_buffers.choice.choose(key, len(buffers))]
            else:
                try:
                    buffer = buffers[(key_hash(key) & POSITIVE) % len(buffers)]
                except own(*UNHASHABLE):
                    buffer = buffers[(key_hash(key_bytes(key)) & POSITIVE) % len(buffers)]

        batch = buffer.open
        append = batch.append  # Python 3.11 is slow to call an attribute that is not a method
        delivery = append(Delivery, batch, timestamp_ms, key, value, headers)
        if delivery is None:
            if partition is not None:
                buffers = None
            elif buffers is None and len(buffers := topic_buffers.buffers) > 1:  # it was the only one
                buffers = []
            delivery = self._append(buffer, timestamp_ms, key, value, headers, among=buffers)
        if self._has_more_to_do:
            self._bulk.do_more((delivery,), (delivery.batch,))
        return delivery

    def _send_numbered(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
        sequence: int,
    ) -> Delivery:
        sender = self._sender_of_sequences()
        buffer = self._named_buffer(self._find(topic), partition)
        delivery = sender.send(buffer, sequence, timestamp_ms, key, value, headers)
        if self._has_more_to_do:
            self._bulk.do_more((delivery,), (delivery.batch,))
        return delivery

    def _sender_of_sequences(self) -> NamedSender:
        if self._with_sequences is None:
            raise ConfigError("sequence needs a named producer: Producer(log, name='import-7')", option="name")
        return self._with_sequences

    def _named_buffer(self, topic: TopicBuffers, partition: int | None) -> PartitionBuffer:
        """A repeated record must go where it went before, so no partitioner chooses."""
        if partition is None and len(topic.buffers) == 1:
            return topic.buffers[0]
        if partition is None:
            raise ConfigError(
                f"a named producer needs partition= for {topic.name!r}, which has {len(topic.buffers)} partitions: its sequences "
                "are counted in each",
                option="partition", topic=topic.name,
            )  # fmt: skip
        return self._topics.buffer(topic, partition)

    def last_sequence(self, topic: str, partition: int = 0) -> int | None:
        """The last sequence of this named producer in a partition; None if the log has none.

        What is still under way does not count. The log has every sequence up to it that was sent;
        with ``acks="all"`` it is durable. ``ConfigError`` without a name, ``TopicNotFound``,
        ``InvalidPartition``, ``DeliveryTimeout`` if another process holds the partition's lock;
        ``OutcomeUnknown`` if a sync is refused; ``ForkedHandle``; ``TopicExists``, ``LogLocked``,
        ``MissingCodec``, ``ReadOnlyTopic`` as for ``send``.
        """
        sender = self._sender_of_sequences()
        self._topics.refresh()  # the topic may have been created again
        return sender.last_sequence(self._topics.buffer(self._find(topic), partition))

    def _find_to_send(self, topic: str) -> TopicBuffers:
        if self._named is not None:
            raise ConfigError(
                f"the producer is named {self._named.name!r}: name each record's sequence=", option="sequence"
            )
        return self._find(topic)

    def _find(self, topic: str) -> TopicBuffers:
        """The buffers of a topic not known yet. Its error is raised without the look-up's
        KeyError."""
        try:
            if self._transactions is not None:
                self._transactions.require_open()
            return self._find_known(topic)
        except own(PylogError) as error:
            error.__suppress_context__ = True
            raise

    def _find_known(self, topic: str) -> TopicBuffers:
        return self._topics.find(topic if isinstance(topic, str) else check_topic_name(topic))

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        sequence: int | None = None,
    ) -> Deliveries:
        """Send many records to one topic, much faster than one by one.

        ``keys[i]`` belongs to ``values[i]``. ``sequence``, of a named producer, is the first
        record's; those after it have the next ones. The records need not fit into the buffer.
        Raises like ``send`` for the first refused record: the error's ``index`` is its place, and
        all values before it were accepted. After ``BufferTimeout``, some values after it may be
        accepted, too.
        """
        values = require_several("values", values)
        if keys is not None:
            keys = require_several("keys", keys)
            if len(keys) != len(values):
                raise ConfigError(f"{len(keys)} keys for {len(values)} values", keys=len(keys), values=len(values))
        topic_buffers = self._find_to_send(topic) if sequence is None else self._find(topic)
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        if sequence is not None:
            sender = self._sender_of_sequences()
            named = self._named_buffer(topic_buffers, partition)
            return sender.send_many(topic_buffers, named, sequence, timestamp_ms, values, keys)
        buffer = None if partition is None else self._topics.buffer(topic_buffers, partition)
        return self._bulk.send(topic_buffers, buffer, self._bulk.request(timestamp_ms, values, keys))

    def send_arrow(self, topic: str, table: pa.Table | pa.RecordBatch) -> Deliveries:
        """Send each row of an Arrow table to one topic, in order. Needs the ``arrow`` extra.

        The table needs a column ``value`` (binary or string; null is a tombstone). Optional
        columns: ``key`` (binary or string; null: no key), ``partition`` (integer; null: the
        partitioner chooses), ``timestamp`` (a timestamp, cut to milliseconds, UTC if it has no
        zone; or an integer of milliseconds; null: now), ``headers`` (lists of structs of ``key``
        and ``value``). ``topic``, ``offset`` and ``timestampType`` are ignored, so the tables of
        ``to_arrow`` and ``poll_arrow`` can be sent. They go to partitions of the same numbers,
        unless the column ``partition`` is removed. Serializers do not apply. The table need not fit
        into the buffer. It is as fast as ``send_many``, but rows with headers are sent one by one.

        ``acks`` applies as for ``send``. Raises ``ConfigError`` for other columns or types, and
        without ``pyarrow``; nothing was sent then. Raises like ``send`` for the first refused row:
        the error's ``index`` is its place, and all rows before it were accepted. After
        ``BufferTimeout``, some rows after it may be accepted, too.
        """
        from pylog.arrow.rows import rows_of

        if self._named is not None or self._transactions is not None:
            self._find_to_send(topic)
        return self._table.send(topic, rows_of(table))

    # Transactions

    def init_transactions(self) -> None:
        """Take the ``transactional_id`` over. Call it once, before the first transaction.

        An earlier producer with the id is fenced: its calls raise ``ProducerFenced``, and what it
        has not committed is aborted. ``LogLocked`` if a process that changes the id is stopped,
        ``DeliveryTimeout`` if a writer is, ``OutcomeUnknown`` if its last commit cannot be made
        durable, ``StorageFull``: call it again. ``InvalidTransactionState`` for a second call;
        ``ConfigError`` without an id; ``ForkedHandle``.
        """
        self._of_transactions("init_transactions").init(self._sender)

    def begin_transaction(self) -> None:
        """Begin a transaction: the next records are visible to ``read_committed`` all or none.

        A ``send`` of another thread that returned before this call is in the last transaction, or
        fails. One that is still running may be in either, a ``send_many`` in both.
        ``InvalidTransactionState`` without ``init_transactions``, or inside a transaction.
        ``ProducerFenced``. ``LogLocked``, ``DeliveryTimeout`` (the last transaction can't be ended
        yet), ``StorageError``: call it again.
        """
        self._of_transactions("begin_transaction").begin(self._sender)

    def send_offsets_to_transaction(
        self,
        offsets: Offsets,
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit these offsets of a consumer group with the transaction: both or none.

        ``offsets`` are the next to read of each partition, as for ``Consumer.commit``, and
        ``group_metadata`` is ``consumer.group_metadata()``, or the name of a group without members.
        They are appended and checked by ``commit_transaction``, which raises ``CommitFailed`` if
        the member does not own the partitions any more: abort, and read the records again.
        ``TopicNotFound``, ``InvalidPartition``, ``InvalidTransactionState``,
        ``TransactionAborted``, ``ProducerFenced``; ``CommitFailed`` after such a commit.
        """
        self._of_transactions("send_offsets_to_transaction").send_offsets(offsets, group_metadata, self._sender)

    def commit_transaction(self) -> None:
        """Commit. On return all records of the transaction are durable and visible.

        ``TransactionAborted`` if a record was not appended, or after ``transaction_timeout_ms``
        without one, ``CommitFailed`` if a consumer has lost partitions whose offsets were sent,
        ``TopicNotFound`` if a topic was deleted: only ``abort_transaction`` can follow.
        ``ProducerFenced`` if another producer has taken over: the transaction is aborted.
        ``LogLocked``, ``DeliveryTimeout``, ``StorageFull``, ``StorageError``: call
        ``commit_transaction`` again. ``OutcomeUnknown``: so too, or ``close``; it may be committed.
        ``InvalidTransactionState`` outside of a transaction.
        """
        self._of_transactions("commit_transaction").commit(self._sender)

    def abort_transaction(self) -> None:
        """Abort. No reader with ``read_committed`` ever sees a record of the transaction.

        ``LogLocked`` if another thread is still writing one after 30 s, ``StorageFull``: call it
        again. ``InvalidTransactionState`` outside of a transaction, ``ProducerFenced``.
        """
        self._of_transactions("abort_transaction").abort(self._sender)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """``with producer.transaction():`` begins one, and commits it; an exception aborts it."""
        self.begin_transaction()
        try:
            yield
            self.commit_transaction()
        except BaseException:
            if self._of_transactions("abort_transaction").can_abort:
                self.abort_transaction()
            raise

    def _of_transactions(self, call: str) -> ProducerTransactions:
        if self._transactions is None:
            raise ConfigError(
                f"{call} needs a transactional_id: Producer(log, transactional_id='my-app-0')",
                option="transactional_id",
            )
        return self._transactions

    def _open_gate(self, is_open: bool) -> None:
        """Whether ``send`` finds its topics at once, or asks ``_find``, which raises outside of a
        transaction."""
        self._known_topics = self._topics.known if is_open else {}

    def partitions_for(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions. ``TopicNotFound``; ``ConfigError``,
        ``TopicExists``, ``LogLocked``, ``MissingCodec``, ``ReadOnlyTopic`` as for ``send``."""
        self._topics.refresh()
        return set(range(len(self._find_known(topic).buffers)))

    def flush(self, timeout: float | None = None) -> None:
        """Write everything sent before. Returns once all is acknowledged or failed.

        Its callbacks have run then. Raises TimeoutError after ``timeout`` seconds. The deliveries
        have the failures.
        """
        if timeout is not None:
            require_timeout(timeout)
        if not self._sender.flush(timeout):
            raise TimeoutError(f"{len(self._incomplete.batches)} batches are still under way after {timeout} s")

    def close(self, timeout: float | None = None) -> None:
        """Flush, then accept no more records. Closing twice is allowed.

        Records not written within ``timeout`` seconds fail with ``DeliveryTimeout``. Raises the
        first error of a record whose delivery the application has not looked at: a failure is never
        silent. ``InvalidTransactionState`` in a callback that a call of its transaction runs.
        """
        require_timeout(timeout)
        if self._transactions is not None:
            self._transactions.close(self._sender)
        self._topics.close()
        if not self._sender.flush(timeout):
            self._sender.give_up()
        if self._named is not None:
            self._named.close()
        error = self._sender.failures.take()
        if error is not None:
            raise error

    def __enter__(self) -> Producer:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.close()
        except own(PylogError):
            if error is None:  # else the first error is raised, and this one is logged
                raise

    def metrics(self) -> dict[str, float]:
        """Counts since the producer was made or forked. Cheap; not one consistent moment."""
        return self._sender.metrics.snapshot()

    def __repr__(self) -> str:
        batches = len(self._incomplete.batches)
        state = "closed" if self._topics.is_closed else f"{batches} batch{'' if batches == 1 else 'es'} under way"
        return f"<Producer acks={'all' if self._config.acks == ACKS_ALL else self._config.acks} {state}>"

    def _forget_parent(self) -> None:
        """In a forked child: the parent sends what is buffered. Only the child's deliveries
        fail."""
        batches = list(self._incomplete.batches)
        self._pool.forget_parent()
        self._incomplete.forget_parent()
        self._topics.forget_parent()
        if self._transactions is not None:
            self._transactions.forget_parent()
        if self._named is not None:
            self._named.forget_parent()
        self._sender.forget_parent()
        for batch in batches:
            batch.abandon(ForkedHandle("the record was sent before the fork: the parent process writes it"))
