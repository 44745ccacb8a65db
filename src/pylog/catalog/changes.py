"""A topic that gets another name, or other partitions: what is on the disk until the change is complete.

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
from pylog.catalog.manifest import damaged_field, read_json, write_json
from pylog.catalog.topic import TopicDescription, check_topic_name
from pylog.catalog.topic_file import topic_content, topic_of
from pylog.errors import TopicChanged
from pylog.interrupts import own
from pylog.storage import FileSystem

_LIMIT_BYTES = 256 << 20

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
    """Durable on return."""
    content = {
        "name": change.after.name,
        "after": topic_content(change.after),
        "is_copy": change.is_copy,
        "commits": [[_text(key), None if value is None else _text(value)] for key, value in change.commits],
    }
    write_json(filesystem, layout.draft(change.before.name), content)


def read_change(filesystem: FileSystem, layout: Layout, name: str) -> TopicChange:
    """The change of this topic that was decided. ``CorruptSegment``, ``FormatVersionError``."""
    moved, path = layout.moved_topic(name), layout.draft(name)
    before = topic_of(name, moved, read_json(filesystem, moved))
    content = read_json(filesystem, path, _LIMIT_BYTES)
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
        "died, open the log for writing first, which finishes it",
        topic=name,
    )  # fmt: skip
