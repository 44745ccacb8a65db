"""Checks a whole log: files of topics, directories without a topic, every partition. Reads only.

``partition/verify`` checks within a partition. Damage in one place hides no other damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pylog.catalog import Catalog, KafkaCatalog, Layout, TopicDescription, check_topic_name
from pylog.catalog.changes import read_change
from pylog.catalog.layout import parse_partition, parse_stray
from pylog.errors import (
    CorruptSegment,
    FormatVersionError,
    InvalidTopicName,
    LogNotFound,
    PylogError,
    StorageError,
    TopicNotFound,
)
from pylog.interrupts import own
from pylog.manager.producer_ids import LIKE_KAFKA_BELOW, read_next_id
from pylog.model import TopicPartition
from pylog.partition.verify import Problem, ProducerIdCheck, ProducerIdRange, VerifyReport, verify_partition
from pylog.segment.naming import LOG
from pylog.storage import FileSystem


def verify_log(
    filesystem: FileSystem,
    layout: Layout,
    catalog: Catalog | KafkaCatalog,
    topics: Iterable[str],
    *,
    progress: Callable[[int], object],
    report: VerifyReport | None,
) -> Iterator[Problem]:
    """Yield every problem of these topics, or of the whole log. ``TopicNotFound`` for a named one.

    ``progress`` gets the bytes of segments checked since its last call. ``report`` gets counts and
    notes; the caller adds the problems.
    """
    named = list(dict.fromkeys(topics))
    names = named or catalog.names()
    partitions: list[tuple[TopicPartition, TopicDescription]] = []
    for name in names:
        try:
            topic = catalog.describe(name, "")
            partitions += [(TopicPartition(name, number), topic) for number in topic.numbers]
        except own(LogNotFound):
            raise
        except own(TopicNotFound):
            if named:
                raise  # else the topic was just deleted
        except own(PylogError) as damage:
            path = str(damage.facts.get("path", layout.root))
            yield Problem(name, None, "topic", path, 0, None, None, str(damage))
    if not named:
        yield from _unlawful(catalog)
    if not named and isinstance(catalog, Catalog):
        yield from _strays(filesystem, layout, catalog)
    is_ours, seen = isinstance(catalog, Catalog), ProducerIdRange()
    if is_ours:
        yield from _damaged_ids(filesystem, layout)
    for partition, topic in partitions:
        producer_ids = ProducerIdCheck(lambda: _next_id(filesystem, layout), seen) if is_ours else None
        problems = verify_partition(
            filesystem, layout.partition(*partition), partition,
            is_kafka=not is_ours, progress=progress, report=report,
            batch_limit_bytes=topic.config.max_message_bytes, topic_id=topic.id, producer_ids=producer_ids,
        )  # fmt: skip
        yield from _while_there(problems, catalog, topic, partition, layout)
    if is_ours and report is not None:
        report.notes += _notes(seen, _next_id(filesystem, layout))


def _damaged_ids(filesystem: FileSystem, layout: Layout) -> Iterator[Problem]:
    try:
        read_next_id(filesystem, layout.producer_ids)
    except own(CorruptSegment, StorageError) as damage:
        yield Problem("", None, "producer-ids", layout.producer_ids, 0, None, None, str(damage))


def _next_id(filesystem: FileSystem, layout: Layout) -> int | None:
    """The next unreserved producer id; None if unknown: the next producer draws a random one."""
    try:
        return read_next_id(filesystem, layout.producer_ids)
    except own(CorruptSegment, StorageError):  # reported already
        return None


def _notes(seen: ProducerIdRange, next_id: int | None) -> Iterator[str]:
    """Notes on what would be a problem if a Kafka broker served these files."""
    found = [f"batches have ids from {seen.least} on"] if 0 <= seen.least < LIKE_KAFKA_BELOW else []
    if next_id is not None and next_id < LIKE_KAFKA_BELOW:
        found.append(f"the next producer gets {next_id}")
    if found:
        yield (
            f"the producer ids of this log count from 0, as those of a Kafka cluster do ({', '.join(found)}): a broker that "
            "serves these files must begin above them, or it takes the records of its new producers for repeats"
        )


def _while_there(
    problems: Iterator[Problem],
    catalog: Catalog | KafkaCatalog,
    topic: TopicDescription,
    partition: TopicPartition,
    layout: Layout,
) -> Iterator[Problem]:
    """Yield the problems of a partition while its topic exists: a deletion is not damage."""
    try:
        for problem in problems:
            if not _is_there(catalog, topic):
                return
            yield problem
    except own(FileNotFoundError):
        if _is_there(catalog, topic):
            path = layout.partition(*partition)
            yield Problem(*partition, "directory", path, 0, None, None, "it went while it was checked")


def _is_there(catalog: Catalog | KafkaCatalog, topic: TopicDescription) -> bool:
    """Whether the topic exists with this id. Its file goes before its directories."""
    try:
        return catalog.describe(topic.name).id == topic.id
    except own(TopicNotFound):
        return False
    except own(PylogError):  # its file can't be read, so it exists
        return True


def _unlawful(catalog: Catalog | KafkaCatalog) -> Iterator[Problem]:
    """Yield what has a name that a topic can't have."""
    for name, path in catalog.places().items():
        try:
            check_topic_name(name)
        except own(InvalidTopicName) as error:
            yield Problem(name, None, "topic", path, 0, None, None, str(error))


def _strays(filesystem: FileSystem, layout: Layout, catalog: Catalog) -> Iterator[Problem]:
    """Yield changes of topics that can't be read, and directories with records but without a topic.
    Empty ones are from a creation."""
    while True:
        version = catalog.version()
        # Directories first: a topic's file is created after them, and removed before.
        found = filesystem.names(layout.root)
        topics, unreadable = {*catalog.names(), *catalog.being_deleted()}, []
        for before in catalog.being_changed():
            topics.add(before)
            try:
                topics.add(read_change(filesystem, layout, before).after.name)
            except own(FileNotFoundError):  # it is complete by now
                pass
            except own(CorruptSegment, FormatVersionError, InvalidTopicName) as damage:
                unreadable.append(Problem(before, None, "topic", layout.draft(before), 0, None, None, str(damage)))
        if catalog.version() == version:
            break  # else a topic was changed between two looks
    yield from unreadable
    for name in found:
        partition, stray, directory = parse_partition(name), parse_stray(name), f"{layout.root}/{name}"
        # A change that can't be read may be what names it.
        is_unnamed = partition is not None and partition.topic not in topics and not unreadable
        if partition is not None and is_unnamed and segment_bytes(filesystem, directory):
            problem = "belongs to no topic: its topic file is lost, or a deletion was cut off"
            yield Problem(*partition, "topic", directory, 0, None, None, problem)
        if stray is not None and segment_bytes(filesystem, directory):
            problem = f"{name} holds records of no topic: it was moved aside when its name was used again"
            yield Problem(*stray, "topic", directory, 0, None, None, problem)


def segment_bytes(filesystem: FileSystem, directory: str) -> int:
    """The bytes of a partition's segments; 0 if they can't be read."""
    try:
        names = filesystem.names(directory)
        return sum(filesystem.size(f"{directory}/{name}") for name in names if name.endswith(LOG))
    except own(FileNotFoundError, StorageError):
        return 0
