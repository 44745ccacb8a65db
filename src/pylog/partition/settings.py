"""The part of a topic's configuration that a partition acts on. ``TopicConfig`` of the catalog has all of it."""

from __future__ import annotations

from typing import Protocol


class PartitionSettings(Protocol):
    """Limits and policies of one topic, in the units of their names."""

    @property
    def segment_bytes(self) -> int: ...
    @property
    def segment_ms(self) -> int: ...
    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def message_timestamp_type(self) -> str: ...
