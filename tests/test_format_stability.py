"""Logs that earlier versions wrote: this one reads every record of them, finds nothing wrong, and
goes on writing.

``tests/data/pylog-<version>`` was written by ``tests/data/make_golden.py`` of that version, and is
never changed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pylog import Consumer, Log, TopicConfig
from pylog.codec import COMPILED
from pylog.codec.control import ControlType, build_marker
from pylog.model import ProducerRecord, TopicPartition
from tests.data import make_golden
from tests.partition.logs import snapshot_of

DATA = Path(__file__).parent / "data"
VERSIONS = sorted(path.name for path in DATA.glob("pylog-*"))
NOW = "pylog-0.1.0-4"  # what this version writes
# The one before it has seals that record nothing of transaction indexes, the two before that other
# commit slots, too, and the first other producer ids.


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest) -> Path:
    return DATA / str(request.param)


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Path:
    shutil.copytree(golden / "log", tmp_path / "log")
    return tmp_path / "log"


def expected(golden: Path) -> dict[str, list[dict[str, Any]]]:
    found = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted((golden / "expected").glob("*.jsonl"))
    }
    for facts, *_ in found.values():  # what is read of every topic's configuration now
        facts["config"] = {**TopicConfig().as_dict(), **facts["config"], "retention_ms": -1, "partitioner": "murmur3"}
    return found


def test_there_is_a_log_of_an_earlier_version() -> None:
    assert "pylog-0.1.0" in VERSIONS


def test_every_record_and_every_fact_is_read_as_it_was_written(golden: Path) -> None:
    before = snapshot_of(golden / "log")
    with Log(golden / "log", read_only=True) as log:
        assert json.loads(json.dumps(dict(make_golden.listing(log)))) == expected(golden)
    assert snapshot_of(golden / "log") == before


def test_nothing_is_found_wrong(golden: Path) -> None:
    with Log(golden / "log", read_only=True) as log:
        report = log.verify()
    assert report.problems == []
    ids, transaction = report.notes  # it has batches of producers that count from 0, as Kafka's do
    assert "producer ids" in ids
    assert "transactions-0: a transaction is open from offset 29 on" in transaction


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_a_consumer_reads_it_all(golden: Path, isolation_level: str) -> None:
    wanted = expected(golden)
    with Log(golden / "log", read_only=True) as log:
        partitions = [TopicPartition(topic, n) for topic in log.topics() for n in log.describe_topic(topic).numbers]
        with Consumer(log, auto_offset_reset="earliest", isolation_level=isolation_level) as consumer:
            consumer.assign(partitions)
            found: dict[str, list[dict[str, Any]]] = {f"{topic}-{number}": [] for topic, number in partitions}
            while records := consumer.poll(0.0):
                for record in records:
                    found[f"{record.topic}-{record.partition}"].append(make_golden.as_line(record))
    assert found == {
        name: [
            {field: line[field] for field in line if field != "committed"}
            for line in lines
            if line["committed"] or isolation_level == "read_uncommitted"
        ]
        for name, (_, *lines) in wanted.items()
    }


def lookups(lines: Iterable[dict[str, Any]]) -> dict[int, int]:
    """The first offset at or after each timestamp there is."""
    lines = list(lines)
    return {
        at: next(line["offset"] for line in lines if line["timestamp_ms"] >= at)
        for at in {line["timestamp_ms"] for line in lines}
    }


def test_offsets_and_times_are_looked_up_in_it(golden: Path) -> None:
    with Log(golden / "log", read_only=True) as log:
        for name, (facts, *lines) in expected(golden).items():
            partition = log.partition(facts["topic"], int(name.rpartition("-")[2]))
            for line in lines:
                (record,) = partition.read(line["offset"], max_records=1, isolation_level="read_uncommitted")
                assert make_golden.as_line(record).items() <= line.items()
            for at, offset in lookups(lines).items():
                found = partition.offset_for_time(at)
                assert found is not None
                assert found.offset == offset


def test_a_copy_of_it_is_appended_to_rolled_and_read_again(golden: Path, copy: Path) -> None:
    wanted = expected(golden)
    for again in range(2):
        with Log(copy) as log:
            for name, (facts, *_) in wanted.items():
                partition = log.partition(facts["topic"], int(name.rpartition("-")[2]))
                result = partition.append([ProducerRecord(b"new", b"key", timestamp_ms=make_golden.START_MS)] * 3)
                assert result.base_offset == facts["latest"] + 3 * again
                partition.log.roll()
    with Log(copy, read_only=True) as log:
        assert log.verify().problems == []
        for name, (facts, *lines) in make_golden.listing(log):
            (old, *old_lines) = wanted[name]
            kept = [{**line, "committed": None} for line in old_lines]
            assert [{**line, "committed": None} for line in lines[: len(old_lines)]] == kept
            assert [line["value"] for line in lines[len(old_lines) :]] == ["new"] * 6
            assert {**facts, "latest": 0, "segments": 0, "last_stable": 0} == {
                **old, "latest": 0, "segments": 0, "last_stable": 0,
            }  # fmt: skip


def test_its_producers_are_remembered(copy: Path) -> None:
    with Log(copy, clock=make_golden.Standing()) as log:
        partition = log.partition("rolled", 0)
        last = partition.latest_offset - 1
        repeat = make_golden.encoded(b"rolled %d " % last * 12, last, make_golden.ROLLED_PRODUCER, last)
        result = partition.log.append_batch(repeat)
        assert (result.base_offset, result.duplicate) == (last, True)
        following = make_golden.encoded(b"next", last + 1, make_golden.ROLLED_PRODUCER, last + 1)
        assert partition.log.append_batch(following).base_offset == last + 1


@pytest.mark.parametrize("commit", [True, False])
def test_its_open_transaction_can_still_be_ended(golden: Path, copy: Path, commit: bool) -> None:
    (facts, *lines) = expected(golden)["transactions-0"]
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    with Log(copy) as log:
        partition = log.partition("transactions", 0)
        assert partition.last_stable_offset == facts["last_stable"] < facts["latest"]
        partition.log.append_batch(build_marker(kind, 3, 0, 3, make_golden.START_MS))
        assert partition.last_stable_offset == facts["latest"] + 1
        found = [record["offset"] for record in make_golden.records(partition, "read_committed")]
    undecided = [line["offset"] for line in lines if line["offset"] >= facts["last_stable"]]
    committed = [line["offset"] for line in lines if line["committed"]]
    assert found == committed + (undecided if commit else undecided[1:])


def test_what_this_version_writes_is_still_the_same_to_the_byte(tmp_path: Path) -> None:
    """Where this fails, what is written has changed: write a log of another name with
    make_golden.py, and leave the old ones."""
    make_golden.main(tmp_path / "now")
    golden = DATA / NOW
    assert expected(tmp_path / "now") == expected(golden)
    now, then = snapshot_of(tmp_path / "now" / "log"), snapshot_of(golden / "log")
    assert now.keys() == then.keys()
    recorded, is_recorded = b'"retention_ms": 604800000', b'"retention_ms": -1'  # which is read as it is written now
    then = {name: data.replace(recorded, is_recorded) for name, data in then.items()}
    # The libraries choose these bytes.
    compressed = tuple(f"codec-{codec}-0/" for codec in make_golden.CODECS if codec != "none")
    shorter = () if COMPILED else (".seal",)  # the readable codec leaves out the least times
    different = [name for name in now if now[name] != then[name]]
    assert [name for name in different if not name.startswith(compressed) and not name.endswith(shorter)] == []
