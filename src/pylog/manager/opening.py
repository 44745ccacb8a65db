"""Which paths may be opened as a log, created or written; and opening one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pylog.catalog import (
    Catalog,
    KafkaCatalog,
    Layout,
    Manifest,
    TopicConfig,
    detect_kind,
    read_manifest,
    write_manifest,
)
from pylog.catalog.layout import PRIVATE
from pylog.checks import meant
from pylog.clock import Clock
from pylog.errors import ConfigError, LogLocked, LogNotFound, StorageError, UnsafeDirectory
from pylog.interrupts import own
from pylog.segment.kafka_checkpoint import LOG_START, read_offsets
from pylog.storage import (
    LOCK_KIND,
    NETWORK_FILESYSTEMS,
    PRIVATE_MODE,
    SHARED_GROUP_MODE,
    FileSystem,
    fspath,
    make_directory_durably,
)

NAMES_SHOWN = 3
LOG_OPTIONS = (
    *("create", "read_only", "auto_create_topics", "shared_group", "housekeeping", "housekeeping_interval_ms", "clock"),
    "filesystem",
)
_PARTITIONS = (
    "how many partitions is said with create_topic(name, partitions=n), later with add_partitions(name, total)"
)
ELSEWHERE = {
    "bootstrap_servers": "there are no servers: Log(directory)",
    "client_id": "a log has no name but its directory; leave it out",
    "partitions": _PARTITIONS,
    "num_partitions": _PARTITIONS,
    "replication_factor": "there are no replicas: a log is a directory of one machine",
}
"""Hints for options of Kafka's topics and clients that do not exist here."""

_ASKED = "it was opened with read_only=True"
_OF_KAFKA = "Kafka wrote this directory (it has no .pylog)"
_MOUNTED_READ_ONLY = "its filesystem is mounted read-only"
_NO_PERMISSION = "there is no permission to write to it"


def checked_path(path: object) -> str:
    """The path as a str. ``ConfigError`` if it can't name a directory, also for an empty str."""
    try:
        text: object = fspath(path)  # type: ignore[call-overload]  # the call decides
    except own(TypeError):
        text = path
    if not isinstance(text, str):
        raise _wrong_path(path, f"got {type(path).__name__}")
    if not text:
        raise _wrong_path(path, 'got an empty one; "." is the current directory')
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _wrong_path(path, f"{text!r:.80} is not text") from None
    if "\0" in text:
        raise _wrong_path(path, f"{text!r:.80} has a null character")
    return text


def _wrong_path(path: object, reason: str) -> ConfigError:
    return ConfigError(f"the path of a log is a str or a Path: {reason}", option="path", value=path)


class Opened(NamedTuple):
    """The result of opening a directory. ``manifest`` is None for Kafka's.

    ``why_read_only`` is a part of a sentence; None if the log may be written.
    """

    filesystem: FileSystem
    catalog: Catalog | KafkaCatalog
    manifest: Manifest | None
    why_read_only: str | None
    kafka_log_starts: dict[tuple[str, int], int]


def open_directory(
    filesystem: FileSystem,
    clock: Clock,
    layout: Layout,
    defaults: TopicConfig,
    *,
    create: bool,
    read_only: bool,
    shared_group: bool,
) -> Opened:
    """See ``Log`` for what may be opened, and which errors are raised."""
    if not filesystem.is_directory(layout.root):
        make_root(filesystem, layout.root, may_create=create and not read_only, shared_group=shared_group)
    manifest, is_kafka_directory = detect_kind(filesystem, layout)
    if is_kafka_directory:  # read only, and partitions may be links to other disks
        starts = read_offsets(filesystem, f"{layout.root}/{LOG_START}")
        return Opened(filesystem, KafkaCatalog(filesystem, layout), None, _ASKED if read_only else _OF_KAFKA, starts)
    filesystem = filesystem.within(layout.root)
    why_read_only = _ASKED if read_only else _why_not_writable(filesystem, layout)
    if manifest is None:
        if why_read_only or not create:
            raise LogNotFound(f"{layout.root!r} is not a log: it has no {layout.manifest}", path=layout.root)
        refuse_directory_of_others(filesystem, layout)
    catalog = Catalog(filesystem, clock, layout, defaults)
    if why_read_only is None:
        check_place(filesystem, layout)
        if manifest is None:
            manifest = catalog.locked(  # another process may have been faster
                lambda: (
                    read_manifest(filesystem, layout.manifest)
                    or write_manifest(filesystem, layout.manifest, LOCK_KIND, clock.now_ms())
                )
            )
        check_lock_kind(layout, manifest)
    layout.ignores_case = ignores_case(filesystem, layout)
    return Opened(filesystem, catalog, manifest, why_read_only, {})


def _why_not_writable(filesystem: FileSystem, layout: Layout) -> str | None:
    directories = [path for path in (layout.root, layout.private) if filesystem.is_directory(path)]
    if all(map(filesystem.writable, directories)):
        return None
    try:
        is_mounted_read_only = any(map(filesystem.is_mounted_read_only, directories))
    except own(StorageError, FileNotFoundError):  # only the reason is not known: it can be read
        return _NO_PERMISSION
    return _MOUNTED_READ_ONLY if is_mounted_read_only else _NO_PERMISSION


def ignores_case(filesystem: FileSystem, layout: Layout) -> bool:
    """Whether the log's filesystem takes capitals for the same letters. The manifest is there."""
    directory, _, name = layout.manifest.rpartition("/")
    capitals = name.upper()
    return filesystem.exists(f"{directory}/{capitals}") and capitals not in filesystem.names(directory)


def make_root(filesystem: FileSystem, root: str, *, may_create: bool, shared_group: bool) -> None:
    """Create the root and its missing parents, for the owner or also the group. ``LogNotFound``."""
    is_there = filesystem.exists(root)  # first: another process may be creating it
    if is_there and not filesystem.is_directory(root):
        raise LogNotFound(f"{root!r} is a file, and a log is a directory; name one, or a new one", path=root)
    if not may_create:
        raise LogNotFound(
            f"no log at {root!r}; correct the path, or make one there: pylog.Log(path) does, unless read_only",
            path=root,
        )
    make_directory_durably(filesystem, root, SHARED_GROUP_MODE if shared_group else PRIVATE_MODE)


def refuse_directory_of_others(filesystem: FileSystem, layout: Layout) -> None:
    """Raises ``LogNotFound`` if a directory without a manifest holds more than an unfinished
    creation. Another process may be creating the log now: its manifest exists before its first
    topic."""
    others = [name for name in filesystem.names(layout.root) if name != PRIVATE]
    if others and read_manifest(filesystem, layout.manifest) is None:
        shown = ", ".join(map(repr, others[:NAMES_SHOWN])) + (", ..." if len(others) > NAMES_SHOWN else "")
        raise LogNotFound(
            f"{layout.root!r} is neither a log (it has no .pylog), nor a Kafka broker's log directory, nor empty (it holds "
            f"{shown}): name a log, or a new or empty directory to create one in",
            path=layout.root,
        )


def check_place(filesystem: FileSystem, layout: Layout) -> None:
    """Raises ``UnsafeDirectory``; ``LogLocked`` if locks can't be relied on to exclude other
    writers."""
    if filesystem.is_open_to_all(layout.root):
        raise UnsafeDirectory(
            f"any user of this machine may replace the files of {layout.root!r}: take the permission away (chmod o-w), name a "
            "new directory inside of it, which will be private, or open the log with read_only=True",
            path=layout.root,
        )
    kind = filesystem.kind(layout.root)
    if kind in NETWORK_FILESYSTEMS:
        raise LogLocked(
            f"{layout.root} is on a network filesystem ({kind}), where locks between hosts can't be relied on; "
            "open it with read_only=True, or write from the host that has the disk",
            path=layout.root, filesystem=kind,
        )  # fmt: skip
    make_directory_durably(filesystem, layout.topics)
    if not filesystem.locks_exclude(layout.catalog_lock + ".probe"):
        raise LogLocked(
            f"{layout.root}: the filesystem ({kind}) granted one lock twice; it can only be read", path=layout.root
        )


def check_lock_kind(layout: Layout, manifest: Manifest) -> None:
    """Raises ``LogLocked`` if the log is written under another kind of locks than this system's."""
    if manifest.locks != LOCK_KIND:
        raise LogLocked(
            f"{layout.root} is written under {manifest.locks} locks, this system has {LOCK_KIND}; they don't see each other",
            path=layout.root, locks=manifest.locks, available=LOCK_KIND,
        )  # fmt: skip


def check_topic_options(options: Mapping[str, object]) -> None:
    """Raises ``ConfigError`` for options that no topic has, with Kafka's name for it or a similar
    one."""
    for option in options:
        here = option.replace(".", "_").replace("-", "_")
        if option in TopicConfig._fields:
            continue
        facts = {"expected": here} if here in TopicConfig._fields else {}
        hint = meant(option, TopicConfig._fields, ELSEWHERE)
        if hint.startswith("there are") and (close := meant(option, LOG_OPTIONS, {})).startswith("did you mean"):
            hint = f"{close.removesuffix('?')} of Log(path)?"
        raise ConfigError(f"no topic option {option!r:.80}; {hint}", option=option, **facts)
