"""The topics of a directory that Kafka wrote. Kafka keeps their configuration elsewhere."""

from __future__ import annotations

from pylog.catalog.layout import Layout, parse_partition
from pylog.catalog.topic import MURMUR2, TopicConfig, TopicDescription, check_topic_name, lawful_names
from pylog.errors import LogNotFound, StorageError, TopicNotFound
from pylog.interrupts import own
from pylog.segment.naming import PARTITION_METADATA
from pylog.storage import FileSystem, read_whole

_METADATA_LIMIT_BYTES = 4096
_CONFIG = TopicConfig(partitioner=MURMUR2)  # known of topics that Kafka's clients write


class KafkaCatalog:
    """The topics of a directory that Kafka wrote, by its directories' names. Changes nothing."""

    def __init__(self, filesystem: FileSystem, layout: Layout) -> None:
        self._filesystem = filesystem
        self._layout = layout

    def version(self) -> int:
        try:
            return self._filesystem.modified_ns(self._layout.root)
        except own(FileNotFoundError) as error:
            raise LogNotFound.while_open(self._layout.root) from error

    def names(self) -> list[str]:
        return lawful_names(self._partitions(), self._layout.root)

    def places(self) -> dict[str, str]:
        """Every name found, valid or not, and one path with it."""
        return {name: self._layout.partition(name, numbers[0]) for name, numbers in self._partitions().items()}

    def describe(self, name: str, advice: str = "") -> TopicDescription:
        numbers = self._partitions().get(check_topic_name(name))
        if numbers is None:
            raise TopicNotFound(f"no topic {name!r} in {self._layout.root}{advice}", topic=name)
        count = numbers[-1] + 1
        present = None if len(numbers) == count else tuple(numbers)
        return TopicDescription(name, self._topic_id(name, numbers[0]), count, _CONFIG, present)

    def _partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        try:
            names = self._filesystem.names(self._layout.root)
        except own(FileNotFoundError) as error:
            raise LogNotFound.while_open(self._layout.root) from error
        for entry in names:
            parsed = parse_partition(entry)
            if parsed is not None and self._may_be_directory(f"{self._layout.root}/{entry}"):
                found.setdefault(parsed.topic, []).append(parsed.partition)
        return {topic: sorted(numbers) for topic, numbers in found.items()}

    def _may_be_directory(self, path: str) -> bool:
        """A link may lead to a place without permission: the partition's reader reports that."""
        try:
            return self._filesystem.is_directory(path)
        except own(StorageError):
            return True

    def _topic_id(self, name: str, number: int) -> str:
        path = f"{self._layout.partition(name, number)}/{PARTITION_METADATA}"
        try:
            text = read_whole(self._filesystem, path, _METADATA_LIMIT_BYTES).decode("utf-8", "replace")
        except own(FileNotFoundError):
            return ""
        return next(
            (line[len("topic_id:") :].strip() for line in text.splitlines() if line.startswith("topic_id:")), ""
        )
