"""Transactions that a Kafka broker left open in topics that pylog has adopted."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
from pylog.transaction.records import TRANSACTIONS_TOPIC, decode
from pylog.transaction.state import Status
from tests.transaction.adopted import OPEN_TOPIC, adopt


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "log"


def offsets(log: Log, **level: str) -> list[int]:
    return [record.offset for record in log.partition(OPEN_TOPIC, 0).scan(**level)]


def cut_table_after(root: Path, wanted: tuple[int, Status]) -> None:
    """The table ends with the last record of this producer id and status."""
    (path,) = (root / f"{TRANSACTIONS_TOPIC}-0").glob("*.log")
    with Log(root, read_only=True) as log:
        ends, end = {}, 0
        for view in log.partition(TRANSACTIONS_TOPIC, 0).log.batches(0, 1 << 62):
            end += view.header.size_bytes
            for record in view.records("", -1):
                decision = decode(record.key, record.value)
                if decision is not None:
                    ends.setdefault((decision.producer_id, decision.status), end)
    for each in path.parent.iterdir():
        if each != path and each.name != "partition.metadata":
            each.unlink()
    path.write_bytes(path.read_bytes()[: ends[wanted]])


@pytest.mark.parametrize("read_only", [True, False])
def test_a_commit_that_kafka_decided_and_did_not_mark_is_a_commit(root: Path, read_only: bool) -> None:
    """With transactions of version 2, Kafka's decision has the epoch after that of the batches."""
    adopt(root, [OPEN_TOPIC, TRANSACTIONS_TOPIC], segments=1)  # the second one begins with the marker
    cut_table_after(root, (1012, Status.PREPARE_COMMIT))
    with Log(root, read_only=read_only) as log:
        assert offsets(log) == [0, 1, 2, 3]
    with Log(root) as log:
        log.partition(OPEN_TOPIC, 0).append([ProducerRecord(b"after")])
        assert offsets(log) == [0, 1, 2, 3, 4]
