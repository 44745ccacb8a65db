"""``pylog verify``"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pylog import Producer
from pylog.log import Log
from pylog.model import TopicPartition
from pylog.partition.verify import ProducerIdCheck, ProducerIdRange
from pylog.testing import produce_all
from tests.cli.conftest import Run
from tests.partition.logs import add, flip, headers, log_file


@pytest.fixture
def filled(log: Log) -> Log:
    """Two topics; ``a`` has two partitions of three batches each."""
    log.create_topic("a", partitions=2)
    log.create_topic("b")
    for number in range(2):
        for value in (b"1", b"2", b"3"):
            produce_all(log, "a", [value], partition=number)
    produce_all(log, "b", [b"x"])
    return log


def test_a_good_log_is_code_0(pylog: Run, filled: Log) -> None:
    size = sum(path.stat().st_size for path in filled.path.glob("*/*.log"))
    assert pylog("verify") == (0, f"3 partitions, 3 segments, 7 batches, 7 records, {size} B: all good\n", "")
    assert pylog("verify", "--json").objects == [
        {
            "type": "summary", "problems": 0, "not_checked": 0, "partitions": 3, "segments": 3, "unsealed_segments": 0,
            "batches": 7, "records": 7, "size_bytes": size, "unfinished_bytes": 0, "notes": [],
            "open_transactions": 0,
        }
    ]  # fmt: skip


def test_damage_is_code_1_and_named_with_file_position_and_offsets(pylog: Run, filled: Log) -> None:
    path = log_file(filled.path / "a-1")
    position, header = headers(path)[1]
    flip(path, position + header.size_bytes - 1)
    code, out, err = pylog("verify")
    assert (code, err) == (1, "")
    first, last = out.splitlines()
    assert first.startswith(f"a-1: {path.name}, position {position}, offsets from 1 to 1: batch at offset 1: CRC ")
    assert first.endswith("whole batches follow at position " + str(headers(path)[2][0]))
    assert last.endswith("6 batches, 6 records, " + last.split(", ")[4].split(":")[0] + ": 1 problem")
    problem, summary = pylog("verify", "--json").objects
    assert (problem.pop("problem").startswith("batch at offset 1"), summary["problems"]) == (True, 1)
    assert problem == {
        "type": "problem", "topic": "a", "partition": 1, "kind": "batch", "file": str(path), "position": position,
        "first_offset": 1, "end_offset": 2,
    }  # fmt: skip


def count_from(log: Log, number: int) -> Path:
    """Have producers count from this number, as logs of earlier versions do; their file."""
    path = log.path / ".pylog" / "producer-ids"
    path.write_text(f"{number}\n")
    return path


def test_ids_that_count_from_0_are_a_note_and_code_0(pylog: Run, log: Log) -> None:
    log.create_topic("t")
    count_from(log, 1000)
    with Producer(log) as producer:
        producer.send("t", b"v").result()
    code, out, _ = pylog("verify")
    note, summary = out.splitlines()
    assert (code, summary.endswith(": all good")) == (0, True)
    assert note.startswith(
        "note: the producer ids of this log count from 0, as those of a Kafka cluster do (batches have ids"
    )
    assert "from 1000 on, the next producer gets 2000" in note
    (summary_json,) = pylog("verify", "--json").objects
    assert summary_json["notes"] == [note.removeprefix("note: ")]


def test_an_id_that_will_be_given_out_again_is_a_problem(pylog: Run, log: Log) -> None:
    log.create_topic("t", partitions=2)
    path = count_from(log, 5000)
    for partition in (0, 1, 1):
        with Producer(log) as producer:
            producer.send("t", b"v", partition=partition).result()
    log.partition("t", 0).log.roll()  # with a snapshot
    count_from(log, 5001)
    code, out, _ = pylog("verify")
    first, _, summary = out.splitlines()
    assert (code, summary.endswith(": 1 problem")) == (1, True)
    assert first.startswith(
        f"t-1: {0:020d}.log, position 69, offsets from 1 to 1: producer id 5002 is not below 5001, the next number in "
        ".pylog/producer-ids: another producer will get the same id"
    )
    assert first.endswith("(and 1 more like it)")
    count_from(log, 5000)
    assert [line.partition(": ")[0] for line in pylog("verify").lines] == [
        "t-0",
        "t-1",
        "note",
        summary.partition(": ")[0],
    ]
    path.unlink()  # the remedy
    with Producer(log) as producer:
        assert [producer.send("t", b"after", partition=n).result().offset for n in (0, 1)] == [1, 2]
    assert pylog("verify").code == 0


def test_an_id_in_a_snapshot_alone_is_compared_too(pylog: Run, log: Log) -> None:
    log.create_topic("t")
    count_from(log, 5000)
    with Producer(log) as producer:
        producer.send("t", b"v").result()
    log.partition("t", 0).log.roll()
    log.delete_records(TopicPartition("t", 0), 1)
    count_from(log, 5000)
    (problem, *_) = pylog("verify").lines
    assert problem.startswith(f"t-0: {1:020d}.snapshot, position 0: producer id 5000 is not below 5000")


@pytest.mark.parametrize("content", ["", "999", "9" * 30])
def test_a_damaged_count_of_ids_is_a_problem_with_a_remedy(pylog: Run, filled: Log, content: str) -> None:
    path = filled.path / ".pylog" / "producer-ids"
    path.write_text(content)
    code, out, _ = pylog("verify")
    problem, _ = out.splitlines()
    assert (code, problem.startswith(f"{path} holds b'")) == (1, True)
    assert problem.endswith("remove the file: the next producer then begins at a new random number")
    (found, _) = pylog("verify", "--json").objects
    assert (found["kind"], found["topic"], found["file"]) == ("producer-ids", "", str(path))


def test_ids_reserved_while_the_check_runs_are_no_problem() -> None:
    answers = iter([5000, 6000])
    check = ProducerIdCheck(lambda: next(answers), ProducerIdRange())
    check.add(5999, "path", 0, 0, 1)
    assert list(check.result()) == []


def test_only_the_topics_named_are_checked(pylog: Run, filled: Log) -> None:
    flip(log_file(filled.path / "a-0"), 70)
    assert pylog("verify", "b").code == 0
    assert pylog("verify", "a", "b", "a").code == 1
    assert pylog("verify", "nope").code == 3


def test_a_topic_whose_own_file_is_damaged_hides_no_other(pylog: Run, filled: Log) -> None:
    (filled.path / ".pylog" / "topics" / "b.json").write_text("{")
    flip(log_file(filled.path / "a-0"), 70)
    code, out, err = pylog("verify")
    assert (code, err, len(out.splitlines())) == (1, "", 3)
    assert out.startswith("b: ")
    *problems, summary = pylog("verify", "--json").objects
    told = [(problem["topic"], problem["partition"], problem["kind"]) for problem in problems]
    assert told == [("b", None, "topic"), ("a", 0, "batch")]
    assert summary["problems"] == 2


def test_a_partition_without_its_topic_is_a_problem(pylog: Run, filled: Log) -> None:
    filled.create_topic("empty")
    for topic in ("b", "empty"):
        (filled.path / ".pylog" / "topics" / f"{topic}.json").unlink()
    code, out, _ = pylog("verify")
    assert code == 1
    assert out.splitlines()[0] == "b-0: belongs to no topic: its topic file is lost, or a deletion was cut off"
    assert len(out.splitlines()) == 2
    problem, summary = pylog("verify", "--json").objects
    assert (problem["kind"], problem["topic"], problem["partition"]) == ("topic", "b", 0)
    assert (problem["file"], summary["problems"]) == (str(filled.path / "b-0"), 1)
    assert pylog("verify", "a").code == 0


def test_a_missing_partition_is_a_problem(pylog: Run, filled: Log) -> None:
    import shutil

    shutil.rmtree(filled.path / "b-0")
    code, out, _ = pylog("verify")
    assert code == 1
    assert "b-0: b-0, position 0: the partition's directory is missing" in out


def test_an_unfinished_append_is_mentioned_and_no_problem(pylog: Run, filled: Log) -> None:
    add(log_file(filled.path / "b-0"), b"torn")
    code, out, _ = pylog("verify")
    assert code == 0
    assert out.splitlines()[0] == "4 B of an unfinished append, which the next writer adopts or cuts: no damage"


def test_it_changes_nothing(pylog: Run, filled: Log) -> None:
    add(log_file(filled.path / "b-0"), b"torn")
    before = {path: path.read_bytes() for path in sorted(filled.path.rglob("*")) if path.is_file()}
    pylog("verify")
    assert {path: path.read_bytes() for path in sorted(filled.path.rglob("*")) if path.is_file()} == before


def test_a_log_of_kafkas_is_good(pylog: Run) -> None:
    log = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
    (summary,) = pylog("verify", "--json", "--log", log).objects
    expected = [json.loads(line) for line in (log.parent / "expected" / "dump.jsonl").read_text().splitlines()]
    assert summary["batches"] == sum(file.get("batches", 0) for file in expected)
    assert (summary["problems"], summary["unfinished_bytes"]) == (0, 0)


def test_records_of_a_codec_that_is_missing_are_not_checked_and_no_problem(pylog: Run, without_codecs: None) -> None:
    log = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"
    code, out, err = pylog("verify", "codec-gzip", "codec-lz4", "codec-snappy", "--log", log)
    assert (code, err) == (1, "")
    *unchecked, summary = out.splitlines()
    assert unchecked == [
        f"not checked: the records of 1 segment: codec {codec} needs the package {package}: "
        f"pip install 'pylog-embedded[codecs]', or pip install {package}"
        for codec, package in (("lz4", "lz4"), ("snappy", "cramjam"))
    ]
    assert summary.endswith(": 0 problems, but not everything was checked")
    *found, total = pylog("verify", "codec-lz4", "codec-snappy", "--json", "--log", log).objects
    assert [(one["type"], one["topic"], one["kind"]) for one in found] == [
        ("not_checked", "codec-lz4", "unchecked"),
        ("not_checked", "codec-snappy", "unchecked"),
    ]
    assert (total["problems"], total["not_checked"]) == (0, 2)
    assert pylog("verify", "codec-gzip", "--log", log).code == 0
