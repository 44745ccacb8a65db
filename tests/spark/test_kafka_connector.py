"""Spark's Kafka connector, beside a broker that serves logs' own files, reads the rows that pylog's
readers read there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from benchmarks.workload import MissingError
from benchmarks.workloads.spark_broker import connector
from pylog import Log, Producer
from tests.conftest import TESTS, java_problem
from tests.engines.broker import Broker
from tests.spark.jvm.plain import plain_verdict
from tests.spark.jvm.random_logs import TOPIC, random_log
from tests.spark.jvm.verdicts import JavaReader, verdicts
from tests.spark.reading import planned

pytestmark = [pytest.mark.engine, pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(900)]

DATA = TESTS / "data"
DOCS = TESTS.parent / "docs"
LEVELS = ["read_committed", "read_uncommitted"]


class Served(NamedTuple):
    """One topic of a log, which the broker has under another name."""

    log: Path
    topic: str
    partitions: int
    name: str


def skip_unless_there() -> None:
    problem = java_problem()
    try:
        connector()
    except MissingError as error:
        problem = problem or str(error)
    if problem:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)


def end_transactions(path: Path) -> None:
    """Write all markers that are missing: a broker can't ask whether an owner lives."""
    with Log(path) as log:
        for transactional_id in log.transactions():
            with Producer(log, transactional_id=transactional_id) as producer:
                producer.init_transactions()
        assert not log.open_transactions()


def log_of_text(path: Path) -> None:
    lines = [line for document in sorted(DOCS.rglob("*.md")) for line in document.read_bytes().splitlines()]
    with Log(path) as log:
        log.create_topic(TOPIC)
        with Producer(log, compression="zstd", batch_bytes=100_000) as producer:
            producer.send_many(TOPIC, lines * 10)


def served_by(broker: Broker, room: Path, topics: Sequence[Served]) -> dict[str, str]:
    """Start the broker with these topics, each under its ``name``; it deletes the records before a
    log's start.

    Returns each topic's name in its log.
    """
    together, starts, names = room / "together", {}, {}
    for each in topics:
        names[each.name] = each.topic
        with Log(each.log, read_only=True) as log:
            for number in range(each.partitions):
                shutil.copytree(each.log / f"{each.topic}-{number}", together / f"{each.name}-{number}")
                starts[f"{each.name}-{number}"] = log.partition(each.topic, number).earliest_offset
    broker.serve(together, {each.name: each.partitions for each in topics}, starts=starts)
    return names


def told_by_the_connector(broker: Broker, names: dict[str, str]) -> dict[str, dict[str, str]]:
    """For each level, what it says of each topic that has rows."""
    program = [sys.executable, "-m", "tests.spark.connector_driver", broker.address, *LEVELS]
    done = subprocess.run(
        program, cwd=TESTS.parent, input=json.dumps(names), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(LEVELS, map(json.loads, done.stdout.splitlines()), strict=True))


def check(tmp_path: Path, java: JavaReader, topics: list[Served]) -> int:
    """The connector, plain Python, the Python source and the Java reader return the same rows. How
    many rows."""
    (tmp_path / "broker").mkdir()
    broker, count = Broker(tmp_path / "broker"), 0
    try:
        found = told_by_the_connector(broker, served_by(broker, tmp_path, topics))
    finally:
        broker.stop()
    for level in LEVELS:
        for each in topics:
            ranges = planned(each.log, subscribe=each.topic, isolationLevel=level)
            expected = plain_verdict(each.log, ranges)
            assert (level, each, found[level].get(each.name, "rows 0 0")) == (level, each, expected)
            assert verdicts(java, ranges) == (expected, expected)
            count += int(expected.split()[1])
    return count


def test_the_rows_of_200_random_logs_and_of_a_text(tmp_path: Path, java: JavaReader, seed: int) -> None:
    skip_unless_there()
    chance, topics = Random(seed), []
    for number in range(200):
        path = tmp_path / f"log-{number}"
        random_log(path, chance, batches=chance.choice((5, 15, 40)))
        end_transactions(path)
        with Log(path, read_only=True) as log:
            topics.append(Served(path, TOPIC, log.describe_topic(TOPIC).partitions, f"random-{number}"))
    log_of_text(tmp_path / "text")
    topics.append(Served(tmp_path / "text", TOPIC, 1, "text"))
    assert check(tmp_path, java, topics) > 0


def test_the_rows_of_the_golden_directories(tmp_path: Path, java: JavaReader) -> None:
    skip_unless_there()
    topics = []
    for golden in sorted(path for path in DATA.glob("*-*") if (path / "expected").is_dir()):
        path = tmp_path / golden.name
        shutil.copytree(golden / "log", path)
        with Log(path, read_only=True) as log:
            topics += [
                Served(path, name, log.describe_topic(name).partitions, f"{golden.name}-{name}")
                for name in log.topics()
                if not name.startswith("_")
            ]
    assert check(tmp_path, java, topics) > 0
