"""Keys and values made into what the application wants, record by record. Pure but for the callables it is given."""

from __future__ import annotations

from pylog.consumer.config import Deserializer
from pylog.consumer.subscription import name_of
from pylog.errors import PylogError, SerializationError
from pylog.interrupts import is_of_handler
from pylog.model import Record, TopicPartition


class RecordDeserializer:
    """Applies ``key_deserializer`` and ``value_deserializer``. A key or value that is None (a tombstone) stays None."""

    __slots__ = ("_key", "_value")

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    def __call__(self, records: list[Record]) -> tuple[list[Record], PylogError | None]:
        """The records deserialized up to the first that can't be, and the error for that one (see its ``offset``)."""
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
            except Exception as cause:  # whatever the application's code raises is reported with its record
                if is_of_handler(cause):
                    raise
                return done, _failure(record, field, cause)
            done.append(Record(topic, partition, offset, timestamp_ms, key, value, headers))
        return done, None


def _failure(record: Record, field: str, cause: Exception) -> SerializationError:
    place = name_of(TopicPartition(record.topic, record.partition))
    error = SerializationError(
        f"{field}_deserializer failed on {place} at offset {record.offset}: {type(cause).__name__}: {cause}"
        f"; seek to {record.offset + 1} to go on without this record",
        topic=record.topic, partition=record.partition, offset=record.offset, field=field,
    )  # fmt: skip
    error.__cause__ = cause
    return error
