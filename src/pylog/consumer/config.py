"""The options of a consumer: one value, checked before use. Names and defaults are Kafka's where it has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pylog.consumer.reset import OffsetReset
from pylog.errors import ConfigError
from pylog.partition.isolation import READ_UNCOMMITTED, WRITTEN, check_isolation

Deserializer = Callable[[bytes], Any]


class ConsumerConfig(NamedTuple):
    """See ``Consumer`` for what each option does."""

    auto_offset_reset: str = "latest"
    isolation_level: str = READ_UNCOMMITTED
    visibility: str = WRITTEN
    max_poll_records: int = 500
    fetch_max_bytes: int = 32 << 20
    max_partition_fetch_bytes: int = 1 << 20
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    consumer_timeout_ms: int | None = None

    def checked(self) -> ConsumerConfig:
        """This, if every option is right; else ``ConfigError``, which names the option."""
        OffsetReset.parse(self.auto_offset_reset)
        check_isolation(self.isolation_level, self.visibility)
        require_count("max_poll_records", self.max_poll_records, 1)
        require_count("fetch_max_bytes", self.fetch_max_bytes, 1)
        require_count("max_partition_fetch_bytes", self.max_partition_fetch_bytes, 1)
        _require_callable("key_deserializer", self.key_deserializer)
        _require_callable("value_deserializer", self.value_deserializer)
        if self.consumer_timeout_ms is not None:
            require_count("consumer_timeout_ms", self.consumer_timeout_ms, 0)
        return self


def require_count(option: str, value: object, least: int) -> int:
    """``value`` if it is a whole number of at least ``least``; else ``ConfigError`` (True is not a number here)."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(
            f"{option} must be a whole number of at least {least}, not {value!r}", option=option, value=value
        )
    return value


def require_seconds(option: str, value: object) -> None:
    """``ConfigError`` unless ``value`` is a number of seconds from 0 to infinity."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise ConfigError(
            f"{option} must be a number of seconds of at least 0, not {value!r}", option=option, value=value
        )


def _require_callable(option: str, value: object) -> None:
    if value is not None and not callable(value):
        raise ConfigError(f"{option} must be a callable that takes bytes, not {value!r}", option=option, value=value)
