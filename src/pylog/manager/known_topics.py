"""The topics of a log that were looked up, kept until any process changes a topic."""

from __future__ import annotations

import threading  # threads share what is known
from collections.abc import Iterable
from typing import NamedTuple

from pylog.catalog import Catalog, KafkaCatalog, TopicDescription, check_topic_name
from pylog.clock import Clock
from pylog.errors import InvalidTopicName, TopicNotFound
from pylog.interrupts import own
from pylog.storage import after_fork_in_child

_TICK_S_MAX = 0.02  # of the kernel's clock: two changes within one may leave the same version
_MISSING_MAX = 1_000


class _Known(NamedTuple):
    """What was found with one version of the catalog, or later. Replaced whole: what is added
    after that, by a thread or under a signal handler that looks, too, goes with it."""

    version: int
    since_s: float
    topics: dict[str, TopicDescription]
    missing: set[str]


class KnownTopics:
    """Thread-safe. Also answers after the log is closed."""

    def __init__(self, catalog: Catalog | KafkaCatalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._mutex = threading.RLock()
        self._known = _Known(-1, 0.0, {}, set())
        after_fork_in_child(self._forget_parent)

    def describe(self, name: str) -> TopicDescription:
        """The topic. ``TopicNotFound``. Costs one stat if it is known."""
        if not isinstance(name, str):
            check_topic_name(name)  # first, since a list can't be a key
        version, known = self._catalog.version(), self._known
        if version == known.version and (found := known.topics.get(name)) is not None:
            return found
        with self._mutex:
            known = self._known
            if version != known.version:
                known = self._known = _Known(version, self._clock.monotonic(), {}, set())
            topic = known.topics.get(name)
            if topic is None:
                topic = known.topics[name] = self._catalog.describe(str.__str__(name))
            return topic

    def existing(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Those of these topics that exist, by name. Costs one stat if they were asked for
        before."""
        version, known = self._catalog.version(), self._known
        is_known = version == known.version
        found = {}
        for name in sorted(names):
            if is_known and name in known.topics:
                found[name] = known.topics[name]
            elif not is_known or name not in known.missing:
                may_note = is_known and self._clock.monotonic() - known.since_s > _TICK_S_MAX
                try:
                    found[name] = self.describe(name)
                except own(TopicNotFound, InvalidTopicName):  # a damaged state of a group has invalid names
                    if may_note and len(known.missing) < _MISSING_MAX:
                        known.missing.add(name)
        return found

    def _forget_parent(self) -> None:
        self._mutex = threading.RLock()
