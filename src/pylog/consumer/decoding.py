"""The formats of returned records: ``Record`` objects here, Arrow columns in arrow_decoding.py.

A partition is read ahead in one format at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pylog.codec.batch import BatchView
from pylog.codec.format import NONE
from pylog.consumer.config import ConsumerConfig, Deserializer
from pylog.consumer.subscription import name_of
from pylog.errors import PylogError, SerializationError
from pylog.interrupts import is_of_handler
from pylog.limits import DECODE_RECORDS_MAX
from pylog.model import Record, TopicPartition

if TYPE_CHECKING:
    from pylog.codec import RecordDecoder


class Chunk(Protocol):
    """Some records in one format: a list, or something similar."""

    def __len__(self) -> int: ...
    def extend(self, more: Any, /) -> object: ...


Taken = TypeVar("Taken", bound=Chunk)
Taken_co = TypeVar("Taken_co", bound=Chunk, covariant=True)

Transform = Callable[[Taken], tuple[Taken, PylogError | None]]
"""Returns the good records before the first bad one, and the error of that one. It may stop early,
but not leave records out, as ``AssignedPartition`` can: the position is that after the last one."""


class Decoder(Protocol[Taken_co]):
    """The records of one batch, in order. An error is about the first record not yet returned.

    ``take`` returns no records only at the end of the batch.
    """

    @property
    def remaining(self) -> int: ...
    def skip_to(self, offset: int) -> None: ...
    def take(self, max_records: int) -> Taken_co: ...


class RecordFormat(Protocol[Taken]):
    """How a partition's records are decoded. It has no state: the partition has what is read
    ahead."""

    decode_records_max: int
    """The most records to take from a decoder in one call."""

    @property
    def transform(self) -> Transform[Taken] | None:
        """Applied to the records of a chunk after they are decoded."""

    def nothing(self) -> Taken:
        """A chunk of no records."""

    def decoder(self, view: BatchView, of: TopicPartition, limit_bytes: int) -> tuple[Decoder[Taken], int]:
        """A decoder of the batch, at most ``limit_bytes``; and its bytes besides the stored
        ones."""

    def next_offset(self, chunk: Taken) -> int:
        """The offset after the last of the records."""

    def is_full(self, chunk: Taken) -> bool:
        """True if a chunk should not grow, even if more records were requested."""


class ObjectFormat:
    """``Record`` objects, deserialized."""

    decode_records_max = DECODE_RECORDS_MAX

    def __init__(self, config: ConsumerConfig) -> None:
        self.transform: Transform[list[Record]] | None = None
        if config.key_deserializer is not None or config.value_deserializer is not None:
            self.transform = RecordDeserializer(config.key_deserializer, config.value_deserializer)

    def nothing(self) -> list[Record]:
        return []

    def decoder(self, view: BatchView, of: TopicPartition, limit_bytes: int) -> tuple[RecordDecoder, int]:
        decoder = view.decoder(*of, limit_bytes)
        held_bytes = 0 if view.header.codec == NONE else decoder.size_bytes  # 0: it reads the stored bytes themselves
        return decoder, held_bytes

    def next_offset(self, chunk: list[Record]) -> int:
        return chunk[-1].offset + 1

    def is_full(self, chunk: list[Record]) -> bool:
        return False


class RecordDeserializer:
    """Applies ``key_deserializer`` and ``value_deserializer``. None (a tombstone) stays None."""

    __slots__ = ("_key", "_value")

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    def __call__(self, records: list[Record]) -> tuple[list[Record], PylogError | None]:
        """The deserialized records before the first failure, and its error (with the
        ``offset``)."""
        done: list[Record] = []
        for record in records:
            topic, partition, offset, timestamp_ms, key, value, headers = record
            field = "key"
            try:
                if self._key is not None and key is not None:
                    key = self._key(key)
                field = "value"
                if self._value is not None and value is not None:
                    value = self._value(value)
            except Exception as cause:  # of any kind: the error names the record
                if is_of_handler(cause):
                    raise
                return done, _failure(record, field, cause)
            done.append(Record(topic, partition, offset, timestamp_ms, key, value, headers))
        return done, None


def _failure(record: Record, field: str, cause: Exception) -> SerializationError:
    place = name_of(TopicPartition(record.topic, record.partition))
    error = SerializationError(
        f"{field}_deserializer failed on {place} at offset {record.offset}: {type(cause).__name__}: {cause}"
        f"; seek to {record.offset + 1} to continue after this record",
        topic=record.topic, partition=record.partition, offset=record.offset, field=field,
    )  # fmt: skip
    error.__cause__ = cause
    return error
