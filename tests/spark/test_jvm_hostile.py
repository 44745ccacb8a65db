"""What the Java reader meets in files: claims cost no memory, and what is gone is named."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from pylog import Consumer, Log, Producer, ProducerRecord
from pylog.codec.format import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from pylog.index import AbortedTransaction, encode_transactions
from pylog.partition.compact.engine import compact
from pylog.partition.compact.options import CompactionOptions
from pylog.segment.naming import LOG, SEAL, TRANSACTION_INDEX
from tests.arrow.rows import view_of
from tests.codec.reference import batch_of
from tests.partition.logs import flip, headers, log_file
from tests.spark.jvm.verdicts import JavaReader, pieces_of, verdicts
from tests.spark.reading import append_view, planned

TOPIC = "orders"
BOMB_BYTES = 1 << 30
AGAIN = "load the frame again"


@pytest.fixture(scope="module")
def small(classes: Path) -> Iterator[JavaReader]:
    """A reader with less memory than a bomb's limit needs twice."""
    with closing(JavaReader(classes, heap="400m")) as java:
        yield java


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    """Records whose values are their offsets, in closed segments and an active one."""
    with Log(tmpfs_dir / "log") as log:
        log.create_topic(TOPIC, segment_bytes=1_024, index_interval_bytes=128)
        for offset in range(40):
            record = ProducerRecord(b"%d" % offset, key=b"%d" % (offset % 4), timestamp_ms=1000)
            log.partition(TOPIC, 0).append([record], acks=1)
        yield log


def planned_pieces(log: Log, **options: Any) -> list[dict[str, Any]]:
    return pieces_of(planned(log.path, subscribe=TOPIC, **options))


def bomb(codec: int) -> bytes:
    """A few bytes, up to some MiB, that claim to be a GiB."""
    zeros = bytes(1 << 20)
    if codec == GZIP:
        packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
        return b"".join(packer.compress(zeros) for _ in range(BOMB_BYTES >> 20)) + packer.flush()
    if codec == SNAPPY:
        return b"\x80\x80\x80\x80\x04" + bytes(1000)  # the length alone
    if codec == LZ4:
        return lz4.frame.compress(zeros * 200, block_linked=False)
    return zstandard.ZstdCompressor().compress(zeros * 200)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_costs_no_more_than_the_limit(small: JavaReader, tmpfs_dir: Path, codec: int) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic(TOPIC, max_message_bytes=64 << 20)
        batch = batch_of(bomb(codec), 1, attributes=codec)
        log.partition(TOPIC, 0).log.append_batch(bytearray(batch))
    found, expected = verdicts(small, planned(tmpfs_dir / "log", subscribe=TOPIC))
    assert found.startswith("unsupported orders-0 at offset 0, file ")
    assert "holds more than the limit of 134217728 bytes for the records of one batch; neither Spark format" in found
    assert "holds more than the limit of 134217728 bytes" in expected


@pytest.mark.slow
@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_batch_that_is_too_large_is_for_a_consumer(java: JavaReader, tmpfs_dir: Path, codec: int) -> None:
    """More than 128 MiB, as it is or decompressed, is no damage."""
    with Log(tmpfs_dir / "log") as log:
        log.create_topic(TOPIC, max_message_bytes=200 << 20, segment_bytes=1 << 30)
        append_view(log, view_of([ProducerRecord(b"small")]))
        append_view(log, view_of([ProducerRecord(bytes(130 << 20))], codec=CODEC_NAMES[codec]))
        found = java.ask(planned_pieces(log), ["offset"])
        assert found.startswith("unsupported orders-0 at offset 1, file "), found
        assert found.endswith("; neither Spark format reads it: use a Consumer with a greater fetch_max_bytes")
        with Consumer(log, auto_offset_reset="earliest", fetch_max_bytes=200 << 20) as consumer:
            consumer.subscribe([TOPIC])
            assert [len(record.value or b"") for record in islice(consumer, 2)] == [5, 130 << 20]


def test_a_count_of_billions(java: JavaReader, tmpfs_dir: Path) -> None:
    """A header may claim as many records as a payload can hold at most, unless headers are not
    trusted."""
    count, payload = (128 << 20) // 7, zstandard.ZstdCompressor().compress(b"no records")
    with Log(tmpfs_dir / "log") as log:
        for topic, counts in (("more", [count + 1]), (TOPIC, [count] * 120)):
            log.create_topic(topic)
            for each in counts:
                log.partition(topic, 0).log.append_batch(bytearray(batch_of(payload, each, attributes=ZSTD)))
        log.partition(TOPIC, 0).log.sync(120 * count)
    more = pieces_of(planned(tmpfs_dir / "log", subscribe="more"))
    assert java.ask(more, []).startswith("corrupt more-0 is damaged at offset 0, file ")
    pieces = planned_pieces(log)
    assert java.ask(pieces, []) == f"rows {120 * count} 0"
    assert java.ask(pieces, [], trustHeaders=False).startswith("corrupt ")
    assert java.ask(pieces, [], totals=True, trustHeaders=False).startswith("corrupt ")


def test_a_length_as_long_as_a_sparse_file_costs_no_memory(small: JavaReader, log: Log) -> None:
    """The batch is checked in pieces before it is read whole."""
    path = Path(log.path, f"{TOPIC}-0", f"{0:020}{LOG}")
    path.with_suffix(SEAL).unlink()
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 8, (1 << 30) - 12)
    path.write_bytes(data)
    os.truncate(path, 1 << 30)
    found, expected = verdicts(small, planned(log.path, subscribe=TOPIC))
    assert found.startswith("corrupt orders-0 is damaged at offset 0, file "), found
    assert expected.startswith("corrupt ")


def test_a_flipped_bit_is_named(java: JavaReader, log: Log) -> None:
    path = Path(log.path, f"{TOPIC}-0", f"{0:020}{LOG}")
    flip(path, 65)
    found = java.ask(planned_pieces(log))
    assert found.startswith(
        f"corrupt {TOPIC}-0 is damaged at offset 0, file {path}, position 0: batch at offset 0: CRC "
    )
    for columns in ([], ["topic"], ["topic", "partition"], ["offset"]):
        assert java.ask(planned_pieces(log), columns).startswith("corrupt ")
    for how in ({"count": True}, {"totals": True}):
        assert java.ask(planned_pieces(log), **how).startswith("corrupt "), "a batch of one record is read"
        assert java.ask(planned_pieces(log), **how, trustHeaders=False).startswith("corrupt ")


def test_a_count_of_batches_that_a_seal_shows_looks_at_no_record(java: JavaReader, log: Log) -> None:
    there = log.partition(TOPIC, 0)
    there.log.roll()
    there.append([ProducerRecord(b"one"), ProducerRecord(b"two")], acks=1)
    there.log.roll()
    path = Path(log.path, f"{TOPIC}-0", f"{40:020}{LOG}")
    flip(path, 65)
    assert java.ask(planned_pieces(log), count=True) == "rows 42 0"
    assert java.ask(planned_pieces(log), count=True, trustHeaders=False).startswith("corrupt ")
    for columns in ([], ["topic"], ["offset"]):
        assert java.ask(planned_pieces(log), columns).startswith("corrupt ")
    path.with_suffix(SEAL).unlink()
    assert java.ask(planned_pieces(log), count=True).startswith("corrupt "), "without a seal, counting checks as much"


@pytest.mark.parametrize("byte", range(21))
def test_the_seal_finds_what_no_checksum_covers(java: JavaReader, log: Log, byte: int) -> None:
    flip(Path(log.path, f"{TOPIC}-0", f"{0:020}{LOG}"), byte)
    assert java.ask(planned_pieces(log), []).startswith("corrupt ")
    assert java.ask(planned_pieces(log), count=True).startswith("corrupt ")


@pytest.mark.slow
def test_a_count_is_right_or_an_error_whatever_byte_of_a_header_is_damaged(java: JavaReader, tmpfs_dir: Path) -> None:
    """Also of a marker, and of batches in and outside of an aborted transaction: a bit, or all bits
    of the attributes."""
    with Log(tmpfs_dir / "log") as log:
        log.create_topic(TOPIC, segment_bytes=1_024)
        with Producer(log, transactional_id="id") as aborted, Producer(log, linger_ms=60_000) as producer:
            aborted.init_transactions()
            for number in range(3):
                aborted.begin_transaction()
                aborted.send(TOPIC, b"aborted", timestamp_ms=1000)
                aborted.flush()
                if number < 2:
                    aborted.commit_transaction() if number else aborted.abort_transaction()
                for offset in range(4):
                    sent = [producer.send(TOPIC, b"%d" % offset, timestamp_ms=1000) for _ in range(1 + offset % 2)]
                    producer.flush()
                    assert all(each.done() for each in sent)
            aborted.abort_transaction()
    path = tmpfs_dir / "log" / f"{TOPIC}-0" / f"{0:020}{LOG}"
    assert path.with_suffix(SEAL).exists()
    right, found = path.read_bytes(), Counter[str]()
    for level in ("read_committed", "read_uncommitted"):
        pieces = planned_pieces(log, isolationLevel=level)
        wanted = java.ask(pieces, [], trustHeaders=False)
        assert java.ask(pieces, count=True) == wanted
        bits = [(byte, 1 << bit) for byte in range(21, 61) for bit in range(8)]
        for start, _ in headers(path):
            for byte, mask in [*bits, *((22, mask) for mask in range(1, 256))]:
                data = bytearray(right)
                data[start + byte] ^= mask
                path.write_bytes(data)
                count = java.ask(pieces, count=True)
                found[count.split()[0]] += 1
                assert count == wanted or count.startswith("corrupt "), (level, start, byte, mask)
        path.write_bytes(right)
    assert min(found["rows"], found["corrupt"]) > 1000


@pytest.mark.parametrize("spans", [[(4, 8), (0, 30)], [(4, 8), (10, 12), (0, 30), (32, 33)]])
def test_aborted_transactions_of_a_producer_that_overlap(
    java: JavaReader, tmpfs_dir: Path, spans: list[tuple[int, int]]
) -> None:
    """No writer makes such an index, but a damaged one may say it: what any span covers is left
    out, as in Python."""
    with Log(tmpfs_dir / "log") as log:
        log.create_topic(TOPIC)
        with Producer(log, transactional_id="id") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for offset in range(40):
                producer.send(TOPIC, b"%d" % offset, timestamp_ms=1000)
                producer.flush()
            producer.commit_transaction()
    path = log_file(tmpfs_dir / "log" / f"{TOPIC}-0")
    ((_, first), *_) = headers(path)
    transactions = [AbortedTransaction(first.producer_id, *span, 0) for span in spans]
    path.with_suffix(TRANSACTION_INDEX).write_bytes(encode_transactions(transactions))
    found, expected = verdicts(java, planned(tmpfs_dir / "log", subscribe=TOPIC))
    assert found == expected
    hidden = {offset for start, end in spans for offset in range(start, end + 1)}
    assert found.startswith(f"rows {40 - len(hidden)} ")


# What is gone


def lost(java: JavaReader, pieces: list[dict[str, Any]]) -> str:
    found = java.ask(pieces)
    assert found.startswith("lost offset "), found
    assert found.endswith(AGAIN)
    assert f" of {TOPIC}-0 was lost: " in found
    return found


def test_a_segment_that_retention_removed(java: JavaReader, log: Log) -> None:
    pieces = planned_pieces(log)
    for path in Path(log.path, f"{TOPIC}-0").glob(f"{0:020}.*"):
        path.unlink(missing_ok=True)
    assert f"{0:020}.log is gone" in lost(java, pieces)


def test_a_compaction_after_the_plan(java: JavaReader, log: Log) -> None:
    pieces = planned_pieces(log)
    there = log.partition(TOPIC, 0).log
    there.roll()
    there.sync(40)
    assert compact(there, CompactionOptions()).records_dropped
    lost(java, pieces)
    found, expected = verdicts(java, planned(log.path, subscribe=TOPIC))
    assert found == expected
    assert found.startswith("rows 4 ")


def test_a_compaction_of_what_was_the_active_segment(java: JavaReader, log: Log) -> None:
    pieces = planned_pieces(log, startingOffsets={TOPIC: {"0": 39}})
    assert [each["isClosed"] for each in pieces[0]["segments"]] == [False]
    there = log.partition(TOPIC, 0).log
    for offset in range(40, 80):
        log.partition(TOPIC, 0).append([ProducerRecord(b"%d" % offset, key=b"%d" % (offset % 4))], acks=1)
    there.roll()
    there.sync(80)
    assert compact(there, CompactionOptions()).records_dropped
    lost(java, pieces)


def test_a_topic_that_was_created_again(java: JavaReader, log: Log) -> None:
    pieces = planned_pieces(log)
    log.delete_topic(TOPIC)
    assert "the topic was deleted" in lost(java, pieces)
    log.create_topic(TOPIC)
    log.partition(TOPIC, 0).append([ProducerRecord(b"another")], acks=1)
    assert "created again" in lost(java, pieces)


def test_a_file_that_was_cut(java: JavaReader, log: Log) -> None:
    pieces = planned_pieces(log)
    os.truncate(pieces[0]["segments"][-1]["path"], 10)
    lost(java, pieces)


def test_links_and_fifos_are_not_followed(java: JavaReader, log: Log, tmp_path: Path) -> None:
    pieces = planned_pieces(log)
    path = Path(pieces[0]["segments"][0]["path"])
    for file in (path, path.with_suffix(SEAL)):
        there = tmp_path / file.name
        shutil.move(file, there)
        file.symlink_to(there)
        assert java.ask(pieces).startswith("failed ")
        file.unlink()
        os.mkfifo(file)
        assert java.ask(pieces).startswith("failed ")
        file.unlink()
        shutil.move(there, file)
    assert java.ask(pieces).startswith("rows 40 ")
    shutil.move(path.parent, tmp_path / "directory")
    path.parent.symlink_to(tmp_path / "directory")
    assert java.ask(pieces).startswith("failed ")


@pytest.mark.slow
def test_a_seal_that_is_a_sparse_file_costs_no_memory(classes: Path, log: Log) -> None:
    """It is no longer than that of so long a segment may be."""
    path = Path(log.path, f"{TOPIC}-0", f"{0:020}{LOG}")
    pieces = planned_pieces(log)
    path.with_suffix(SEAL).write_bytes(b"")
    os.truncate(path.with_suffix(SEAL), 120 << 20)
    os.truncate(path, 1 << 30)
    pieces[0]["segments"][0]["sizeBytes"] = 1 << 30
    with closing(JavaReader(classes, heap="100m")) as reader:
        assert reader.ask(pieces).startswith("rows 40 ")


def test_a_path_that_the_locale_has_no_letters_for(
    java: JavaReader, classes: Path, tmpfs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's JVM may have another locale than an executor's."""
    with Log(tmpfs_dir / "ключ") as log:
        log.create_topic(TOPIC)
        append_view(log, view_of([ProducerRecord(b"one")]))
    pieces = planned_pieces(log)
    assert java.ask(pieces, []) == "rows 1 0"
    monkeypatch.setenv("LC_ALL", "C")
    with closing(JavaReader(classes)) as other:
        found = other.ask(pieces, [])
    assert found.startswith("unsupported this JVM cannot open ")
    assert found.endswith('start it with LC_ALL=C.UTF-8, or use format("pylog")')


def test_appends_after_the_plan_are_not_read(java: JavaReader, log: Log) -> None:
    ranges = planned(log.path, subscribe=TOPIC)
    pieces = pieces_of(ranges)
    before = java.ask(pieces)
    for offset in range(40, 80):
        log.partition(TOPIC, 0).append([ProducerRecord(b"%d" % offset)], acks=1)
    assert java.ask(pieces) == before
    assert before.startswith("rows 40 ")
