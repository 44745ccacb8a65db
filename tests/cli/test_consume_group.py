"""``pylog consume --group``: what is committed is what was printed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.consumer import Consumer
from pylog.group.admin import GroupAdmin
from pylog.group.liveness import Heartbeats
from pylog.log import Log
from pylog.manager.manager import LogManager
from pylog.model import ProducerRecord, Record, TopicPartition
from pylog.testing import produce_all
from tests.cli.conftest import Run, start
from tests.partition.logs import batch, flip, headers, log_file, marker, topic_of

T0 = TopicPartition("t", 0)


@pytest.fixture
def ten(log: Log) -> Log:
    log.create_topic("t")
    produce_all(log, "t", [b"v%d" % n for n in range(10)])
    return log


def committed(log: Log, number: int = 0) -> int | None:
    at = log.describe_group("g").partitions[TopicPartition("t", number)].committed
    return None if at is None else at.offset


def test_a_group_goes_on_where_it_was(pylog: Run, ten: Log) -> None:
    first = pylog("consume", "t", "--group", "g", "--from-beginning")
    assert first == (0, "".join(f"v{n}\n" for n in range(10)), "")
    assert (committed(ten), ten.describe_group("g").members) == (10, ())
    assert pylog("consume", "t", "--group", "g", "--from-beginning").out == ""
    produce_all(ten, "t", [b"new"])
    assert pylog("consume", "t", "--group", "g").out == "new\n"
    assert ten.lag("g") == {T0: 0}


def test_without_from_beginning_a_new_group_starts_at_the_end(pylog: Run, ten: Log) -> None:
    ran = pylog("consume", "t", "--group", "g")
    assert (ran.code, ran.out, ran.err.count("\n")) == (0, "", 1)
    assert "note: group 'g' had committed nothing, and begins at the end; pylog groups reset" in ran.err
    produce_all(ten, "t", [b"new"])
    assert pylog("consume", "t", "--group", "g") == (0, "new\n", "")


def test_at_most_so_many_records_are_committed_as_well(pylog: Run, ten: Log) -> None:
    for first in (0, 3, 6):
        ran = pylog("consume", "t", "--group", "g", "--from-beginning", "--max-records", "3", "--format", "%o")
        assert ran.lines == [str(first + n) for n in range(3)]
        assert committed(ten) == first + 3


def test_several_topics_and_partitions(pylog: Run, log: Log) -> None:
    for topic in ("a", "b"):
        log.create_topic(topic, partitions=2)
        for number in range(2):
            produce_all(log, topic, [b"v%d" % n for n in range(1500)], partition=number)
    ran = pylog("consume", "a", "b", "a", "--group", "g", "--from-beginning", "--format", "%t%p@%o")
    assert sorted(ran.lines) == sorted(f"{t}{p}@{o}" for t in "ab" for p in range(2) for o in range(1500))
    assert set(log.lag("g").values()) == {0}


def test_what_came_meanwhile_is_neither_printed_nor_committed(
    pylog: Run, ten: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = Consumer.poll

    def poll_while_another_writes(self: Consumer, *arguments: object) -> object:
        ten.partition("t", 0).append([ProducerRecord(b"later")] * 3, acks=1)
        return poll(self, 0.0, 4)

    monkeypatch.setattr(Consumer, "poll", poll_while_another_writes)
    assert pylog("consume", "t", "--group", "g", "--from-beginning").lines == [f"v{n}" for n in range(10)]
    assert committed(ten) == 10
    monkeypatch.setattr(Consumer, "poll", poll)
    assert set(pylog("consume", "t", "--group", "g").lines) == {"later"}


def test_markers_at_the_end_are_committed_over(pylog: Run, log: Log) -> None:
    partition = topic_of(log, "t")
    partition.log.append_batch(batch(b"v", producer_id=5, epoch=0, sequence=0, transactional=True))
    partition.log.append_batch(marker(5, 0, commit=True))
    ran = pylog("consume", "t", "--group", "g", "--from-beginning", "--isolation-level", "read_committed")
    assert (ran.out, log.lag("g")) == ("v\n", {T0: 0})


def test_a_member_beside_others_reads_its_share(pylog: Run, log: Log) -> None:
    log.create_topic("t", partitions=2)
    for number in range(2):
        produce_all(log, "t", [b"%d" % number], partition=number)
    with Consumer(log, group_id="g", auto_offset_reset="earliest") as other:
        other.subscribe("t")
        assert pylog("consume", "t", "--group", "g", "--from-beginning") == (0, "", "")  # all in the other's hands
        assert len(other.poll()) == 2
        assert len(log.describe_group("g").members) == 1


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_damage_is_code_5_and_what_was_printed_before_it_is_committed(pylog: Run, log: Log, isolation: str) -> None:
    log.create_topic("t")
    for number in range(3):
        produce_all(log, "t", [b"v%d" % number])
    path = log_file(log.path / "t-0")
    flip(path, headers(path)[1][0] + 65)
    ran = pylog("consume", "t", "--group", "g", "--from-beginning", "--isolation-level", isolation)
    assert (ran.code, ran.out, committed(log)) == (5, "v0\n", 1)


@pytest.mark.parametrize(
    "arguments",
    [["--partition", "0"], ["--offset", "1", "--partition", "0"], ["--from-time", "0"], ["--json", "--raw"]],
)
def test_the_group_says_what_is_read(pylog: Run, ten: Log, arguments: list[str]) -> None:
    code, out, err = pylog("consume", "t", "--group", "g", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert ten.groups() == []


def test_names_that_can_be_no_group_and_topics_that_are_not_there(pylog: Run, ten: Log) -> None:
    assert pylog("consume", "t", "--group", "").code == 2
    assert pylog("consume", "t", "--group", "x" * 300).code == 2
    assert pylog("consume", "nope", "--group", "g").code == 3


# Interrupted


def failing(error: BaseException, after: int) -> Callable[[list[Record]], None]:
    """A writer whose output ends after so many records."""

    def write(records: list[Record]) -> None:
        for record in records:
            if record.offset == after:
                raise error
            sys.stdout.write(f"{record.offset}\n")

    return write


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (BrokenPipeError(), 141)])
def test_what_was_being_printed_is_not_committed(
    pylog: Run, ten: Log, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, follow: bool
) -> None:
    from pylog.cli import consume

    monkeypatch.setattr(consume, "_POLL_RECORDS", 4)
    monkeypatch.setattr(consume, "_writer", lambda _: failing(error, 6))
    monkeypatch.setattr("pylog.cli.main._forget_output", lambda: None)
    ran = pylog("consume", "t", "--group", "g", "--from-beginning", *(["--follow"] if follow else []))
    assert ran.code == (0 if follow and code == 130 else code)
    assert committed(ten) == 4  # 4 and 5 are perhaps printed, and come again
    assert ten.describe_group("g").members == ()


@pytest.mark.processes
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_follow_prints_what_comes_commits_and_leaves(ten: Log, log_dir: Path, number: int, code: int) -> None:
    process = start(log_dir, "consume", "t", "--group", "g", "--from-beginning", "--follow")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(10)] == [b"v%d\n" % n for n in range(10)]
    (member,) = ten.describe_group("g").members
    assert (member.pid, member.client_id, member.assigned) == (process.pid, "pylog-consume", (T0,))
    produce_all(ten, "t", [b"new"])
    assert process.stdout.readline() == b"new\n"
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (code, b"", b"")
    assert ten.describe_group("g").members == ()
    assert committed(ten) in (10, 11)  # the signal may have come before the consumer came back for more


def test_what_was_printed_is_committed_by_a_follower_that_waits(
    pylog: Run, ten: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LogManager, "wait_for_change", interrupted)
    ran = pylog("consume", "t", "--group", "g", "--from-beginning", "--follow")
    assert ran == (0, "".join(f"v{n}\n" for n in range(10)), "")
    assert (committed(ten), ten.describe_group("g").members) == (10, ())


@pytest.mark.processes
def test_what_was_printed_is_committed_whenever_the_interrupt_comes(
    pylog: Run, ten: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, polls = Consumer.poll, iter(range(2))

    def interrupted(self: Consumer, *arguments: Any) -> list[Record]:
        if next(polls) == 1:
            raise KeyboardInterrupt  # before it has begun
        return poll(self, *arguments)

    monkeypatch.setattr(Consumer, "poll", interrupted)
    ran = pylog("consume", "t", "--group", "g", "--from-beginning", "--follow")
    assert (ran.code, len(ran.lines)) == (0, 10)
    assert (committed(ten), ten.describe_group("g").members) == (10, ())


@pytest.mark.slow
def test_two_that_follow_share_the_partitions(log: Log, log_dir: Path) -> None:
    log.create_topic("t", partitions=2)
    processes = [start(log_dir, "consume", "t", "--group", "g", "--follow", "--format", "%p") for _ in range(2)]
    try:
        while True:  # until they have found one another
            described = log.describe_group("g") if log.groups() else None
            if described and described.state == "Stable" and len(described.members) == 2:
                break
        for number in range(2):
            produce_all(log, "t", [b"x"], partition=number)
        lines = [process.stdout.readline() for process in processes if process.stdout is not None]
        assert sorted(lines) == [b"0\n", b"1\n"]
        _wait_for_polls(log)
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
        ended = [process.communicate() for process in processes]
    assert [(process.returncode, err) for process, (_, err) in zip(processes, ended, strict=True)] == [(0, b"")] * 2
    assert set(log.lag("g").values()) == {0}


def _wait_for_polls(log: Log) -> None:
    """Until each of two members has come back for more, as its signs of life say: what it printed
    before, it is done with."""
    place = log.manager.part(GroupAdmin).directory("g")
    heartbeats = Heartbeats(place.filesystem.open_appendable(place.heartbeats))
    before = heartbeats.all()[1:3]
    while any(now == then for now, then in zip(heartbeats.all()[1:3], before, strict=True)):
        pass
    heartbeats.close()
