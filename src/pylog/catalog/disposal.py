"""Partition directories that have to go: what may be needed is moved aside, the rest is removed.

A symbolic link is never followed: its target is not part of the log, and stays unchanged.
"""

from __future__ import annotations

import logging

from pylog.catalog.layout import Layout, parse_condemned
from pylog.errors import PylogError, StorageError
from pylog.interrupts import own
from pylog.segment.naming import is_ours, may_hold_records
from pylog.storage import FileSystem

logger = logging.getLogger("pylog.catalog")


def is_own_directory(filesystem: FileSystem, path: str) -> bool:
    """Whether the path is a directory, not a link to one."""
    return filesystem.is_directory(path) and not filesystem.is_link(path)


def make_room(filesystem: FileSystem, layout: Layout, topic: str, number: int) -> None:
    """Free the path of a new partition: remove an unfinished creation, move aside anything else.
    The caller syncs the root."""
    directory = layout.partition(topic, number)
    if not filesystem.exists(directory):
        return
    if _is_empty_partition(filesystem, directory):
        remove_partition(filesystem, layout, topic, number)
    else:
        _set_aside(filesystem, layout, topic, number, directory, "belonged to no topic")


def remove_partition(filesystem: FileSystem, layout: Layout, topic: str, number: int) -> None:
    """Remove a partition's directory by way of another name: a crash leaves nothing that is read.
    What pylog did not create is moved aside. The caller syncs the root."""
    directory = layout.partition(topic, number)
    if not is_own_directory(filesystem, directory):
        _set_aside(filesystem, layout, topic, number, directory, "is no directory of this log")
        return
    condemned = layout.condemned(topic, number, _tag(filesystem))
    filesystem.replace(directory, condemned)
    _remove_condemned(filesystem, layout, topic, number, condemned)


def remove_all_condemned(filesystem: FileSystem, layout: Layout) -> dict[str, PylogError]:
    """Remove what crashes in ``remove_partition`` left. The caller has the catalog's lock, and
    syncs the root.

    What cannot be removed is logged, and keeps nothing else waiting. Returns an error for each
    topic that it belonged to.
    """
    failures: dict[str, PylogError] = {}
    for name in filesystem.names(layout.root):
        path, place = f"{layout.root}/{name}", parse_condemned(name)
        if place is not None and is_own_directory(filesystem, path):
            try:
                _remove_condemned(filesystem, layout, *place, path)
            except own(StorageError) as error:
                logger.warning("%r was to be removed, and could not be: %s", path, error)
                failures.setdefault(place[0], error)
    return failures


def _remove_condemned(filesystem: FileSystem, layout: Layout, topic: str, number: int, condemned: str) -> None:
    for file in filesystem.names(condemned):
        if is_ours(file) and not filesystem.is_directory(f"{condemned}/{file}"):
            filesystem.remove(f"{condemned}/{file}")
    left = filesystem.names(condemned)
    if left:
        _set_aside(filesystem, layout, topic, number, condemned, f"holds files that pylog did not make ({left[0]!r})")
    else:
        filesystem.remove_directory(condemned)


def _is_empty_partition(filesystem: FileSystem, directory: str) -> bool:
    """Whether a directory holds only files that pylog creates, and no records."""
    if not is_own_directory(filesystem, directory):
        return False
    for name in filesystem.names(directory):
        path = f"{directory}/{name}"
        if not is_ours(name) or filesystem.is_link(path) or filesystem.is_directory(path):
            return False
        if may_hold_records(name) and filesystem.size(path) > 0:
            return False
    return True


def _set_aside(filesystem: FileSystem, layout: Layout, topic: str, number: int, path: str, why: str) -> None:
    stray = layout.stray(topic, number, _tag(filesystem))
    filesystem.replace(path, stray)
    logger.warning(
        "%r %s and was moved aside to %r, which nothing reads; look through it, then remove it",
        layout.partition(topic, number), why, stray,
    )  # fmt: skip


def _tag(filesystem: FileSystem) -> str:
    return filesystem.random_bytes(16).hex()
