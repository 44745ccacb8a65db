"""A streaming query copies a topic from one log to another; its driver is killed, its tasks fail
and are tried twice at once.

The input goes on growing. In the end the query is left to get to the end, and the output has to be
the input exactly: nothing lost, nothing twice. On a cluster of two workers it is executors that are
killed.

    python -m tests.soak spark-copy spark-executors --seconds 600 [--seed N] [--directory DIR]
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pylog import Log, Producer
from tests.conftest import java_problem
from tests.soak.part import Outcome
from tests.spark.cluster import Cluster

SOURCE, TARGET = "orders", "copies"
PARTITIONS = 3
BATCH = 2_000  # offsets
SENT_AT_ONCE = 3_000
FAILURES = 0.15  # of first attempts
MORE_BATCHES = (0, 0, 1, 2, 3)  # of which the query is to have committed one or another number,
KILL_S = (0.0, 2.5)  # and so long behind that it is killed
KILL_EXECUTOR_S = (0.5, 4.0)  # from one to the next
PATIENCE_S = 300.0
STARTED = "started"

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "100",  # of a cluster, where one that is killed counts
    "spark.ui.enabled": "false",
    # Else Spark 4.3 starts no query whose driver was killed in its first batch.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    "spark.speculation": "true",  # a second attempt of what takes a little longer than the others
    "spark.speculation.interval": "10ms",
    "spark.speculation.minTaskRuntime": "10ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}


def run(seconds: float, seed: int, directory: Path) -> Outcome:
    """Drivers are killed, for so long, in an empty directory."""
    chance = random.Random(seed)

    def once(figures: Counter[str]) -> str:
        with _Query(directory, "local[2,4]") as query:
            query.wait_until_started()
            wanted = _batches(directory) + chance.choice(MORE_BATCHES)
            until = time.monotonic() + PATIENCE_S
            while query.process.poll() is None and _batches(directory) < wanted and time.monotonic() < until:
                time.sleep(0.01)
            try:
                query.process.wait(chance.uniform(*KILL_S))
            except subprocess.TimeoutExpired:
                figures["kills"] += 1
            return query.problem()

    return _copied(seconds, directory, once, "local[2,4]")


def run_on_a_cluster(seconds: float, seed: int, directory: Path) -> Outcome:
    """Executors are killed."""
    chance = random.Random(seed)
    (directory / "cluster").mkdir()
    if problem := java_problem():
        return Outcome({}, [problem])
    with Cluster(directory / "cluster", workers=2) as cluster:

        def once(figures: Counter[str]) -> str:
            with _Query(directory, cluster.url) as query:
                query.wait_until_started()
                killed_until = time.monotonic() + seconds
                committed, in_vain = _batches(directory), 0
                while query.process.poll() is None and time.monotonic() < killed_until:
                    time.sleep(chance.uniform(*KILL_EXECUTOR_S) * (1 + in_vain))  # a busy machine starts them slowly
                    committed, before = _batches(directory), committed
                    in_vain = in_vain + 1 if committed == before else 0
                    if executors := cluster.executors():
                        with suppress(ProcessLookupError):
                            os.kill(chance.choice(executors), signal.SIGKILL)
                            figures["kills"] += 1
                with suppress(subprocess.TimeoutExpired):
                    query.process.wait(PATIENCE_S)
                return query.problem()

        return _copied(seconds, directory, once, cluster.url)


def _copied(seconds: float, directory: Path, once: Callable[[Counter[str]], str], master: str) -> Outcome:
    if problem := java_problem():
        return Outcome({}, [problem])
    figures: Counter[str] = Counter()
    problems: list[str] = []
    until = time.monotonic() + seconds
    with Log(directory / "from") as source, Log(directory / "to") as target, Producer(source, acks=1) as producer:
        source.create_topic(SOURCE, partitions=PARTITIONS)
        target.create_topic(TARGET, partitions=2)
        while time.monotonic() < until and not problems:
            _send(producer, figures)
            problems += filter(None, [once(figures)])
            figures["runs"] += 1
        _send(producer, figures)
        with _Query(directory, master) as query:
            query.process.wait(PATIENCE_S)
            problems += filter(None, [query.problem()])
        sent = _values(source, SOURCE)
        copied = _values(target, TARGET)
        problems += [f"verify: {problem}" for log in (source, target) for problem in log.verify().problems]
    figures["copied"] = sum(copied.values())
    figures["batches"] = _batches(directory)
    lost, twice = sent - copied, copied - sent
    problems += [f"{sum(lost.values())} records are lost: {sorted(lost)[:5]}"] if lost else []
    problems += [f"{sum(twice.values())} records are there twice: {sorted(twice)[:5]}"] if twice else []
    return Outcome(dict(figures), problems)


def _batches(directory: Path) -> int:
    """How many the query has committed."""
    return len(list((directory / "checkpoint" / "commits").glob("[0-9]*")))


def _send(producer: Producer, figures: Counter[str]) -> None:
    for _ in range(SENT_AT_ONCE):
        number = figures["sent"]
        producer.send(SOURCE, b"%d" % number, key=b"%d" % (number % 97), headers=[("n", b"%d" % number)])
        figures["sent"] += 1
    producer.flush()


def _values(log: Log, topic: str) -> Counter[tuple[Any, ...]]:
    return Counter(
        (record.key, record.value, record.timestamp_ms, tuple(record.headers))
        for number in range(log.describe_topic(topic).partitions)
        for record in log.partition(topic, number).scan()
    )


class _Query:
    """The driver, its JVM and its workers: a process group, which is killed at the end of the
    block."""

    def __init__(self, directory: Path, master: str) -> None:
        self._errors = open(directory / "errors.txt", "ab")  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.spark_copy", str(directory), master],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def wait_until_started(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == STARTED:
                return
        raise RuntimeError(f"the query did not start; {self._errors.name} says why")

    def problem(self) -> str:
        """What is wrong with how it ended, if it has."""
        status = self.process.poll()
        return f"the query ended with status {status}; {self._errors.name} says why" if status else ""

    def __enter__(self) -> _Query:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._errors.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


def copy(directory: Path, master: str) -> None:
    """The driver's program."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    stream = spark.readStream.format("pylog").option("startingOffsets", "earliest").option("includeHeaders", "true")
    orders = stream.option("maxOffsetsPerTrigger", BATCH).option("splitBytes", 20_000).load(str(directory / "from"))
    copied = orders.select("key", "value", "headers", "timestamp").mapInArrow(fail_sometimes, _schema(orders))
    writer = copied.writeStream.format("pylog").option("topic", TARGET)
    query = (
        writer.option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "to"))
    )
    print(STARTED, flush=True)
    query.awaitTermination()


def _schema(frame: Any) -> Any:
    return frame.select("key", "value", "headers", "timestamp").schema


def fail_sometimes(batches: Any) -> Any:
    """The first attempt of some tasks fails, before or after it has given something."""
    from pyspark import TaskContext

    context = TaskContext.get()
    fails = context is not None and context.attemptNumber() == 0 and random.random() < FAILURES
    for batch in batches:
        if fails and random.random() < 0.5:
            raise RuntimeError("this attempt fails")
        yield batch
    if fails:
        raise RuntimeError("this attempt fails at its end")


if __name__ == "__main__":
    copy(Path(sys.argv[1]), sys.argv[2])
