"""What a partition answers to who asks oddly, at an odd moment, or of a directory that lacks
something."""

from __future__ import annotations

from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest

from pylog import Log
from pylog.catalog import TopicConfig
from pylog.codec import checksum
from pylog.codec.batch import read_header, stamp, write_header
from pylog.errors import (
    Closed,
    ConfigError,
    CorruptRecord,
    CorruptSegment,
    ForkedHandle,
    LogLocked,
    LogNotFound,
    NotAppended,
    OffsetOutOfRange,
    StorageError,
)
from pylog.index.time_index import ENTRY as TIME_ENTRY
from pylog.index.transaction_index import ENTRY as ABORT_ENTRY
from pylog.manager.producer_ids import ProducerIds
from pylog.partition import Cursor
from pylog.partition.directory import PartitionDirectory
from pylog.partition.grant import Grant
from pylog.partition.producers import snapshots
from pylog.partition.producers.state import ProducerStates
from pylog.partition.read.visibility import check_isolation
from pylog.partition.verify import verify_partition
from pylog.segment import read_seal
from pylog.segment.seal import encode
from pylog.storage import OsFileSystem, fork
from tests.partition.logs import (
    START_MS,
    TP,
    ManualClock,
    append_encoded,
    batch,
    boot_of,
    cut,
    everything,
    file_of,
    headers,
    log_file,
    marker,
    one,
    open_partition,
    partition_in,
)
from tests.storage.filesystems import Faulty, Killed, Nth, OtherBoot, io_error
from tests.system import fail

FS = OsFileSystem()


def test_the_checksum_is_found_the_ordinary_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "find_spec", lambda name: None)
    assert checksum._extension().crc32c(b"123456789") == 0xE3069283
    monkeypatch.undo()
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, path: None)
    assert checksum._extension().crc32c(b"123456789") == 0xE3069283


def test_bytes_too_few_for_a_batch_are_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    with pytest.raises(
        CorruptRecord, match=r"encoded batch, which has at least 61, got 5; records .*\[ProducerRecord\("
    ):
        partition.append(b"short", acks=1)
    with pytest.raises(CorruptRecord, match=r"encoded batch, but its length says 69 bytes, got 70; records are"):
        partition.append(bytes(batch(b"a") + b"x"), acks=1)
    assert partition.latest_offset == 0
    assert "t-0" in repr(partition)
    assert repr(partition.log) == f"<PartitionLog t-0 in {str(tmp_path / 't-0')!r}>"


def test_a_visibility_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="visibility='soon'"):
        check_isolation("read_committed", "soon")


def test_a_closed_partition_says_so(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.close()
    for call in (lambda: partition.read(0), lambda: partition.latest_offset, lambda: partition.append(one("a"))):
        with pytest.raises(Closed):
            call()


def test_a_writer_that_another_thread_closes_before_its_turn_says_so(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    partition.append(one("a"), acks=1)
    writer = partition.log.writable()
    partition.close()
    with pytest.raises(Closed, match="t-0 has been closed"):
        writer.roll(1_000)


def test_settings_that_cannot_be_read_are_an_append_that_did_not_happen(directory: Path) -> None:
    open_partition(directory).close()

    def refused() -> Any:
        raise StorageError("the topic's file cannot be read", path="t.json")

    partition = partition_in(PartitionDirectory(FS, ManualClock(), str(directory), TP, refused, boot_of(FS), "id"))
    with pytest.raises(NotAppended, match="topic's file cannot be read"):
        partition.append(one("a"), acks=1)


def test_a_token_changes_with_what_is_published_whether_there_are_slots_or_not(directory: Path) -> None:
    partition, reader = open_partition(directory), open_partition(directory, read_only=True)
    before = reader.log.change_token()
    assert reader.log.change_token() == before
    partition.append(one("a"), acks=1)
    assert reader.log.change_token() != before
    partition.close()
    (directory / ".commit").unlink()
    for is_kafka in (False, True):
        looking = open_partition(directory, read_only=True, is_kafka=is_kafka)
        before = looking.log.change_token()
        assert looking.log.change_token() == before
        with log_file(directory).open("ab") as file:
            file.write(b"more")
        assert looking.log.change_token() != before
    log_file(directory).unlink()
    assert open_partition(directory, read_only=True, is_kafka=True).log.change_token() == (None, 0)


def test_a_log_that_is_gone_is_not_called_a_damaged_partition(directory: Path) -> None:
    is_gone = False

    def settings() -> Any:
        if is_gone:
            raise LogNotFound.while_open("log/.pylog/topics")
        return TopicConfig()

    open_partition(directory).close()
    partition = partition_in(PartitionDirectory(FS, ManualClock(), str(directory), TP, settings, boot_of(FS), "id"))
    partition.append(one("a"), acks=1)
    other = open_partition(directory)
    other.log.roll()
    other.append(one("b"), acks=1)
    is_gone = True
    for call in (
        lambda: partition.log.append_batch(batch(b"c")),
        partition.log.roll,
        lambda: partition.log.delete_before(1),
    ):
        with pytest.raises(LogNotFound):
            call()


def with_latest_ms(made: bytearray, latest_ms: int) -> bytearray:
    """A batch whose header claims a later record than it has."""
    write_header(made, 0, 1, read_header(made).base_timestamp_ms, latest_ms, -1, -1, -1)
    return made


def test_a_batch_that_claims_a_later_record_than_it_has_hides_none_behind_it(tmp_path: Path) -> None:
    partition = open_partition(tmp_path / "t-0")
    append_encoded(partition, with_latest_ms(batch(b"0"), START_MS + 1000))
    append_encoded(partition, batch(b"1", timestamp_ms=START_MS + 500))
    for at, offset in ((START_MS, 0), (START_MS + 400, 1), (START_MS + 700, None)):
        found = partition.offset_for_time(at)
        assert (found and found.offset) == offset
    partition.log.roll()
    append_encoded(partition, batch(b"2", timestamp_ms=START_MS + 900))
    found = partition.offset_for_time(START_MS + 700)
    assert found is not None
    assert found.offset == 2


def test_a_time_is_not_looked_up_in_segments_that_a_killed_deletion_left(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    for number in range(4):
        append_encoded(partition, batch(b"%d" % number, timestamp_ms=START_MS + number))
        partition.log.roll()
    filesystem.hook = Nth(0, {"replace"}, lambda _: Killed(), suffix=".log.deleted")
    with pytest.raises(Killed):
        partition.log.delete_before(3)
    reader = open_partition(directory, read_only=True)
    found = reader.offset_for_time(START_MS)
    assert found is not None
    assert found.offset == 3
    assert everything(reader) == [(3, b"3")]


def problems_of(directory: Path, filesystem: OsFileSystem = FS) -> list[tuple[str, str]]:
    return [(problem.kind, problem.problem) for problem in verify_partition(filesystem, str(directory), TP)]


def two_segments(directory: Path, times: list[int]) -> None:
    partition = open_partition(directory, index_interval_bytes=0)
    for at in times:
        append_encoded(partition, batch(b"x", timestamp_ms=START_MS + at))
    partition.log.roll()
    append_encoded(partition, batch(b"x", timestamp_ms=START_MS + 99))
    partition.close()


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(5, 0), (3, 1), (6, 2)], "says 1700000000003 is new, but 1700000000005 came before"),
        ([(4, -1), (5, 0), (6, 2)], "belongs to no batch in its place"),
    ],
)
def test_verify_names_entries_of_time_that_go_backwards(
    directory: Path, entries: list[tuple[int, int]], problem: str
) -> None:
    two_segments(directory, [5, 3, 6])
    packed = [TIME_ENTRY.pack(START_MS + at, offset) for at, offset in entries]
    file_of(directory, 0, ".timeindex").write_bytes(b"".join(packed))
    (found,) = problems_of(directory)
    assert found[0] == "timeindex"
    assert problem in found[1]


def test_verify_names_an_abort_of_a_version_that_it_does_not_know(directory: Path) -> None:
    two_segments(directory, [1])
    file_of(directory, 0, ".txnindex").write_bytes(ABORT_ENTRY.pack(9, 7, 0, 1, 2))
    assert problems_of(directory) == [("txnindex", "entry of version 9, expected 0")]


def test_verify_names_a_seal_of_other_offsets(directory: Path) -> None:
    two_segments(directory, [1, 2])
    seal = read_seal(FS, str(directory), 0, log_file(directory).stat().st_size)
    assert seal is not None
    file_of(directory, 0, ".seal").write_bytes(encode(seal._replace(last_offset=5)))
    assert problems_of(directory) == [("seal", "says offsets 0 to 5, the batches are 0 to 1")]


def test_verify_passes_over_what_a_loss_of_power_took_behind_the_durable_end(directory: Path) -> None:
    partition = open_partition(directory, OtherBoot(1))
    for number in range(6):
        append_encoded(partition, batch(b"%d" % number))
        if number in (1, 3):
            partition.log.roll()
    partition.close()
    path = log_file(directory, 2)
    cut(path, headers(path)[1][0])
    file_of(directory, 2, ".seal").unlink()
    assert problems_of(directory, OtherBoot(2)) == []


def test_verify_passes_over_a_segment_that_overlaps_the_one_before_behind_the_durable_end(directory: Path) -> None:
    partition = open_partition(directory, OtherBoot(1))
    for number in range(4):
        append_encoded(partition, batch(b"%d" % number))
        if number == 1:
            partition.log.roll()
    partition.close()
    file_of(directory, 0, ".seal").unlink()
    repeated = batch(b"2")
    stamp(repeated, 2, 0)
    with log_file(directory).open("ab") as file:
        file.write(repeated)
    assert problems_of(directory, OtherBoot(2)) == []
    assert "offsets 2 to 2 were in the segment before" in dict(problems_of(directory, OtherBoot(1)))["offsets"]


def test_verify_passes_over_a_snapshot_that_a_newer_one_replaces_meanwhile(directory: Path) -> None:
    two_segments(directory, [1])

    class Vanishing(OsFileSystem):
        def open_readable(self, path: str) -> Any:
            if path.endswith(".snapshot"):
                fail(FileNotFoundError(path))
            return super().open_readable(path)

    assert problems_of(directory, Vanishing()) == []


def test_a_torn_tail_before_an_empty_segment_is_cut_where_the_slots_are_lost(directory: Path) -> None:
    partition = open_partition(directory)
    for value in ("a", "b"):
        partition.append(one(value), acks=1)
    partition.close()
    (directory / ".commit").unlink()
    cut(log_file(directory), log_file(directory).stat().st_size - 3)
    log_file(directory, 2).touch()
    again = open_partition(directory)
    assert again.append(one("c"), acks=1).base_offset == 1
    assert everything(again) == [(0, b"a"), (1, b"c")]
    assert not log_file(directory, 2).exists()


def test_a_segment_distrusted_before_the_slots_were_lost_is_copied_by_recovery(directory: Path) -> None:
    partition = open_partition(directory)
    partition.append(one("a"), acks=1)
    partition.close()
    (directory / ".commit").unlink()
    file_of(directory, 0, ".unsynced").touch()
    old = log_file(directory).stat().st_ino
    filesystem = Faulty()
    again = open_partition(directory, filesystem)
    assert again.append(one("b"), acks=1).base_offset == 1
    assert log_file(directory).stat().st_ino != old
    assert old not in {inode for _, inode in filesystem.synced_inodes}
    assert not file_of(directory, 0, ".unsynced").exists()


def test_a_marker_that_compaction_has_emptied_ends_nothing() -> None:
    header = read_header(marker(7, 0, commit=True))._replace(count=0)
    states = ProducerStates()
    assert snapshots.fold(states, header, 0, None) is None  # nothing is read
    assert states.entries == {}


def test_a_thread_that_is_reserving_ids_is_told_so_by_its_own_signal_handler(tmp_path: Path) -> None:
    ids = ProducerIds(FS, ManualClock(), f"{tmp_path}/ids")
    with ids._mutex, pytest.raises(LogLocked, match="signal handler"):
        ids.next()
    assert ids.next() % 1000 == 0


def test_a_child_that_returns_into_its_parents_change_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork, "_methods", {})
    partition = open_partition(tmp_path / "t-0")

    def forks(grant: Grant) -> None:
        published = grant.slots.read()
        fork._run()
        assert published is not None
        for change in (
            grant.check,
            partial(grant.publish, published),
            grant.sync_slots,
            partial(grant.segment_writer, 0),
            partial(partition.log.writable()._end._known, grant),
        ):
            with pytest.raises(ForkedHandle):
                change()

    partition.log.writable()._lock.holding(1000, forks)
    assert partition.append(one("a"), acks=1).base_offset == 0


def test_records_deleted_while_a_time_is_looked_up_are_passed_over(directory: Path) -> None:
    partition = open_partition(directory)
    for number in range(3):
        append_encoded(partition, batch(b"%d" % number, timestamp_ms=START_MS + number))
        partition.log.roll()

    class Deleting(OsFileSystem):
        """Another process deletes records when a segment is first opened."""

        deletes = True

        def open_readable(self, path: str) -> Any:
            if path.endswith(".log") and self.deletes:
                self.deletes = False
                partition.log.delete_before(2)
            return super().open_readable(path)

    reader = open_partition(directory, Deleting(), read_only=True)
    found = reader.offset_for_time(START_MS)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (2, START_MS + 2)


def test_a_segment_that_is_missing_for_good_is_damage(directory: Path) -> None:
    partition = open_partition(directory)
    append_encoded(partition, batch(b"0", timestamp_ms=START_MS))
    partition.log.roll()
    append_encoded(partition, batch(b"1", timestamp_ms=START_MS))
    reader = open_partition(directory, read_only=True)
    assert len(reader.segments) == 2
    log_file(directory, 1).unlink()
    with pytest.raises(CorruptSegment, match="is missing: a segment"):
        reader.offset_for_time(START_MS + 1)
    with pytest.raises(CorruptSegment, match="is missing: the segment that holds offset 1"):
        reader.log.fetch(Cursor(1), max_bytes=100, isolation_level="read_uncommitted", visibility="written")


def test_a_published_end_that_an_open_handle_cannot_reach_is_recovered_from(directory: Path) -> None:
    first, second = open_partition(directory), open_partition(directory)
    for value in ("a", "b"):
        first.append(one(value), acks=1)
    cut(log_file(directory), headers(log_file(directory))[1][0])  # nobody has published anything since
    assert first.append(one("c"), acks=1).base_offset == 1
    assert everything(second) == [(0, b"a"), (1, b"c")]


def test_a_sync_on_a_handle_that_never_appended_recovers_first(directory: Path) -> None:
    partition = open_partition(directory, OtherBoot(1))
    partition.append(one("a"), acks=1)
    partition.close()
    again = open_partition(directory, OtherBoot(2))
    again.log.sync(1)
    assert again.durable_offset == 1
    with pytest.raises(OffsetOutOfRange):
        again.log.sync(2)


def test_a_topic_of_kafkas_without_metadata_has_no_id(tmp_path: Path) -> None:
    directory = tmp_path / "kafkas" / "t-0"
    partition = open_partition(directory)
    partition.append(one("a"), acks=1)
    partition.close()
    for name in (".commit", ".lock", "partition.metadata"):
        (directory / name).unlink()
    with Log(tmp_path / "kafkas") as log:
        assert log.is_kafka_directory
        assert log.describe_topic("t").id == ""
        assert [record.value for record in log.partition("t", 0).scan()] == [b"a"]


def test_verify_says_what_it_could_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        for _ in range(3):
            log.partition("t", 0).append(one("x"), acks=1)
            log.partition("t", 0).log.roll()
    filesystem = OsFileSystem()
    opened = filesystem.open_readable

    class Unreadable:
        def __init__(self, file: Any) -> None:
            self._file, self.path, self.size, self.close = file, file.path, file.size, file.close

        def pread(self, size: int, position: int) -> bytes:
            raise io_error(self.path)

    monkeypatch.setattr(
        filesystem, "open_readable", lambda path: Unreadable(opened(path)) if "index" in path else opened(path)
    )
    with Log(tmp_path / "log", filesystem=filesystem) as log:
        problems = log.verify().problems
    assert {problem.kind for problem in problems} <= {"index", "timeindex"}
    assert "Input/output error" in problems[0].problem
