"""pylog on a cluster of Spark's, a master and two workers, whose Python does not have pylog: it is
shipped with the program."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, Producer
from pylog.codec import COMPILED
from pylog.storage import OsFileSystem
from tests.conftest import JAR, TESTS, jar_problem, java_problem
from tests.spark import shipping
from tests.spark.cluster import Cluster
from tests.spark.writing import values

pytestmark = [pytest.mark.engine, pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(300)]

RECORDS, PARTITIONS = 2_000, 3
HELD = 1_000  # the record whose task is killed
VALUE = b"%0100d"
VALUES = Counter(VALUE % number for number in range(RECORDS))
HAS_CONNECT = find_spec("grpc_status") is not None and find_spec("grpc") is not None
PROGRAM = Path(__file__).with_name("cluster_driver.py")
CLIENT = Path(__file__).with_name("connect_client.py")


class Driver:
    """A program that uses the cluster. The Python it runs, and that the executors run, has pylog by
    ``python_path`` alone."""

    def __init__(self, cluster: Cluster, python: Path, place: Path, python_path: Path, **settings: str) -> None:
        self._errors = place / f"{python_path.stem}.errors"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [
                    python,
                    PROGRAM,
                    cluster.url,
                    json.dumps({name.replace("_", "."): value for name, value in settings.items()}),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=place,
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": str(python), "PYTHONPATH": str(python_path)},
            )
        try:
            assert self.answer() == "started"
        except BaseException:
            self.end()
            raise

    def ask(self, name: str, **given: Any) -> Any:
        self.send(name, **given)
        return self.answer()

    def send(self, name: str, **given: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps([name, given]), file=self._process.stdin, flush=True)

    def check(self) -> None:
        assert self._process.poll() is None, self._errors.read_text()[-5000:]

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._errors.read_text()[-5000:]
        return json.loads(line)

    def __enter__(self) -> Driver:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def python(place: Path) -> Path:
    return shipping.python_without_pylog(place)


@pytest.fixture(scope="module")
def cluster(place: Path, python: Path) -> Iterator[Cluster]:
    if problem := java_problem():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    (place / "spark").mkdir()
    environment = {"PYSPARK_PYTHON": str(python), "PYTHONPATH": ""}
    with Cluster(place / "spark", workers=2, cores=2, **environment) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def driver(place: Path, python: Path, cluster: Cluster, connect_port: int) -> Iterator[Driver]:
    """Its executors get pylog as an archive, with the compiled codec. It serves Spark Connect,
    too."""
    site = shipping.site_directory(place / "site")
    settings = {"spark_archives": f"{shipping.archive(site)}#site", "spark_executorEnv_PYTHONPATH": "site"}
    if HAS_CONNECT:
        settings["spark_plugins"] = "org.apache.spark.sql.connect.SparkConnectPlugin"
        settings["spark_connect_grpc_binding_address"] = "127.0.0.1"
        settings["spark_connect_grpc_binding_port"] = str(connect_port)
    with Driver(cluster, python, place, site, **settings) as driver:
        yield driver


@pytest.fixture(scope="module")
def connect_port() -> int:
    """One that was free just now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def orders(place: Path) -> Path:
    """A log that is not written to any more."""
    with Log(place / "orders") as log, Producer(log, batch_bytes=2_000) as producer:
        log.create_topic("orders", partitions=PARTITIONS)
        for number in range(RECORDS):
            producer.send("orders", VALUE % number, key=b"%d" % (number % 97))
    return place / "orders"


def test_the_python_of_the_workers_has_no_pylog(python: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-c", "import pyspark, pyarrow, crc32c, pylog"]
    tried = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "No module named 'pylog'" in tried.stderr


def test_executors_of_both_workers_read_without_a_lock_and_write_nothing(driver: Driver, orders: Path) -> None:
    before = state_of(orders)
    held = [OsFileSystem().lock(str(path)) for path in orders.rglob("*") if path.name.endswith("lock")]
    assert len(held) >= PARTITIONS + 1
    assert all(lock.try_acquire() for lock in held)
    try:
        rows = driver.ask("read", log=str(orders), split_bytes=12_000)
    finally:
        for lock in held:
            lock.release()
            lock.close()
    assert state_of(orders) == before
    assert Counter(value.encode() for *_, value in rows) == VALUES
    assert workers_of(directory for directory, *_ in rows) == {"worker-0", "worker-1"}
    assert len({task for _, _, task, *_ in rows}) > 2 * PARTITIONS
    assert {codec for _, codec, *_ in rows} == {"compiled" if COMPILED else "readable"}


def test_a_copy_has_each_record_once_though_an_executor_is_killed_in_the_midst_of_it(
    driver: Driver, cluster: Cluster, orders: Path, tmp_path: Path
) -> None:
    with Log(tmp_path / "copies") as log:
        log.create_topic("copies", partitions=2)
    checkpoint, attempts = tmp_path / "checkpoint", tmp_path / "attempts"
    given = {"source": str(orders), "target": str(tmp_path / "copies"), "checkpoint": str(checkpoint)}
    driver.send("copy", **given, at=(VALUE % HELD).decode(), place=str(tmp_path))
    while not (attempts.exists() and attempts.read_text().endswith("\n")):
        driver.check()
        time.sleep(0.01)
    committed = len(list((checkpoint / "commits").glob("[0-9]*")))
    kill_executor(cluster, attempts.read_text().split()[1])
    (tmp_path / "go").touch()
    assert 0 < committed < driver.answer()
    assert [line.split()[0] for line in attempts.read_text().splitlines()] == ["0", "1"]
    with Log(tmp_path / "copies") as log:
        found = Counter(value for partition in values(log, "copies") for value in partition)
        assert not log.verify().problems
    assert found == VALUES


def test_a_zip_is_enough_for_executors(
    cluster: Cluster, python: Path, place: Path, orders: Path, tmp_path: Path
) -> None:
    pure = shipping.pure_zip(place / "pylog.zip")
    with Driver(cluster, python, place, pure, spark_submit_pyFiles=str(pure)) as driver:
        rows = driver.ask("read", log=str(orders), split_bytes=1 << 20)
        assert {codec for _, codec, *_ in rows} == {"readable"}
        assert Counter(value.encode() for *_, value in rows) == VALUES
        assert driver.ask("write", log=str(tmp_path / "numbers"), rows=100) == 100


def test_executors_of_both_workers_read_with_the_jar_alone(
    cluster: Cluster, python: Path, place: Path, orders: Path
) -> None:
    """Their Python has no pylog. The driver's planner has, by the path that the session names."""
    if problem := jar_problem():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    nothing = place / "nothing"
    nothing.mkdir()
    before = state_of(orders)
    settings = {
        "spark.jars": str(JAR),
        "spark.pylog.python": sys.executable,
        "spark.pylog.pythonPath": str(TESTS.parent / "src"),
    }
    with Driver(cluster, python, place, nothing, **settings) as driver:
        *rows, [count] = driver.ask("read_in_java", log=str(orders), split_bytes=12_000)
    assert state_of(orders) == before
    assert Counter(value.encode() for *_, value in rows) == VALUES
    assert count == RECORDS
    assert workers_of(directory for directory, *_ in rows) == {"worker-0", "worker-1"}


@pytest.mark.skipif(not HAS_CONNECT, reason="Spark Connect's client needs pip install 'pyspark[connect]'")
def test_a_client_of_spark_connect_reads_and_writes_each_record_once(
    driver: Driver, connect_port: int, orders: Path, tmp_path: Path
) -> None:
    with Log(tmp_path / "target") as log:
        log.create_topic("saved")
        log.create_topic("streamed", partitions=2)
    checkpoint = tmp_path / "checkpoint"
    command = [sys.executable, CLIENT, f"sc://127.0.0.1:{connect_port}", orders, tmp_path / "target", checkpoint]
    seen = connected(command, tmp_path)
    assert seen["read"] == RECORDS
    assert f"LogNotFound: there is no directory '{orders}/missing'" in seen["no log"]
    assert "TopicNotFound: no topic 'order'" in seen["no topic"]
    assert "ConfigError: required column 'value' not found" in seen["no value"]
    # as if a crash had come between the sink's commit and Spark's note of it: another client's
    # query has the batch again
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    assert seen["batches"] == connected(command, tmp_path)["batches"] == 2
    with Log(tmp_path / "target") as log:
        for topic in ("saved", "streamed"):
            assert Counter(value for partition in values(log, topic) for value in partition) == VALUES


def connected(command: list[Any], directory: Path) -> dict[str, Any]:
    """What a client of Spark Connect saw."""
    with (directory / "errors").open("w+") as errors:
        client = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=errors, check=False)
        assert client.returncode == 0, (directory / "errors").read_text()[:5000]
    seen: dict[str, Any] = json.loads(client.stdout)
    return seen


def workers_of(directories: Any) -> set[str]:
    """Which workers' executors run in these directories:
    ``.../worker-0/app-20260101120000-0000/1``."""
    return {Path(directory).parents[1].name for directory in directories}


def kill_executor(cluster: Cluster, directory: str) -> None:
    (pid,) = (pid for pid in cluster.executors() if os.readlink(f"/proc/{pid}/cwd") == directory)
    os.kill(pid, signal.SIGKILL)


def state_of(directory: Path) -> dict[str, tuple[int, ...]]:
    found = {str(path): path.stat() for path in [directory, *directory.rglob("*")]}
    return {name: (s.st_ino, s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in found.items()}
