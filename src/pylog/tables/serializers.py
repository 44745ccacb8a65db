"""Between the application's keys and values and the bytes of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pylog.checks import require_callable
from pylog.errors import ConfigError, SerializationError
from pylog.interrupts import is_of_handler

Convert = Callable[[Any], Any]


class Serializers(NamedTuple):
    """None leaves bytes as they are."""

    key_serializer: Convert | None
    key_deserializer: Convert | None
    value_serializer: Convert | None
    value_deserializer: Convert | None

    def checked(self, *, writes: bool) -> Serializers:
        """Return these. ``ConfigError`` if one can't be called, or one way is without the other."""
        for name, function in self._asdict().items():
            if function is not None:
                require_callable(name, function, "a key or a value")
        if (self.key_serializer is None) != (self.key_deserializer is None):
            raise ConfigError(
                "key_serializer and key_deserializer belong together: a lookup needs the bytes of a key",
                option="key_serializer",
            )
        if writes and (self.value_serializer is None) != (self.value_deserializer is None):
            raise ConfigError(
                "value_serializer and value_deserializer belong together in a table that is written",
                option="value_serializer",
            )
        return self

    def key_bytes(self, key: object) -> bytes:
        """The bytes of a key. ``SerializationError``."""
        return _bytes(
            "key", key if self.key_serializer is None else _called("key_serializer", self.key_serializer, key)
        )

    def key_of(self, data: bytes) -> Any:
        """The key of these bytes. ``SerializationError``."""
        return data if self.key_deserializer is None else _called("key_deserializer", self.key_deserializer, data)

    def value_bytes(self, value: object) -> bytes:
        """The bytes of a value. ``SerializationError``."""
        return _bytes(
            "value",
            value if self.value_serializer is None else _called("value_serializer", self.value_serializer, value),
        )

    def value_of(self, data: bytes) -> Any:
        """The value of these bytes. ``SerializationError``."""
        return data if self.value_deserializer is None else _called("value_deserializer", self.value_deserializer, data)


def _bytes(field: str, data: object) -> bytes:
    if not isinstance(data, bytes):
        raise SerializationError(
            f"the {field} is {type(data).__name__}, expected bytes; name a {field}_serializer", field=field
        )
    return data


def _called(name: str, function: Convert, given: object) -> Any:
    try:
        return function(given)
    except Exception as cause:  # of any kind: it is the application's
        if is_of_handler(cause):
            raise
        raise SerializationError(
            f"{name} failed on {given!r:.80}: {type(cause).__name__}: {cause}", field=name
        ) from cause
