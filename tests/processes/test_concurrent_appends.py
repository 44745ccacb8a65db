"""Several processes append to and read from one topic at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord, TopicPartition
from tests.processes import sharing
from tests.processes.sharing import forked, result_of

SECONDS = float(os.environ.get("PYLOG_TEST_SHARING_SECONDS", "3"))


@pytest.mark.slow
@pytest.mark.processes
def test_six_processes_share_a_topic_and_every_consumer_sees_the_same_sequence(tmp_path: Path) -> None:
    sent, seen = sharing.run(tmp_path, seconds=SECONDS, producers=3, consumers=3)
    assert sent > 1000
    assert [view.breaks for view in seen] == [[], [], []]
    assert all(view == seen[0] for view in seen)
    assert sum(seen[0].counts) == sent


@pytest.mark.processes
def test_processes_that_append_with_an_expected_offset_never_both_succeed(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.create_topic("ledger")

    def compete(name: bytes) -> int:
        from pylog.errors import OffsetConflict

        won = 0
        with Log(tmp_path / "log") as log:
            partition = log.partition("ledger", 0)
            while (end := partition.latest_offset) < 300:
                try:
                    partition.append([ProducerRecord(name)], acks=1, expected_offset=end)
                    won += 1
                except OffsetConflict:
                    continue
        return won

    children = [forked(lambda name=name: compete(name)) for name in (b"a", b"b", b"c")]
    wins = [result_of(child) for child in children]
    with Log(tmp_path / "log") as log:
        names = [record.value for record in log.partition("ledger", 0).scan()]
    assert [names.count(name) for name in (b"a", b"b", b"c")] == wins
    assert sum(wins) == len(names) >= 300


@pytest.mark.processes
def test_a_consumer_in_another_process_is_woken_by_an_append(tmp_path: Path) -> None:
    from pylog import Consumer, Producer

    with Log(tmp_path / "log") as log:
        log.create_topic("wake")
        ready, go = os.pipe()

        def wait_for_one() -> bytes:
            with Log(tmp_path / "log", read_only=True) as mine, Consumer(mine, auto_offset_reset="latest") as consumer:
                consumer.assign([TopicPartition("wake", 0)])
                os.write(go, b"!")
                while not (records := consumer.poll(10.0)):
                    pass
                return records[0].value

        child = forked(wait_for_one)
        os.read(ready, 1)
        with Producer(log, acks=1) as producer:
            producer.send("wake", b"up").result()
        assert result_of(child) == b"up"


@pytest.mark.processes
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user who may not write")
def test_a_reader_without_permission_to_write_reads_and_cannot_append(disk_dir: Path) -> None:
    import pylog.errors

    directory = disk_dir / "log"  # no directory of root's alone is above it
    directory.mkdir()
    for each in (disk_dir, directory):
        each.chmod(0o755)
    with Log(directory) as log:
        log.create_topic("events")
        partition = log.partition("events", 0)
        partition.append([ProducerRecord(b"seen")])

        def read_as_nobody() -> tuple[list[bytes], bool, str]:
            os.setgid(65534)
            os.setuid(65534)
            with Log(directory) as mine:
                values = [record.value for record in mine.partition("events", 0).scan()]
                try:
                    mine.partition("events", 0).append([ProducerRecord(b"no")])
                except pylog.errors.ReadOnlyLog as error:
                    return values, mine.read_only, type(error).__name__
            return values, mine.read_only, "appended"

        assert result_of(forked(read_as_nobody)) == ([b"seen"], True, "ReadOnlyLog")
        partition.append([ProducerRecord(b"still writable")])
