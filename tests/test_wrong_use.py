"""Calls with wrong arguments: each raises one typed error, at once, and changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog.consumer import Consumer
from pylog.errors import Closed, ConfigError, LogNotFound, PylogError, ReadOnlyLog, RecordTooLarge, StorageError
from pylog.log import Log
from pylog.model import ProducerRecord
from pylog.producer import Producer

KAFKA = Path(__file__).parent / "data" / "kafka-4.3.1" / "log"


@pytest.fixture
def log(tmp_log_dir: Path) -> Iterator[Log]:
    """A log with one topic ``t`` of one partition and three records."""
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(b"%d" % number) for number in range(3)], acks=1)
        yield log


@pytest.mark.parametrize("sized", [True, False], ids=["list", "generator"])
def test_records_that_do_not_fit_into_one_batch_are_refused_together(log: Log, sized: bool) -> None:
    partition = log.partition("t", 0)
    records = [ProducerRecord(b"x" * 500_000)] * 5
    with pytest.raises(RecordTooLarge, match=r"first 2 .*nothing was appended: append fewer") as caught:
        partition.append(records if sized else iter(records))
    limit = log.describe_topic("t").config.max_message_bytes
    assert caught.value.facts == {"limit_bytes": limit, "fitting": 2, "count": 5 if sized else None}
    assert partition.latest_offset == 3


def test_records_that_just_fit_into_one_batch_are_all_appended(log: Log) -> None:
    log.create_topic("small", max_message_bytes=128)
    partition = log.partition("small", 0)
    fitting = (128 - 61) // 8  # a record of one byte takes eight
    assert partition.append([ProducerRecord(b"x")] * fitting, acks=1).last_offset == fitting - 1
    with pytest.raises(RecordTooLarge, match=f"first {fitting} of {fitting + 1}"):
        partition.append([ProducerRecord(b"x")] * (fitting + 1))
    assert partition.latest_offset == fitting


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", 'got an empty one; "." is'),
        (b"log", "got bytes"),
        (None, "got NoneType"),
        (5, "got int"),
        ("a\0b", "has a null character"),
        ("\ud800", "is not text"),
    ],
)
def test_a_path_that_can_name_no_directory_is_refused(path: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"the path of a log is a str or a Path: .*{message}"):
        Log(path)


def test_a_directory_that_cannot_be_made_is_an_error_of_the_disk() -> None:
    with pytest.raises(StorageError, match="cannot create the directory '/proc/pylog'"):
        Log("/proc/pylog")


@pytest.mark.parametrize("option", ["create", "read_only", "auto_create_topics"])
def test_a_switch_of_the_log_is_true_or_false(tmp_log_dir: Path, option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} must be True or False, not 'no'"):
        Log(tmp_log_dir, **{option: "no"})  # type: ignore[arg-type]
    assert not tmp_log_dir.exists()


def test_a_directory_that_holds_something_else_does_not_become_a_log(log: Log, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "notes.txt").touch()
    for path in (tmp_path / "plain", log.path / "t-0", log.path.parent):
        before = sorted(path.rglob("*"))
        with pytest.raises(LogNotFound, match=r"is neither a log .*, nor a Kafka .*, nor empty \(it holds '") as caught:
            Log(path)
        assert caught.value.path == str(path)
        assert sorted(path.rglob("*")) == before


def test_a_directory_becomes_a_log_if_it_is_empty_or_a_creation_was_cut_short(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut" / ".pylog" / "topics").mkdir(parents=True)
    for name in ("empty", "cut"):
        with Log(tmp_path / name) as log:
            log.create_topic("t")
        Log(tmp_path / name, create=False).close()


def test_a_log_that_lost_its_manifest_is_not_created_over_its_topics(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
    (tmp_log_dir / ".pylog" / "manifest.json").unlink()
    shutil.rmtree(tmp_log_dir / "t-0")
    (tmp_log_dir / "t-0").mkdir()
    with pytest.raises(PylogError, match="is neither a log"):
        Log(tmp_log_dir)


@pytest.mark.parametrize("kind", [Producer, Consumer])
@pytest.mark.parametrize("given", ["orders", None, Path("log"), Log], ids=repr)
def test_producers_and_consumers_take_a_log(kind: Any, given: Any) -> None:
    message = rf"the first argument is a Log, got .*\({type(given).__name__}\): {kind.__name__}\(Log\(path\)\)"
    with pytest.raises(ConfigError, match=message):
        kind(given)


@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_producers_and_consumers_take_no_log_that_was_closed(kind: Any, log: Log) -> None:
    log.close()
    with pytest.raises(Closed, match="has been closed; open a new one"):
        kind(log)


@pytest.mark.parametrize("name", ["transactional_id", "transaction_timeout_ms"])
def test_options_of_transactions_are_not_there_yet(log: Log, name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"{name}='x': transactions are not in this version; Partition.append"
    ) as caught:
        Producer(log, **{name: "x"})  # type: ignore[arg-type]
    assert caught.value.facts == {"option": name, "value": "x"}
    Producer(log, **{name: None}).close()


@pytest.mark.parametrize("name", ["group_id", "enable_auto_commit", "assignor"])
def test_options_of_consumer_groups_are_not_there_yet(log: Log, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}='x': consumer groups .* not in this version; .*assign.*seek"):
        Consumer(log, **{name: "x"})  # type: ignore[arg-type]
    Consumer(log, **{name: None}).close()


@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_a_misspelled_option_is_named(kind: Any, log: Log) -> None:
    with pytest.raises(ConfigError, match=rf"{kind.__name__} has no option 'max_pol_records'"):
        kind(log, max_pol_records=5)


def test_a_log_that_can_only_be_read_says_why(log: Log) -> None:
    with Log(log.path, read_only=True) as asked, Log(KAFKA) as kafkas:
        for opened, why in ((asked, "it was opened with read_only=True"), (kafkas, "Kafka wrote this directory")):
            partition = opened.partition(opened.topics()[0], 0)
            calls: list[Any] = [
                lambda opened=opened: opened.create_topic("new"),
                lambda opened=opened: Producer(opened),
                lambda opened=opened: opened.next_producer_id(),
                lambda partition=partition: partition.append([ProducerRecord(b"x")]),
            ]
            for call in calls:
                with pytest.raises(ReadOnlyLog, match=f"can only be read: {why}"):
                    call()
