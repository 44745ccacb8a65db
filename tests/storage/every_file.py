"""A log's life in which its files are made, all but those of tables, Spark and backups."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from pylog import Consumer, Producer
from pylog.errors import PylogError
from pylog.group.directory import MEMBER_ID_BYTES
from pylog.log import Log
from pylog.model import ProducerRecord, TopicPartition
from pylog.partition.compact.engine import compact
from pylog.storage import FileLock
from tests.partition.logs import append_encoded, batch, marker
from tests.storage.filesystems import Faulty, FaultyFile, io_error

KINDS = {
    *(
        "manifest.json.tmp",
        "t.json.tmp",
        "u.json.tmp",
        "producer-ids.tmp",
        "catalog.lock",
        "catalog.lock.probe",
        "groups.lock",
        "producer-ids.lock",
    ),
    *(".changed", ".lock", ".commit", "partition.metadata.tmp", "leader-epoch-checkpoint.tmp"),
    *("N.log", "N.index", "N.timeindex", "N.txnindex", "N.snapshot.tmp", "N.seal.N.tmp", "N.unsynced", "N.log.rewrite"),
    *("N.index.rewrite", "N.timeindex.rewrite"),
    *("c.json.tmp", ".cleaner-lock", ".cleaner-checkpoint.tmp"),
    *("N.log.cleaned", "N.index.cleaned", "N.timeindex.cleaned", "N.txnindex.cleaned", "N.seal.cleaned"),
    *("__consumer_offsets.json.tmp", "__transaction_state.json.tmp"),
    *("state", "lock", "heartbeats", "N.lock", "N.owner"),
}


class Watched(Faulty):
    """Notes the mode of everything made, at the moment in which it can be written to."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, set[int]] = {}
        self.directories: dict[str, set[int]] = {}
        self.syncs_fail = False
        self.hook = self._fail

    def _fail(self, operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log") and self.syncs_fail:
            self.syncs_fail = False
            raise io_error(path)

    def open_appendable(self, path: str, *, create: bool = True) -> FaultyFile:
        is_new = not os.path.lexists(path)
        file = super().open_appendable(path, create=create)
        if is_new:
            assert file.size() == 0
            self.files.setdefault(kind_of(path), set()).add(mode_of(path))
        return file

    def lock(self, path: str, *, readable: bool = False) -> FileLock:
        lock = super().lock(path, readable=readable)
        self.files.setdefault(kind_of(path), set()).add(mode_of(path))
        return lock

    def locks_exclude(self, path: str) -> bool:
        answer = super().locks_exclude(path)
        self.files.setdefault(kind_of(path), set()).add(mode_of(path))
        return answer

    def make_directory(self, path: str, mode: int | None = None) -> None:
        super().make_directory(path, mode)
        self.directories.setdefault(path, set()).add(mode_of(path))


def kind_of(path: str) -> str:
    """The name, with N for a number or an id."""
    parts = path.rpartition("/")[2].split(".")
    return ".".join("N" if part[:1].isdigit() or len(part) == 2 * MEMBER_ID_BYTES else part for part in parts)


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def live(root: Path, **options: object) -> Watched:
    """Make all of ``KINDS`` in the log at ``root``."""
    filesystem = Watched()
    Log(root, filesystem=filesystem, **options).close()
    with Log(root, filesystem=filesystem) as log:
        log.create_topic("t", partitions=2, index_interval_bytes=0)
        log.manager.next_producer_id()
        partition = log.partition("t", 0)
        append_encoded(partition, batch(b"v", producer_id=7, epoch=0, sequence=0, transactional=True))
        append_encoded(partition, marker(7, 0, commit=False))
        for _ in range(3):
            partition.log.roll()
            partition.append([ProducerRecord(b"v")], acks="all")
        filesystem.syncs_fail = True
        partition.append([ProducerRecord(b"v")], acks="all")
        partition.append([ProducerRecord(b"v")], acks=1)
        partition.log.roll()
        filesystem.syncs_fail = True  # of a closed segment
        partition.log.sync(partition.latest_offset)
        log.delete_records(TopicPartition("t", 0), partition.latest_offset)
        log.create_topic("u")
        log.delete_topic("u")
        with suppress(PylogError):
            log.create_topic("T")
        log.create_topic("c", cleanup_policy="compact")
        append_to_compacted(log)
        with Producer(log, transactional_id="x") as producer, Consumer(log, group_id="g") as member:
            member.subscribe("c")
            member.poll()
            member.commit()
            producer.init_transactions()
            with producer.transaction():
                producer.send("c", b"v", key=b"k")
    return filesystem


def append_to_compacted(log: Log) -> None:
    """Three records of one key, of which two are compacted away."""
    compacted = log.partition("c", 0)
    for _ in range(3):
        compacted.append([ProducerRecord(b"v", key=b"k")], acks="all")
        compacted.log.roll()
    compact(compacted.log)
