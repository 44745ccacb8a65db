"""The records of ``__transaction_state``: Kafka's ``TransactionLogKey`` and
``TransactionLogValue``.

Written in version 0, which every Kafka reads; versions 0 and 1 are read.

With transactions of version 2 ("client transaction version", a tag of version 1) Kafka raises the
epoch with each decision: the record of a decision has the epoch after that of its batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from pylog.checks import TRANSACTIONS_TOPIC
from pylog.codec.messages import INT16, INT32, read_string, read_unsigned, slice_of, string
from pylog.errors import CorruptRecord
from pylog.interrupts import own
from pylog.model import TopicPartition
from pylog.transaction.state import Status

_KEY_VERSION = 0
_VERSION, _FLEXIBLE_VERSION = 0, 1
_FRONT = Struct(">hqhib")  # version, producer id, epoch, timeout, status
_BACK = Struct(">qq")  # last update, start
_STATUSES = frozenset(Status)
_CLIENT_VERSION_TAG, _RAISES_EPOCH = 2, 2


class Decision(NamedTuple):
    """One record: where the transaction of a producer id and epoch stands."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    status: Status
    partitions: frozenset[TopicPartition]
    update_ms: int
    start_ms: int
    raises_epoch: bool = False  # ``epoch`` is the one after that of the batches

    @property
    def transaction(self) -> tuple[int, int]:
        """The producer id and epoch of its batches."""
        return self.producer_id, self.epoch - self.raises_epoch


def encode_key(transactional_id: str) -> bytes:
    return INT16.pack(_KEY_VERSION) + string(transactional_id)


def decode_key(key: bytes | None) -> str:
    """The transactional id. ``CorruptRecord``."""
    try:
        if key is not None and INT16.unpack_from(key)[0] == _KEY_VERSION:
            return read_string(key, 2)[0]
    except own(struct.error, UnicodeDecodeError) as error:
        raise CorruptRecord(f"a record of {TRANSACTIONS_TOPIC} is damaged: {error}", key=key) from error
    raise CorruptRecord(f"the key of a transaction is {key!r:.40}, expected version {_KEY_VERSION}", key=key)


def encode_value(decision: Decision) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(decision.partitions):
        by_topic.setdefault(topic, []).append(number)
    parts = [
        _FRONT.pack(_VERSION, decision.producer_id, decision.epoch, decision.timeout_ms, decision.status),
        INT32.pack(len(by_topic) if by_topic or decision.status is not Status.EMPTY else -1),
    ]
    for topic, numbers in by_topic.items():
        parts += string(topic), INT32.pack(len(numbers)), *map(INT32.pack, numbers)
    parts.append(_BACK.pack(decision.update_ms, decision.start_ms))
    return b"".join(parts)


def decode(key: bytes | None, value: bytes | None) -> Decision | None:
    """The decision in a record; None for a tombstone, or a status that only Kafka has.

    ``CorruptRecord`` if it is cut, not text, or of an unknown version.
    """
    try:
        transactional_id = decode_key(key)
        if value is None:
            return None
        version, producer_id, epoch, timeout_ms, status = _FRONT.unpack_from(value)
        if version not in (_VERSION, _FLEXIBLE_VERSION):
            raise CorruptRecord(f"a transaction of version {version}, known are 0 and 1", version=version)
        partitions, at = _partitions(value, _FRONT.size, is_flexible=version == _FLEXIBLE_VERSION)
        update_ms, start_ms = _BACK.unpack_from(value, at)
        tags, _ = _tags(value, at + _BACK.size) if version == _FLEXIBLE_VERSION else ({}, at)
        client_version = INT16.unpack(tags[_CLIENT_VERSION_TAG])[0] if _CLIENT_VERSION_TAG in tags else 0
    except own(struct.error, UnicodeDecodeError, IndexError) as error:
        raise CorruptRecord(f"a record of {TRANSACTIONS_TOPIC} is damaged: {error}", key=key, value=value) from error
    if status not in _STATUSES:
        return None
    raises_epoch = client_version >= _RAISES_EPOCH and status not in (Status.EMPTY, Status.ONGOING)
    return Decision(
        transactional_id, producer_id, epoch, timeout_ms, Status(status), frozenset(partitions), update_ms, start_ms,
        raises_epoch,
    )  # fmt: skip


def _partitions(data: bytes, at: int, *, is_flexible: bool) -> tuple[Iterable[TopicPartition], int]:
    topics, at = _count(data, at, is_flexible)
    found = []
    for _ in range(topics):
        if is_flexible:
            length, at = read_unsigned(data, at)
            topic, at = slice_of(data, at, length - 1).decode(), at + length - 1
        else:
            topic, at = read_string(data, at)
        numbers, at = _count(data, at, is_flexible)
        for _ in range(numbers):
            found.append(TopicPartition(topic, INT32.unpack_from(data, at)[0]))
            at += INT32.size
        if is_flexible:
            _, at = _tags(data, at)
    return found, at


def _count(data: bytes, at: int, is_flexible: bool) -> tuple[int, int]:
    """The length of an array, which may be null."""
    if is_flexible:
        length, at = read_unsigned(data, at)
        return max(length - 1, 0), at
    return max(INT32.unpack_from(data, at)[0], 0), at + INT32.size


def _tags(data: bytes, at: int) -> tuple[dict[int, bytes], int]:
    """Tagged fields by their numbers."""
    found = {}
    count, at = read_unsigned(data, at)
    for _ in range(min(count, len(data))):
        tag, at = read_unsigned(data, at)
        size, at = read_unsigned(data, at)
        found[tag] = slice_of(data, at, size)
        at += size
    return found, at
