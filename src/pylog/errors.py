"""Every exception pylog raises.

The class says what went wrong, the docstring says what to do about it, and the facts (names, offsets, positions, limits)
are fields: ``error.offset`` or ``error.facts["offset"]``. ``retriable`` is True where the same call may succeed later
without any change by the caller.

A send ends in one of three ways: acknowledged, ``NotAppended`` (certainly not in the log: sending again is safe), or
``OutcomeUnknown`` (it may or may not be in the log).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylog import kafka_names as _kafka_names

if not TYPE_CHECKING:  # a checker would take every name for one that is here

    def __getattr__(name: str) -> object:
        raise _kafka_names.no_name(__name__, name)


class PylogError(Exception):
    """Base of every pylog error. ``facts`` holds both sides of the mismatch by name; each is also an attribute.

    The message is one line of printable text, whatever name, path or content of a file it speaks of; the facts are as they are.
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


# What the caller asked for


class ConfigError(PylogError, ValueError):
    """An option has a wrong type or value, or options contradict each other. Correct the option named."""


class LogNotFound(PylogError, FileNotFoundError):
    """There is no log at this path, or no longer. Correct it, or name a new or empty directory to make one (``create=True``)."""

    def __init__(self, message: str, **facts: Any) -> None:
        PylogError.__init__(self, message, **facts)

    @classmethod
    def while_open(cls, path: str) -> LogNotFound:
        """For a log that is open, where ``path`` is missing now."""
        return cls(
            f"{path} is not there any more: the log was moved or removed while it was open, or this part of it was lost; "
            "open the log where it is now, or restore what is missing from a copy",
            path=path,
        )

    def __str__(self) -> str:
        return str(self.args[0])


class TopicNotFound(PylogError):
    """The log has no such topic. Create it with ``Log.create_topic``, or open the log with ``auto_create_topics=True``."""


class TopicExists(PylogError):
    """A topic of this name (or one that differs only in case, ``.`` and ``_``) is there. Use it, or take another name."""


class InvalidTopicName(PylogError, ValueError):
    """Topic names are 1 to 249 characters of ``a-z A-Z 0-9 . _ -``; a new one begins with no ``-`` or ``.``. Choose another."""


class InvalidPartition(PylogError, ValueError):
    """The topic has no partition of this number. ``Log.describe_topic(topic).numbers`` tells which are there."""


class SerializationError(PylogError, TypeError):
    """A key, value or header is not bytes, or a (de)serializer failed (its error is ``__cause__``). Pass bytes."""


class InvalidTimestamp(PylogError, ValueError):
    """A record's timestamp is out of range. Timestamps are whole milliseconds since 1970-01-01 UTC, in 64 bits."""


# The fate of a send


class NotAppended(PylogError):
    """The record is certainly not in the log. Sending it again cannot duplicate it."""


class OutcomeUnknown(PylogError):
    """The record may or may not be in the log. Read the end of the partition before sending it again."""


class RecordTooLarge(NotAppended, ValueError):
    """The record, or the records of one ``append``, encoded, exceed the topic's ``max_message_bytes``.

    Send less at a time, or raise that limit on the topic.
    """


class DeliveryTimeout(NotAppended, TimeoutError):
    """The partition stayed locked by another process for ``delivery_timeout_ms``; nothing was written. Try again."""

    retriable = True


class BufferTimeout(NotAppended, TimeoutError):
    """The producer's buffer stayed full for ``max_block_ms``. Send slower, or find out what holds the disk up."""

    retriable = True


class OffsetConflict(NotAppended):
    """``append(expected_offset=n)`` found the log ending elsewhere. Read what was appended meanwhile, then decide anew."""


class OutOfOrderSequence(NotAppended):
    """A producer's sequence number left a gap: an earlier batch of it is missing. Open a new producer."""


class ProducerFenced(NotAppended):
    """A newer producer with the same identity has taken over. Close this one."""


# Reading


class OffsetOutOfRange(PylogError, IndexError):
    """The offset is before the first record kept or beyond the end. Seek to ``earliest`` .. ``latest``."""


class NoOffsetForPartition(PylogError):
    """There is no position to start from and ``auto_offset_reset="none"``. Seek, or choose another reset policy."""


class CommitFailed(PylogError):
    """The group did not take these offsets: nothing was committed, and others may have read these records again.

    The message says why: the member was expelled, a partition is no longer its own, or the group has members and the
    consumer is none of them. Poll again, which joins anew, and go on with what is assigned then.
    """


class InstanceFenced(CommitFailed):
    """Another consumer of the same ``group_instance_id`` has taken this one's place. Give each its own, and close this one."""


class GroupNotFound(PylogError):
    """The group has no members and has committed nothing. ``Log.groups()`` names those that there are."""


class GroupNotEmpty(PylogError):
    """The group has members, and this can be done only while it has none. Stop them first."""


class CorruptRecord(PylogError):
    """Bytes that cannot be what a producer wrote: bad checksum, length, framing, or a compressed block beyond its limit.

    Nothing is returned from the damaged batch. Restore the file from a copy, or read on behind ``next_position``.
    """


class CorruptSegment(CorruptRecord):
    """A segment is damaged below its durable end; it is never cut. ``pylog verify`` lists the damaged ranges."""


class FormatVersionError(PylogError):
    """The directory or batch was written by a format this version does not know. Upgrade pylog."""


# The state of a handle or of the directory


class LogLocked(PylogError):
    """Another process holds the lock for longer than the timeout, or the filesystem cannot lock. See ``path``."""

    retriable = True


class ReadOnlyLog(PylogError):
    """The log can only be read: ``read_only=True``, a Kafka directory, or no permission to write; ``reason`` says which."""


class ForkedHandle(PylogError):
    """This handle belongs to the process that was forked from. Its records are sent by that process."""


class Closed(PylogError):
    """The log, producer or consumer has been closed. Open a new one."""


class WrongThread(PylogError):
    """A consumer belongs to one thread at a time. Give each thread its own consumer; ``wakeup()`` alone may be shared."""


class Wakeup(PylogError):
    """``Consumer.wakeup()`` interrupted this poll. The consumer is intact: poll again, or close it."""

    retriable = True


# The disk


class UnsafeDirectory(PylogError):
    """Any user of the machine may replace the files of this directory. Take that permission away, or choose another one."""


class StorageError(PylogError, OSError):
    """The operating system refused a read or a write; its error is ``__cause__``, ``path`` names the file."""

    def __init__(self, message: str, **facts: Any) -> None:
        PylogError.__init__(self, message, **facts)
        self.errno = facts.get("errno")

    def __str__(self) -> str:
        return str(self.args[0])


class StorageFull(NotAppended, StorageError):
    """No space left (or a quota, or a file size limit). Nothing acknowledged is lost; free space and send again."""

    retriable = True


class MissingCodec(PylogError, ImportError):
    """A batch uses a compression codec whose library is not installed. ``pip install 'pylog-embedded[codecs]'``."""
