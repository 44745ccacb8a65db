"""A topic that gets another name, or other partitions: what is on the disk until the change is
complete.

``<topic>.next`` is a draft: what the topic will be, and the commits to write for its groups. The
renaming of ``<topic>.json`` to ``<topic>.moved`` decides. From then on nothing but the rest of the
change can follow: the next process that opens the log for writing does it after a crash. A draft
without a decision is only removed.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

from pylog.catalog.layout import Layout
from pylog.catalog.manifest import RESTORE, damaged_field, read_json, write_json
from pylog.catalog.topic import TopicDescription, check_topic_name
from pylog.catalog.topic_file import topic_content, topic_of
from pylog.errors import ConfigError, CorruptSegment, FormatVersionError, InvalidTopicName, TopicChanged
from pylog.interrupts import own
from pylog.storage import FileSystem

_LIMIT_BYTES = 256 << 20  # of a draft: about 1,800,000 commits

Commit = tuple[bytes, bytes | None]
"""Key and value of a record of ``__consumer_offsets``."""


class TopicChange(NamedTuple):
    """``before`` becomes ``after``, which has another name, or other partitions and another id.

    ``is_copy``: the partitions are in ``Layout.copy``, and those of ``before`` go. ``commits`` are
    written before ``after`` can be found.
    """

    before: TopicDescription
    after: TopicDescription
    is_copy: bool
    commits: Sequence[Commit]


def write_draft(filesystem: FileSystem, layout: Layout, change: TopicChange) -> None:
    """Durable on return. ``ConfigError``, and nothing is written, for more commits than
    ``read_change`` takes."""
    name, count = change.before.name, len(change.commits)

    def check(size_bytes: int) -> None:
        if size_bytes > _LIMIT_BYTES:
            raise ConfigError(
                f"topic {name!r} stays as it is: the {count} commits of its groups take {size_bytes} bytes, and a change takes "
                f"at most {_LIMIT_BYTES}; delete groups that are not needed (delete_group), then call again",
                option="topic", topic=name, commits=count, size_bytes=size_bytes, limit_bytes=_LIMIT_BYTES,
            )  # fmt: skip

    content = {
        "name": change.after.name,
        "after": topic_content(change.after),
        "is_copy": change.is_copy,
        "commits": [[_text(key), None if value is None else _text(value)] for key, value in change.commits],
    }
    write_json(filesystem, layout.draft(name), content, check)


def read_change(filesystem: FileSystem, layout: Layout, name: str) -> TopicChange:
    """The change of this topic that was decided. ``CorruptSegment``, ``FormatVersionError``;
    ``FileNotFoundError`` without it."""
    moved, path = layout.moved_topic(name), layout.draft(name)
    before = topic_of(name, moved, read_json(filesystem, moved))
    try:
        return _change(path, before, read_json(filesystem, path, _LIMIT_BYTES))
    except own(FileNotFoundError, CorruptSegment, InvalidTopicName) as error:
        what = f"{path} is missing" if isinstance(error, FileNotFoundError) else str(error).removesuffix(RESTORE)
        raise CorruptSegment(
            f"{what}; if each directory of {layout.partition(name, 0)!r} to {before.partitions - 1} is there, and its "
            f"partition.metadata has the topic_id {before.id}, nothing is lost: close the log everywhere, remove {path}, and "
            f"rename {moved} to {layout.topic(name)}; else restore the log from a backup",
            **{"path": path, "position": 0, **getattr(error, "facts", {})},
        ) from error


def name_after(filesystem: FileSystem, layout: Layout, name: str) -> str | None:
    """What the topic of a change that was decided is called after it; None if its draft can't be
    read."""
    try:
        return read_change(filesystem, layout, name).after.name
    except own(CorruptSegment, FormatVersionError, InvalidTopicName, FileNotFoundError):
        return None


def _change(path: str, before: TopicDescription, content: dict[str, Any]) -> TopicChange:
    after, is_copy, commits = content.get("after"), content.get("is_copy"), content.get("commits")
    if not isinstance(after, dict):
        raise damaged_field(path, "after", after, "an object")
    if not isinstance(is_copy, bool):
        raise damaged_field(path, "is_copy", is_copy, "true or false")
    if not isinstance(commits, list):
        raise damaged_field(path, "commits", commits, "a list")
    records = [_commit(path, commit) for commit in commits]
    return TopicChange(before, topic_of(check_topic_name(content.get("name")), path, after), is_copy, records)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _commit(path: str, found: Any) -> Commit:
    try:
        key, value = found
        return base64.b64decode(key, validate=True), None if value is None else base64.b64decode(value, validate=True)
    except own(TypeError, ValueError):  # binascii.Error is one
        raise damaged_field(path, "commits", found, "pairs of base64") from None


def being_changed(name: str, root: str) -> TopicChanged:
    """The error for a topic between the decision and the end of its change."""
    return TopicChanged(
        f"topic {name!r} in {root} gets another name or other partitions right now: try again; if the process that does it "
        "died, the next one that opens the log for writing finishes the change, or warns why it can't",
        topic=name,
    )  # fmt: skip
