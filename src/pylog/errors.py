"""Every exception pylog raises.

The class names the fault, the docstring gives the remedy, and the facts (names, offsets, positions,
limits) are fields: ``error.offset`` or ``error.facts["offset"]``. ``retriable`` is True if the same
call may succeed later without any change by the caller.

A send ends in one of three ways: acknowledged, ``NotAppended`` (certainly not in the log: sending
again is safe), or ``OutcomeUnknown`` (it may or may not be in the log).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylog import kafka_names as _kafka_names

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        raise _kafka_names.no_name(__name__, name)


class PylogError(Exception):
    """Base of every pylog error. ``facts`` has both sides of the mismatch, also as attributes.

    The message is one line of printable text, whatever it quotes; the facts are unchanged.
    """

    retriable = False

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message if message.isprintable() else _printable(message))
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no attribute or fact {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.facts)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _rebuild(kind: type[PylogError], message: str, facts: dict[str, Any]) -> PylogError:
    return kind(message, **facts)


# The caller's request


class ConfigError(PylogError, ValueError):
    """An option has a wrong type or value, or options contradict each other. Correct the option."""


class LogNotFound(PylogError, FileNotFoundError):
    """There is no log at this path, or it was removed. Correct the path, or name a new or empty
    directory to create a log in (``create=True``)."""

    def __init__(self, message: str, **facts: Any) -> None:
        PylogError.__init__(self, message, **facts)

    @classmethod
    def while_open(cls, path: str) -> LogNotFound:
        """For an open log whose ``path`` is missing now."""
        return cls(
            f"{path} no longer exists: the log, or this part of it, was moved or removed while it was open; "
            "open the log at its new path, or restore the missing files from a copy",
            path=path,
        )

    def __str__(self) -> str:
        return str(self.args[0])


class TopicNotFound(PylogError):
    """The log has no such topic. Create it with ``Log.create_topic``, or open the log with
    ``auto_create_topics=True``."""


class TopicExists(PylogError):
    """A topic has this name, or one that differs only in case, ``.`` and ``_``. Use it, or choose
    another name."""


class InvalidTopicName(PylogError, ValueError):
    """Topic names are 1 to 249 characters of ``a-z A-Z 0-9 . _ -``; new ones do not begin with
    ``-`` or ``.``, end with ``.``, or name a device (``con``, ``nul``). Choose another name."""


class InvalidPartition(PylogError, ValueError):
    """The topic has no such partition. ``Log.describe_topic(topic).numbers`` lists them."""


class SerializationError(PylogError, TypeError):
    """Key, value or header is not bytes, or a (de)serializer failed (``__cause__``). Pass bytes."""


class InvalidTimestamp(PylogError, ValueError):
    """A timestamp is out of range: whole milliseconds since 1970-01-01 UTC, in 64 bits."""


# The result of a send


class NotAppended(PylogError):
    """The record is certainly not in the log. Sending it again cannot duplicate it."""


class OutcomeUnknown(PylogError):
    """The record may or may not be in the log. Read the partition's end before resending it."""


class RecordTooLarge(NotAppended, ValueError):
    """The encoded record, or the records of one ``append``, exceed ``max_message_bytes``.

    Send less at a time, or raise that limit on the topic.
    """


class InvalidRecord(NotAppended, ValueError):
    """The topic is compacted, and the record has no key: the next compaction would drop it. Give it
    a key, or send it to a topic whose ``cleanup_policy`` is without ``compact``."""


class DeliveryTimeout(NotAppended, TimeoutError):
    """Another process held the lock for ``delivery_timeout_ms``; nothing was written. Try again."""

    retriable = True


class BufferTimeout(NotAppended, TimeoutError):
    """The producer's buffer stayed full for ``max_block_ms``. Send slower, or check the disk."""

    retriable = True


class ReadOnlyTopic(NotAppended):
    """The topic has ``writable=False``. Send to another topic, or have ``alter_topic(topic,
    writable=True)`` called, and send again."""

    @classmethod
    def of(cls, topic: str) -> ReadOnlyTopic:
        """For a record that was sent to ``topic``."""
        return cls(
            f"topic {topic!r} is read-only (writable=False), and takes no records: send to another topic, or make it writable "
            "again with alter_topic(topic, writable=True)",
            topic=topic, writable=False,
        )  # fmt: skip


class TopicChanged(TopicNotFound, NotAppended):
    """The topic gets other partitions or another name, or got other partitions since the record was
    sent. Send again: the record then goes to the partition that has its key now."""

    retriable = True

    @classmethod
    def since(cls, topic: str) -> TopicChanged:
        """For a record that was sent to a partition that the topic had before."""
        return cls(
            f"topic {topic!r} has got another number of partitions since: send again, to the partition that has the key now",
            topic=topic,
        )


class OffsetConflict(NotAppended):
    """``append(expected_offset=n)`` found another end. Read the new records, then decide again."""


class OutOfOrderSequence(NotAppended):
    """A producer's sequence number has a gap: an earlier batch is missing. A producer with a name
    sends the records before this one again; else open a new producer."""


class ProducerFenced(NotAppended):
    """A newer producer with the same identity has taken over. Close this one."""


class InvalidTransactionState(NotAppended):
    """The call does not fit the state of the transaction, or of the producer. Nothing was done."""


class TransactionAborted(NotAppended):
    """The transaction is aborted: it can only be ended by ``abort_transaction``. Repeat its
    work."""

    retriable = True


# Reading


class OffsetOutOfRange(PylogError, IndexError):
    """The offset is before the first kept record or after the end. Seek to ``earliest`` ..
    ``latest``."""


class NoOffsetForPartition(PylogError):
    """There is no start position, and ``auto_offset_reset="none"``. Seek, or choose another reset
    policy."""


class TransactionNotFound(PylogError):
    """No producer has had this transactional id. ``Log.transactions()`` lists the ids."""


class CommitFailed(PylogError):
    """The group refused these offsets: nothing was committed. Others may have reread them.

    The message gives the reason: this member was expelled, or lost a partition, or the group has
    members without it, or a topic was renamed or repartitioned. Poll again to rejoin, and continue
    with what is assigned then.
    """


class InstanceFenced(CommitFailed):
    """A consumer of the same ``group_instance_id`` took over. Use distinct ones; close this one."""


class GroupNotFound(PylogError):
    """The group has no members and no commits. ``Log.groups()`` lists the groups."""


class GroupNotEmpty(PylogError):
    """The group has members, and this needs a group without members. Stop them first."""


class CorruptRecord(PylogError):
    """Bytes that no producer wrote: a wrong checksum, length, framing, or decompressed size.

    Nothing is returned from the damaged batch. Restore the file from a copy, or read on from
    ``next_position``.
    """


class CorruptSegment(CorruptRecord):
    """A segment is damaged before its durable end. It is never cut. ``pylog verify`` lists the
    damaged ranges."""


class FormatVersionError(PylogError):
    """The format of the directory or batch is unknown to this version. Upgrade pylog."""


# The state of a handle or a directory


class LogLocked(PylogError):
    """Another process holds the lock for longer than the timeout, or the filesystem can't lock. See
    ``path``."""

    retriable = True


class ReadOnlyLog(PylogError):
    """The log is read-only: ``read_only=True``, a Kafka directory, or no write permission.
    ``reason`` names the cause."""


class ForkedHandle(PylogError):
    """This handle belongs to the parent process, which sends its records."""


class Closed(PylogError):
    """The log, producer or consumer was closed. Open a new one."""


class WrongThread(PylogError):
    """A consumer belongs to one thread at a time; only ``wakeup()`` may be shared. Give each thread
    its own consumer."""


class Wakeup(PylogError):
    """``Consumer.wakeup()`` interrupted this poll. The consumer is intact: poll again or close."""

    retriable = True


class NotABackup(PylogError):
    """A backup would replace this directory, and it holds something else than an unchanged copy of
    this log. Name another one, or remove it if nothing in it is needed."""


# The disk


class UnsafeDirectory(PylogError):
    """Any user of the machine may replace files in this directory. Remove that permission, or
    choose another directory."""


class StorageError(PylogError, OSError):
    """The system refused a read or a write. ``__cause__`` is its error, ``path`` names the file."""

    def __init__(self, message: str, **facts: Any) -> None:
        PylogError.__init__(self, message, **facts)
        self.errno = facts.get("errno")

    def __str__(self) -> str:
        return str(self.args[0])


class StorageFull(NotAppended, StorageError):
    """No space left (or a quota, or a file size limit). Nothing acknowledged is lost; free space
    and send again."""

    retriable = True


class MissingCodec(PylogError, ImportError):
    """A batch uses a codec whose library is missing. ``pip install 'pylog-embedded[codecs]'``."""
