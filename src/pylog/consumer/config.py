"""The options of a consumer, checked before use. Names and defaults are Kafka's if it has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pylog.checks import require_bool, require_callable, require_count
from pylog.codec.format import INT32_MAX, INT64_MAX
from pylog.consumer.reset import OffsetReset
from pylog.errors import ConfigError
from pylog.group.assignor import check_assignor
from pylog.group.directory import check_group
from pylog.partition.read.visibility import READ_COMMITTED, WRITTEN, check_isolation

_NAME_LENGTH_MAX = 249
_NO_WAIT = "nothing is fetched from a server: poll(timeout) returns as soon as there are records"

KAFKAS_NAMES = {
    "check_crcs": "the checksum of every batch is checked",
    "default_offset_commit_callback": "here it is a callback of each call: commit_async(offsets, callback)",
    "exclude_internal_topics": "a pattern never matches an internal topic; leave it out",
    "loop": "there is no asyncio client yet: await asyncio.to_thread(consumer.poll, 1.0)",
    "rebalance_timeout_ms": "here it is max_poll_interval_ms",
    "request_timeout_ms": "here it is default_api_timeout_ms",
    "bootstrap_servers": "there are no servers: the first argument is the Log",
    "partition_assignment_strategy": 'here it is assignor: "cooperative-sticky", "sticky", "range" or "round_robin"',
    "heartbeat_interval_ms": "the interval is fixed; leave it out: a process that dies leaves its group at once, and a "
    "member that stalls is expelled after max_poll_interval_ms",
    "enable_auto_offset_store": "here there is no store of offsets: commit(offsets), or enable_auto_commit",
    "on_commit": "here it is a callback of each call: commit_async(offsets, callback)",
    "fetch_min_bytes": _NO_WAIT,
    "fetch_max_wait_ms": _NO_WAIT,
    "fetch_wait_max_ms": _NO_WAIT,
}
"""Hints for options of other clients that do not exist here."""

Deserializer = Callable[[bytes], Any]


class ConsumerConfig(NamedTuple):
    """``Consumer`` describes each option."""

    auto_offset_reset: str = "latest"
    isolation_level: str = READ_COMMITTED
    visibility: str = WRITTEN
    max_poll_records: int = 500
    fetch_max_bytes: int = 32 << 20
    max_partition_fetch_bytes: int = 1 << 20
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    consumer_timeout_ms: int | None = None
    group_id: str | None = None
    group_instance_id: str | None = None
    client_id: str | None = None
    assignor: str = "cooperative-sticky"
    enable_auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    max_poll_interval_ms: int = 300_000
    session_timeout_ms: int = 45_000
    default_api_timeout_ms: int = 30_000

    def checked(self) -> ConsumerConfig:
        """The same config; ``ConfigError`` names the first wrong option."""
        OffsetReset.parse(self.auto_offset_reset)
        check_isolation(self.isolation_level, self.visibility)
        for option in ("max_poll_records", "fetch_max_bytes", "max_partition_fetch_bytes"):
            require_count(option, getattr(self, option), 1)
        for option in ("key_deserializer", "value_deserializer"):
            if getattr(self, option) is not None:
                require_callable(option, getattr(self, option), "bytes")
        if self.consumer_timeout_ms is not None:
            require_count("consumer_timeout_ms", self.consumer_timeout_ms, 0, INT64_MAX)
        return self._checked_group()

    def _checked_group(self) -> ConsumerConfig:
        check_assignor(self.assignor)
        require_bool("enable_auto_commit", self.enable_auto_commit)
        for option in ("auto_commit_interval_ms", "max_poll_interval_ms", "session_timeout_ms"):
            require_count(option, getattr(self, option), 1, INT32_MAX)
        require_count("default_api_timeout_ms", self.default_api_timeout_ms, 0, INT32_MAX)
        for option in ("client_id", "group_instance_id"):
            value = getattr(self, option)
            if value is not None and not (isinstance(value, str) and 0 < len(value) <= _NAME_LENGTH_MAX):
                raise ConfigError(
                    f"{option} is text of 1 to {_NAME_LENGTH_MAX} characters, got {value!r:.80}",
                    option=option,
                    value=value,
                )
        if self.group_id is not None:
            check_group(self.group_id)
            return self
        for option in ("group_instance_id", "enable_auto_commit"):
            if getattr(self, option):
                raise ConfigError(f"{option} is for a consumer in a group: give it a group_id too", option=option)
        return self
