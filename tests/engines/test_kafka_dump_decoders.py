"""Kafka's dump tool decodes what a transaction with a group's offsets has written. Run by ``scripts/test --engines``."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from pylog import Log, OffsetAndMetadata, Producer, ProducerRecord, TopicPartition
from tests.engines.broker import classpath

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
