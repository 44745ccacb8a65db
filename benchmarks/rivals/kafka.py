"""A Kafka broker, and Kafka's own performance tools as its clients, which start again for each
round: Java throughout."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from benchmarks.rivals.server import free_port, listens, program, running
from benchmarks.settings import VALUE, Scale
from benchmarks.workload import Measure, MissingError, Sample

WRITING = "page cache: acks=1, batches of 1 MiB, linger 5 ms; ProducerPerformance, records of 100 bytes without keys"
READING = "ConsumerPerformance, fetches of 1 MiB"
RECORDS = 2_000_000  # the clients need a second or two before they are compiled
ORACLE = Path(__file__).parents[2] / "scripts" / "kafka-oracle"
CLUSTER_ID = "cHlsb2ctYmVuY2htYXJrcw"


class Broker:
    """One node, controller and broker, with Kafka's defaults: when data goes to the disk is left to
    the system."""

    def __init__(self, java: str, jars: str, directory: Path, port: int) -> None:
        self._directory = directory
        self._java = [java, "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{jars}/*"]
        self.address = f"127.0.0.1:{port}"
        self.configuration = directory / "server.properties"
        self.configuration.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{(controller := free_port())}\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\nlog.dirs={directory / 'data'}\n"
            "offsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\n"
        )

    def command(self, main: str, *arguments: str) -> list[str]:
        return [*self._java, main, *arguments]

    def run(self, main: str, *arguments: str) -> str:
        done = subprocess.run(
            self.command(main, *arguments), cwd=self._directory, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{main} failed: {done.stdout[-1_000:]}{done.stderr[-1_000:]}")
        return done.stdout

    def create(self, topic: str, partitions: int = 1) -> None:
        """An empty topic."""
        self._topics("--create", "--topic", topic, "--partitions", str(partitions), "--replication-factor", "1")

    def delete(self, topic: str) -> None:
        """The files go a minute later."""
        self._topics("--delete", "--topic", topic)

    def _topics(self, *arguments: str) -> None:
        self.run("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address, *arguments)

    def produce(self, topic: str, records: int) -> float:
        """Records a second, as the tool counts them."""
        printed = self.run(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(records), "--record-size",
            str(len(VALUE)), "--throughput", "-1", "--producer-props", f"bootstrap.servers={self.address}", "acks=1",
            "linger.ms=5", "batch.size=1048576", "buffer.memory=67108864",
        )  # fmt: skip
        return float(re.findall(r"([\d.]+) records/sec", printed)[-1])

    def consume(self, topic: str, records: int) -> float:
        """Records a second of fetching, without the time it takes to join a group."""
        printed = self.run("org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", self.address, "--topic", topic,
                           "--num-records", str(records), "--timeout", "60000")  # fmt: skip
        names, values = (line.split(", ") for line in printed.splitlines() if "," in line)
        return float(dict(zip(names, values, strict=True))["fetch.nMsg.sec"])


@contextmanager
def running_broker(directory: Path) -> Iterator[Broker]:
    """With its data in ``directory``. ``MissingError`` without Java or Kafka's jars."""
    java = program("java", "default-jdk-headless")
    found = subprocess.run([str(ORACLE), "jars"], capture_output=True, text=True, check=False, env={**os.environ})
    if found.returncode:
        raise MissingError(found.stderr.strip().splitlines()[-1])
    port = free_port()
    broker = Broker(java, found.stdout.strip(), directory, port)
    broker.run("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(broker.configuration))
    with running(broker.command("kafka.Kafka", str(broker.configuration)), directory, lambda: listens(port)):
        yield broker


@contextmanager
def writes(place: Path, scale: Scale) -> Iterator[Measure]:
    """A topic a round."""
    records, numbers = scale.of(RECORDS), count()
    with running_broker(place) as broker:

        def measure() -> Sample:
            topic = f"events-{next(numbers)}"
            broker.create(topic)
            return {"records_per_s": broker.produce(topic, records)}

        yield measure


@contextmanager
def reads(place: Path, scale: Scale) -> Iterator[Measure]:
    """One topic, read from its beginning."""
    records = scale.of(RECORDS)
    with running_broker(place) as broker:
        broker.create("events")
        broker.produce("events", records)
        yield lambda: {"records_per_s": broker.consume("events", records)}
