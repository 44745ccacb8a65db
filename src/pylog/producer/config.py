"""What a producer can be told, checked when it is made: Kafka's names in snake_case, units in the name.

A wrong type or value, options that contradict each other and a compression library that is not installed are errors
here, before the first record, never at the first batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pylog.codec.compression import codec_id, compress
from pylog.codec.format import HEADER_BYTES, INT32_MAX, MAX_RECORD_OVERHEAD
from pylog.errors import ConfigError, SerializationError
from pylog.producer.partitioner import NAMED_PARTITIONERS, PartitionFunction

if TYPE_CHECKING:
    from pylog.producer.delivery import Delivery

ACKS_ALL = -1
_ACKS = {0: 0, 1: 1, -1: ACKS_ALL, "0": 0, "1": 1, "-1": ACKS_ALL, "all": ACKS_ALL}
_SMALLEST_BATCH_BYTES = HEADER_BYTES + MAX_RECORD_OVERHEAD

Serializer = Callable[[Any], bytes]


@dataclass(frozen=True)
class ProducerConfig:
    """The options of one producer, valid once made. ``Producer`` describes them; ``acks`` becomes 0, 1 or -1 (all)."""

    acks: int | str = "all"
    linger_ms: float = 5
    batch_bytes: int = 1024 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    max_block_ms: float = 60_000
    compression: str | None = None
    compression_level: int | None = None
    partitioner: str | PartitionFunction = "murmur3"
    enable_idempotence: bool = True
    delivery_timeout_ms: float = 120_000
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    on_delivery: Callable[[Delivery], object] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "acks", _one_of_acks(self.acks))
        for name in ("linger_ms", "max_block_ms", "delivery_timeout_ms"):
            _require_milliseconds(name, getattr(self, name))
        _require_size("batch_bytes", self.batch_bytes, _SMALLEST_BATCH_BYTES, INT32_MAX)
        _require_size("buffer_bytes", self.buffer_bytes, self.batch_bytes, None)
        if self.delivery_timeout_ms < self.linger_ms:
            raise ConfigError(
                f"delivery_timeout_ms {self.delivery_timeout_ms} is less than linger_ms {self.linger_ms}: "
                "a batch would be given up before it is due",
                delivery_timeout_ms=self.delivery_timeout_ms, linger_ms=self.linger_ms,
            )  # fmt: skip
        if not isinstance(self.enable_idempotence, bool):
            raise _wrong("enable_idempotence", self.enable_idempotence, "True or False")
        for name in ("key_serializer", "value_serializer", "on_delivery"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise _wrong(name, getattr(self, name), "a callable, or None")
        self._check_partitioner()
        self._check_compression()

    def _check_partitioner(self) -> None:
        is_name = isinstance(self.partitioner, str) and self.partitioner in NAMED_PARTITIONERS
        if not is_name and not callable(self.partitioner):
            raise _wrong("partitioner", self.partitioner, f"one of {', '.join(NAMED_PARTITIONERS)}, or a callable")

    def _check_compression(self) -> None:
        if self.compression is None:
            if self.compression_level is not None:
                raise _wrong("compression_level", self.compression_level, "None, since no compression is named")
            return
        if not isinstance(self.compression, str):
            raise _wrong("compression", self.compression, "the name of a codec, or None for the topic's")
        compress(codec_id(self.compression), b"", self.compression_level)  # finds a missing library and a wrong level

    @property
    def linger_s(self) -> float:
        return self.linger_ms / 1000

    @property
    def max_block_s(self) -> float:
        return self.max_block_ms / 1000

    @property
    def delivery_timeout_s(self) -> float:
        return self.delivery_timeout_ms / 1000


def _one_of_acks(acks: object) -> int:
    if isinstance(acks, int | str) and not isinstance(acks, bool) and acks in _ACKS:
        return _ACKS[acks]
    raise _wrong("acks", acks, '0, 1 or "all"')


def _require_milliseconds(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise _wrong(name, value, "milliseconds, 0 or more")


def _require_size(name: str, value: object, smallest: int, largest: int | None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest or (largest and value > largest):
        raise _wrong(name, value, f"{smallest} bytes or more" if largest is None else f"{smallest} to {largest} bytes")


def _wrong(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{name} is {value!r}, expected {expected}", option=name, value=value)


# Serializers


def serialized(field: str, serializer: Serializer | None, data: Any) -> Any:
    """``data`` through a serializer; None stays None. ``SerializationError`` if it fails."""
    if serializer is None or data is None:
        return data
    try:
        return serializer(data)
    except Exception as error:
        raise SerializationError(f"the {field} serializer failed: {error!r}", field=field) from error


def key_bytes(key: object) -> bytes:
    """The bytes of a key that is not ``bytes`` itself, to be hashed. ``SerializationError`` if it has none."""
    try:
        return memoryview(key).tobytes()  # type: ignore[arg-type]  # that is the question
    except (TypeError, ValueError):
        raise SerializationError(f"key is {type(key).__name__}, expected bytes or None", field="key") from None
