"""The disk fills: typed errors, nothing acknowledged is lost, and work goes on when space returns, without a restart."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pylog import Log, Producer, ProducerRecord
from pylog.errors import NotAppended, StorageFull
from tests.processes.sharing import forked, result_of

pytestmark = pytest.mark.processes

FILL_AND_FREE = """
import os, subprocess, sys
from pathlib import Path
from pylog import Log, Producer
from pylog.errors import NotAppended, StorageFull
from tests.processes.test_full_disk import fill_and_free

root = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(root)], check=True)
print(*fill_and_free(root, cycles=int(sys.argv[2])))
"""


def fill_and_free(root: Path, *, cycles: int) -> tuple[int, int, int]:
    """Fill the filesystem, send against it, free it, and send again, several times.

    Returns how many records were acknowledged, how many were refused, and how many were read in the end; raises where an
    acknowledged record is lost, a refused one is found, or a send is refused with space to spare.
    """
    acknowledged: list[bytes] = []
    refused: set[bytes] = set()
    number = 0
    with Log(root / "log") as log:
        log.create_topic("events", segment_bytes=1 << 20)
        producer = Producer(log, acks="all", linger_ms=0)
        for cycle in range(cycles):
            ballast = root / "ballast"
            with open(ballast, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096 if cycle % 2 else 65_536))
                except OSError:
                    pass
            failures = 0
            while failures < 3:
                value = b"%d:" % number + bytes(500 + 37 * (number % 100))
                number += 1
                try:
                    producer.send("events", value).result()
                    acknowledged.append(value)
                except StorageFull:
                    refused.add(value)
                    failures += 1
            ballast.unlink()
            value = b"%d: again" % number
            number += 1
            producer.send("events", value).result()
            acknowledged.append(value)
            log.delete_records(
                ("events", 0), log.partition("events", 0).latest_offset - 20
            ) if cycle % 50 == 49 else None
        producer.close()
        kept = [record.value for record in log.partition("events", 0).scan()]
    with Log(root / "log") as log:
        assert [record.value for record in log.partition("events", 0).scan()] == kept
    assert kept == acknowledged[-len(kept) :]
    assert not refused & set(kept)
    return len(acknowledged), len(refused), len(kept)


def test_a_full_filesystem_refuses_with_a_typed_error_and_work_resumes_when_space_returns(tmp_path: Path) -> None:
    cycles = os.environ.get("PYLOG_TEST_FILL_CYCLES", "20")
    probe = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"this system does not allow a private mount namespace: {probe.stderr.strip()}")
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", FILL_AND_FREE, str(tmp_path), cycles], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    acknowledged, refused, kept = map(int, done.stdout.split())
    assert refused == 3 * int(cycles)
    assert acknowledged >= int(cycles)
    assert kept > 0


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
