"""Kafka's dump tool decodes what a transaction with a group's offsets has written. Run by
``scripts/test --engines``."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from pylog import Log, OffsetAndMetadata, Producer, ProducerRecord, TopicPartition
from pylog.checks import TRANSACTIONS_TOPIC
from pylog.transaction.records import Decision, decode
from pylog.transaction.state import Status
from tests.engines.broker import classpath
from tests.transaction.story import GROUP, Batch, Story, at_random, commit_abort_commit, story
from tests.transaction.views import TOPIC

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

COMMIT, ABORT = 2, 3  # of Kafka's TransactionState: PrepareCommit, PrepareAbort


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    with Log(tmp_path / "log") as log:
        log.create_topic("t")
        log.create_topic("out")
        log.partition("t", 0).append([ProducerRecord(b"v")] * 9)
        with Producer(log, transactional_id="p") as producer:
            producer.init_transactions()
            for number in range(3):
                producer.begin_transaction()
                producer.send("out", b"v").result()
                offsets = {TopicPartition("t", 0): OffsetAndMetadata(number + 1, f"note {number}")}
                producer.send_offsets_to_transaction(offsets, "g")
                producer.abort_transaction() if number == 1 else producer.commit_transaction()
    return tmp_path / "log"


def dumped(log_dir: Path, topic: str, decoder: str) -> list[str]:
    (file,) = (log_dir / f"{topic}-0").glob("*.log")
    command = ["java", "-cp", classpath(), "org.apache.kafka.tools.DumpLogSegments", decoder, "--files", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def payloads(lines: list[str]) -> list[tuple[dict[str, object], dict[str, object]]]:
    """The decoded keys and values."""
    found = [re.search(r"key: (\{.*\}) payload: (\{.*\})$", line) for line in lines]
    return [(json.loads(item[1])["data"], json.loads(item[2])["data"]) for item in found if item is not None]


def test_kafka_s_dump_decodes_offsets_and_markers_of_transactions(log_dir: Path) -> None:
    lines = dumped(log_dir, "__consumer_offsets", "--offsets-decoder")
    key = {"group": "g", "topic": "t", "partition": 0}
    found = payloads(lines)
    assert [item[0] for item in found] == [key, key]  # an abort appends none: they are appended by the commit
    assert [(value["offset"], value["metadata"]) for _, value in found] == [(1, "note 0"), (3, "note 2")]
    assert re.findall(r"endTxnMarker: (\w+)", "\n".join(lines)) == ["COMMIT", "COMMIT"]
    batches = [line for line in lines if line.startswith("baseOffset")]
    assert all("isTransactional: true" in line and "isvalid: true" in line for line in batches)
    assert len(batches) == 4


def test_kafka_s_dump_decodes_the_decisions(log_dir: Path) -> None:
    found = payloads(dumped(log_dir, "__transaction_state", "--transaction-log-decoder"))
    assert {str(key["transactionalId"]) for key, _ in found} == {"p"}
    statuses = [value["transactionStatus"] for _, value in found]
    assert [status for status in statuses if status in (COMMIT, ABORT)] == [COMMIT, ABORT, COMMIT]
    committed = next(value for _, value in found if value["transactionStatus"] == COMMIT)
    partitions = [{"topic": "__consumer_offsets", "partitionIds": [0]}, {"topic": "out", "partitionIds": [0]}]
    assert committed["transactionPartitions"] == partitions


# Commit, abort, commit of one producer beside another one


@pytest.fixture
def it(tmp_path: Path, seed: int) -> Iterator[Story]:
    with Log(tmp_path / "log") as log:
        log.create_topic(TOPIC)
        with story(log) as it:
            commit_abort_commit(it)
            at_random(it, Random(seed), 30)
            yield it


def test_kafka_s_dump_shows_every_batch_and_marker_as_it_was_written(it: Story) -> None:
    lines = dumped(it.log.path, TOPIC, "--print-data-log")
    found: list[Batch] = []
    for line in lines:
        words = dict(re.findall(r"(\w+): (\S+)", line))
        if "baseOffset" in words:
            assert words["isvalid"] == "true"
            assert (words["isTransactional"] == "true") == (words["producerId"] != "-1")
            numbers = (int(words[name]) for name in ("producerId", "producerEpoch", "baseSequence"))
            found.append(Batch(int(words["baseOffset"]), (), *numbers))
        elif "endTxnMarker" in words:
            assert words["coordinatorEpoch"] == "0"
            found[-1] = found[-1]._replace(marker=words["endTxnMarker"])
        elif "payload" in words:
            found[-1] = found[-1]._replace(values=(*found[-1].values, words["payload"]))
    assert found == [each._replace(transaction=None) for each in it.batches]


def test_kafka_s_dump_shows_the_offsets_that_transactions_have_committed(it: Story) -> None:
    found = payloads(dumped(it.log.path, "__consumer_offsets", "--offsets-decoder"))
    assert [key for key, _ in found] == [{"group": GROUP, "topic": TOPIC, "partition": 0}] * len(found)
    assert [value["offset"] for _, value in found] == it.committed_offsets


def test_kafka_s_dump_shows_the_table_as_pylog_reads_it(it: Story) -> None:
    found = payloads(dumped(it.log.path, TRANSACTIONS_TOPIC, "--transaction-log-decoder"))
    records = it.log.partition(TRANSACTIONS_TOPIC, 0).scan()
    written = [decode(record.key, record.value) for record in records]
    assert found == [as_kafka_prints(each) for each in written if each is not None]
    assert len(found) == len(written)


def as_kafka_prints(decision: Decision) -> tuple[dict[str, object], dict[str, object]]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(decision.partitions):
        by_topic.setdefault(topic, []).append(number)
    partitions = [{"topic": topic, "partitionIds": numbers} for topic, numbers in by_topic.items()]
    value = {
        "producerId": decision.producer_id,
        "producerEpoch": decision.epoch,
        "transactionTimeoutMs": decision.timeout_ms,
        "transactionStatus": int(decision.status),
        "transactionPartitions": None if decision.status is Status.EMPTY else partitions,
        "transactionLastUpdateTimestampMs": decision.update_ms,
        "transactionStartTimestampMs": decision.start_ms,
    }
    return {"transactionalId": decision.transactional_id}, value
