"""A streaming query whose driver, JVM and all, is killed again and again: the log has every row once."""

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
from tests.conftest import java_problem
from tests.spark.writing import values

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


def _run(drawn: random.Random, place: Path, kills: Counter[str]) -> bool:
    """One life of the driver; whether it came to the end. Half of the kills come when a commit has just been decided."""
    paths = [str(place / name) for name in ("log", "source", "checkpoint")]
    command = [sys.executable, "-m", "tests.spark.killed_driver", *paths]
    driver = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert driver.stdout is not None
    try:
        said = driver.stdout.readline()
        if sum(kills.values()) < KILLS:
            kills[_wait(drawn, driver, place / "log/.pylog/spark")] += 1
            return False
        driver.wait(PATIENCE_S)
        return "done" in said + driver.stdout.read()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)  # its JVM is of the same group; the JVM's workers end by themselves
        driver.wait()
        driver.stdout.close()


def _wait(drawn: random.Random, driver: subprocess.Popen[str], sinks: Path) -> str:
    """Until the driver is to be killed; at which moment that is."""
    at_intent, end = drawn.random() < 0.5, time.monotonic() + drawn.uniform(0, AFTER_START_S)
    while at_intent or time.monotonic() < end:
        if driver.poll() is not None:
            return "had ended"
        if at_intent and any(sinks.glob("*/intent")):
            time.sleep(drawn.uniform(0, 0.02))
            break
        time.sleep(0.0005)
    return "with an intent" if any(sinks.glob("*/intent")) else "without"
