"""Readers in other processes while segments are compacted again and again: each record as it was
written, none aborted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
from pylog.codec import RecordEncoder
from pylog.codec.batch import build_batch
from pylog.codec.control import ControlType, build_marker
from pylog.partition import Cursor
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from tests.processes.sharing import forked, result_of

KEYS = 40
ROUNDS = 12
RECORDS_A_ROUND = 400
TIME_MS = 1_700_000_000_000
LAST = b"last"


def aborted_batch(producer_id: int) -> bytearray:
    encoder = RecordEncoder(1 << 16)
    encoder.append(TIME_MS, b"0", b"aborted", ())
    return build_batch(encoder, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def write_and_compact(root: Path) -> int:
    """The records of a round have values that say their offsets. Returns how often segments were
    replaced."""
    swaps = 0
    with Log(root) as log:
        partition = log.partition("t", 0)
        for number in range(ROUNDS):
            for _ in range(RECORDS_A_ROUND // 10):
                offset = partition.latest_offset
                records = [
                    ProducerRecord(b"%d" % (offset + at), key=b"%d" % ((offset + at) * 7 % KEYS), timestamp_ms=TIME_MS)
                    for at in range(10)
                ]
                assert partition.append(records, acks=1).base_offset == offset
            partition.log.append_batch(aborted_batch(number + 1))
            partition.log.append_batch(build_marker(ControlType.ABORT, number + 1, 0, 0, TIME_MS))
            partition.log.roll()
            partition.log.sync(partition.latest_offset)
            swaps += compact(partition.log, CompactionOptions(delete_retention_ms=0)).segments_after
        partition.append([ProducerRecord(b"%d" % partition.latest_offset, key=LAST)], acks="all")
    return swaps


def read_again_and_again(root: Path, *, isolation_level: str, max_bytes: int) -> int:
    """From the start to the end, until the last record is there. Returns how many records were
    read."""
    count, is_over = 0, False
    with Log(root, read_only=True) as log:
        partition = log.partition("t", 0)
        while not is_over:
            cursor, before, newest = Cursor(0), -1, dict[bytes | None, int]()
            known = partition.latest_offset
            while True:
                fetched = partition.log.fetch(
                    cursor, max_bytes=max_bytes, isolation_level=isolation_level, visibility="written"
                )
                for view in fetched.batches:
                    for record in view.records():
                        if record.offset < cursor.offset or record.value == b"aborted":
                            assert record.value != b"aborted" or isolation_level == "read_uncommitted"
                            continue
                        assert record.offset > before, (record.offset, before)
                        assert record.value == b"%d" % record.offset
                        before = record.offset
                        newest[record.key] = record.offset
                        count += 1
                        is_over = record.key == LAST
                if fetched.cursor.offset == cursor.offset:
                    break
                cursor = fetched.cursor
            if known > 2 * KEYS:  # a key's newest record below ``known`` cannot be missing
                assert len(newest) >= KEYS
                assert min(at for key, at in newest.items() if key != LAST) > known - 2 * KEYS
    return count


@pytest.mark.slow
def test_readers_see_every_newest_record_and_no_aborted_one(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t", segment_bytes=8192, index_interval_bytes=256)
    readers = [
        forked(lambda level=level, size=size: read_again_and_again(tmp_log_dir, isolation_level=level, max_bytes=size))
        for level, size in (("read_committed", 600), ("read_committed", 1 << 20), ("read_uncommitted", 600))
    ]
    swaps = result_of(forked(lambda: write_and_compact(tmp_log_dir)))
    counts = [result_of(reader) for reader in readers]
    assert swaps >= ROUNDS
    assert min(counts) > 0
    with Log(tmp_log_dir) as log:
        assert log.verify().problems == []
        assert sum(1 for _ in log.partition("t", 0).scan()) <= KEYS + 1 + RECORDS_A_ROUND
