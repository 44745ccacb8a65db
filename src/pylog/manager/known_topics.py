"""The topics of a log that were looked up, kept until any process changes a topic."""

from __future__ import annotations

import threading  # threads share what is known
from collections.abc import Iterable

from pylog.catalog import Catalog, KafkaCatalog, TopicDescription, check_topic_name
from pylog.errors import InvalidTopicName, TopicNotFound
from pylog.interrupts import suppress
from pylog.storage import after_fork_in_child


class KnownTopics:
    """Thread-safe. Also answers after the log is closed."""

    def __init__(self, catalog: Catalog | KafkaCatalog) -> None:
        self._catalog = catalog
        self._mutex = threading.RLock()
        self._version = -1
        # Each is of this version, or later. None: there is no such topic.
        self._topics: dict[str, TopicDescription | None] = {}
        after_fork_in_child(self._forget_parent)

    def describe(self, name: str) -> TopicDescription:
        """The topic. ``TopicNotFound``. Costs one stat if it is known."""
        if not isinstance(name, str):
            check_topic_name(name)  # first, since a list can't be a key
        version = self._catalog.version()
        if version == self._version and (known := self._topics.get(name)) is not None:
            return known
        with self._mutex:
            if version != self._version:
                self._topics, self._version = {}, version
            topic = self._topics.get(name)
            if topic is None:
                topic = self._topics[name] = self._catalog.describe(str.__str__(name))
            return topic

    def existing(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Those of these topics that exist, by name. Costs one stat if they were asked for before."""
        version = self._catalog.version()
        known = self._topics if version == self._version else {}
        found = {}
        for name in sorted(names):
            if name in known:
                topic = known[name]
            else:
                topic = None
                with suppress(TopicNotFound, InvalidTopicName):  # a damaged state of a group has invalid names
                    topic = self.describe(name)
                if topic is None:
                    self._note_missing(name, version)
            if topic is not None:
                found[name] = topic
        return found

    def _note_missing(self, name: str, version: int) -> None:
        """``version`` is from before the look. Kafka's version is the time of a directory alone, and
        may stay the same while a topic appears: there a missing one is looked for each time."""
        with self._mutex:
            if version == self._version and isinstance(self._catalog, Catalog):
                self._topics.setdefault(name, None)

    def _forget_parent(self) -> None:
        self._mutex = threading.RLock()
