"""The options of a consumer: one value, checked before use. Names and defaults are Kafka's where it has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pylog.checks import require_callable, require_count
from pylog.consumer.reset import OffsetReset
from pylog.partition.isolation import READ_UNCOMMITTED, WRITTEN, check_isolation

NOT_YET = dict.fromkeys(
    (
        "group_id", "group_instance_id", "enable_auto_commit", "auto_commit_interval_ms", "max_poll_interval_ms", "assignor",
    ),
    "consumer groups and committed offsets are not in this version; subscribe or assign, keep position(partition) with "
    "your results, and seek to it after a restart",
)  # fmt: skip
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
        for option in ("key_deserializer", "value_deserializer"):
            if getattr(self, option) is not None:
                require_callable(option, getattr(self, option), "bytes")
        if self.consumer_timeout_ms is not None:
            require_count("consumer_timeout_ms", self.consumer_timeout_ms, 0)
        return self
