"""What a consumer reads: a subscription that follows the catalog, or partitions assigned by hand.

Positions are resolved when a partition is added, not at the first poll: ``latest`` is the end when
``subscribe`` returned. A partition or topic that appears later is read from its beginning, whatever
the reset policy, since its first records were written while this consumer was subscribed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from pylog.catalog import no_such_partition
from pylog.checks import require_callable
from pylog.consumer.fetcher import Fetcher
from pylog.consumer.offset_lookup import OffsetLookup
from pylog.consumer.subscription import Subscription, Topic, change_of, name_of
from pylog.errors import ConfigError, InvalidPartition, PylogError, TopicNotFound
from pylog.interrupts import own, suppress
from pylog.model import TopicPartition

if TYPE_CHECKING:
    from pylog.manager.access import ConsumerLog
    from pylog.partition.partition_log import PartitionLog

logger = logging.getLogger("pylog.consumer")

Callback = Callable[[list[TopicPartition]], object]

_MIXED = "a consumer either subscribes or is assigned partitions; call unsubscribe() in between"


class Listeners(NamedTuple):
    """The callbacks of ``subscribe`` for partitions gained and lost in a group."""

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None

    def checked(self, group_id: str | None) -> Listeners:
        """The same callbacks; ``ConfigError`` if one is not callable."""
        for option, callback in self._asdict().items():
            if callback is not None:
                require_callable(option, callback, "a list of partitions")
                if group_id is None:
                    raise ConfigError(
                        f"{option}: without a group_id no partitions are assigned or revoked; leave it out",
                        option=option,
                    )
        return self


class Start(NamedTuple):
    """A partition as it was opened, and the position to read it from; None if it has none yet."""

    partition: PartitionLog
    position: int | None


class SubscriptionState:
    """What the application requested: a subscription, partitions by hand, or nothing yet."""

    __slots__ = ("by_hand", "subscription")

    def __init__(self) -> None:
        self.subscription: Subscription | None = None
        self.by_hand = False

    def is_subscribed(self) -> bool:
        return self.subscription is not None


class Assignment:
    """Keeps the fetcher's partitions in line with the application's request."""

    def __init__(self, log: ConsumerLog, lookup: OffsetLookup, fetcher: Fetcher) -> None:
        self.requested = SubscriptionState()
        self.listeners = Listeners()
        self._log = log
        self._lookup = lookup
        self._fetcher = fetcher
        self._catalog_version: int | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that a wait should watch besides those of partitions and topics."""
        return ()

    def _refuse_by_hand(self) -> None:
        if self.requested.by_hand:
            raise ConfigError(f"subscribe() after assign(): {_MIXED}")

    def subscribe(self, subscription: Subscription) -> None:
        """Follow this subscription instead. Partitions that were read before keep their
        positions."""
        self._refuse_by_hand()
        self._close_gone()
        while True:
            version = self._log.catalog_version()
            try:
                self._take_up(subscription)
            except own(TopicNotFound, InvalidPartition):
                if self._log.catalog_version() == version:
                    raise
                continue  # deleted since it was listed
            self.requested.subscription, self._catalog_version = subscription, version
            return

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions instead. Those that were read before keep their positions."""
        if not partitions:
            self.clear()
            return
        if self.requested.subscription is not None:
            raise ConfigError(f"assign() after subscribe(): {_MIXED}")
        self._close_gone()
        version = self._log.catalog_version()
        topics = [self._describe(name) for name in sorted({partition.topic for partition in partitions})]
        numbers = {topic.name: topic.numbers for topic in topics}
        for topic, number in partitions:
            if number not in numbers[topic]:
                raise no_such_partition(topic, number, numbers[topic])
        current = self._ids()
        ids = {topic.name: topic.id for topic in topics}
        kept = {partition for partition in partitions if current.get(partition) == ids[partition.topic]}
        starts = {partition: self._start(partition) for partition in partitions if partition not in kept}
        self._apply([partition for partition in current if partition not in kept], starts, topics)
        self.requested.by_hand, self._catalog_version = True, version

    def clear(self) -> None:
        """Read nothing."""
        self._close_gone()
        self._apply(list(self._fetcher.assigned), {}, [])
        self.requested.subscription, self.requested.by_hand = None, False

    def refresh(self) -> None:
        """Apply the catalog's changes. If there are none, this only reads the catalog's version."""
        requested = self.requested
        if requested.subscription is None and not requested.by_hand:
            raise ConfigError("nothing to read: call subscribe() or assign() first")
        while (version := self._log.catalog_version()) != self._catalog_version:
            self._close_gone()
            try:
                if requested.subscription is not None:
                    self._refresh_subscription(requested.subscription)
                else:
                    self._refresh_assigned()
            except own(TopicNotFound, InvalidPartition):
                if self._log.catalog_version() == version:
                    raise
                continue  # deleted between two looks: look again
            self._catalog_version = version

    def close(self, *, failed: bool, timeout_s: float | None = None) -> None:
        """Stop reading.

        ``failed``: because of an exception. ``timeout_s``: how long to wait for other processes.
        """
        self.clear()

    def changed(self) -> bool:
        """True if ``refresh`` has something to do."""
        return self._log.catalog_version() != self._catalog_version

    # A changed catalog

    def _close_gone(self) -> None:
        """Close the files of topics that were deleted or created again. To be called while they are
        still assigned."""
        ids = {partition.topic: assigned.topic_id for partition, assigned in self._fetcher.assigned.items()}
        with suppress(PylogError):  # the log was closed or removed: the call that needs it says so
            found = self._log.existing_topics(ids)
            for name, topic_id in ids.items():
                if name not in found or found[name].id != topic_id:
                    self._log.close_gone(name)

    def _refresh_subscription(self, subscription: Subscription) -> None:
        topics = self._existing(subscription.wanted(self._log.topics()))
        removed, added = change_of(self._ids(), topics)
        starts = {partition: self._beginning(partition) for partition in added}
        for partition, start in starts.items():
            logger.info("%s is new: reading it from offset %s", name_of(partition), start.position)
        for partition in removed:
            logger.warning("%s was deleted or renamed: reading it no longer", name_of(partition))
        self._apply(removed, starts, topics)

    def _refresh_assigned(self) -> None:
        """Partitions of deleted topics fail when read; recreated ones are read from the
        beginning."""
        names = {partition.topic for partition in self._fetcher.assigned}
        topics = {topic.name: topic for topic in self._existing(names)}
        for partition, assigned in self._fetcher.assigned.items():
            topic = topics.get(partition.topic)
            if topic is not None and topic.id == assigned.topic_id:
                continue
            assigned.forget_partition()
            if topic is not None:
                logger.warning(
                    "topic %s was created again or repartitioned: reading %s from its beginning",
                    partition.topic,
                    name_of(partition),
                )
                assigned.topic_id = topic.id
                assigned.move_to(self._beginning(partition).position)
                self._forget_commits(partition)

    def _forget_commits(self, partition: TopicPartition) -> None:
        """What a group committed there was for the deleted topic."""

    # Positions and partitions

    def _take_up(self, subscription: Subscription) -> None:
        topics = self._existing(subscription.wanted(self._log.topics()))
        removed, added = change_of(self._ids(), topics)
        starts = {partition: self._start(partition) for partition in added}
        self._warn_of_missing(subscription, topics)
        self._apply(removed, starts, topics)

    def _apply(
        self, removed: Iterable[TopicPartition], starts: dict[TopicPartition, Start], topics: Iterable[Topic]
    ) -> None:
        ids = {topic.name: topic.id for topic in topics}
        for partition in removed:
            self._fetcher.remove(partition)
        for partition, start in starts.items():
            self._fetcher.add(partition, ids[partition.topic], start.position, start.partition)
            logger.debug("reading %s from offset %s", name_of(partition), start.position)

    def _ids(self) -> dict[TopicPartition, object]:
        return {partition: assigned.topic_id for partition, assigned in self._fetcher.assigned.items()}

    def _describe(self, name: str) -> Topic:
        description = self._log.describe_topic(name)
        return Topic(name, description.id, description.numbers)

    def _existing(self, names: Iterable[str]) -> list[Topic]:
        """Without those not created yet, or deleted since they were listed: the catalog's version
        will change."""
        return [Topic(name, found.id, found.numbers) for name, found in self._log.existing_topics(names).items()]

    def _warn_of_missing(self, subscription: Subscription, topics: Iterable[Topic]) -> None:
        for name in sorted(subscription.topics - {topic.name for topic in topics}):
            logger.warning("topic %s does not exist yet; it will be read from its beginning once it does", name)

    def _start(self, topic_partition: TopicPartition) -> Start:
        partition = self._log.partition(*topic_partition)
        return Start(partition, self._lookup.start_position(partition))

    def _beginning(self, topic_partition: TopicPartition) -> Start:
        partition = self._log.partition(*topic_partition)
        return Start(partition, partition.earliest_offset)
