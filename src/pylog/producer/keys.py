"""Refuses records without a key in compacted topics, as Kafka's brokers do: compaction drops them.

A topic that is altered has its new options from the next batch on: see topic_cache.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pylog.partition.write.batch_input import without_key

if TYPE_CHECKING:
    from pylog.model import TopicPartition

NoneType = type(None)


def with_key(append: Callable[..., Any], partition: TopicPartition) -> Callable[..., Any]:
    """``append`` of a batch, which takes only records with a key."""

    def append_with_key(kind: Any, batch: Any, timestamp_ms: Any, key: Any, value: Any, headers: Any) -> Any:
        if key is None:
            raise without_key(partition.topic)
        return append(kind, batch, timestamp_ms, key, value, headers)

    return append_with_key


def require_keys(topic: str, keys: Sequence[Any] | None, start: int, stop: int) -> None:
    """Raises ``InvalidRecord`` for the first record of ``start`` to ``stop`` without a key; its
    ``index`` says which."""
    if start >= stop:
        return
    if keys is None:
        raise without_key(topic, start)
    kinds = list(map(type, keys[start:stop]))
    if NoneType in kinds:  # by type: a key's ``==`` may be anything
        raise without_key(topic, start + kinds.index(NoneType))
