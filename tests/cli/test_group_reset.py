"""``pylog groups reset``"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pylog.cli.exits import InputError
from pylog.cli.group_reset import read_offsets
from pylog.consumer import Consumer
from pylog.log import Log
from pylog.model import ProducerRecord, TopicPartition
from pylog.testing import produce_all
from tests.cli.conftest import Run

START_MS = 1_700_000_000_000


@pytest.fixture
def ten(log: Log) -> Log:
    """Topics ``a`` and ``b`` of two partitions each, offsets 2 to 9, a second apart; ``g`` has
    committed 5 of a-0 and a-1."""
    for topic in ("a", "b"):
        log.create_topic(topic, partitions=2)
        for number in range(2):
            records = [ProducerRecord(b"v", None, (), START_MS + 1000 * n) for n in range(10)]
            produce_all(log, topic, records, partition=number)
            log.delete_records(TopicPartition(topic, number), 2)
    log.reset_offsets("g", ["a"], to=5)
    return log


def committed(log: Log) -> dict[str, int]:
    partitions = log.describe_group("g").partitions
    return {f"{topic}-{number}": at.committed.offset for (topic, number), at in partitions.items() if at.committed}


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (["--to-earliest"], 2),
        (["--to-latest"], 10),
        (["--to-offset", "7"], 7),
        (["--to-time", str(START_MS + 4000)], 4),
        (["--to-time", "2023-11-14T22:13:28Z"], 8),
        (["--to-time", "PT1H"], 10),
        (["--shift-by", "2"], 7),
        (["--shift-by", "-2"], 3),
    ],
)
def test_a_reset_says_what_it_would_do_and_does_it_when_told(
    pylog: Run, ten: Log, target: list[str], offset: int
) -> None:
    ran = pylog("groups", "reset", "g", *target)
    assert ran.code == 0
    assert [line.split() for line in ran.lines] == [
        ["TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"],
        ["a", "0", "5", str(offset)],
        ["a", "1", "5", str(offset)],
    ]
    assert ran.err == "pylog: note: nothing was changed: --execute does it\n"
    assert committed(ten) == {"a-0": 5, "a-1": 5}
    assert pylog("groups", "reset", "g", *target, "--execute") == (0, ran.out, "")
    assert committed(ten) == {"a-0": offset, "a-1": offset}


def test_a_reset_as_json(pylog: Run, ten: Log) -> None:
    for options, executed in (([], False), (["--execute"], True)):
        ran = pylog("groups", "reset", "g", "--to-latest", "--topic", "b:1", "--topic", "a:0", "--json", *options)
        assert ran.objects == [
            {"group": "g", "topic": "a", "partition": 0, "before": 5, "offset": 10, "executed": executed},
            {"group": "g", "topic": "b", "partition": 1, "before": None, "offset": 10, "executed": executed},
        ]


@pytest.mark.parametrize(
    ("topics", "partitions"),
    [
        ([], ["a-0", "a-1"]),
        (["a:1"], ["a-1"]),
        (["a:1", "a:0"], ["a-0", "a-1"]),
        (["a:1", "a"], ["a-0", "a-1"]),
        (["b"], ["b-0", "b-1"]),
        (["b:0", "a:0,1"], ["a-0", "a-1", "b-0"]),
    ],
)
def test_a_reset_is_of_the_topics_and_partitions_named(
    pylog: Run, ten: Log, topics: list[str], partitions: list[str]
) -> None:
    options = [word for topic in topics for word in ("--topic", topic)]
    ran = pylog("groups", "reset", "g", "--to-earliest", "--json", *options)
    assert [f"{row['topic']}-{row['partition']}" for row in ran.objects] == partitions


def test_what_is_beyond_the_log_becomes_its_end_and_that_is_told(pylog: Run, ten: Log) -> None:
    ran = pylog("groups", "reset", "g", "--to-offset", "99", "--execute", "--topic", "a:0")
    assert (ran.code, ran.err) == (0, "pylog: warning: not in the log, so its beginning or end instead: a-0\n")
    ran = pylog("groups", "reset", "g", "--shift-by", "-7", "--execute")
    assert (ran.code, ran.err) == (0, "pylog: warning: not in the log, so its beginning or end instead: a-1\n")
    assert committed(ten) == {"a-0": 3, "a-1": 2}


def test_a_group_with_members_is_not_reset(pylog: Run, ten: Log) -> None:
    with Consumer(ten, group_id="g") as consumer:
        consumer.subscribe("a")
        ran = pylog("groups", "reset", "g", "--to-earliest")
        assert (ran.code, ran.err.count("1 member of the group must be stopped first")) == (0, 1)
        code, out, err = pylog("groups", "reset", "g", "--to-earliest", "--execute")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert committed(ten) == {"a-0": 5, "a-1": 5}


def test_a_static_member_that_was_stopped_is_in_nobodys_way(pylog: Run, ten: Log) -> None:
    with Consumer(ten, group_id="g", group_instance_id="one") as consumer:
        consumer.subscribe("a")
    assert pylog("groups", "reset", "g", "--to-earliest").err == "pylog: note: nothing was changed: --execute does it\n"
    assert pylog("groups", "reset", "g", "--to-earliest", "--execute").code == 0
    assert committed(ten) == {"a-0": 2, "a-1": 2}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["g"], 2),
        (["g", "--to-earliest", "--to-latest"], 2),
        (["g", "--to-offset", "-1"], 2),
        (["g", "--to-time", "noon"], 2),
        (["g", "--to-latest", "--topic", "a:x"], 2),
        (["g", "--to-latest", "--topic", "a:"], 2),
        (["g", "--to-latest", "--topic", "a:-1"], 2),
        (["g", "--shift-by", "1", "--topic", "b"], 2),  # nothing committed to shift
        (["nope", "--to-latest"], 3),  # has committed nothing, and no topic is named
        (["g", "--to-latest", "--topic", "nope"], 3),
        (["g", "--to-latest", "--topic", "a:7"], 3),
        (["g", "--from-file", "/nowhere/offsets.csv"], 3),
    ],
)
def test_what_cannot_be_reset_is_refused(pylog: Run, ten: Log, arguments: list[str], code: int) -> None:
    ran = pylog("groups", "reset", *arguments, "--execute")
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)
    assert committed(ten) == {"a-0": 5, "a-1": 5}


# Files


def test_what_describe_printed_is_put_back(pylog: Run, ten: Log, tmp_path: Path) -> None:
    backup = tmp_path / "backup.json"
    backup.write_text(pylog("groups", "describe", "g", "--json").out)
    pylog("groups", "reset", "g", "--to-latest", "--execute")
    assert pylog("groups", "reset", "g", "--from-file", backup, "--execute").code == 0
    assert committed(ten) == {"a-0": 5, "a-1": 5}


def test_offsets_come_from_stdin_too(pylog: Run, ten: Log) -> None:
    ran = pylog("groups", "reset", "g", "--from-file", "-", "--execute", stdin=b"a,1,7\n")
    assert (ran.code, ran.err) == (0, "")
    assert committed(ten) == {"a-0": 5, "a-1": 7}


def test_what_reset_printed_is_done_later_or_for_another_group(pylog: Run, ten: Log, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(pylog("groups", "reset", "g", "--to-offset", "8", "--json").out)
    ran = pylog("groups", "reset", "other", "--from-file", plan, "--execute", "--json")
    assert [(row["partition"], row["before"], row["offset"]) for row in ran.objects] == [(0, None, 8), (1, None, 8)]


def test_what_kafkas_tool_exported_is_taken(pylog: Run, ten: Log, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text('"a",0,3\nb,1,4\n')
    assert pylog("groups", "reset", "g", "--from-file", file, "--execute").code == 0
    assert committed(ten) == {"a-0": 3, "a-1": 5, "b-1": 4}
    file.write_text("a,0,9\na,1,9\nb,1,9\n")
    assert pylog("groups", "reset", "g", "--from-file", file, "--topic", "a:1", "--topic", "b", "--execute").code == 0
    assert committed(ten) == {"a-0": 3, "a-1": 9, "b-1": 9}
    assert pylog("groups", "reset", "g", "--from-file", file, "--topic", "b:0").code == 2  # nothing is left of it


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("", {}),
        ("\n\n", {}),
        ("topic,partition,offset\r\nt,0,1\r\n", {("t", 0): 1}),
        ("\ufefft, 0, 1", {("t", 0): 1}),
        ("t,0,1\nt,0,2\n", {("t", 0): 2}),
        ('{"topic":"t","partition":0,"offset":1}\n\n{"topic":"t","partition":1,"offset":null}', {("t", 0): 1}),
        ('{"partitions":[{"topic":"t","partition":0,"offset":1,"lag":4}]}', {("t", 0): 1}),
        (f"t,0,{(1 << 63) - 1}", {("t", 0): (1 << 63) - 1}),
    ],
)
def test_a_file_of_offsets(tmp_path: Path, text: str, offsets: dict[tuple[str, int], int]) -> None:
    (tmp_path / "file").write_bytes(text.encode())
    assert read_offsets(str(tmp_path / "file")) == offsets


@pytest.mark.parametrize(
    "data",
    [
        b"t,0",
        b"t,0,1,2",
        b"t,x,1",
        b"t,0,-1",
        b"t,0,99999999999999999999",
        b"t,0,9223372036854775808",
        "t,0,٣".encode(),
        b"\xff,0,1",
        b"t,0,1\n\x00" + b"x" * 200_000,  # no field of a CSV file is as long
        b"{",
        b"{}",
        b'{"topic":"t","partition":0}',
        b'{"topic":"t","partition":0,"offset":true}',
        b'{"topic":"t","partition":0,"offset":1.5}',
        b'{"topic":7,"partition":0,"offset":1}',
        b'{"partitions":7}',
        b'{"partitions":[7]}',
        b'{"topic":"t","partition":0,"offset":1}\n[1]',
        b'{"a":' * 100_000,
        b'{"topic":"t","partition":0,"offset":' + b"9" * 5000 + b"}",
    ],
)
def test_a_file_that_says_something_else_is_refused(pylog: Run, ten: Log, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(InputError):
        read_offsets(str(tmp_path / "file"))
    code, out, err = pylog("groups", "reset", "g", "--from-file", tmp_path / "file", "--execute")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_file_without_an_end_is_not_read_to_it(pylog: Run, ten: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.cli.group_reset._FILE_BYTES_MAX", 1 << 10)
    assert "more than 1024 bytes" in pylog("groups", "reset", "g", "--from-file", "/dev/zero").err


def test_an_offset_of_a_topic_that_is_not_there_is_code_3(pylog: Run, ten: Log, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({"topic": "nope", "partition": 0, "offset": 1}))
    assert pylog("groups", "reset", "g", "--from-file", tmp_path / "file").code == 3
