"""What ``.pylog/topics/<topic>.json`` records of a topic: reading and writing. No locks.

What decides about deletion is in ``cleanup``, and only if it differs from the default. Versions
that delete nothing refuse a topic that has it. They recorded limits of their own, which nothing
obeyed, outside of it: these never count.
"""

from __future__ import annotations

import re
import reprlib
from typing import Any

from pylog.catalog.manifest import damaged_field, is_whole, read_json
from pylog.catalog.topic import MURMUR3, PARTITIONS_MAX, TopicConfig, TopicDescription, ignored_limits
from pylog.errors import ConfigError, CorruptSegment, FormatVersionError
from pylog.interrupts import own
from pylog.storage import FileSystem

_TOPIC_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_SLOTS, _SLOTS_VERSION = "commit_slots", 2  # version 1 is not recorded
_CLEANUP = "cleanup"
_LIMITS = ("retention_ms", "retention_bytes")
_WRITABLE = "writable"  # only recorded if it is false: versions that would write to the topic refuse it
_FIRST = TopicConfig._fields[: TopicConfig._fields.index("partitioner") + 1]
"""The options of the first versions."""
_OF_CLEANUP = tuple(option for option in TopicConfig._fields if option in _LIMITS or option not in (*_FIRST, _WRITABLE))


def read_topic(filesystem: FileSystem, name: str, path: str) -> TopicDescription:
    """Return the topic. Raises ``FileNotFoundError``, ``CorruptSegment``; ``FormatVersionError``
    for what this version does not know."""
    return topic_of(name, path, read_json(filesystem, path))


def topic_of(name: str, path: str, content: dict[str, Any]) -> TopicDescription:
    """The topic that ``path`` records with this ``content``."""
    topic_id, partitions, config = (content.get(field) for field in ("id", "partitions", "config"))
    if not isinstance(topic_id, str) or not _TOPIC_ID.fullmatch(topic_id):
        raise damaged_field(path, "id", topic_id, "a UUID in base64, 22 characters of A-Z a-z 0-9 _ -")
    if not is_whole(partitions) or not 1 <= partitions <= PARTITIONS_MAX:
        raise damaged_field(path, "partitions", partitions, f"an int from 1 to {PARTITIONS_MAX}")
    if not isinstance(config, dict):
        raise damaged_field(path, "config", config, "an object")
    slots_version = config.pop(_SLOTS, _SLOTS_VERSION)
    if not is_whole(slots_version) or slots_version != _SLOTS_VERSION:
        raise FormatVersionError(
            f"{path}: config has commit slots of version {reprlib.repr(slots_version)}, this pylog knows {_SLOTS_VERSION}; "
            "upgrade pylog",
            path=path, field=f"config.{_SLOTS}", version=slots_version, expected=_SLOTS_VERSION,
        )  # fmt: skip
    cleanup = config.pop(_CLEANUP, {})
    if not isinstance(cleanup, dict):
        raise damaged_field(path, f"config.{_CLEANUP}", cleanup, "an object")
    first = _checked(path, "config", TopicConfig(partitioner=MURMUR3), config, (*_FIRST, _WRITABLE))
    first = first._replace(**ignored_limits(path, config))
    now = _checked(path, f"config.{_CLEANUP}", first, cleanup, _OF_CLEANUP)
    earlier_ids = content.get("earlier_ids", [])
    if not isinstance(earlier_ids, list) or not all(isinstance(each, str) for each in earlier_ids):
        raise damaged_field(path, "earlier_ids", earlier_ids, "a list of UUIDs in base64")
    return TopicDescription(name, topic_id, partitions, now, None, tuple(earlier_ids))


def _checked(
    path: str, field: str, before: TopicConfig, changes: dict[str, Any], known: tuple[str, ...]
) -> TopicConfig:
    for option in changes.keys() - set(known):
        raise FormatVersionError(
            f"{path}: {field} has the option {reprlib.repr(option)}, which this pylog does not know; upgrade pylog",
            path=path, field=f"{field}.{option}",
        )  # fmt: skip
    try:
        return before.with_changes(changes)
    except own(ConfigError) as error:
        value, where = changes.get(error.option), f"{field}.{error.option}"
        is_number = isinstance(getattr(before, error.option), int | float)  # else one of several names
        if isinstance(value, str) and not is_number:
            raise FormatVersionError(
                f"{path}: in {field}, {error}; upgrade pylog, or if no version knows it, restore the file from a copy",
                path=path, field=where, value=value,
            ) from error  # fmt: skip
        raise CorruptSegment(
            f"{path} is damaged: in {field}, {error}; restore the file from a copy",
            path=path, position=0, field=where, value=value,
        ) from error  # fmt: skip


def topic_content(topic: TopicDescription) -> dict[str, Any]:
    """The file's content, for ``write_json``."""
    default = TopicConfig()
    config = topic.config.as_dict()
    cleanup = {option: config.pop(option) for option in _OF_CLEANUP}
    config.update((option, getattr(default, option)) for option in _LIMITS)  # as every version writes them
    if config["partitioner"] == MURMUR3:  # older versions do this without the option, and refuse it
        del config["partitioner"]
    if config[_WRITABLE]:
        del config[_WRITABLE]
    changed = {option: value for option, value in cleanup.items() if value != getattr(default, option)}
    if changed:
        config[_CLEANUP] = changed
    config[_SLOTS] = _SLOTS_VERSION  # which older versions can't read: they refuse the topic
    content = {"id": topic.id, "partitions": topic.partitions, "config": config}
    if topic.earlier_ids:
        content["earlier_ids"] = list(topic.earlier_ids)
    return content


def has_slots_version(filesystem: FileSystem, path: str) -> bool:
    """Whether versions that know only older commit slots refuse the topic."""
    return _SLOTS in read_json(filesystem, path)["config"]
