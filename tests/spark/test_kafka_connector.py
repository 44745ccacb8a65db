"""Spark's Kafka connector, beside a broker that serves a log's own files, reads the rows that pylog's readers read there."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from random import Random

import pytest

from benchmarks.workload import MissingError
from benchmarks.workloads.spark_broker import connector
from pylog import Log, Producer
from tests.conftest import TESTS, jar_problem, java_problem
from tests.engines.broker import Broker
from tests.spark.jvm.plain import plain_verdict
from tests.spark.jvm.random_logs import TOPIC, random_log
from tests.spark.reading import planned

pytestmark = [pytest.mark.engine, pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(900)]

LEVELS = ["read_committed", "read_uncommitted"]


def skip_unless_there() -> None:
    problem = java_problem() or jar_problem()
    try:
        connector()
    except MissingError as error:
        problem = problem or str(error)
    if problem:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)


def log_of_transactions(room: Path, chance: Random) -> tuple[Path, int]:
    """A random log with transactions that all have their markers, since a broker can't ask whether an owner lives.

    Its path, and how many partitions it has.
    """
    for number in count():
        path = room / f"log-{number}"
        random_log(path, chance)
        with Log(path) as log:
            ids = log.transactions()
            for transactional_id in ids:
                with Producer(log, transactional_id=transactional_id) as producer:
                    producer.init_transactions()
            assert not log.open_transactions()
            if ids:
                return path, log.describe_topic(TOPIC).partitions
    raise AssertionError


@pytest.mark.parametrize("number", range(3))
def test_the_rows_of_a_random_log(tmp_path: Path, seed: int, number: int) -> None:
    skip_unless_there()
    path, partitions = log_of_transactions(tmp_path, Random(seed))
    (tmp_path / "broker").mkdir()
    broker = Broker(tmp_path / "broker")
    try:
        broker.serve(path, {TOPIC: partitions})
        program = [sys.executable, "-m", "tests.spark.connector_driver", broker.address, str(path), TOPIC, *LEVELS]
        done = subprocess.run(program, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    finally:
        broker.stop()
    assert done.returncode == 0, done.stderr[-3000:]
    expected = [plain_verdict(path, planned(path, subscribe=TOPIC, isolationLevel=level)) for level in LEVELS]
    lines = [f"{name} {rows}" for rows in expected for name in ("kafka", "pylog", "pylog-jvm")]
    assert done.stdout.splitlines() == lines
    assert all(int(rows.split()[1]) > 0 for rows in expected)
