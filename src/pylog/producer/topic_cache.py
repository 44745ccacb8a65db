"""The topics a producer has sent to: their buffers, and the settings that shape a batch.

A topic is looked up once. Later, a new batch, and a bulk send, only compare the catalog's version,
and read again what changed: partitions, settings, or a topic deleted or created again under the
same name. A partition that was chosen is chosen again then, but not during a bulk send.
"""

from __future__ import annotations

import threading  # two threads may send to a new topic at once
from random import Random
from typing import TYPE_CHECKING, Any

from pylog.codec.compression import codec_id, compress
from pylog.errors import (
    BufferTimeout,
    Closed,
    InvalidPartition,
    PylogError,
    ReadOnlyTopic,
    TopicChanged,
)
from pylog.interrupts import own
from pylog.producer.buffer import IncompleteBatches, PartitionBuffer, TopicBuffers
from pylog.producer.buffer_pool import BufferPool
from pylog.producer.config import ProducerConfig
from pylog.producer.sender import Sender
from pylog.turn import is_mine

if TYPE_CHECKING:
    from pylog.catalog.topic import TopicConfig, TopicDescription
    from pylog.manager.access import ProducerLog

_LOOK_EVERY_S = 0.01  # a look costs a stat
_REMEMBERED_TOPICS = 1000
_THE_PRODUCERS = "producer"  # a topic's compression_type that leaves the choice to the producer


class TopicCache:
    """``send`` looks up a topic in ``known``, and calls ``find`` if it is not there."""

    def __init__(
        self, log: ProducerLog, config: ProducerConfig, pool: BufferPool, incomplete: IncompleteBatches, sender: Sender
    ) -> None:
        # Constant after construction:
        self._log = log
        self._config = config
        self._pool = pool
        self._incomplete = incomplete
        self._sender = sender
        self._random = Random()
        # Under ``_lock``; ``known`` and ``is_closed`` are read without it:
        self.known: dict[str, TopicBuffers] = {}
        self._of_id: dict[object, TopicBuffers] = {}  # also of topics that are read-only now, or had another name
        self.is_closed = False
        # By the thread that closes the log:
        self._is_log_closed = False
        log.flush_on_close(self)
        self.forget_parent()

    def forget_parent(self) -> None:
        """In a forked child: the buffers belong to the parent."""
        self._lock = threading.RLock()
        for topic in [*self.known.values(), *self._of_id.values()]:
            topic.is_abandoned = True
        self.known.clear()
        self._of_id.clear()
        # Under ``_lock``; read without it, as a hint that is compared again:
        self._version = -1
        # Any thread, one operation at a time:
        self._look_again_s = 0.0

    def find(self, name: str) -> TopicBuffers:
        """The buffers of a topic as of 10 ms ago at most. ``Closed``, ``TopicNotFound``, or
        ``ConfigError`` (other hash)."""
        if is_mine(self._lock) and name not in self.known:
            raise BufferTimeout(
                f"{name} was sent to by a signal handler while the thread it interrupted looked for a topic; nothing was "
                "appended, send again when that is over",
                topic=name,
            )
        if not self.is_closed:  # else the log raises, and does not say what to open
            self._look(self._log.clock.monotonic())
        with self._lock:
            if self.is_closed:
                raise self.refusal()
            if name not in self.known:
                self.known[name] = self._read(name, None)
            return self.known[name]

    def refusal(self) -> Closed:
        """Why the producer accepts no more records."""
        if self._is_log_closed:
            return Closed(f"the log {self._log.path!r} has been closed; open a new one, and a new producer of it")
        return Closed("the producer is closed")

    def log_closes(self) -> None:
        """Refuse new records, and write those that were accepted."""
        self._is_log_closed = self._is_log_closed or not self.is_closed  # an interrupted close is repeated
        self.close()
        self._sender.log_closes()

    def close(self) -> None:
        """Make ``find`` refuse everything. After the return, no more batches are opened."""
        with self._lock:
            self.is_closed = True
            topics = list(self.known.values())
            self.known.clear()
        for topic in topics:
            for buffer in topic.buffers:
                with buffer.lock:  # a thread that was about to open a batch has opened it
                    pass

    def _look(self, now_s: float) -> None:
        if now_s >= self._look_again_s:
            self._look_again_s = now_s + _LOOK_EVERY_S
            self.refresh()

    def refresh(self) -> None:
        """Read the known topics again if the catalog has changed."""
        version = self._log.catalog_version()
        if version == self._version or is_mine(self._lock):  # a signal handler may have interrupted this method
            return
        with self._lock:
            gone = self._read_again()
            self._version = version
        for name in gone:
            self._log.close_gone(name)

    def _read_again(self) -> list[str]:
        """Return the names that have no buffers now, or other ones."""
        gone = []
        for name, topic in list(self.known.items()):
            try:
                self.known[name] = self._read(name, topic)
            except own(PylogError):  # the next send to it asks again and raises this
                self.known.pop(name, None)
            if self.known.get(name) is not topic:
                gone.append(name)
        return gone

    def current(
        self, buffer: PartitionBuffer, now_s: float, key: Any = None, among: list[PartitionBuffer] | None = None
    ) -> PartitionBuffer:
        """The buffer after a refresh: the same one, unless its topic was created again.

        ``among``: the partitioner chose it among these for ``key``, and chooses again if the topic
        has other ones now.
        """
        topic, name, number = buffer.topic, buffer.topic.name, buffer.number
        if now_s >= self._look_again_s or topic.is_stale:
            topic.is_stale = False
            self._look_again_s = now_s + _LOOK_EVERY_S
            self.refresh()
        found = self.known.get(name)
        if found is topic and (among is None or topic.buffers is among):
            return buffer
        if found is not topic:
            found = self.find(name)
            if topic.id in found.earlier_ids:  # the records before are to be sent again first
                raise TopicChanged.since(name)
        buffers = found.buffers
        if among is not None:
            number = found.choose(key, len(buffers))
        if number < len(buffers):
            return buffers[number]
        raise InvalidPartition(
            f"topic {name!r} was created again with partitions 0 to {len(buffers) - 1}, the record is for {number}",
            topic=name, partition=number, partitions=len(buffers),
        )  # fmt: skip

    def buffer(self, topic: TopicBuffers, partition: object) -> PartitionBuffer:
        """The buffer of a partition named by the caller; ``InvalidPartition`` if there is none."""
        if isinstance(partition, int) and not isinstance(partition, bool) and partition >= 0:
            if partition >= len(topic.buffers):
                self.refresh()  # it may be a new partition
            if partition < len(topic.buffers):
                return topic.buffers[partition]
        raise InvalidPartition(
            f"topic {topic.name!r} has partitions 0 to {len(topic.buffers) - 1}, got {partition!r}",
            topic=topic.name, partition=partition, partitions=len(topic.buffers),
        )  # fmt: skip

    def _read(self, name: str, topic: TopicBuffers | None) -> TopicBuffers:
        """The topic as the catalog has it now: ``topic`` updated, or a new one."""
        description = self._log.topic_to_send_to(name) if topic is None else self._log.describe_topic(name)
        if not description.config.writable:
            raise ReadOnlyTopic.of(name)
        partitioner = self._config.partitioner
        key_hash = partitioner.key_hash(name, description.config.partitioner)
        if topic is None or topic.id != description.id:
            topic = self._made(name, description)
        topic.key_hash = key_hash
        self._configure(topic, description.config)
        numbers = range(len(topic.buffers), description.partitions)
        topic.buffers = topic.buffers + [
            PartitionBuffer(topic, number, self._pool, self._incomplete) for number in numbers
        ]
        self._continue_numbers(topic)
        has_choice = len(topic.buffers) > 1 or not partitioner.hashes_keys
        topic.only = None if has_choice else topic.buffers[0]
        return topic

    def _made(self, name: str, description: TopicDescription) -> TopicBuffers:
        """The buffers of a topic that was not known by this name: those from before it was
        read-only, or new ones."""
        earlier = self._of_id.get(description.id)
        if earlier is not None and earlier.name == name:
            return earlier
        topic = TopicBuffers(name, description.id, self._config.partitioner.new_choice(self._random))
        topic.earlier_ids = description.earlier_ids
        return topic

    def _continue_numbers(self, topic: TopicBuffers) -> None:
        """After a rename, the log expects the sequence numbers after those sent under the earlier
        name.

        The earlier buffers append nothing any more, also if the topic gets their name again: their
        numbers are old.
        """
        earlier = self._of_id.get(topic.id)
        if earlier is topic:
            return
        if earlier is not None:
            for buffer, before in zip(topic.buffers, earlier.buffers, strict=False):
                buffer.identity, buffer.next_sequence = before.identity, before.next_sequence
            if self.known.get(earlier.name) is earlier:
                del self.known[earlier.name]
        self._of_id[topic.id] = topic
        if len(self._of_id) > _REMEMBERED_TOPICS:
            del self._of_id[next(iter(self._of_id))]

    def _configure(self, topic: TopicBuffers, config: TopicConfig) -> None:
        compression_type, max_message_bytes = config.compression_type, config.max_message_bytes
        if self._config.compression is not None:
            topic.codec, topic.level = codec_id(self._config.compression), self._config.compression_level
        elif compression_type != _THE_PRODUCERS:
            topic.codec = codec_id(compression_type)
            compress(topic.codec, b"", None)  # raises for a missing library here, not in the first batch
        else:
            topic.codec = codec_id("none")
        topic.needs_keys = config.is_compacted
        topic.max_message_bytes = max_message_bytes
        topic.batch_bytes = min(self._config.batch_bytes, max_message_bytes)
