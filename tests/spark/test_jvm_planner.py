"""The Java reader's planner, without a JVM: its questions, its answers, what it refuses, how it
ends."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, Producer
from pylog.errors import ConfigError
from pylog.segment.naming import SEAL, file_path
from pylog.spark.jvm import planner
from pylog.spark.jvm.planner import FRAME, PROTOCOL, QUESTION_BYTES_MAX, answer
from pylog.storage import OsFileSystem
from tests.arrow.rows import T0
from tests.spark.reading import KAFKA, as_texts, planned
from tests.transaction.story import commit_abort_commit, story
from tests.transaction.views import TOPIC

RECORDS = 400


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions in several segments each."""
    path = tmp_path_factory.mktemp("planner") / "log"
    with Log(path) as log, Producer(log, batch_bytes=500) as producer:
        log.create_topic("orders", partitions=2, segment_bytes=4096, index_interval_bytes=64)
        for number in range(RECORDS):
            value = b"%064d" % number
            producer.send("orders", value, partition=number % 2, timestamp_ms=T0 + number)
    return path


def ask(question: str, **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer(json.dumps({"protocol": PROTOCOL, "ask": question, **given}).encode()))
    return found


def plan(path: Path | str, *filters: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The pieces of a plan, whatever their tasks."""
    found = ask("plan", options={"path": str(path), **as_texts(options)}, filters=list(filters))
    assert "error" not in found, found
    return [piece for task in found["tasks"] for piece in task["pieces"]]


def is_(kind: str, column: str, *values: Any, negated: bool = False) -> dict[str, Any]:
    return {"kind": kind, "column": column, "values": values, "negated": negated}


# Plans


def test_a_plan_is_that_of_the_source_in_python(orders: Path) -> None:
    for given in ({}, {"splitBytes": 5_000}, {"startingOffsets": {"orders": {"0": 17, "1": -2}}}, {"minPartitions": 7}):
        ours = [(p["topic"], p["partition"], p["start"], p["end"]) for p in plan(orders, **given)]
        assert ours == [(*p.source.topic_partition, p.start, p.end) for p in planned(orders, **given)]


def test_small_pieces_share_a_task(orders: Path) -> None:
    found = ask("plan", options={"path": str(orders)}, filters=[])
    (task,) = found["tasks"]
    assert [piece["partition"] for piece in task["pieces"]] == [0, 1]
    assert task["sizeBytes"] == sum(path.stat().st_size for path in orders.glob("orders-*/*.log"))


@pytest.mark.slow
def test_a_piece_has_the_segments_that_it_lies_in_and_begins_at_a_batch(orders: Path) -> None:
    with Log(orders, read_only=True) as log:
        infos = log.partition("orders", 0).segments
    assert len(infos) > 3
    for start in range(0, RECORDS // 2, 3):
        for end in (start + 1, min(start + 30, RECORDS // 2)):
            offsets = {"orders": {"0": start, "1": -2}}
            (piece, *_) = plan(orders, startingOffsets=offsets, endingOffsets={"orders": {"0": end, "1": -1}})
            wanted = [info for info in infos if info.base_offset < end and info.end_offset > start]
            assert [one["base"] for one in piece["segments"]] == [info.base_offset for info in wanted]
            for one, info in zip(piece["segments"], wanted, strict=True):
                is_last = info is infos[-1]
                assert (one["path"], one["sizeBytes"]) == (info.path, info.size_bytes)
                assert (one["nextBase"], one["isClosed"]) == (-1 if is_last else info.end_offset, not is_last)
                begins = Path(info.path).read_bytes()[one["startPosition"] :]
                assert info.base_offset <= int.from_bytes(begins[:8], "big") <= max(start, info.base_offset)


def test_a_start_far_into_a_segment_is_found_by_the_index(orders: Path) -> None:
    (piece, *_) = plan(orders)
    last_of_first = piece["segments"][0]["nextBase"] - 1
    (piece, *_) = plan(orders, startingOffsets={"orders": {"0": last_of_first, "1": -2}})
    assert piece["segments"][0]["startPosition"] > 0


def test_a_piece_names_partition_topic_and_home(orders: Path) -> None:
    for number, piece in enumerate(plan(orders)):
        directory = orders / f"orders-{number}"
        assert base64.b64decode(piece["identity"]) == (directory / "partition.metadata").read_bytes()
        assert piece["directory"] == str(directory)
        assert not piece["isKafka"]
        assert piece["home"].endswith(f"-{number}")
        assert piece["home"].encode() in Path(file_path(str(directory), 0, SEAL)).read_bytes()


def test_kafkas_directories_have_no_home() -> None:
    pieces = plan(KAFKA / "log")
    assert pieces
    assert all(piece["isKafka"] and not piece["home"] for piece in pieces)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_piece_names_the_aborted_transactions_that_overlap_it(tmpfs_dir: Path, is_committed: bool) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic(TOPIC)
        with story(log) as it:
            commit_abort_commit(it)
            level = "read_committed" if is_committed else "read_uncommitted"
            end = log.partition(TOPIC, 0).latest_offset
            for start in range(end):
                given = {"isolationLevel": level, "startingOffsets": {TOPIC: {"0": start}}, "subscribe": TOPIC}
                (piece,) = plan(log.path, **given)
                assert piece["readCommitted"] is is_committed
                hidden = {row[0] for row in it.rows("read_uncommitted")} - {row[0] for row in it.rows("read_committed")}
                for offset in range(start, end):
                    is_aborted = any(one["firstOffset"] <= offset <= one["lastOffset"] for one in piece["aborted"])
                    assert is_aborted or offset not in hidden or not is_committed
                assert all(one["lastOffset"] >= start for one in piece["aborted"])


# Filters


def test_filters_narrow_the_plan_and_times_are_left_to_spark(orders: Path) -> None:
    time = is_("GreaterThanOrEqual", "timestamp", {"us": (T0 + 300) * 1000})
    offset = is_("In", "offset", 7, None, 8)
    partition = is_("EqualTo", "partition", 0, negated=True)
    assert ask("filters", filters=[time, offset, partition, is_("IsNotNull", "offset")]) == {"left": [0]}
    assert ask("filters", filters=[is_("EqualTo", "key", "x"), is_("EqualTo", "offset", "7")]) == {"left": [0, 1]}
    assert [(p["partition"], p["start"], p["end"]) for p in plan(orders, offset, partition)] == [(1, 7, 9)]
    later = plan(orders, time)
    assert min(piece["start"] for piece in later) > 100
    assert not plan(orders, is_("EqualTo", "topic", "other"))


# What it refuses


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        (
            {"failOnDataLoss": "false"},
            "ConfigError",
            'failOnDataLoss=false: format("pylog-jvm") cannot do it: use',
        ),
        ({"onCorruption": "skip"}, "ConfigError", 'onCorruption=skip: format("pylog-jvm") cannot do it'),
        ({"maxOffsetsPerTrigger": "5"}, "ConfigError", "is for streams"),
        ({"subscribe": "order"}, "TopicNotFound", "no topic 'order'"),
        ({"subscribe": "../../etc"}, "InvalidTopicName", "../../etc"),
        ({"subcsribe": "orders"}, "ConfigError", "did you mean 'subscribe'?"),
        ({"path": "/nowhere/at/all"}, "LogNotFound", "there is no directory"),
        ({"path": "/\ud800"}, "ConfigError", "is no text"),
        ({"kafka.bootstrap.servers": "there:9092"}, "ConfigError", "for a broker"),
        ({"trustHeaders": "perhaps"}, "ConfigError", "true or false"),
    ],
)
def test_wrong_options_are_errors_with_a_name(orders: Path, options: dict[str, str], kind: str, text: str) -> None:
    found = ask("plan", options={"path": str(orders), **options}, filters=[])
    assert found["error"]["class"] == kind
    assert text in found["error"]["message"]


@pytest.mark.parametrize("option", ["trustHeaders", "trustheaders"])
def test_the_java_reader_alone_can_distrust_headers(orders: Path, option: str) -> None:
    assert plan(orders, **{option: "false"}) == plan(orders)
    with pytest.raises(ConfigError, match=r'for format\("pylog-jvm"\), and this format decodes every record'):
        planned(orders, **{option: "false"})


def test_another_protocol_is_refused() -> None:
    assert "protocol 7" in ask("describe", options={}, protocol=7)["error"]["message"]


def test_a_plan_that_is_too_large_is_refused(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "ANSWER_BYTES_MAX", 1000)
    assert "plan fewer tasks" in ask("plan", options={"path": str(orders)}, filters=[])["error"]["message"]


def test_a_segment_that_compaction_replaces_is_refused(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pylog.partition.read.reader import PartitionReader

    read = PartitionReader.segments
    monkeypatch.setattr(PartitionReader, "segments", lambda self, state: read(self, state)._replace(swaps=(0,)))
    found = ask("plan", options={"path": str(orders)}, filters=[])["error"]
    assert (found["class"], "load the frame again" in found["message"]) == ("CorruptSegment", True)


# The process


def test_the_process_answers_each_question_by_its_number_until_its_stdin_ends(orders: Path) -> None:
    questions = [{"protocol": PROTOCOL, "ask": "describe", "options": {"path": str(path)}} for path in (orders, "/no")]
    done = run(b"".join(framed(number, json.dumps(each).encode()) for number, each in enumerate(questions, 7)))
    (one, first), (other, second) = answers(done.stdout)
    assert (one, other, done.returncode) == (7, 8, 0)
    assert (first, second["error"]["class"]) == ({"includeHeaders": False}, "LogNotFound")
    assert not done.stderr


def test_what_others_print_is_no_answer(orders: Path, tmp_path: Path) -> None:
    """Not even by the descriptor, as a library in C does."""
    (tmp_path / "ipaddress.py").write_text(  # says hello, then takes the place of the right one
        f"import os, sys; os.write(1, b'hello'); print('hello'); sys.path.remove({str(tmp_path)!r})\n"
        "del sys.modules['ipaddress']; import ipaddress"
    )
    question = json.dumps({"protocol": PROTOCOL, "ask": "describe", "options": {"path": str(orders)}}).encode()
    done = run(framed(1, question), PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert [number for number, _ in answers(done.stdout)] == [1]
    assert done.stderr.startswith(b"hello")


@pytest.mark.parametrize("question", [b"no JSON", b"[]", b'{"protocol": 1, "ask": "else"}', b"[" * 100_000])
def test_a_question_that_is_none_ends_the_process(question: bytes) -> None:
    done = run(framed(1, question))
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"Error" in done.stderr


@pytest.mark.parametrize("length", [QUESTION_BYTES_MAX + 1, -1])
def test_a_question_has_an_end(length: int) -> None:
    done = run(FRAME.pack(1, length))
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"the limit is" in done.stderr


def framed(number: int, question: bytes) -> bytes:
    return FRAME.pack(number, len(question)) + question


def answers(stdout: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    while stdout:
        number, length = FRAME.unpack_from(stdout)
        end = FRAME.size + length
        yield number, json.loads(stdout[FRAME.size : end])
        stdout = stdout[end:]


def test_it_loads_neither_pyspark_nor_pyarrow(orders: Path) -> None:
    question = {"protocol": PROTOCOL, "ask": "plan", "options": {"path": str(orders)}, "filters": []}
    program = (
        "import sys, pylog.spark.jvm.planner as planner\n"
        f"assert b'pieces' in planner.answer({json.dumps(question).encode()!r})\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'pyspark', 'pyarrow', 'pandas'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def run(frames: bytes, **other: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "pylog.spark.jvm"]
    environment = {**os.environ, "PYTHONSAFEPATH": "1", **other}
    return subprocess.run(command, input=frames, capture_output=True, check=False, env=environment)


def test_a_file_that_is_deleted_meanwhile_is_for_the_task_to_miss(
    orders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the position in it is not known: retention may take files at any time."""
    from pylog.segment.reader import SegmentReader

    monkeypatch.setattr(SegmentReader, "indexed_start", lambda *_: OsFileSystem().size(str(tmp_path / "gone")))
    (piece, *_) = plan(orders, startingOffsets={"orders": {"0": 150, "1": -2}})
    assert piece["segments"][0]["startPosition"] == 0
