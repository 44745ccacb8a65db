"""Where things are below the root of a log. Names are built and parsed here and in ``segment/naming.py`` only."""

from __future__ import annotations

import re

from pylog.catalog.topic import PARTITIONS_MAX
from pylog.model import TopicPartition

PRIVATE = ".pylog"
META_PROPERTIES = "meta.properties"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
TOPIC_SUFFIX = ".json"
DELETED_TOPIC_SUFFIX = ".gone"  # short: names may have 249 characters

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_ENCODED = re.compile(r"(?:%[0-9A-F]{2})+")
_STRAY = re.compile(r"(.+)-([0-9]+)\.[0-9a-f]+" + STRAY_SUFFIX, re.DOTALL)
_CONDEMNED = re.compile(r"(.+)-([0-9]+)\.([0-9a-f]+)" + DELETE_SUFFIX, re.DOTALL)


class Layout:
    """The paths of one log. A root without a name is the directory the process is in."""

    def __init__(self, root: str) -> None:
        root = root.rstrip("/") or root[:1] or "."
        self.root = root
        self.private = f"{root}/{PRIVATE}"
        self.manifest = f"{self.private}/manifest.json"
        self.topics = f"{self.private}/topics"
        self.catalog_lock = f"{self.private}/catalog.lock"
        self.producer_ids = f"{self.private}/producer-ids"
        self.producer_ids_lock = f"{self.private}/producer-ids.lock"
        self.groups = f"{self.private}/groups"
        self.sinks = f"{self.private}/spark"

    def topic(self, name: str) -> str:
        return f"{self.topics}/{name}{TOPIC_SUFFIX}"

    def deleted_topic(self, name: str) -> str:
        """Where a topic's file is from the moment the topic is deleted until its directories are gone."""
        return f"{self.topics}/{name}{DELETED_TOPIC_SUFFIX}"

    def group(self, group: str) -> str:
        """The directory of a consumer group, whose name has been checked."""
        return f"{self.groups}/{encoded_group(group)}"

    def offsets_checkpoint(self, number: int) -> str:
        """Of one partition of the committed offsets' topic."""
        return f"{self.private}/offsets-{number}.checkpoint"

    def partition(self, topic: str, number: int) -> str:
        return f"{self.root}/{topic}-{number}"

    def condemned(self, topic: str, number: int, tag: str) -> str:
        """Where a partition directory goes before its files are removed: Kafka's name for it."""
        return self._renamed(topic, f"-{number}.{tag}{DELETE_SUFFIX}")

    def is_condemned(self, name: str, topic: str) -> bool:
        """Whether the directory ``name`` of the root was condemned for a partition of ``topic``."""
        match = _CONDEMNED.fullmatch(name)
        return match is not None and self.condemned(topic, int(match[2]), match[3]) == f"{self.root}/{name}"

    def stray(self, topic: str, number: int, tag: str) -> str:
        """Where something goes that stands in a partition's place and must not be removed: Kafka's name for it."""
        return self._renamed(topic, f"-{number}.{tag}{STRAY_SUFFIX}")

    def _renamed(self, topic: str, suffix: str) -> str:
        """As Kafka has it, capped at 255 characters."""
        return f"{self.root}/{topic[: 255 - len(suffix)]}{suffix}"


def parse_partition(name: str) -> TopicPartition | None:
    """The partition whose directory has this name, or None: ``my-topic-0`` is split at the last ``-``.

    A number that no topic's partition can have is none, so that whoever goes through the numbers comes to an end.
    """
    topic, _, number = name.rpartition("-")
    if not topic or not number.isascii() or not number.isdigit() or str(int(number)) != number:
        return None
    return TopicPartition(topic, int(number)) if int(number) < PARTITIONS_MAX else None


def encoded_group(group: str) -> str:
    """A group's name as a file's: bytes that are no letter of a topic's name, and a dot in front, as ``%`` and two digits."""
    name = _NOT_PLAIN.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), group)
    return f"%2E{name[1:]}" if name.startswith(".") else name


def decoded_group(name: str) -> str | None:
    """The group whose directory has this name, None where there can be none."""
    try:
        group = _ENCODED.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode(), name)
    except UnicodeDecodeError:
        return None
    return group if group and encoded_group(group) == name else None


def parse_stray(name: str) -> TopicPartition | None:
    """The partition in whose place a directory of this name once stood, or None; a long topic's name is cut short there."""
    match = _STRAY.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None
