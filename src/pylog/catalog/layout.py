"""Paths below the root of a log. Only this file and ``segment/naming.py`` build and parse names."""

from __future__ import annotations

import re

from pylog.catalog.topic import PARTITIONS_MAX
from pylog.errors import ConfigError
from pylog.model import TopicPartition

PRIVATE = ".pylog"
META_PROPERTIES = "meta.properties"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
COPY_SUFFIX = "-future"
TOPIC_SUFFIX = ".json"
ENCODED_BYTES_MAX = 200  # of a group's, a transactional id's or a producer's name as a file name
DELETED_TOPIC_SUFFIX = ".gone"  # short: names may have 249 characters
DRAFT_SUFFIX = ".next"
MOVED_TOPIC_SUFFIX = ".moved"

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_PLAIN_OR_CAPITAL = re.compile(r"[^a-z0-9._-]+")
_NOBODYS = "%"  # is not the file name of any id
_ENCODED = re.compile(r"(?:%[0-9A-F]{2})+")
_COPY = re.compile(r".+-[0-9]+\.[A-Za-z0-9_-]{22}" + COPY_SUFFIX, re.DOTALL)
_STRAY = re.compile(r"(.+)-([0-9]+)\.[0-9a-f]+" + STRAY_SUFFIX, re.DOTALL)
_CONDEMNED = re.compile(r"(.+)-([0-9]+)\.[0-9a-f]{32}" + DELETE_SUFFIX, re.DOTALL)


class Layout:
    """The paths of one log. A root without a name is the current directory.

    ``ignores_case`` is set when the log is opened: whether its filesystem takes capitals for the
    same letters.
    """

    ignores_case = False

    def __init__(self, root: str) -> None:
        root = root.rstrip("/") or root[:1] or "."
        self.root = root
        self.private = f"{root}/{PRIVATE}"
        self.manifest = f"{self.private}/manifest.json"
        self.settings = f"{self.private}/settings.json"
        self.housekeeping_lock = f"{self.private}/housekeeping.lock"
        self.topics = f"{self.private}/topics"
        self.catalog_lock = f"{self.private}/catalog.lock"
        self.producer_ids = f"{self.private}/producer-ids"
        self.groups = f"{self.private}/groups"
        self.transactions = f"{self.private}/transactions"
        self.named_producers = f"{self.private}/producers"
        self.sinks = f"{self.private}/spark"
        self.changes_lock = f"{self.private}/changes.lock"
        self.groups_lock = f"{self.private}/groups.lock"

    def topic(self, name: str) -> str:
        # ``str.__str__``, here and below: Python 3.11 formats a member of (str, Enum) as
        # ``Topic.ORDERS``
        return f"{self.topics}/{str.__str__(name)}{TOPIC_SUFFIX}"

    def deleted_topic(self, name: str) -> str:
        """The path of a deleted topic's file until its directories are gone."""
        return f"{self.topics}/{str.__str__(name)}{DELETED_TOPIC_SUFFIX}"

    def draft(self, name: str) -> str:
        """What a topic is about to become. See ``changes.py``."""
        return f"{self.topics}/{str.__str__(name)}{DRAFT_SUFFIX}"

    def moved_topic(self, name: str) -> str:
        """The path of a topic's file from the decision to the end of its change."""
        return f"{self.topics}/{str.__str__(name)}{MOVED_TOPIC_SUFFIX}"

    def copy(self, topic: str, number: int, topic_id: str) -> str:
        """A partition of a topic that is repartitioned, before it gets its place: named as Kafka
        names a copy."""
        return self._renamed(topic, f"-{number}.{topic_id}{COPY_SUFFIX}")

    @staticmethod
    def is_copy(name: str) -> bool:
        """Whether a directory of this name in the root is such a copy."""
        return _COPY.fullmatch(name) is not None

    def group(self, group: str) -> str:
        """The directory of a consumer group, whose name was checked."""
        return f"{self.groups}/{encoded_group(group, self.ignores_case)}"

    def transaction(self, transactional_id: str) -> str:
        """The directory of a transactional id. Kafka's table may have ids that no producer of pylog
        can have: their directory is never there."""
        name = encoded_group(transactional_id, self.ignores_case)
        return f"{self.transactions}/{name if 0 < len(name) <= ENCODED_BYTES_MAX else _NOBODYS}"

    def named_producer(self, name: str) -> str:
        """The lock file of a named producer, whose name was checked."""
        return f"{self.named_producers}/{encoded_group(name, self.ignores_case)}.lock"

    def offsets_checkpoint(self, number: int) -> str:
        """The checkpoint of one partition of the offsets topic."""
        return f"{self.private}/offsets-{number}.checkpoint"

    def partition(self, topic: str, number: int) -> str:
        return f"{self.root}/{str.__str__(topic)}-{number}"

    def condemned(self, topic: str, number: int, tag: str) -> str:
        """Where a partition directory goes before its files are removed: Kafka's name."""
        return self._renamed(topic, f"-{number}.{tag}{DELETE_SUFFIX}")

    def stray(self, topic: str, number: int, tag: str) -> str:
        """Where something to keep goes from a partition's place: Kafka's name."""
        return self._renamed(topic, f"-{number}.{tag}{STRAY_SUFFIX}")

    def _renamed(self, topic: str, suffix: str) -> str:
        """As in Kafka, at most 255 characters."""
        return f"{self.root}/{topic[: 255 - len(suffix)]}{suffix}"


def parse_partition(name: str) -> TopicPartition | None:
    """The partition whose directory has this name, split at the last ``-``, or None.
    None also for a number that no partition can have, so that loops over numbers end."""
    topic, _, number = name.rpartition("-")
    if not topic or not number.isascii() or not number.isdigit() or str(int(number)) != number:
        return None
    return TopicPartition(topic, int(number)) if int(number) < PARTITIONS_MAX else None


def encoded_group(group: str, ignores_case: bool = False) -> str:
    """A group's file name: bytes illegal in topic names, and a first dot, as ``%`` and 2 digits.

    Capitals, too, for a filesystem that ignores case: no two names differ only in the case of
    letters. On others they stay, so that processes of earlier builds use the same locks.
    """
    not_plain = _NOT_PLAIN_OR_CAPITAL if ignores_case else _NOT_PLAIN
    name = not_plain.sub(lambda found: "%" + found[0].encode().hex("%").upper(), group)
    return f"%2E{name[1:]}" if name.startswith(".") else name


def check_encodable(value: object, option: str, what: str, ignores_case: bool = False) -> str:
    """``value``, if ``encoded_group`` makes a file name of it that all filesystems take; else
    ``ConfigError``."""
    try:
        if isinstance(value, str) and value and len(encoded_group(value, ignores_case)) <= ENCODED_BYTES_MAX:
            return value
    except UnicodeEncodeError:
        pass
    capital = "a capital letter, or " if ignores_case else ""
    raise ConfigError(
        f"{what} is text of 1 to {ENCODED_BYTES_MAX} bytes ({capital}a byte of what no topic's name can have, "
        f"counts three), got {value!r:.80}",
        option=option, value=value,
    )  # fmt: skip


def decoded_group(name: str, ignores_case: bool = False) -> str | None:
    """The group whose directory has this name, None if no group can."""
    try:
        group = _ENCODED.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode(), name)
    except UnicodeDecodeError:
        return None
    return group if group and encoded_group(group, ignores_case) == name else None


def parse_stray(name: str) -> TopicPartition | None:
    """The partition whose place a directory of this name had, or None. Long topic names are cut."""
    return _parsed(_STRAY.fullmatch(name))


def parse_condemned(name: str) -> TopicPartition | None:
    """The partition whose directory gets this name before it is removed, or None. Long topic names
    are cut."""
    return _parsed(_CONDEMNED.fullmatch(name))


def _parsed(match: re.Match[str] | None) -> TopicPartition | None:
    return TopicPartition(match[1], int(match[2])) if match else None
