"""The options of a producer, checked when it is made: Kafka's names in snake_case, with units.

A wrong type or value, contradicting options or a missing compression library raises an error here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pylog.checks import require_milliseconds
from pylog.codec.compression import codec_id, compress
from pylog.codec.format import CODEC_NAMES, HEADER_BYTES, INT32_MAX, MAX_RECORD_OVERHEAD
from pylog.errors import ConfigError, SerializationError
from pylog.interrupts import is_of_handler, own
from pylog.producer.partitioner import NAMED_PARTITIONERS, PartitionerOption, PartitionFunction

if TYPE_CHECKING:
    from pylog.producer.delivery import Delivery

ACKS_ALL = -1
_ACKS = {0: 0, 1: 1, -1: ACKS_ALL, "0": 0, "1": 1, "-1": ACKS_ALL, "all": ACKS_ALL}
KAFKAS_NAMES = {
    "max_batch_size": "here it is batch_bytes",
    "client_id": "a producer has no name here; leave it out",
    "loop": "leave it out: await producer.send(…) works in any event loop",
    "max_in_flight_requests_per_connection": "the batches of a partition are written one by one, in order; leave it out",
    "batch_size": "here it is batch_bytes",
    "buffer_memory": "here it is buffer_bytes",
    "compression_type": "here it is compression",
    "bootstrap_servers": "there are no servers: Producer(Log(directory))",
    "max_request_size": "the topic's max_message_bytes is the limit of a record",
    "partitioner_class": "here it is partitioner, and without it keys go where the topic's own hash puts them",
    "partitioner_ignore_keys": 'here it is partitioner="sticky" with partitioner_override=True',
    "retries": "a batch that finds its partition locked is tried until delivery_timeout_ms",
    "request_timeout_ms": "here it is delivery_timeout_ms",
}
_FOREVER_S = 1e9
_SMALLEST_BATCH_BYTES = HEADER_BYTES + MAX_RECORD_OVERHEAD

Serializer = Callable[[Any], bytes]
_Call = TypeVar("_Call")


class ProducerConfig:
    """The checked options of one producer (see ``Producer``). ``acks`` becomes 0, 1 or -1 (all)."""

    def __init__(
        self,
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
        self.acks = _one_of_acks(acks)
        self.linger_ms = require_milliseconds("linger_ms", linger_ms)
        self.batch_bytes = _size("batch_bytes", batch_bytes, _SMALLEST_BATCH_BYTES, INT32_MAX)
        self.buffer_bytes = _size("buffer_bytes", buffer_bytes, batch_bytes, None)
        self.max_block_ms = require_milliseconds("max_block_ms", max_block_ms)
        self.compression, self.compression_level = _compression(compression, compression_level)
        self.partitioner = _partitioner(partitioner, partitioner_override)
        self.enable_idempotence = _true_or_false("enable_idempotence", enable_idempotence)
        self.delivery_timeout_ms = require_milliseconds("delivery_timeout_ms", delivery_timeout_ms)
        self.key_serializer = _callable_or_none("key_serializer", key_serializer)
        self.value_serializer = _callable_or_none("value_serializer", value_serializer)
        self.on_delivery = _callable_or_none("on_delivery", on_delivery)
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = int(require_milliseconds("transaction_timeout_ms", transaction_timeout_ms))
        if not 1 <= self.transaction_timeout_ms <= INT32_MAX:
            raise _wrong("transaction_timeout_ms", transaction_timeout_ms, f"1 to {INT32_MAX} milliseconds")
        self.name = name
        # Records of a transaction wait for its commit: readers do not see them before.
        self.lingers = transactional_id is None and self.linger_ms > 0
        self.linger_s = self.linger_ms / 1000 if transactional_id is None else _FOREVER_S
        self.forever_s = _FOREVER_S
        self.max_block_s = self.max_block_ms / 1000
        self.delivery_timeout_s = self.delivery_timeout_ms / 1000
        if transactional_id is not None and not (self.acks == ACKS_ALL and self.enable_idempotence):
            raise ConfigError(
                f"a transaction needs acks='all' and enable_idempotence=True, got acks={acks!r}, "
                f"enable_idempotence={enable_idempotence!r}",
                option="transactional_id", acks=acks, enable_idempotence=enable_idempotence,
            )  # fmt: skip
        if name is not None and (transactional_id is not None or self.acks == 0 or not self.enable_idempotence):
            raise ConfigError(
                f"a named producer needs acks of 1 or 'all' and enable_idempotence=True, and has no transactional_id; got "
                f"acks={acks!r}, enable_idempotence={enable_idempotence!r}, transactional_id={transactional_id!r}",
                option="name", acks=acks, enable_idempotence=enable_idempotence, transactional_id=transactional_id,
            )  # fmt: skip
        if delivery_timeout_ms < linger_ms:
            raise ConfigError(
                f"delivery_timeout_ms {delivery_timeout_ms} is less than linger_ms {linger_ms}: "
                "a batch would be given up before it is due",
                delivery_timeout_ms=delivery_timeout_ms, linger_ms=linger_ms,
            )  # fmt: skip

    @classmethod
    def options(cls) -> list[str]:
        """The names of all options."""
        return list(cls.__init__.__kwdefaults__ or ())


def _one_of_acks(acks: object) -> int:
    if isinstance(acks, int | str) and not isinstance(acks, bool) and acks in _ACKS:
        return _ACKS[acks]
    raise _wrong("acks", acks, '0, 1 or "all"')


def _size(name: str, value: int, smallest: int, largest: int | None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest or (largest and value > largest):
        raise _wrong(name, value, f"{smallest} bytes or more" if largest is None else f"{smallest} to {largest} bytes")
    return value


def _true_or_false(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value, "True or False")
    return value


def _callable_or_none(name: str, value: _Call) -> _Call:
    if value is not None and not callable(value):
        raise _wrong(name, value, "a callable, or None")
    return value


def _partitioner(named: str | PartitionFunction | None, override: bool) -> PartitionerOption:
    is_name = isinstance(named, str) and named in NAMED_PARTITIONERS
    if not is_name and named is not None and not callable(named):
        raise _wrong(
            "partitioner", named, f"one of {', '.join(NAMED_PARTITIONERS)}, a callable, or None to follow each topic"
        )
    if _true_or_false("partitioner_override", override) and named is None:
        raise _wrong("partitioner_override", override, "False, since no partitioner is named")
    return PartitionerOption(named, override)


def _compression(name: str | None, level: int | None) -> tuple[str | None, int | None]:
    if name is None:
        if level is not None:
            raise _wrong("compression_level", level, "None, since no compression is named")
        return None, None
    if name not in CODEC_NAMES:
        raise _wrong("compression", name, f"one of {', '.join(CODEC_NAMES)}, or None for the topic's")
    compress(codec_id(name), b"", level)  # raises for a missing library and a wrong level
    return name, level


def _wrong(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{name} is {value!r}, expected {expected}", option=name, value=value)


# Serializers


def serialized(field: str, serializer: Serializer | None, data: Any) -> Any:
    """Serialize ``data``; None stays None. ``SerializationError`` if the serializer fails."""
    if serializer is None or data is None:
        return data
    try:
        return serializer(data)
    except Exception as error:
        if is_of_handler(error):
            raise
        raise SerializationError(f"the {field} serializer failed: {error!r}", field=field) from error


def key_bytes(key: object) -> bytes:
    """The bytes of a key of another type, to be hashed. ``SerializationError`` if it has none."""
    try:
        return memoryview(key).tobytes()  # type: ignore[arg-type]  # that is the question
    except own(TypeError, ValueError):
        raise SerializationError(f"key is {type(key).__name__}, expected bytes or None", field="key") from None
