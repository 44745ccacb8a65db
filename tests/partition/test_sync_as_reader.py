"""A process that may only read syncs what it read: what it acts on must not be taken back by a
power failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.partition import Partition
from pylog.storage import ReadableFile
from tests.partition.logs import file_of, log_file, one, open_partition
from tests.storage.filesystems import OtherBoot, io_error


class WatchedSyncs(OtherBoot):
    """Notes the syncs of files that are open for reading, which may fail."""

    def __init__(self, boot: str, *, fails: bool = False) -> None:
        self.boot = boot
        self.fails = fails
        self.synced: list[str] = []

    def boot_id(self) -> str:
        return self.boot

    def open_readable(self, path: str) -> ReadableFile:
        return WatchedFile(super().open_readable(path), self)

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().sync_directory(path)


class WatchedFile:
    def __init__(self, file: ReadableFile, filesystem: WatchedSyncs) -> None:
        self._file = file
        self._filesystem = filesystem
        self.path, self.pread, self.size = file.path, file.pread, file.size
        self.close_when_idle, self.close = file.close_when_idle, file.close

    def sync(self) -> None:
        self._filesystem.synced.append(self.path)
        if self._filesystem.fails:
            raise io_error(self.path)
        self._file.sync()


def with_three_segments(directory: Path) -> Partition:
    """The first one is durable."""
    partition = open_partition(directory, OtherBoot(1))
    for number in range(3):
        partition.append(one(f"{number}"), acks=1)
        partition.append(one("more"), acks=1)
        if not number:
            partition.log.sync(2)
        if number < 2:
            partition.log.roll()
    return partition


def as_reader(directory: Path, filesystem: WatchedSyncs) -> Partition:
    return open_partition(directory, filesystem, read_only=True)


def test_all_after_the_durable_end_is_synced_and_nothing_before(directory: Path) -> None:
    with_three_segments(directory)
    filesystem = WatchedSyncs("boot 1")
    assert as_reader(directory, filesystem).log.sync_as_reader()
    assert filesystem.synced == [str(log_file(directory, 2)), str(log_file(directory, 4)), str(directory)]


def test_a_reader_of_slots_of_another_boot_syncs_from_the_durable_end_of_these(directory: Path) -> None:
    with_three_segments(directory).log.close()
    filesystem = WatchedSyncs("boot 2")
    assert as_reader(directory, filesystem).log.sync_as_reader()
    assert filesystem.synced == [str(log_file(directory, 2)), str(log_file(directory, 4)), str(directory)]


def test_a_segment_whose_sync_has_failed_before_proves_nothing(directory: Path) -> None:
    """Its bytes may be in the page cache only, and another sync would succeed."""
    with_three_segments(directory).log.close()
    file_of(directory, 2, ".unsynced").touch()
    assert not as_reader(directory, WatchedSyncs("boot 1")).log.sync_as_reader()
    assert as_reader(directory, WatchedSyncs("boot 2")).log.sync_as_reader()  # that page cache is gone


def test_a_failed_sync_and_a_missing_file_are_told_to_the_caller_and_the_log(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_three_segments(directory).log.close()
    assert not as_reader(directory, WatchedSyncs("boot 1", fails=True)).log.sync_as_reader()
    log_file(directory, 4).unlink()
    log_file(directory, 4).symlink_to(directory / "nowhere")
    assert not as_reader(directory, WatchedSyncs("boot 1")).log.sync_as_reader()
    assert [record.message.count("not synced by a reader") for record in caplog.records] == [1, 1]
