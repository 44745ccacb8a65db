"""``pylog consume``"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from pylog.log import Log
from pylog.model import ProducerRecord
from pylog.testing import produce_all
from tests.cli.conftest import Run, start
from tests.partition.logs import batch, flip, headers, log_file, marker, topic_of

START_MS = 1_700_000_000_000


@pytest.fixture
def ten(log: Log) -> Log:
    """Offsets 0 to 9, a second apart."""
    log.create_topic("t")
    produce_all(log, "t", [ProducerRecord(b"v%d" % n, b"k%d" % n, (), START_MS + 1000 * n) for n in range(10)])
    return log


def test_from_the_beginning_to_the_end(pylog: Run, ten: Log) -> None:
    assert pylog("consume", "t", "--from-beginning") == (0, "".join(f"v{n}\n" for n in range(10)), "")


def test_without_a_start_it_starts_at_the_end_and_says_so(pylog: Run, ten: Log) -> None:
    code, out, err = pylog("consume", "t")
    assert (code, out, err.count("\n")) == (0, "", 1)
    assert err.startswith("pylog: note: starting at the end")


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (["--offset", "7"], [7, 8, 9]),
        (["--offset", "10"], []),
        (["--offset", "-2"], [8, 9]),
        (["--offset", "-100"], list(range(10))),
        (["--offset", "3", "--max-records", "2"], [3, 4]),
    ],
)
def test_from_an_offset(pylog: Run, ten: Log, arguments: list[str], offsets: list[int]) -> None:
    ran = pylog("consume", "t", "--partition", "0", "--format", "%o", *arguments)
    assert (ran.code, list(map(int, ran.lines)), ran.err) == (0, offsets, "")


def test_an_offset_beyond_the_end_or_before_the_beginning_is_code_3(pylog: Run, ten: Log) -> None:
    code, out, err = pylog("consume", "t", "--partition", "0", "--offset", "11")
    assert (code, out, err.count("\n")) == (3, "", 1)
    ten.delete_records(ten.partition("t", 0).topic_partition, 5)
    assert pylog("consume", "t", "--partition", "0", "--offset", "4").code == 3
    assert pylog("consume", "t", "--from-beginning").lines == [f"v{n}" for n in range(5, 10)]


@pytest.mark.parametrize(
    ("time", "first"),
    [
        ("0", 0),
        (str(START_MS + 4000), 4),
        (str(START_MS + 4001), 5),
        ("2023-11-14T22:13:27Z", 7),
        ("PT1M", 10),
        ("P99999D", 0),
    ],
)
def test_from_a_time(pylog: Run, ten: Log, time: str, first: int) -> None:
    assert pylog("consume", "t", "--from-time", time).lines == [f"v{n}" for n in range(first, 10)]


def test_a_time_that_is_none_is_wrong_usage(pylog: Run, ten: Log) -> None:
    assert pylog("consume", "t", "--from-time", "noon").code == 2


@pytest.mark.parametrize("wanted", [1, 3, 10, 11, 5000])
def test_at_most_so_many_records(pylog: Run, ten: Log, wanted: int) -> None:
    assert len(pylog("consume", "t", "--from-beginning", "--max-records", str(wanted)).lines) == min(wanted, 10)


def test_json_has_stable_keys(pylog: Run, log: Log) -> None:
    log.create_topic("t")
    produce_all(
        log,
        "t",
        [ProducerRecord(b"\xff", "é".encode(), [("h", b"\x00"), ("h", None)], 5), ProducerRecord(None, None, (), 6)],
    )
    ran = pylog("consume", "t", "--from-beginning", "--json")
    assert ran.lines[0] == (
        '{"topic":"t","partition":0,"offset":0,"timestamp_ms":5,"key":"\\u00e9","value_base64":"/w==",'
        '"headers":[{"key":"h","value":"\\u0000"},{"key":"h","value":null}]}'
    )
    assert json.loads(ran.lines[1]) == {
        "topic": "t", "partition": 0, "offset": 1, "timestamp_ms": 6, "key": None, "value": None, "headers": [],
    }  # fmt: skip


def test_several_topics_and_partitions(pylog: Run, log: Log) -> None:
    for topic in ("a", "b"):
        log.create_topic(topic, partitions=3)
        for number in range(3):
            produce_all(log, topic, [b"x", b"y"], partition=number)
    ran = pylog("consume", "a", "b", "a", "--from-beginning", "--format", "%t%p@%o")
    assert sorted(ran.lines) == sorted(f"{t}{p}@{o}" for t in "ab" for p in range(3) for o in range(2))
    some = pylog("consume", "a", "b", "--from-beginning", "--format", "%t%p@%o", "--partition", "0", "--partition", "2")
    assert sorted(some.lines) == sorted(line for line in ran.lines if line[1] != "1")
    assert pylog("consume", "a", "--from-beginning", "--partition", "3").code == 3
    assert pylog("consume", "a", "nope", "--from-beginning").code == 3


def test_more_records_than_one_poll_takes(pylog: Run, log: Log) -> None:
    log.create_topic("t", partitions=2)
    for number in range(2):
        produce_all(log, "t", [b"%d" % n for n in range(2500)], partition=number)
    lines = pylog("consume", "t", "--from-beginning", "--format", "%p %v").lines
    for number in range(2):
        assert [line[2:] for line in lines if line[0] == str(number)] == [str(n) for n in range(2500)]
    assert len(pylog("consume", "t", "--from-beginning", "--max-records", "1500").lines) == 1500


def test_it_ends_at_the_end_as_it_was_however_fast_the_log_grows(
    pylog: Run, ten: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pylog.consumer import Consumer

    poll = Consumer.poll

    def poll_while_another_writes(self: Consumer, *arguments: object) -> object:
        ten.partition("t", 0).append([ProducerRecord(b"later")] * 3, acks=1)
        return poll(self, 0.0, 4)

    monkeypatch.setattr(Consumer, "poll", poll_while_another_writes)
    assert pylog("consume", "t", "--from-beginning").lines == [f"v{n}" for n in range(10)]


def test_isolation_shows_or_hides_what_is_not_committed(pylog: Run, log: Log) -> None:
    partition = topic_of(log, "t")
    for number, (value, commit) in enumerate([(b"committed", True), (b"aborted", False), (b"open", None)]):
        partition.log.append_batch(batch(value, producer_id=5, epoch=0, sequence=number, transactional=True))
        if commit is not None:
            partition.log.append_batch(marker(5, 0, commit=commit))
    ran = pylog("consume", "t", "--from-beginning")
    assert (ran.lines, ran.err) == (["committed"], "")
    ran = pylog("consume", "t", "--from-beginning", "--isolation-level", "read_uncommitted")
    assert ran.lines == ["committed", "aborted", "open"]


def test_damage_is_code_5_behind_the_records_before_it(pylog: Run, log: Log) -> None:
    log.create_topic("t")
    for number in range(3):
        produce_all(log, "t", [b"v%d" % number])
    path = log_file(log.path / "t-0")
    position, _ = headers(path)[1]
    flip(path, position + 65)
    code, out, err = pylog("consume", "t", "--from-beginning")
    assert (code, out, err.count("\n")) == (5, "v0\n", 1)
    assert f"position {position}" in err


def test_a_log_of_kafkas_is_read(pylog: Run) -> None:
    data = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
    for isolation in ("read_committed", "read_uncommitted"):
        ran = pylog(
            "consume",
            "transactions",
            "--from-beginning",
            "--json",
            "--isolation-level",
            isolation,
            "--log",
            data / "log",
        )
        wanted = [
            json.loads(line)
            for line in (data / "expected" / f"transactions.{isolation}.jsonl").read_text().splitlines()
        ]
        assert [(found["offset"], found["value"]) for found in ran.objects] == [
            (record["offset"], bytes.fromhex(record["value"]).decode()) for record in wanted
        ]


# Following


@pytest.mark.processes
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_follow_prints_what_comes_and_ends_quietly(ten: Log, log_dir: Path, number: int, code: int) -> None:
    process = start(log_dir, "consume", "t", "--follow", "--partition", "0", "--offset", "-1", stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b"v9\n"
    produce_all(ten, "t", [b"new"])
    assert process.stdout.readline() == b"new\n"
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (code, b"", b"")


@pytest.mark.processes
def test_follow_without_a_start_prints_only_what_comes_also_of_new_partitions(ten: Log, log_dir: Path) -> None:
    process = start(log_dir, "consume", "t", "--follow", "--format", "%p %v")
    assert process.stdout is not None
    got: list[bytes] = []
    ten.add_partitions("t", 2)
    while not got:  # until it has begun: what comes before that is not for it
        produce_all(ten, "t", [b"now"], partition=0)
        got += _lines_there(process)
    assert set(got) == {b"0 now\n"}
    ten.add_partitions("t", 3)
    produce_all(ten, "t", [b"first of a new partition"], partition=2)
    while (line := process.stdout.readline()) == b"0 now\n":
        pass
    assert line == b"2 first of a new partition\n"
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    process.communicate()


def _lines_there(process: subprocess.Popen[bytes]) -> list[bytes]:
    """The lines that come within a moment; waiting is bounded by the pipe, not by a sleep."""
    import select

    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 0.05)
    return [process.stdout.readline()] if ready else []


@pytest.mark.processes
def test_follow_ends_after_so_many_records(ten: Log, log_dir: Path) -> None:
    process = start(log_dir, "consume", "t", "--follow", "--from-beginning", "--max-records", "12")
    produce_all(ten, "t", [b"a", b"b", b"c"])
    out, err = process.communicate()
    assert (process.returncode, out.splitlines()[-2:], err) == (0, [b"a", b"b"], b"")


def test_follow_in_this_process_ends_with_code_0(pylog: Run, ten: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    from pylog.consumer import Consumer

    poll, polls = Consumer.poll, []

    def interrupted(self: Consumer, timeout: float, max_records: int | None) -> object:
        polls.append(timeout)
        if len(polls) > 1:
            raise KeyboardInterrupt
        return poll(self, timeout, max_records)

    monkeypatch.setattr(Consumer, "poll", interrupted)
    assert pylog("consume", "t", "--follow", "--from-beginning") == (0, "".join(f"v{n}\n" for n in range(10)), "")
