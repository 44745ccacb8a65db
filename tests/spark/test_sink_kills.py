"""A sink whose driver is killed again and again, with the JVM and all, and more often by itself:
each row is in the log once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from pylog import Log
from pylog.producer import encoded
from tests.conftest import java_problem
from tests.spark.writing import Driver, values

pytestmark = [pytest.mark.processes, pytest.mark.soak, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("PYLOG_SINK_KILLS", "30"))
FILES, ROWS = 4 * KILLS, 300
PATIENCE_S = 600.0
AFTER_START_S = 6.0


def test_every_row_is_in_the_log_once_however_often_the_driver_is_killed(tmp_path: Path, seed: int) -> None:
    if problem := java_problem():
        pytest.skip(problem)
    drawn = random.Random(seed)
    log_path, source = tmp_path / "log", tmp_path / "source"
    source.mkdir()
    for number in range(FILES):
        (source / f"{number}.txt").write_text("".join(f"{number}-{row}\n" for row in range(ROWS)))
    with Log(log_path) as log:
        log.create_topic("copies", partitions=5)
    kills: Counter[str] = Counter()
    while not _run(drawn, tmp_path, kills):
        pass
    with Log(log_path) as log:
        found = Counter(value for partition in values(log, "copies") for value in partition)
    print(dict(kills), len(found))
    assert found == Counter(f"{number}-{row}".encode() for number in range(FILES) for row in range(ROWS))


@pytest.mark.parametrize("large_bytes", [1, encoded.LARGE_BYTES])
def test_every_row_is_in_the_log_once_however_often_a_driver_without_spark_is_killed(
    tmp_path: Path, seed: int, large_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded, "LARGE_BYTES", large_bytes)
    drawn = random.Random(seed)
    batches = 12 * KILLS
    with Log(tmp_path / "log") as log:
        log.create_topic("orders", partitions=4, segment_bytes=65_536)
    kills = 0
    while True:
        child = os.fork()
        if not child:
            _drive(tmp_path, batches)
        end = time.monotonic() + drawn.expovariate(4)
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and (kills == 10 * KILLS or time.monotonic() < end):
            time.sleep(0.001)
        if ended != (0, 0):
            assert ended[1] == 0
            break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
    with Log(tmp_path / "log") as log:
        found = Counter(value for partition in values(log) for value in partition)
    print(kills, len(found))
    assert found == Counter(row for number in range(batches) for task in (0, 1) for row in _rows(number, task))


def _rows(number: int, task: int) -> list[bytes]:
    return [b"%d-%d-%d" % (number, task, row) for row in range(60)]


def _drive(place: Path, batches: int) -> None:
    """What Spark would have the sink do, in a child: from the last batch on that was noted down."""
    status, done = 7, place / "done"
    try:
        driver = Driver(place / "log", batchBytes=150, partitioner="round_robin")
        for number in range(int(done.read_text()) if done.exists() else 0, batches):
            driver.write_next([_rows(number, task) for task in (0, 1)], number)
            (place / "new").write_text(str(number + 1))
            (place / "new").replace(done)
        status = 0
    finally:
        os._exit(status)


def _run(drawn: random.Random, place: Path, kills: Counter[str]) -> bool:
    """One life of the driver; whether it came to the end. Half of the kills come when a commit has
    begun to append."""
    paths = [str(place / name) for name in ("log", "source", "checkpoint")]
    command = [sys.executable, "-m", "tests.spark.killed_driver", *paths]
    with (place / "said").open("w+") as said:
        driver = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            if sum(kills.values()) < KILLS:
                kills[_wait(drawn, driver, place)] += 1
            else:
                driver.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)  # its JVM, too, whose workers end by themselves
            status = driver.wait()
        assert status in (0, -signal.SIGKILL), (place / "said").read_text()[-5000:]
        return status == 0


def _wait(drawn: random.Random, driver: subprocess.Popen[bytes], place: Path) -> str:
    """Until the driver is to be killed; which moment that is."""
    partition, said = place / "log/copies-0", place / "said"
    while "started" not in said.read_text() and driver.poll() is None:
        time.sleep(0.05)
    in_commit, end = drawn.random() < 0.5, time.monotonic() + drawn.uniform(0, AFTER_START_S)
    later, size = drawn.randrange(1, 4), _size(partition)
    while driver.poll() is None and (in_commit or time.monotonic() < end):
        if in_commit and _size(partition) > size:
            size, later = _size(partition), later - 1
            if later == 0:
                time.sleep(drawn.uniform(0, 0.02))
                return "in a commit"
        time.sleep(0.0005)
    return "at any time"


def _size(partition: Path) -> int:
    """How much a partition has: a commit appends to each."""
    return sum(path.stat().st_size for path in partition.glob("*.log"))
