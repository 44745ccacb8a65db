"""``pylog produce``"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pylog.cli import delivery_report
from pylog.cli.main import main
from pylog.errors import StorageFull
from pylog.log import Log
from pylog.model import Record
from pylog.testing import assert_records, consume_all, produce_all
from tests.cli.conftest import Run, environment, start


@pytest.fixture
def topic(log: Log) -> str:
    log.create_topic("t")
    return "t"


def records(log: Log) -> list[Record]:
    return consume_all(log, "t")


def test_a_line_is_a_record(pylog: Run, log: Log, topic: str) -> None:
    ran = pylog("produce", topic, stdin=b"one\n\ntwo\r\n\xff\x00\nno newline")
    assert ran == (0, "5 records to t (partition 0: 0-4)\n", "")
    assert_records(
        records(log), [(None, b"one"), (None, b""), (None, b"two\r"), (None, b"\xff\x00"), (None, b"no newline")]
    )


def test_no_line_is_no_record(pylog: Run, log: Log, topic: str) -> None:
    assert pylog("produce", topic) == (0, "0 records to t\n", "")
    assert pylog("produce", topic, "--json").objects == [{"topic": "t", "records": 0, "partitions": []}]


def test_a_key_stands_before_the_separator(pylog: Run, log: Log, topic: str) -> None:
    pylog("produce", topic, "--key-separator", "\\t", stdin=b"k\tv\tw\n\tv\n")
    pylog("produce", topic, "--key-separator", "::", stdin=b"a:b::c\n")
    assert_records(records(log), [(b"k", b"v\tw"), (b"", b"v"), (b"a:b", b"c")])


def test_headers_partition_and_compression_are_for_every_record(pylog: Run, log: Log) -> None:
    log.create_topic("t", partitions=3)
    ran = pylog(
        "produce", "t", "--partition", "2", "--header", "a=1", "--header", "b=", "--compression", "gzip", "--acks", "1",
        "--json", stdin=b"x" * 200 + b"\n" + b"x" * 200,
    )  # fmt: skip
    assert ran.objects == [
        {"topic": "t", "records": 2, "partitions": [{"partition": 2, "first_offset": 0, "last_offset": 1}]}
    ]
    wanted = {"partition": 2, "headers": [("a", b"1"), ("b", b"")], "value": b"x" * 200}
    assert_records(records(log), [wanted, wanted])
    assert log.partition("t", 2).size_bytes < 300


def test_fire_and_forget_counts_without_offsets(pylog: Run, log: Log, topic: str) -> None:
    assert pylog("produce", topic, "--acks", "0", stdin=b"a\nb\n") == (0, "2 records to t\n", "")
    assert len(records(log)) == 2


def test_a_file_is_read_like_stdin(pylog: Run, log: Log, topic: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"a\nb\n")
    assert pylog("produce", topic, "--file", tmp_path / "in", stdin=b"not this").code == 0
    assert_records(records(log), [b"a", b"b"])
    code, out, err = pylog("produce", topic, "--file", tmp_path / "no\x1bne")
    assert (code, out) == (3, "")
    assert err == f"pylog: error: {tmp_path}/no\\x1bne: No such file or directory\n"


def test_what_consume_prints_as_json_produce_takes(pylog: Run, log: Log, topic: str) -> None:
    from pylog.model import ProducerRecord

    sent = [
        ProducerRecord(b"v", b"k", [("h", b"x"), ("h", None), ("e", b"\xff")], 5),
        ProducerRecord(None, b"\xff\xfe"),
        ProducerRecord(b"\x80\x00\n"),
        ProducerRecord("é\u202e\x7f".encode(), b""),
    ]
    produce_all(log, "t", sent)
    log.create_topic("copy")
    before = pylog("consume", "t", "--from-beginning", "--json").out
    assert pylog("produce", "copy", "--input-format", "json", stdin=before.encode()).code == 0
    after = pylog("consume", "copy", "--from-beginning", "--json").out
    assert after == before.replace('"topic":"t"', '"topic":"copy"')


def test_json_needs_no_more_than_a_value(pylog: Run, log: Log, topic: str) -> None:
    lines = [
        '{"value": "a"}',
        "{}",
        '{"value": null, "key": "k", "headers": [{"key": "h"}]}',
        '{"value_base64": "/w=="}',
    ]
    assert (
        pylog("produce", topic, "--input-format", "json", "--header", "x=y", stdin="\n".join(lines).encode()).code == 0
    )
    assert_records(
        records(log),
        [
            {"value": b"a", "key": None, "headers": [("x", b"y")]},
            {"value": None},
            {"value": None, "key": b"k", "headers": [("h", None), ("x", b"y")]},
            {"value": b"\xff"},
        ],
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        ('{"value": 1' + "0" * 5000 + "}", "not JSON"),
        ('{"value": 1}', "value is a number, expected a string or null"),
        ('{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        ('{"value_base64": "%%"}', "value: "),
        ('{"value_base64": 7}', "value_base64 is a number"),
        ('{"value": "\\ud800"}', "value: "),
        ('{"vaule": "a"}', "no field 'vaule'"),
        ('{"headers": {}}', "headers is an object, expected an array"),
        ('{"headers": [{"value": "x"}]}', "a header is"),
        ('{"headers": [{"key": "x", "valu": "x"}]}', "a header has no field 'valu'"),
        ('{"timestamp_ms": "1"}', "timestamp_ms is '1', expected a whole number"),
        ('{"timestamp_ms": true}', "timestamp_ms is True"),
        ('{"timestamp_ms": -5}', "imestamp"),
        ('{"partition": 1.5}', "partition is 1.5"),
        ('{"headers": [{"key": "\\ud800"}]}', "header"),
    ],
)
def test_json_that_is_no_record_is_told_with_its_line(
    pylog: Run, log: Log, topic: str, line: str, problem: str
) -> None:
    code, out, err = pylog(
        "produce", topic, "--input-format", "json", stdin=b'{"value": "fine"}\n' + line.encode() + b"\n"
    )
    assert (code, out) == (2, "1 record to t (partition 0: 0-0)\n")
    assert err.startswith("pylog: error: line 2: ")
    assert problem in err
    assert err.count("\n") == 1
    assert_records(records(log), [b"fine"])


def test_a_partition_that_is_not_there_is_code_3(pylog: Run, log: Log, topic: str) -> None:
    code, out, err = pylog("produce", topic, "--input-format", "json", stdin=b'{"value": "a", "partition": 7}')
    assert (code, out) == (3, "0 records to t\n")
    assert err.startswith("pylog: error: line 1: ")
    assert pylog("produce", topic, "--partition", "7", stdin=b"x").code == 3


def test_a_record_beyond_the_limit_is_told_with_its_line(pylog: Run, log: Log) -> None:
    log.create_topic("t", max_message_bytes=200)
    code, out, err = pylog("produce", "t", stdin=b"a\n" + b"b" * 300 + b"\nc\n")
    assert (code, out) == (1, "1 record to t (partition 0: 0-0)\n")
    assert err.startswith("pylog: error: line 2: ")
    assert_records(records(log), [b"a"])


def test_a_line_without_end_is_not_taken_into_memory(pylog: Run, log: Log) -> None:
    log.create_topic("t", max_message_bytes=200)
    asked: list[int] = []

    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            asked.append(len(buffer))
            buffer[:] = b"x" * len(buffer)
            return len(buffer)

    class Stdin:
        buffer = io.BufferedReader(Endless())

    before = sys.stdin
    try:
        sys.stdin = Stdin()
        assert main(["produce", "t"]) == 1  # as for any record that is too large
    finally:
        sys.stdin = before
    assert sum(asked) < 200_000


def test_an_input_that_cannot_be_read_is_code_6(pylog: Run, log: Log, topic: str, tmp_path: Path) -> None:
    with (tmp_path / "in").open("wb") as write_only:
        ended = subprocess.run(
            [sys.executable, "-m", "pylog", "produce", "t"],
            stdin=write_only,
            capture_output=True,
            env=environment(log.path),
        )
    assert ended.returncode == 6
    assert ended.stderr == b"pylog: error: cannot read the input: Bad file descriptor\n"


def test_without_a_topic_nothing_is_read(pylog: Run, log: Log) -> None:
    assert pylog("produce", "nope", stdin=b"x") == (
        3, "", f"pylog: error: no topic 'nope' in {log.path} (topics: none); create it with pylog topics create\n",
    )  # fmt: skip


def test_a_full_disk_is_code_6_and_what_was_written_is_counted(
    pylog: Run, log: Log, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pylog.partition.partition_log import PartitionLog

    append, calls = PartitionLog.append_batch, []

    def full(self: PartitionLog, batch: bytearray, **options: Any) -> Any:
        calls.append(batch)
        if len(calls) > 1:
            raise StorageFull("cannot write: No space left on device; free space and try again", errno=28)
        return append(self, batch, **options)

    monkeypatch.setattr(PartitionLog, "append_batch", full)
    code, out, err = pylog("produce", topic, stdin=b"x" * 700_000 + b"\n" + b"y" * 700_000 + b"\n")
    assert (code, out) == (6, "1 record to t (partition 0: 0-0)\n")
    assert err == "pylog: error: line 2: cannot write: No space left on device; free space and try again\n"


@pytest.fixture
def full_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch finds the disk full, there is room for those that come later. Only the thread
    that sends writes."""
    from pylog.partition.partition_log import PartitionLog
    from pylog.producer.sender import Sender

    monkeypatch.setattr(Sender, "flush_due", lambda _: 60.0)  # else the command may learn of it before it sends more
    append, calls = PartitionLog.append_batch, []

    def full(self: PartitionLog, batch: bytearray, **options: Any) -> Any:
        calls.append(batch)
        if len(calls) == 1:
            raise StorageFull("cannot write: No space left on device", errno=28)
        return append(self, batch, **options)

    monkeypatch.setattr(PartitionLog, "append_batch", full)


@pytest.mark.usefixtures("full_at_first")
def test_lines_in_the_log_behind_a_refused_one_are_named_and_no_more_are_sent(pylog: Run, log: Log, topic: str) -> None:
    lines = [b"%d" % number * 2_000 for number in range(1, 1_000)]
    code, out, err = pylog("produce", topic, "--json", stdin=b"\n".join(lines))
    answer = json.loads(out)
    [[first, last]] = answer["later_lines"]
    assert [record.value for record in records(log)] == lines[first - 1 : last]
    assert 1 < first <= last < len(lines)
    assert (code, answer["refused_line"], answer["records"]) == (6, 1, last - first + 1)
    assert answer["unknown_lines"] == []
    named = f"line {first} after it is" if first == last else f"lines {first}-{last} after it are"
    assert err == f"pylog: error: line 1: cannot write: No space left on device (but {named} in the log)\n"


@pytest.mark.usefixtures("full_at_first")
def test_the_first_line_that_was_refused_is_told_though_a_later_one_was_found_out_sooner(
    pylog: Run, log: Log, topic: str
) -> None:
    code, out, err = pylog("produce", topic, "--input-format", "json", stdin=b'{"value": "a"}\nnonsense\n')
    assert (code, out) == (6, "0 records to t\n")
    assert err == "pylog: error: line 1: cannot write: No space left on device\n"


def test_lines_are_told_in_few_words() -> None:
    told = delivery_report.DeliveryReport("t")
    told.refuse(3, StorageFull("full"))
    for line in (4, 5, 6, 9):
        told._later.add(line)
    assert str(told.failure()) == "line 3: full (but lines 4-6, 9 after it are in the log)"
    told._unknown.add(40)
    assert str(told.failure()).endswith(" in the log) (whether line 40 is in the log is unknown)")


def test_deliveries_are_taken_in_when_there_are_very_many(
    pylog: Run, log: Log, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_report, "_UNDECIDED_RECORDS_MAX", 3)
    assert pylog("produce", topic, stdin=b"a\n" * 20).out == "20 records to t (partition 0: 0-19)\n"


@pytest.mark.processes
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_read_before_an_interruption_is_written(log: Log, log_dir: Path, number: int, code: int) -> None:
    log.create_topic("t")
    process = start(log_dir, "produce", "t", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"a\nb\n")
    process.stdin.flush()
    partition = log.partition("t", 0)
    assert log.manager.wait_for_change(lambda: partition.latest_offset == 2, 30)
    process.send_signal(number)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (code, b"2 records to t (partition 0: 0-1)\n", b"")


@pytest.mark.processes
def test_lines_typed_at_a_terminal_are_there_at_once(log: Log, log_dir: Path) -> None:
    log.create_topic("t")
    parent, child = os.openpty()
    process = start(log_dir, "produce", "t", stdin=child)
    os.close(child)
    os.write(parent, b"typed\n")
    partition = log.partition("t", 0)
    assert log.manager.wait_for_change(lambda: partition.latest_offset == 1, 30)
    os.write(parent, b"\x04")
    assert process.communicate() == (b"1 record to t (partition 0: 0-0)\n", b"")
    os.close(parent)
    assert json.dumps(records(log)[0].value.decode()) == '"typed"'
