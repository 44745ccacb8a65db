"""A named producer: its id, its lock, and what it knows of each partition.

Its sequences are the application's: the number of a line, of a row. They rise in each partition,
and numbers may be left out. So an import that is started again sends everything again, and the log
takes only what it does not have. There is no window of time: its entry in the producer state of a
partition is never forgotten (``FIRST_NAMED_ID``).

The id is a hash of the name, so no file can be lost that says which id a name has. One process at a
time has the name: it holds a lock, which the kernel frees at its death. A second producer is
refused and does not fence the first, since two that count the same input would each skip what the
other has sent.

Within a batch, sequences are consecutive, as in Kafka's format: a gap closes the batch. If a batch
fails, those after it fail too, until its first sequence is sent again. Else they would be the last
that the log knows, and the failed ones would pass for repeats.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from pylog.catalog.layout import check_encodable
from pylog.checks import require_count
from pylog.codec.format import MAX_SEQUENCE
from pylog.errors import ConfigError, ForkedHandle, LogLocked, OutOfOrderSequence
from pylog.manager.manager import LogManager
from pylog.model import TopicPartition
from pylog.partition.partition_log import PartitionLog
from pylog.partition.producers.packed import FIRST_NAMED_ID
from pylog.partition.producers.state import BatchTrace
from pylog.producer.batch import ProducerBatch, ProducerIdentity
from pylog.producer.config import ACKS_ALL, ProducerConfig
from pylog.producer.named_sequences import NamedSequences

if TYPE_CHECKING:
    from pylog.manager.access import ProducerLog
    from pylog.producer.buffer import PartitionBuffer

_EPOCH = 0


class NamedProducer:
    """The holder of a name. ``LogLocked`` if it has another one that lives."""

    def __init__(self, manager: ProducerLog, config: ProducerConfig) -> None:
        if not isinstance(manager, LogManager):
            raise ConfigError("a named producer needs a Log of its own directory", option="name")
        self.name = name = check_name(config.name, manager.layout.ignores_case)
        self.identity = ProducerIdentity(producer_id_of(name), _EPOCH, is_transactional=False)
        self._is_durable = config.acks == ACKS_ALL
        self._timeout_ms = int(config.max_block_ms)
        self._manager = manager
        self._is_the_parents = False
        manager.filesystem.make_directory(manager.layout.named_producers)
        path = manager.layout.named_producer(name)
        self._lock = manager.filesystem.lock(path)
        if not self._lock.try_acquire():
            self._lock.close()
            raise LogLocked(
                f"another producer named {name!r} is open: close it, or end its process (also one that is stopped)",
                path=path, name=name,
            )  # fmt: skip

    def known(self, buffer: PartitionBuffer) -> NamedSequences:
        """What is known of the buffer's partition; nothing yet for a new buffer."""
        if self._is_the_parents:
            raise ForkedHandle(
                f"the name {self.name!r} is the parent process's producer's; open another one in the child"
            )
        if buffer.named is None:
            buffer.named = NamedSequences()
        return buffer.named

    def learn(self, buffer: PartitionBuffer) -> int:
        """Ask the log for the last sequence, and let the buffer continue after it. -1 if there is
        none.

        The caller has the lock of ``known``, and nothing of the buffer is under way.
        """
        known = self.known(buffer)
        known.in_log = self.last_batches(*buffer.topic_partition)
        known.last = known.in_log[-1].last_sequence if known.in_log else -1
        buffer.identity, buffer.next_sequence = self.identity, known.last + 1
        return known.last

    def last_batches(self, topic: str, partition: int) -> tuple[BatchTrace, ...]:
        """The last batches that the log has of this producer, as safe as ``acks`` asks."""
        log = self._manager.partition(topic, partition)
        batches = log.last_batches(self.identity.id, self._timeout_ms)
        if batches and self._is_durable:
            self._sync(log, batches[-1])
        return batches

    def _sync(self, log: PartitionLog, batch: BatchTrace) -> None:
        """An earlier producer may have died before it did."""
        log.sync(batch.last_offset + 1)

    # For the sender

    def check_order(self, batch: ProducerBatch, buffer: PartitionBuffer) -> None:
        """Called before an append. ``OutOfOrderSequence`` if the batch before is not in the log."""
        if buffer.next_sequence not in (batch.previous_sequence + 1, batch.next_sequence):
            raise out_of_order(batch.topic_partition, batch.base_sequence, buffer.next_sequence)

    def note_failure(self, batch: ProducerBatch, buffer: PartitionBuffer) -> None:
        """The batch may not be in the log: later ones must wait until it was sent again."""
        if buffer.named is None:  # the topic was created again
            buffer.named = NamedSequences()
        buffer.named.failed.append(batch)

    # Ends

    def forget_parent(self) -> None:
        """In a forked child: the name is its parent's."""
        self._is_the_parents = True

    def close(self) -> None:
        """Give the name back. May be repeated."""
        self._lock.close()


def producer_id_of(name: str) -> int:
    """The producer id of a name: 62 bits of its SHA-256, in the range of named producers."""
    return FIRST_NAMED_ID | int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 2


def check_name(name: object, ignores_case: bool = False) -> str:
    """Return it if a producer can have this name; else ``ConfigError``."""
    return check_encodable(name, "name", "a producer's name", ignores_case)


def check_sequence(value: object, count: int = 1) -> int:
    """Return it if ``count`` records can have the sequences from here; else ``ConfigError``."""
    return require_count("sequence", value, 0, MAX_SEQUENCE - max(count, 1) + 1)


def out_of_order(name: TopicPartition, sequence: int, expected: int) -> OutOfOrderSequence:
    return OutOfOrderSequence(
        f"sequence {sequence} to {name.topic}-{name.partition}, but records from sequence {expected} on were not appended: "
        "send them again first",
        topic=name.topic, partition=name.partition, sequence=sequence, expected=expected,
    )  # fmt: skip
