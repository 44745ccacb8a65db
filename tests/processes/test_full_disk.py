"""The disk fills: typed errors, nothing acknowledged is lost, and work goes on when space returns, without a restart."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from pylog import Log, Producer, ProducerRecord
from pylog.errors import NotAppended, StorageFull
from tests.processes.sharing import forked, result_of
from tests.soak import full_disk

pytestmark = pytest.mark.processes

CYCLES = int(os.environ.get("PYLOG_TEST_FILL_CYCLES", "1000"))


@pytest.mark.slow
def test_a_full_filesystem_refuses_with_a_typed_error_and_work_resumes_when_space_returns(tmp_path: Path) -> None:
    if problem := full_disk.why_not():
        pytest.skip(f"this system does not allow a private mount namespace: {problem}")
    filled = full_disk.fill_in_a_tmpfs(tmp_path, size="1m", cycles=CYCLES, seconds=1000)
    print(filled)
    assert filled.anomalies == 0, filled.verdict
    assert filled.cycles == CYCLES
    assert filled.refused == full_disk.REFUSALS * CYCLES
    assert filled.acknowledged >= CYCLES


def test_a_file_size_limit_is_a_full_disk_too(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("events", max_message_bytes=200_000)

    def hit_the_limit() -> tuple[int, bool, bool]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        with Log(tmp_path / "log") as log:
            partition = log.partition("events", 0)
            appended = 0
            try:
                while True:
                    partition.append([ProducerRecord(bytes(100_000))], acks=1)
                    appended += 1
            except StorageFull as error:
                full, retriable = isinstance(error, NotAppended), error.retriable
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            partition.append([ProducerRecord(b"room again")], acks=1)
            return appended, full, retriable

    appended, full, retriable = result_of(forked(hit_the_limit))
    assert (appended, full, retriable) == (2, True, True)
    with Log(tmp_path / "log") as log:
        assert [len(record.value) for record in log.partition("events", 0).scan()] == [100_000, 100_000, 10]


def test_a_producer_whose_batch_was_refused_keeps_its_sequence_and_goes_on(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("events", max_message_bytes=200_000)

    def send_against_the_limit() -> list[str]:
        with Log(tmp_path / "log") as log:
            producer = Producer(log, acks=1, linger_ms=0)
            outcomes = []
            for limit in (resource.RLIM_INFINITY, 100, resource.RLIM_INFINITY, 100, resource.RLIM_INFINITY):
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
                delivery = producer.send("events", bytes(1000))
                error = delivery.exception(timeout=10)
                outcomes.append("ok" if error is None else type(error).__name__)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            return outcomes

    assert result_of(forked(send_against_the_limit)) == ["ok", "StorageFull", "ok", "StorageFull", "ok"]
    with Log(tmp_path / "log") as log:
        assert log.partition("events", 0).latest_offset == 3
