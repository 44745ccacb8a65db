"""Whether a directory is a log, Kafka's, or neither. A log without its manifest is an error."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from pylog.catalog.layout import DELETED_TOPIC_SUFFIX, META_PROPERTIES, TOPIC_SUFFIX, Layout, parse_partition
from pylog.catalog.manifest import Manifest, read_manifest
from pylog.errors import CorruptSegment, PylogError, StorageError
from pylog.interrupts import own
from pylog.segment.naming import COMMIT_SLOTS, base_offsets
from pylog.storage import FileSystem

_OF_TOPICS = (TOPIC_SUFFIX, DELETED_TOPIC_SUFFIX)


def detect_kind(filesystem: FileSystem, layout: Layout) -> tuple[Manifest | None, bool]:
    """The manifest, or None, and whether Kafka wrote the directory.
    ``CorruptSegment`` if the manifest is lost."""
    try:
        manifest = read_manifest(filesystem, layout.manifest)
    except own(StorageError) as error:
        if error.errno != errno.EACCES:
            raise
        raise StorageError(
            f"{error}; a log is its owner's alone, unless it was made with shared_group=True: then it is its group's as well",
            **error.facts,
        ) from error
    if manifest is not None:
        return manifest, False
    is_kafka = _looks_like_kafka(filesystem, layout.root)
    trace = _trace_of_pylog(filesystem, layout, is_kafka=is_kafka)
    if is_kafka or trace is not None:
        # Another process may have created the log since: then there is a manifest, before all else.
        manifest = read_manifest(filesystem, layout.manifest)
    if manifest is None and trace is not None:
        raise CorruptSegment(
            f"{layout.root} is a log, since it has {trace}, but {layout.manifest} is lost; restore {layout.private} from a copy"
            + (f" (if Kafka wrote this directory, remove {trace})" if is_kafka else ""),
            path=layout.manifest, position=0, trace=trace,
        )  # fmt: skip
    return manifest, manifest is None and is_kafka


def _looks_like_kafka(filesystem: FileSystem, root: str) -> bool:
    """Whether a directory without a manifest holds partitions, as Kafka's log directories do."""
    names = filesystem.names(root)
    return META_PROPERTIES in names or any(base_offsets(files) for _, files in _partitions(filesystem, root, names))


def _trace_of_pylog(filesystem: FileSystem, layout: Layout, *, is_kafka: bool) -> str | None:
    """The path of what pylog creates only after a manifest, or that is never beside Kafka's."""
    topics = filesystem.names(layout.topics) if filesystem.is_directory(layout.topics) else []
    for path in (layout.producer_ids, *(f"{layout.topics}/{name}" for name in topics if name.endswith(_OF_TOPICS))):
        if filesystem.exists(path):
            return path
    if not is_kafka:
        return None
    if filesystem.exists(layout.private):
        return layout.private
    names = filesystem.names(layout.root)
    if META_PROPERTIES in names:
        return None  # a broker may have got partitions that pylog wrote: they are Kafka's now
    with_slots = (path for path, files in _partitions(filesystem, layout.root, names) if COMMIT_SLOTS in files)
    return next((f"{path}/{COMMIT_SLOTS}" for path in with_slots), None)


def _partitions(filesystem: FileSystem, root: str, names: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield directories among ``names`` that may be partitions, and the files in each."""
    for name in names:
        path = f"{root}/{name}"
        if parse_partition(name) is None:
            continue
        try:
            if not filesystem.is_directory(path):
                continue
            files = filesystem.names(path)
        except own(PylogError, FileNotFoundError):  # unreadable, or just removed
            continue
        yield path, files
