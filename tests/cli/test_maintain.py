"""``pylog maintain``, ``doctor``, ``alter`` and ``records delete``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pylog import Log, Producer, ProducerRecord
from tests.cli.conftest import Run

OLD_MS = 1_000_000


def fill(log: Log, topic: str, count: int = 6, timestamp_ms: int = OLD_MS) -> None:
    for _ in range(count):
        log.partition(topic, 0).append([ProducerRecord(b"x" * 900, timestamp_ms=timestamp_ms)], acks=1)


@pytest.fixture
def overdue(log: Log) -> Path:
    return make_overdue(log, "t")


def make_overdue(log: Log, topic: str) -> Path:
    """Records of long ago, and the options that limit them are old, too."""
    log.create_topic(topic, segment_bytes=2000, retention_ms=1000, retention_clock="append")
    fill(log, topic)
    log.alter_topic(topic, retention_clock="record")
    file = Path(log.path, f".pylog/topics/{topic}.json")
    os.utime(file, (0, 0))
    return file


def test_maintain_says_what_it_deletes_and_doctor_what_was_not(pylog: Run, log: Log, overdue: Path) -> None:
    ran = pylog("doctor")
    assert ran.code == 1
    assert ran.lines[0].startswith("t-0: retention has been due for ")
    assert pylog("doctor", "--json").objects[-1] == {"type": "summary", "problems": 1}
    ran = pylog("maintain", "--dry-run")
    assert (ran.code, ran.lines[-1]) == (0, "3 segments, 5.7 KiB would be deleted; 0 partitions without a policy")
    assert log.partition("t", 0).earliest_offset == 0
    ran = pylog("maintain", "--json")
    first, last = ran.objects
    assert (ran.code, first["deleted_segments"], first["rules"], first["log_start_offset"]) == (0, 3, ["time"], 6)
    assert (last["type"], last["max_bytes"], last["deleted_segments"]) == ("log", -1, 3)
    assert pylog("doctor") == (0, "nothing is overdue\n", "")
    assert pylog("maintain").lines[1].split()[:3] == ["t-0", "retention", "6"]


def test_maintain_says_how_much_compaction_has_freed(pylog: Run, log: Log) -> None:
    log.create_topic("c", cleanup_policy="compact", segment_bytes=1024, min_cleanable_dirty_ratio=0.0)
    for _ in range(5):
        log.partition("c", 0).append([ProducerRecord(b"x" * 900, key=b"k")])
    assert ", 2.8 KiB compacted away; " in pylog("maintain").lines[-1]
    assert "compacted" not in pylog("maintain").lines[-1]


def test_a_dry_run_ends_with_1_only_if_a_step_failed(pylog: Run, log: Log) -> None:
    make_overdue(log, "failed-orders")
    assert pylog("maintain", "--dry-run").code == 0
    first = Path(log.partition("failed-orders", 0).segments[0].path)
    first.with_suffix(".seal").unlink()  # its time is in its records
    first.write_bytes(first.read_bytes()[:-1] + b"\1")
    ran = pylog("maintain", "--dry-run")
    assert ran.code == 1
    assert ran.err.startswith("pylog: error: failed-orders-0: retention failed: ")


def test_what_became_due_today_is_not_overdue(pylog: Run, overdue: Path) -> None:
    os.utime(overdue)  # the limit was set just now
    assert pylog("doctor").code == 0


def test_what_is_held_for_a_day_is_a_problem(pylog: Run, log: Log, overdue: Path) -> None:
    with Producer(log, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"x", timestamp_ms=OLD_MS).result()
        os.utime(log.partition("t", 0).segments[-1].path, (0, 0))
        assert pylog("doctor").code == 1
        ran = pylog("maintain")
        assert ran.code == 1
        assert ran.err.startswith("pylog: error: t-0: retention has been due for ")
        assert ran.err.endswith(" d by time, but is held: open transaction (it begins at offset 6)\n")
        assert pylog("maintain", "--dry-run").code == 0
        assert pylog("doctor").lines == [ran.err.removeprefix("pylog: error: ").removesuffix("\n")]
        producer.abort_transaction()


def test_a_bound_that_can_not_be_kept_is_a_problem(pylog: Run, log: Log) -> None:
    log.create_topic("t", segment_bytes=2000)
    fill(log, "t")
    assert pylog("alter") == (0, "max_bytes -1\n", "")
    assert pylog("alter", "--max-bytes", "100", "--json").objects == [{"max_bytes": 100}]
    ran = pylog("maintain")
    assert ran.code == 1
    assert "nothing more can go (active segment: " in ran.err
    assert log.partition("t", 0).earliest_offset == 4
    assert pylog("doctor").code == 1
    assert pylog("alter", "--max-bytes", "-1").code == 0
    assert pylog("doctor").code == 0
    assert pylog("alter", "--max-bytes", "-2").code == 2


def test_maintain_of_a_log_that_is_none_and_of_a_topic_that_is_none(pylog: Run, log: Log) -> None:
    assert pylog("maintain", "nope").code == 3
    assert pylog("maintain", "--log", "nowhere").code == 3


def test_records_are_deleted_before_an_offset_or_a_time(pylog: Run, log: Log) -> None:
    log.create_topic("t", partitions=2)
    for number in range(4):
        fill(log, "t", 1, OLD_MS + number)
    assert pylog("records", "delete", "t", "--partition", "0", "--before-offset", "1").lines == [
        "t-0 begins at offset 1"
    ]
    ran = pylog("records", "delete", "t", "--before-time", str(OLD_MS + 2), "--json")
    assert ran.objects == [
        {"topic": "t", "partition": 0, "log_start_offset": 2},
        {"topic": "t", "partition": 1, "log_start_offset": 0},
    ]
    assert pylog("records", "delete", "t", "--before-offset", "-1").lines[0] == "t-0 begins at offset 4"
    assert pylog("records", "delete", "t", "--partition", "0", "--before-offset", "9").code == 3
    assert pylog("records", "delete", "t").code == 2


def test_a_topic_whose_file_is_damaged_is_named(pylog: Run, log: Log) -> None:
    log.create_topic("damaged")
    path = Path(log.path, ".pylog", "topics", "damaged.json")
    path.write_bytes(path.read_bytes().replace(b'"config"', b'"konfig"'))
    for command in (("maintain",), ("maintain", "--dry-run"), ("doctor",)):
        ran = pylog(*command)
        assert ran.code == 1
        assert f"{path} is damaged" in (ran.out if command == ("doctor",) else ran.err)
    (error,) = pylog("maintain", "--json").objects[-1]["unreadable"]
    assert str(path) in error
