"""Erases all records of some keys from a topic, in every partition: they may have been sent to
any."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from pylog.checks import refuse_records, require_several
from pylog.errors import ConfigError, PylogError, TopicChanged, TopicNotFound
from pylog.interrupts import own
from pylog.manager.changes import drop_leftovers
from pylog.partition.compact.erasure import ErasedPartition, erase

if TYPE_CHECKING:
    from pylog.manager.manager import LogManager

logger = logging.getLogger("pylog.cleaner")


class ErasureReport(NamedTuple):
    """What ``Log.erase`` did, by partition."""

    partitions: tuple[ErasedPartition, ...]

    @property
    def records(self) -> int:
        """How many were erased, of all partitions."""
        return sum(done.records for done in self.partitions)

    @property
    def tombstones(self) -> int:
        """How many were appended, of all partitions."""
        return sum(done.tombstones for done in self.partitions)


def erase_keys(
    manager: LogManager,
    topic: str,
    keys: bytes | Iterable[bytes],
    tombstones: bool | None,
    timeout_ms: int,
    progress: Callable[[int], object],
) -> ErasureReport:
    """See ``Log.erase``. A failure in one partition is raised after the others were done: a caller
    that looks at no report must not believe that a person was forgotten."""
    failure = drop_leftovers(manager, timeout_ms / 1000).get(topic)  # they may have such records
    refuse_records(topic, "erase")
    wanted = _keys(keys)
    described = manager.describe_topic(topic)
    tombstones = described.config.is_compacted if tombstones is None else tombstones
    done: list[ErasedPartition] = []
    for number in described.numbers:
        try:
            partition = manager.partition(topic, number)
            done.append(erase(partition, wanted, tombstones=tombstones, timeout_ms=timeout_ms, progress=progress))
        except own(TopicNotFound):
            raise
        except own(PylogError) as error:
            if failure is not None:
                logger.warning("%s-%d: records of the keys may be left: %s", topic, number, error)
            failure = failure or error
    if manager.describe_topic(topic).id != described.id:
        raise TopicChanged(
            f"topic {topic!r} got other partitions meanwhile, and records of the keys may have moved to one that was done: "
            "call again",
            topic=topic,
        ) from failure
    if failure is not None:
        raise failure
    return ErasureReport(tuple(done))


def _keys(keys: bytes | Iterable[bytes]) -> frozenset[bytes]:
    several = [keys] if isinstance(keys, bytes) else require_several("keys", keys)
    for key in several:
        if not isinstance(key, bytes):
            raise ConfigError(
                f"keys are bytes, not {type(key).__name__}: records without a key, and keys of other types, can't be named",
                option="keys", value=key,
            )  # fmt: skip
    if not several:
        raise ConfigError("no key to erase", option="keys")
    return frozenset(several)
