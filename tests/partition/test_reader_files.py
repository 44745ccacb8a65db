"""What a reader keeps open, and when it looks at the files again."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord, TopicPartition
from pylog.errors import CorruptSegment, NotAppended, OutcomeUnknown, StorageError
from pylog.partition import Partition
from pylog.segment.files import SegmentFiles

TP = TopicPartition("t", 0)


def append(partition: Partition, count: int) -> None:
    for _ in range(count):
        partition.append([ProducerRecord(bytes(200), timestamp_ms=1_000)], acks=1)


def offsets(partition: Partition, start: int) -> list[int]:
    return [record.offset for record in partition.read(start)]


@pytest.mark.parametrize("bit", [3, 8, 9, 62])
def test_a_changed_base_offset_of_an_active_segments_first_batch_is_found(tmp_path: Path, bit: int) -> None:
    """No checksum covers it: that the segment begins with it is what is known."""
    with Log(tmp_path) as log:
        log.create_topic("t")
        partition = log.partition("t", 0)
        partition.append([ProducerRecord(b"v", timestamp_ms=1_000)] * 1_000, acks=1)
        partition.log.roll()
        append(partition, 3)
        with (tmp_path / "t-0" / f"{1_000:020d}.log").open("r+b") as file:
            file.write(struct.pack(">q", 1_000 ^ 1 << bit))
        with Log(tmp_path, create=False) as other:
            again = other.partition("t", 0)
            for read in (lambda: again.read(1_000), lambda: again.to_arrow(1_000), lambda: list(again.scan(1_000))):
                with pytest.raises(CorruptSegment):
                    read()
            if bit < 62:  # a writer sees that one as the tail of a writer that died, and cuts it
                with pytest.raises(NotAppended):
                    append(again, 1)


def test_a_reader_leaves_a_file_that_a_copy_has_replaced_unpublished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer that copied it after a failed sync died before it could publish that."""
    with Log(tmp_path) as log, Log(tmp_path, create=False) as reading:
        log.create_topic("t")
        partition, reader = log.partition("t", 0), reading.partition("t", 0)
        append(partition, 1)
        writer = partition.log.writable()
        writer.failed_syncs.mark(0)
        replace_log = SegmentFiles.replace_log

        def then_fail(files: SegmentFiles, *given: object) -> None:
            assert offsets(reader, 0) == [0]
            replace_log(files, *given)
            raise StorageError("cannot sync the directory", path=files.directory)

        monkeypatch.setattr(SegmentFiles, "replace_log", then_fail)
        with pytest.raises(OutcomeUnknown):
            partition.log.sync(1)
        monkeypatch.undo()
        with Log(tmp_path, create=False) as third:
            append(third.partition("t", 0), 1)
        assert offsets(reader, 1) == [1]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="lists descriptors in /proc")
def test_a_reader_at_the_end_keeps_no_deleted_segment_open(tmp_path: Path) -> None:
    with Log(tmp_path) as log, Log(tmp_path, create=False) as reading:
        log.create_topic("t", segment_bytes=1_024)
        partition, reader = log.partition("t", 0), reading.partition("t", 0)
        append(partition, 20)
        for start in (16, 12, 8, 4, 0):
            reader.read(start, max_records=1)
        log.delete_records(TP, 18)
        append(partition, 1)
        assert offsets(reader, 20) == [20]
        links = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]
        assert [link for link in links if link.startswith(str(tmp_path)) and link.endswith("(deleted)")] == []


def test_a_view_that_was_let_go_has_no_file_open_and_is_right_when_it_is_asked_again(
    tmp_path: Path, open_files: Callable[[], list[str]]
) -> None:
    with Log(tmp_path) as log, Log(tmp_path, read_only=True) as reading:
        log.create_topic("t")
        partition, view = log.partition("t", 0), reading.partition("t", 0).log.view
        append(partition, 1)
        before = open_files()
        for end in (1, 2, 3):
            assert view.current().log_end_offset == end
            assert len(open_files()) == len(before) + 1
            view.let_go()
            assert open_files() == before
            append(partition, 1)
