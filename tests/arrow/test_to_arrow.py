"""``Partition.to_arrow`` gives what ``Partition.scan`` gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pylog import Log, Partition
from pylog.errors import CorruptSegment, OffsetOutOfRange
from pylog.model import LOG_APPEND_TIME, ProducerRecord
from tests.arrow.rows import CORNERS, T0, expected, rows, view_of
from tests.partition.logs import append_encoded, batch, flip, log_file, marker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def partition_of(log: Log, **config: object) -> Partition:
    log.create_topic("orders", **config)
    return log.partition("orders", 0)


def filled(log: Log, **config: object) -> Partition:
    """Ten batches of three, in several segments."""
    partition = partition_of(log, segment_bytes=1024, **config)
    for number in range(10):
        partition.append([ProducerRecord(b"%d-%d" % (number, at) * 30, timestamp_ms=T0) for at in range(3)], acks=1)
    assert len(partition.segments) > 2
    return partition


def test_all_records_of_all_segments(log: Log) -> None:
    partition = filled(log)
    assert rows(partition.to_arrow()) == expected(partition.scan())


@pytest.mark.parametrize("codec", CODECS)
def test_all_codecs(log: Log, codec: str) -> None:
    partition = partition_of(log)
    for _ in range(3):
        append_encoded(partition, bytearray(view_of(CORNERS * 20, codec=codec).buffer))
    assert rows(partition.to_arrow(headers=True)) == expected(partition.scan(), headers=True)


def test_corners_and_headers(log: Log) -> None:
    partition = partition_of(log)
    partition.append(CORNERS)
    assert rows(partition.to_arrow(headers=True)) == expected(partition.scan(), headers=True)


def test_append_time_is_told(log: Log) -> None:
    partition = partition_of(log, message_timestamp_type="LogAppendTime")
    partition.append(CORNERS)
    assert rows(partition.to_arrow()) == expected(partition.scan(), LOG_APPEND_TIME)


@pytest.mark.slow
def test_every_range_of_offsets(log: Log) -> None:
    partition = filled(log)
    everything = expected(partition.scan())
    for start in range(31):
        for end in range(start, 31):
            assert rows(partition.to_arrow(start, end)) == everything[start:end]
    assert rows(partition.to_arrow(28, 1000)) == everything[28:]


def test_an_empty_partition_has_columns_and_no_rows(log: Log) -> None:
    table = partition_of(log).to_arrow(headers=True)
    assert table.num_rows == 0
    assert table.schema.names[-1] == "headers"


def test_an_offset_that_is_not_there_is_refused(log: Log) -> None:
    partition = filled(log)
    partition.log.delete_before(5)
    assert rows(partition.to_arrow()) == expected(partition.scan())
    assert partition.to_arrow().column("offset")[0].as_py() == 5
    with pytest.raises(OffsetOutOfRange):
        partition.to_arrow(4)
    with pytest.raises(OffsetOutOfRange):
        partition.to_arrow(31, 40)


def test_markers_are_nobodys_rows(log: Log) -> None:
    partition = partition_of(log)
    append_encoded(partition, batch(b"a", b"b", producer_id=1, epoch=0, sequence=0, transactional=True))
    append_encoded(partition, marker(1, 0, commit=True))
    append_encoded(partition, batch(b"c"))
    assert partition.to_arrow().column("offset").to_pylist() == [0, 1, 3]


def test_damage_is_an_error_and_no_short_table(log: Log, tmp_log_dir: Path) -> None:
    partition = partition_of(log)
    partition.append([ProducerRecord(b"x" * 100)])
    partition.append([ProducerRecord(b"y" * 100)])
    log.close()
    flip(log_file(tmp_log_dir / "orders-0"), 300)
    with Log(tmp_log_dir, read_only=True) as again, pytest.raises(CorruptSegment, match="orders-0"):
        again.partition("orders", 0).to_arrow()


def test_without_pyarrow_the_error_names_what_to_install(tmp_log_dir: Path) -> None:
    program = f"""
import sys
sys.modules["pyarrow"] = None
import pylog
log = pylog.Log({str(tmp_log_dir)!r})
log.create_topic("orders")
try:
    log.partition("orders", 0).to_arrow()
except pylog.errors.ConfigError as error:
    print(error.extra, error)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert shown.stdout.startswith("arrow Arrow tables need pyarrow"), shown.stderr
    assert "pip install 'pylog-embedded[arrow]'" in shown.stdout
