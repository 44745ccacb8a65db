"""A real Kafka broker on loopback that serves partition directories of pylog's.

Its topics are made by itself, so that it knows them. Then it is stopped, the files in its partition
directories are replaced by pylog's, and it is started again, without the marks of a clean stop: it
checks all files and builds their indexes.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from kafka.admin import NewTopic

ORACLE = Path(__file__).parents[2] / "scripts" / "kafka-oracle"
SOMETHING_IS_MISSING = 3
FETCH_SECONDS_MAX = 600
START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
CLUSTER_ID = "cHlsb2ctZW5naW5lLXRlc3Q"
KAFKAS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
LOG_STARTS = "log-start-offset-checkpoint"
MARKS = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint", LOG_STARTS)
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
CONFIG = {"retention.ms": "-1"}


def classpath() -> str:
    """Kafka's jars and the helpers in scripts/kafka_oracle. Skips without Java or Maven, fails
    instead where CI=true."""
    found = subprocess.run(
        [ORACLE, "classpath"], capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, stdin=subprocess.DEVNULL
    )
    if found.returncode == SOMETHING_IS_MISSING:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(found.stderr.strip())
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


class Broker:
    """One node, broker and controller, below ``home``."""

    def __init__(self, home: Path, **more: object) -> None:
        """``more`` settings, with ``_`` for each dot of their names."""
        self.directory = home / "log"
        self._home = home
        self._classpath = classpath()
        self._printed = home / "broker-output.txt"
        self._process: subprocess.Popen[bytes] | None = None
        ports = _free_ports(2)
        self._listens_at = ("127.0.0.1", ports[0])
        self.address = f"127.0.0.1:{ports[0]}"
        self._configuration = home / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{ports[1]}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{ports[1]}",
            "log.dirs": self.directory,
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 8388608,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self._configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        format_command = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config"]
        assert self._java(*format_command, str(self._configuration)).wait(START_SECONDS_MAX) == 0, self.last_words()

    def _java(self, *command: str) -> subprocess.Popen[bytes]:
        with self._printed.open("ab") as printed:
            return subprocess.Popen(
                ["java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-cp", self._classpath, *command],
                stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, cwd=self._home,
            )  # fmt: skip

    def last_words(self) -> str:
        return "\n".join(self._printed.read_text(errors="replace").splitlines()[-40:])

    # Running

    def start(self) -> None:
        self._process = self._java("kafka.Kafka", str(self._configuration))
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            assert self._process.poll() is None, self.last_words()
            assert time.monotonic() < deadline, self.last_words()
            try:
                socket.create_connection(self._listens_at).close()
                return  # clients wait for the rest
            except OSError:
                time.sleep(0.1)  # nothing else tells when it listens

    def stop(self) -> None:
        """Ask it to stop, and wait."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            finally:
                process.kill()
                process.wait()

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.address)

    def serve(
        self,
        log: Path,
        topics: Mapping[str, int],
        configs: Mapping[str, Mapping[str, str]] | None = None,
        starts: Mapping[str, int] | None = None,
    ) -> None:
        """Start it with these topics of pylog's log, each of so many partitions, and what is
        special in their settings.

        ``starts``: where partitions begin, if not with their first segment.
        """
        self.start()
        admin = self.admin()
        try:
            admin.create_topics(
                [
                    NewTopic(name, count, 1, topic_configs=(configs or {}).get(name, _config(name)))
                    for name, count in topics.items()
                ]
            )
        finally:
            admin.close()
        partitions = [f"{name}-{number}" for name, count in topics.items() for number in range(count)]
        self._wait_for([self.directory / name / "partition.metadata" for name in partitions])
        self.stop()
        self.take(log, dict.fromkeys(partitions, 0))
        if starts:
            self._write_checkpoint(LOG_STARTS, starts)
        self.start()

    def take(self, log: Path, begins: Mapping[str, int]) -> None:
        """Replace the files of these partitions, from the segment at this offset on, by pylog's. It
        is stopped."""
        for name, base in begins.items():
            _swap(log / name, self.directory / name, base)
        for mark in MARKS:
            (self.directory / mark).unlink(missing_ok=True)

    # The cleaner

    def cleaned_to(self) -> dict[str, int]:
        """Up to which offset the cleaner has cleaned each partition."""
        try:
            lines = (self.directory / CLEANER_CHECKPOINT).read_text().splitlines()[2:]
        except FileNotFoundError:
            return {}
        return {f"{topic}-{number}": int(offset) for topic, number, offset in map(str.split, lines)}

    def wait_until_cleaned(self, ends: Mapping[str, int]) -> dict[str, int]:
        """Wait until the cleaner has reached these offsets; those that it reached."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while late := {name: end for name, end in ends.items() if self.cleaned_to().get(name, 0) < end}:
            assert time.monotonic() < deadline, f"not cleaned: {late}, but {self.cleaned_to()}\n{self.last_words()}"
            time.sleep(0.1)  # nothing tells when it has
        return self.cleaned_to()

    def _write_checkpoint(self, file: str, offsets: Mapping[str, int]) -> None:
        rows = [f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} {offset}\n" for name, offset in offsets.items()]
        (self.directory / file).write_text(f"0\n{len(rows)}\n{''.join(rows)}")

    def _wait_for(self, paths: Sequence[Path]) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not all(path.exists() for path in paths):
            assert time.monotonic() < deadline, self.last_words()
            time.sleep(0.05)

    # Clients

    def produce(self, topic: str, records: Iterable[tuple[bytes | None, bytes]]) -> list[tuple[int, int]]:
        """Send with one new Java producer, as Kafka makes it by default; partition and offset
        acknowledged of each."""
        lines = "".join(f"{'-' if key is None else key.hex()} {value.hex()}\n" for key, value in records)
        sent = self.run("Produce", self.address, topic, stdin=lines)
        return [(int(partition), int(offset)) for partition, offset in map(str.split, sent)]

    def run(self, *command: str, stdin: str = "") -> list[str]:
        """The lines that one of Kafka's tools, or of the helpers in scripts/kafka_oracle,
        prints."""
        java = ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", self._classpath]
        done = subprocess.run([*java, *command], input=stdin, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def read(self, topic: str, partitions: int = 1) -> list[list[Any]]:
        """All records of each partition, as a Kafka consumer reads them."""
        found: list[list[Any]] = [[] for _ in range(partitions)]
        consumer = KafkaConsumer(bootstrap_servers=self.address, auto_offset_reset="earliest", group_id=None)
        try:
            assigned = [KafkaPartition(topic, number) for number in range(partitions)]
            consumer.assign(assigned)
            ends = consumer.end_offsets(assigned)
            deadline = time.monotonic() + START_SECONDS_MAX
            while any(consumer.position(name) < ends[name] for name in assigned):
                assert time.monotonic() < deadline, self.last_words()
                for name, records in consumer.poll(500).items():
                    found[name.partition] += records
        finally:
            consumer.close()
        return found

    def committed(self, group: str, topic: str) -> int | None:
        """What this group has committed in partition 0."""
        consumer = KafkaConsumer(bootstrap_servers=self.address, group_id=group, enable_auto_commit=False)
        try:
            found: int | None = consumer.committed(KafkaPartition(topic, 0))
            return found
        finally:
            consumer.close()

    def read_as_group(self, topic: str, group: str, count: int) -> list[Any]:
        """So many records, from where this group's commits say, as a member of the classic protocol
        gets them."""
        found: list[Any] = []
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self.address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while len(found) < count:
                assert time.monotonic() < deadline, self.last_words()
                for records in consumer.poll(500).values():
                    found += records
        finally:
            consumer.close()
        return found


COMPACTED = {**CONFIG, "cleanup.policy": "compact"}


def _config(topic: str) -> Mapping[str, str]:
    return COMPACTED if topic.startswith("__") else CONFIG


def _swap(ours: Path, theirs: Path, base: int) -> None:
    """Kafka's files of ``ours`` in the place of those in ``theirs``, whose topic id stays; of
    segments from ``base`` on."""
    for path in theirs.iterdir():
        if path.name != "partition.metadata" and _base(path) >= base:
            path.unlink()
    for path in ours.iterdir():
        if (path.name.endswith(KAFKAS) and _base(path) >= base) or path.name == "leader-epoch-checkpoint":
            shutil.copyfile(path, theirs / path.name)


def _base(path: Path) -> int:
    """Of a segment's file; of any other, greater than all."""
    number = path.name.split(".", 1)[0]
    return int(number) if number.isdecimal() else 1 << 63


def _free_ports(count: int) -> list[int]:
    """All are open at once, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
