"""``pylog stats``"""

from __future__ import annotations

import json
from pathlib import Path

from pylog.log import Log
from pylog.model import ProducerRecord
from pylog.storage import OsFileSystem
from tests.cli.conftest import Run
from tests.partition.logs import batch, flip, log_file, marker, topic_of

START_MS = 1_700_000_000_000


def test_every_partition_has_its_line(pylog: Run, log: Log) -> None:
    log.create_topic("a", partitions=2)
    log.create_topic("b")
    partition = log.partition("a", 0)
    for number in range(4):
        records = [ProducerRecord(b"x" * 300, timestamp_ms=START_MS + 10 * number + at) for at in range(5)]
        partition.append(records)
        if number == 1:
            partition.log.roll()
    size = sum(path.stat().st_size for path in (log.path / "a-0").glob("*.log"))
    rows = pylog("stats", "--json").objects
    assert [(row["topic"], row["partition"]) for row in rows] == [("a", 0), ("a", 1), ("b", 0)]
    assert rows[0] == {
        "topic": "a", "partition": 0, "earliest_offset": 0, "latest_offset": 20, "last_stable_offset": 20,
        "durable_offset": 20, "size_bytes": size, "segments": 2, "first_timestamp_ms": START_MS,
        "newest_timestamp_ms": START_MS + 34, "records_per_batch": 5.0, "compression": ["none"], "sampled_batches": 2,
    }  # fmt: skip
    assert rows[1]["first_timestamp_ms"] is rows[1]["newest_timestamp_ms"] is rows[1]["records_per_batch"] is None
    lines = pylog("stats", "a").lines
    assert lines[0].split()[:3] == ["PARTITION", "EARLIEST", "LATEST"]
    assert lines[1].split() == [
        "a-0", "0", "20", "20", "6.3", "KiB", "2", "2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20.034Z", "5.0", "none",
    ]  # fmt: skip
    assert lines[2].split() == ["a-1", "0", "0", "0", "0", "B", "1", "-", "-", "-", "-"]
    assert pylog("stats", "nope").code == 3


def test_the_greatest_timestamp_may_be_in_a_closed_segment(pylog: Run, log: Log) -> None:
    partition = topic_of(log, "t")
    partition.append([ProducerRecord(b"", timestamp_ms=9_000_000)])
    partition.log.roll()
    partition.append([ProducerRecord(b"", timestamp_ms=5)])
    (row,) = pylog("stats", "--json").objects
    assert (row["first_timestamp_ms"], row["newest_timestamp_ms"]) == (9_000_000, 9_000_000)


def test_markers_count_as_no_batch_of_records(pylog: Run, log: Log) -> None:
    partition = topic_of(log, "t")
    partition.log.append_batch(batch(b"a", b"b", producer_id=1, epoch=0, sequence=0, transactional=True))
    partition.log.append_batch(marker(1, 0, commit=True, timestamp_ms=START_MS + 9))
    partition.log.append_batch(batch(b"c", producer_id=1, epoch=0, sequence=2, transactional=True))
    (row,) = pylog("stats", "--json").objects
    assert (row["records_per_batch"], row["last_stable_offset"], row["latest_offset"]) == (1.5, 3, 4)
    assert row["newest_timestamp_ms"] == START_MS


def test_after_records_were_deleted_the_first_is_the_first_kept(pylog: Run, log: Log) -> None:
    partition = topic_of(log, "t")
    partition.append([ProducerRecord(b"", timestamp_ms=START_MS + at) for at in range(5)])
    partition.log.delete_before(3)
    (row,) = pylog("stats", "--json").objects
    assert (row["earliest_offset"], row["first_timestamp_ms"]) == (3, START_MS + 3)


def test_a_damaged_partition_hides_no_other(pylog: Run, log: Log) -> None:
    log.create_topic("t", partitions=2)
    for number in range(2):
        log.partition("t", number).append([ProducerRecord(b"x")])
    flip(log_file(log.path / "t-0"), 65)
    code, out, err = pylog("stats", "--json")
    assert code == 5
    assert [json.loads(line)["partition"] for line in out.splitlines()] == [1]
    assert err.startswith("pylog: error: t-0: ")
    assert err.count("\n") == 1


def test_it_reads_little_of_a_large_log(pylog: Run, log: Log, monkeypatch: object) -> None:
    partition = topic_of(log, "t", index_interval_bytes=4096)
    for number in range(300):
        partition.append([ProducerRecord(b"x" * 1000, timestamp_ms=number)] * 20, acks=1)
    reads: list[int] = []
    opened = OsFileSystem.open_readable

    class Counted:
        def __init__(self, file: object) -> None:
            self.file = file

        def pread(self, size: int, position: int) -> bytes:
            data: bytes = self.file.pread(size, position)  # type: ignore[attr-defined]
            reads.append(len(data))
            return data

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

    monkeypatch.setattr(OsFileSystem, "open_readable", lambda self, path: Counted(opened(self, path)))  # type: ignore[attr-defined]
    (row,) = pylog("stats", "--json").objects
    assert row["size_bytes"] > 6_000_000
    assert 40 <= row["sampled_batches"] <= 60
    assert sum(reads) < 1_500_000


def test_a_log_of_kafkas_has_kafkas_offsets(pylog: Run) -> None:
    data = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
    rows = {(row["topic"], row["partition"]): row for row in pylog("stats", "--json", "--log", data / "log").objects}
    for line in (data / "expected" / "partitions.jsonl").read_text().splitlines():
        wanted = json.loads(line)
        row = rows[wanted["topic"], wanted["partition"]]
        assert (row["earliest_offset"], row["last_stable_offset"], row["latest_offset"]) == (
            wanted["log_start_offset"], wanted["last_stable_offset"], wanted["high_watermark"],
        )  # fmt: skip


def test_a_codec_that_is_missing_hides_nothing_but_the_first_time(pylog: Run, without_codecs: None) -> None:
    log = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
    code, out, err = pylog("stats", "codec-gzip", "codec-lz4", "--json", "--log", log)
    assert code == 0
    gzip, lz4 = map(json.loads, out.splitlines())
    assert gzip["first_timestamp_ms"] is not None
    assert lz4["first_timestamp_ms"] is None
    assert (lz4["compression"], lz4["latest_offset"]) == (["lz4"], gzip["latest_offset"])
    assert err == (
        "pylog: warning: the first record's time is not known of codec-lz4-0: codec lz4 needs the package lz4: "
        "pip install 'pylog-embedded[codecs]', or pip install lz4\n"
    )
