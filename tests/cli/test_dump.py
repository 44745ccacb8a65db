"""``pylog dump``, held against what Kafka's own tools say of the same files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pylog.log import Log
from pylog.model import ProducerRecord
from pylog.producer import Producer
from pylog.testing import produce_all
from tests.cli.conftest import Run
from tests.internal_records import append_by_hand
from tests.partition.logs import add, batch, file_of, flip, headers, headers_that_claim_everything, log_file, marker

KAFKA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
EXPECTED = {
    described["file"]: described
    for described in map(json.loads, (KAFKA / "expected" / "dump.jsonl").read_text().splitlines())
    if described["kind"] != "partition.metadata"
}


def in_kafkas_words(item: dict[str, Any]) -> dict[str, Any]:
    """One line of ``dump --json`` under the names of ``DumpLogSegments``."""
    if item["type"] == "batch":
        return {
            "baseOffset": item["base_offset"], "lastOffset": item["last_offset"], "count": item["count"],
            "baseSequence": item["base_sequence"], "lastSequence": item["last_sequence"], "producerId": item["producer_id"],
            "producerEpoch": item["producer_epoch"], "partitionLeaderEpoch": item["leader_epoch"],
            "isTransactional": item["transactional"], "isControl": item["control"],
            "deleteHorizonMs": item["delete_horizon_ms"], "position": item["position"],
            "timestampType": item["timestamp_type"], "maxTimestamp": item["max_timestamp_ms"], "size": item["size_bytes"],
            "magic": 2, "compresscodec": item["compression"], "crc": item["crc"], "isvalid": True,
        }  # fmt: skip
    if item["type"] == "producer":
        words = {
            "producerId": item["producer_id"], "producerEpoch": item["producer_epoch"],
            "coordinatorEpoch": item["coordinator_epoch"], "currentTxnFirstOffset": item["transaction_start"],
        }  # fmt: skip
        if item["last_offset"] >= 0:
            words |= {
                "firstSequence": item["first_sequence"], "lastSequence": item["last_sequence"],
                "lastOffset": item["last_offset"], "offsetDelta": item["last_offset"] - item["first_offset"],
                "timestamp": item["timestamp_ms"],
            }  # fmt: skip
        return words
    if item["type"] == "checkpoint" and "topic" in item:
        return {"partition": f"{item['topic']}-{item['partition']}", "offset": item["offset"]}
    names = {
        "timestamp_ms": "timestamp", "producer_id": "producerId", "first_offset": "firstOffset",
        "last_offset": "lastOffset", "last_stable_offset": "lastStableOffset", "start_offset": "startOffset",
    }  # fmt: skip
    return {
        names.get(name, name): value for name, value in item.items() if name not in ("type", "file", "entry_position")
    }


def comparable(kind: str, details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What both say, in one order: Kafka's tool adds markers to batches, and the last time to
    producers without a batch."""
    left_out = {"endTxnMarker", "coordinatorEpoch"} if kind == "log" else {"lastTimestamp"}
    found = [{name: value for name, value in detail.items() if name not in left_out} for detail in details]
    if kind.endswith("-offset-checkpoint"):
        return sorted(found, key=lambda detail: str(detail["partition"]))
    return sorted(found, key=lambda detail: int(detail["producerId"])) if kind == "snapshot" else found


def test_everything_in_kafkas_directory_reads_as_kafka_reads_it(pylog: Run) -> None:
    ran = pylog("dump", KAFKA / "log", "--json")
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, list[dict[str, Any]]] = {}
    markers: dict[str, list[tuple[str, int]]] = {}
    for item in ran.objects:
        file = str(Path(item["file"]).relative_to(KAFKA / "log"))
        items = found.setdefault(file, [])
        if item["type"] != "file":
            items.append(in_kafkas_words(item))
        if item["type"] == "batch" and item["control_type"] in ("COMMIT", "ABORT"):
            markers.setdefault(file, []).append((item["control_type"], item["coordinator_epoch"]))
    assert {file for file in found if not file.endswith("bootstrap.checkpoint")} == set(EXPECTED)
    for file, described in EXPECTED.items():
        kind = described["kind"]
        assert comparable(kind, found[file]) == comparable(kind, described["details"]), file
        wanted = [(d["endTxnMarker"], d["coordinatorEpoch"]) for d in described["details"] if d.get("endTxnMarker")]
        assert markers.get(file, []) == wanted


def test_records_read_as_a_consumer_reads_them(pylog: Run) -> None:
    for topic in ("codec-zstd", "compacted", "log-append-time"):
        ran = pylog("dump", KAFKA / "log" / f"{topic}-0", "--records", "--json")
        wanted = map(json.loads, (KAFKA / "expected" / f"{topic}.read_uncommitted.jsonl").read_text().splitlines())
        records = [item for item in ran.objects if item["type"] == "record"]
        assert [(r["offset"], r["timestamp_ms"]) for r in records] == [(r["offset"], r["timestamp"]) for r in wanted]
        assert set(records[0]) >= {"type", "file", "offset", "timestamp_ms", "headers"}


@pytest.fixture
def partition_dir(log: Log) -> Path:
    """Three batches, a transaction, a roll, and one more batch."""
    log.create_topic("t")
    for number in range(3):
        produce_all(log, "t", [(b"k%d" % number, b"value %d" % number)])
    partition = log.partition("t", 0)
    partition.log.append_batch(batch(b"x", producer_id=77, epoch=3, sequence=0, transactional=True))
    partition.log.append_batch(marker(77, 3, commit=False))
    partition.log.roll()
    produce_all(log, "t", [b"after"])
    return log.path / "t-0"


def test_a_partition_reads_well(pylog: Run, partition_dir: Path) -> None:
    ran = pylog("dump", partition_dir, "--records")
    assert (ran.code, ran.err) == (0, "")
    text = ran.out
    for line in (
        f"{partition_dir}/00000000000000000000.log: log, {log_file(partition_dir).stat().st_size} bytes",
        ", key k1, value value 1",
        "producer 77 epoch 3 sequence 0-0, transactional, crc 0x",
        ", control ABORT, coordinator epoch 0, crc 0x",
        "  producer 77 aborted offsets 3-4, last stable offset 5",
        "  epoch 0, start offset 0",
        "  5 batches, ",
        "  slot 0",
        " (published): sequence ",
    ):
        assert line in text, line
    assert "DAMAGED" not in text


def test_the_later_commit_slot_is_the_published_one(pylog: Run, partition_dir: Path) -> None:
    slots = [
        item for item in pylog("dump", partition_dir / ".commit", "--json").objects if item["type"] == "commit_slot"
    ]
    assert [slot["slot"] for slot in slots] == [0, 1]
    (published,) = [slot for slot in slots if slot["published"]]
    assert published["sequence"] == max(slot["sequence"] for slot in slots)
    assert (published["log_end_offset"], published["log_start_offset"]) == (6, 0)
    (line,) = [line for line in pylog("dump", partition_dir / ".commit").lines if "(published)" in line]
    assert f"sequence {published['sequence']}, " in line


def test_the_whole_log_is_dumped_by_its_directory(pylog: Run, partition_dir: Path) -> None:
    whole = pylog("dump", partition_dir.parent, "--json").objects
    assert whole == pylog("dump", partition_dir, "--json").objects
    assert {Path(item["file"]).suffix for item in whole} == {
        "", ".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".seal",
    }  # fmt: skip


def test_a_seal_tells_whose_it_is(pylog: Run, partition_dir: Path) -> None:
    path = next(iter(sorted(partition_dir.glob("*.seal"))))
    (seal,) = [item for item in pylog("dump", path, "--json").objects if item["type"] == "seal"]
    topic_id = (partition_dir / "partition.metadata").read_text().partition("topic_id: ")[2]
    assert seal["home"] == f"{topic_id}-0"
    assert f", of {topic_id}-0\n" in pylog("dump", path).out


def test_damage_is_passed_and_told(pylog: Run, partition_dir: Path) -> None:
    path = log_file(partition_dir)
    (_, (second, header), (third, _), *_) = headers(path)
    flip(path, second + 70)
    code, out, err = pylog("dump", path, "--records")
    assert (code, err) == (1, "")
    (damage,) = [line for line in out.splitlines() if "DAMAGED" in line]
    assert damage.startswith(f"  position {second}: DAMAGED: checksum 0x")
    assert damage.endswith(f"; continues at position {third}, offset 2")
    assert "value 0" in out
    assert "value 1" not in out
    assert "value 2" in out
    items = pylog("dump", path, "--json").objects
    assert [item["base_offset"] for item in items if item["type"] == "batch"] == [0, 2, 3, 4]
    (found,) = [item for item in items if item["type"] == "damage"]
    assert (found["position"], found["next_position"]) == (second, third)
    assert header.base_offset == 1


def test_it_gives_up_on_bytes_made_to_look_like_batches_and_says_so(pylog: Run, partition_dir: Path) -> None:
    path = log_file(partition_dir)
    add(path, headers_that_claim_everything(20_000, 1_000))
    code, out, err = pylog("dump", path)
    assert (code, err) == (1, "")
    assert "given up" in out


@pytest.mark.slow
def test_every_byte_flipped_hides_at_most_its_own_batch(pylog: Run, partition_dir: Path) -> None:
    path = log_file(partition_dir)
    places = headers(path)
    for position in range(0, path.stat().st_size, 7):
        flip(path, position, 0x10)
        items = pylog("dump", path, "--json").objects
        shown = {item["position"] for item in items if item["type"] == "batch"}
        mine = max(start for start, _ in places if start <= position)
        assert {start for start, _ in places} - {mine} <= shown
        flip(path, position, 0x10)


def test_an_offset_that_goes_back_is_told_and_the_batch_shown(pylog: Run, partition_dir: Path) -> None:
    path = log_file(partition_dir)
    first = path.read_bytes()[: headers(path)[1][0]]
    add(path, first)
    code, out, _ = pylog("dump", path, "--json")
    items = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [item["type"] for item in items[-2:]] == ["damage", "batch"]
    assert items[-2]["problem"] == "base offset 0, expected 5 or more"


def test_a_batch_that_cannot_be_decoded_under_a_right_checksum_is_told(pylog: Run, tmp_path: Path) -> None:
    import crc32c

    spoiled, good = batch(b"abc"), batch(b"def")
    spoiled[61] ^= 2
    spoiled[17:21] = crc32c.crc32c(bytes(spoiled[21:])).to_bytes(4, "big")
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(spoiled + good))
    assert pylog("dump", path).code == 1  # the second one's offset is 0 again
    code, out, _ = pylog("dump", path, "--records")
    assert code == 1
    assert "DAMAGED: record 0" in out
    assert "value def" in out


@pytest.mark.slow
@pytest.mark.parametrize("junk", [b"", b"x", b"\x00" * 200, b"\x02" * 200, bytes(range(256)) * 40], ids=len)
def test_junk_is_damage_and_never_an_error(pylog: Run, tmp_path: Path, junk: bytes) -> None:
    kinds = ("log", "index", "timeindex", "txnindex", "snapshot", "seal", "commit", "checkpoint")
    for name in (
        *(f"{7:020d}.{kind}" for kind in kinds),
        ".commit",
        "leader-epoch-checkpoint",
        "log-start-offset-checkpoint",
    ):
        path = tmp_path / name
        path.write_bytes(junk)
        code, out, err = pylog("dump", path, "--records", "--json")
        assert (code in (0, 1), err) == (True, ""), name
        assert all(json.loads(line)["file"] == str(path) for line in out.splitlines())
        assert pylog("dump", path, "--records").err == ""


def test_entries_without_their_segment_have_its_offset_from_the_name(pylog: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{100:020d}.index"
    path.write_bytes(bytes.fromhex("0000001400001000"))
    assert pylog("dump", path).lines[1] == "  offset 120 at position 4096"
    shutil.copy(path, tmp_path / "copy.index")
    assert pylog("dump", tmp_path / "copy.index").lines[1] == "  offset 20 at position 4096"


def test_files_on_their_way_out_are_dumped_too(pylog: Run, partition_dir: Path, tmp_path: Path) -> None:
    for suffix in (".deleted", ".swap", ".cleaned"):
        copied = tmp_path / (log_file(partition_dir).name + suffix)
        shutil.copy(log_file(partition_dir), copied)
        assert len(pylog("dump", copied, "--json").objects) == 6


def test_what_is_not_there_is_code_3(pylog: Run, tmp_path: Path) -> None:
    code, out, err = pylog("dump", tmp_path / "x.log")
    assert (code, out, err.count("\n")) == (3, "", 1)


def test_a_huge_small_file_is_not_read(pylog: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.snapshot"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "more than such a file ever has" in pylog("dump", path).lines[1]
    assert file_of(tmp_path, 0, ".snapshot") == path


@pytest.mark.parametrize("kind", [".log", ".index", ".timeindex", ".txnindex"])
def test_a_sparse_file_larger_than_any_segment_is_not_searched(pylog: Run, partition_dir: Path, kind: str) -> None:
    """A file of a tebibyte takes no space, but hours to look through."""
    path = file_of(partition_dir, 0, kind)
    path.touch()
    os.truncate(path, 1 << 40)
    ran = pylog("dump", path, "--json")
    assert ran.code == 1
    assert "1099511627776 bytes" in ran.objects[-1]["problem"]
    assert any(item["type"] == "batch" for item in ran.objects) == (kind == ".log")  # those in front are shown


def test_a_path_that_is_not_there_is_code_3_whatever_its_name(pylog: Run, tmp_path: Path) -> None:
    for name in ("missing", "00000000000000000000.log"):
        path = tmp_path / name
        assert pylog("dump", path) == (3, "", f"pylog: error: {path}: No such file or directory\n")


# Committed offsets


def test_commits_of_kafkas_are_decoded(pylog: Run) -> None:
    ran = pylog("dump", KAFKA / "log" / "__consumer_offsets-0", "--offsets-decoder", "--json")
    assert (ran.code, ran.err) == (0, "")
    found = [item for item in ran.objects if item["type"] == "committed_offset"]
    first = found[0]
    assert first == {
        "type": "committed_offset", "file": first["file"], "offset": 0, "timestamp_ms": first["timestamp_ms"],
        "group": "golden-group", "topic": "codec-none", "partition": 0, "committed_offset": 10, "leader_epoch": -1,
        "metadata": "", "commit_timestamp_ms": first["commit_timestamp_ms"], "topic_id": first["topic_id"],
    }  # fmt: skip
    # The one at offset 6 was aborted.
    latest = {(item["group"], item["topic"], item["partition"]): item for item in found if item["offset"] != 6}
    wanted = [json.loads(line) for line in (KAFKA / "expected" / "groups.jsonl").read_text().splitlines()]
    for row in wanted:
        item = latest.pop((row["group"], row["topic"], row["partition"]))
        assert (item["committed_offset"], item["metadata"]) == (row["offset"], row["metadata"])
        assert item["leader_epoch"] == (-1 if row["leader_epoch"] is None else row["leader_epoch"])
    assert latest == {}
    text = pylog("dump", KAFKA / "log" / "__consumer_offsets-0", "--offsets-decoder").lines
    assert any(line.endswith("group golden-group, keyed-1: committed 12, metadata moved") for line in text)
    assert sum(item["type"] == "record" for item in ran.objects) == 2  # the markers


def test_commits_and_what_was_removed_and_what_is_no_commit(pylog: Run, log: Log, log_dir: Path) -> None:
    log.create_topic("t")
    log.reset_offsets("g\x1b", ["t"], to=0)
    log.delete_group("g\x1b")
    others = ProducerRecord(b"v", b"\x00"), ProducerRecord(b"v", b"\x00\x02ab"), ProducerRecord(b"v")
    append_by_hand(log, "__consumer_offsets", *others)
    kept = (log_dir / "__consumer_offsets-0").glob("*.log")
    lines = pylog("dump", *kept, "--offsets-decoder").lines
    said = [line.partition("Z, ")[2] for line in lines if line.startswith("    offset ")]
    assert said[:2] == ["group g\\x1b, t-0: committed 0", "group g\\x1b, t-0: removed"]
    assert said[2].startswith("key \\x00, value v (the key of a committed offset is damaged: ")
    assert said[3:] == ["key \\x00\\x02ab, value v", "key null, value v"]
    ran = pylog("dump", log_dir / "__consumer_offsets-0", "--offsets-decoder", "--json")
    assert ran.code == 0
    removed = [item for item in ran.objects if item["type"] == "committed_offset"][1]
    assert {name for name, value in removed.items() if value is None} == {
        "committed_offset", "leader_epoch", "metadata", "commit_timestamp_ms", "topic_id",
    }  # fmt: skip
    assert [list(item)[-1] for item in ran.objects if item["type"] == "record"] == ["problem", "headers", "headers"]


# States of transactions


def test_the_states_of_kafkas_transactions_are_decoded(pylog: Run) -> None:
    table = KAFKA / "log" / "__transaction_state-0"
    ran = pylog("dump", table, "--transaction-log-decoder", "--json")
    assert (ran.code, ran.err) == (0, "")
    found = [item for item in ran.objects if item["type"] == "transaction_state"]
    assert [item["offset"] for item in found] == list(range(106))
    assert {item["state"] for item in found} == {
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
    }  # fmt: skip
    last = {item["transactional_id"]: item for item in found}["open-left"]
    assert last == {
        "type": "transaction_state", "file": last["file"], "offset": 99, "timestamp_ms": last["timestamp_ms"],
        "transactional_id": "open-left", "producer_id": 1013, "epoch": 0, "state": "Ongoing",
        "transaction_timeout_ms": 900_000, "partitions": [{"topic": "transactions-open", "partition": 0}],
        "update_timestamp_ms": last["update_timestamp_ms"], "start_timestamp_ms": last["start_timestamp_ms"],
    }  # fmt: skip
    lines = pylog("dump", table, "--transaction-log-decoder").lines
    assert any(line.endswith(", open-left, producer 1013 epoch 0: Ongoing, in transactions-open-0") for line in lines)
    assert any(line.endswith(", open-left, producer 1013 epoch 0: Empty") for line in lines)


def test_batches_and_markers_of_a_transaction_and_its_states(pylog: Run, log: Log, log_dir: Path) -> None:
    log.create_topic("t")
    with Producer(log, transactional_id="app\x1b") as producer:
        producer.init_transactions()
        for commit in (True, False):
            producer.begin_transaction()
            producer.send("t", b"v").result()
            producer.commit_transaction() if commit else producer.abort_transaction()
    batches = [item for item in pylog("dump", log_dir / "t-0", "--json").objects if item["type"] == "batch"]
    assert [(item["transactional"], item["control_type"], item["coordinator_epoch"]) for item in batches] == [
        (True, None, None), (True, "COMMIT", 0), (True, None, None), (True, "ABORT", 0),
    ]  # fmt: skip
    table = log_dir / "__transaction_state-0"
    states = [
        line.partition(": ")[2]
        for line in pylog("dump", table, "--transaction-log-decoder").lines
        if "app\\x1b" in line
    ]
    assert states == ["Empty", "PrepareCommit, in t-0", "PrepareAbort, in t-0"]


def test_records_that_are_no_state_of_a_transaction(pylog: Run, log: Log, log_dir: Path) -> None:
    log.create_topic("t")
    key, dead = b"\0\0\0\1a", bytes(2) + bytes(14) + b"\6" + bytes(20)  # a status that pylog never writes
    records = [ProducerRecord(b"v", b"\0"), ProducerRecord(None, key), ProducerRecord(dead, key)]
    log.partition("t", 0).append(records, acks=1)
    ran = pylog("dump", log_dir / "t-0", "--transaction-log-decoder", "--json")
    assert ran.code == 0
    assert [list(item)[-1] for item in ran.objects if item["type"] == "record"] == ["problem", "headers", "headers"]


def test_two_decoders_are_one_too_many(pylog: Run, log_dir: Path) -> None:
    code, out, err = pylog("dump", log_dir, "--offsets-decoder", "--transaction-log-decoder")
    assert (code, out) == (2, "")
    assert "name one" in err
