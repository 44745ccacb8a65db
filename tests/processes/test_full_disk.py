"""The disk fills: typed errors, nothing acknowledged is lost, and work goes on when space returns,
without a restart."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, Producer, ProducerRecord
from pylog.errors import NotAppended, StorageFull
from tests.processes.sharing import forked, result_of
from tests.soak import full_disk

pytestmark = pytest.mark.processes

IN_A_TMPFS = """
import subprocess, sys
from pathlib import Path
from tests.processes.test_full_disk import make_room

subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", sys.argv[1]], check=True)
make_room(Path(sys.argv[1]), sys.argv[2])
"""
RULES: dict[str, dict[str, Any]] = {
    "size": {"retention_bytes": 100_000},
    "time": {"retention_ms": 3_600_000},
    "time of all": {"retention_ms": 3_600_000},
    "groups": {"retention": "consumed"},
    "log": {},
}

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


def make_room(root: Path, rule: str) -> None:
    """On a filesystem of 2 MB without a free byte."""
    with Log(root / "log") as log:
        log.create_topic("events", segment_bytes=64 << 10)
        partition = log.partition("events", 0)
        for number in range(80):
            old = number < 70 or rule == "time of all"  # then the active segment is due, too, and nobody can close it
            time_ms = 1_000 if old else time.time_ns() // 1_000_000
            partition.append([ProducerRecord(bytes(10_000), timestamp_ms=time_ms)], acks=1)
        partition.log.sync(80)
        if rule == "groups":
            log.reset_offsets("readers", ["events"], to="latest")
        if RULES[rule]:
            log.alter_topic("events", **RULES[rule])
        else:
            log.alter(max_bytes=300_000)
    with open(root / "ballast", "wb", buffering=0) as file:
        for size in (4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    assert os.statvfs(root).f_bavail == 0
    with Log(root / "log") as log:
        report = log.maintain(dry_run=True)
        assert report.deleted_segments >= 8
        done = log.maintain()
        assert done.problems == []
        assert done.deleted_segments >= 8
        left = log.maintain()  # what needed the room: the active segment is closed and goes
        assert left.deleted_segments == (rule == "time of all")
        assert (log.partition("events", 0).earliest_offset == 80) == (rule == "time of all")
        log.partition("events", 0).append([ProducerRecord(b"room again")], acks="all")
        assert log.verify().problems == []


@pytest.mark.parametrize("rule", sorted(RULES))
def test_retention_makes_room_on_a_full_disk(rule: str, tmp_path: Path) -> None:
    if problem := full_disk.why_not():
        pytest.skip(f"this system does not allow a private mount namespace: {problem}")
    command = ["unshare", "-Urm", sys.executable, "-c", IN_A_TMPFS, str(tmp_path), rule]
    done = subprocess.run(command, capture_output=True, text=True, cwd=full_disk.PROJECT)
    assert done.returncode == 0, done.stderr
