"""Calls with wrong arguments: each raises one typed error, at once, and changes nothing."""

from __future__ import annotations

import copy
import errno
import pickle
import re
import shutil
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pylog.consumer import Consumer
from pylog.errors import (
    Closed,
    ConfigError,
    InvalidTimestamp,
    InvalidTopicName,
    InvalidTransactionState,
    LogNotFound,
    OffsetOutOfRange,
    PylogError,
    ReadOnlyLog,
    RecordTooLarge,
    SerializationError,
    StorageError,
    TopicExists,
    TopicNotFound,
)
from pylog.log import Log
from pylog.model import ProducerRecord, TopicPartition
from pylog.partition import Partition
from pylog.producer import Producer

KAFKA = Path(__file__).parent / "data" / "kafka-4.3.1" / "log"


@pytest.fixture
def log(log: Log) -> Log:
    """A log with one topic ``t`` of one partition and three records."""
    log.create_topic("t")
    log.partition("t", 0).append([ProducerRecord(b"%d" % number) for number in range(3)], acks=1)
    return log


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
        Log(tmp_log_dir, **{option: "no"})
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
    with pytest.raises(PylogError, match=r"manifest\.json is lost"):
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


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"transactional_id": ""}, "a transactional id is text of 1 to 200 bytes"),
        ({"transactional_id": "\udc80"}, "a transactional id is text of 1 to 200 bytes"),
        (
            {"transactional_id": "x", "acks": 1},
            "a transaction needs acks='all' and enable_idempotence=True, got acks=1",
        ),
        ({"transactional_id": "x", "enable_idempotence": False}, "got acks='all', enable_idempotence=False"),
        ({"transaction_timeout_ms": "x"}, "transaction_timeout_ms must be milliseconds"),
        (
            {"transaction_timeout_ms": 2**31},
            "transaction_timeout_ms is 2147483648, expected 1 to 2147483647 milliseconds",
        ),
    ],
)
def test_options_of_transactions_that_contradict_are_refused(log: Log, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        Producer(log, **options)


def test_calls_of_transactions_need_an_id_and_their_order(log: Log) -> None:
    log.create_topic("orders")
    with Producer(log) as producer, pytest.raises(ConfigError, match="begin_transaction needs a transactional_id"):
        producer.begin_transaction()
    with Producer(log, transactional_id="x") as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, partial(producer.send, "orders", b"v")):
            with pytest.raises(InvalidTransactionState, match="this producer has not called init_transactions"):
                call()
        producer.init_transactions()
        for call in (producer.commit_transaction, producer.abort_transaction, partial(producer.send, "orders", b"v")):
            with pytest.raises(InvalidTransactionState, match="this producer has no open transaction"):
                call()
        producer.begin_transaction()
        with pytest.raises(InvalidTransactionState, match="this producer has an open transaction"):
            producer.begin_transaction()
    assert log.partition("orders", 0).latest_offset == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"group_id": ""}, "a group's name is text of 1 to 200 bytes"),
        ({"group_id": "x" * 201}, "a group's name is text of 1 to 200 bytes"),
        ({"group_id": 7}, "a group's name is text of 1 to 200 bytes"),
        ({"group_id": "g", "assignor": "rnage"}, "assignor='rnage'; there are 'range'"),
        ({"group_id": "g", "enable_auto_commit": "yes"}, "enable_auto_commit"),
        ({"group_id": "g", "max_poll_interval_ms": 0}, "max_poll_interval_ms"),
        ({"group_id": "g", "group_instance_id": ""}, "group_instance_id is text"),
        ({"enable_auto_commit": True}, "enable_auto_commit is for a consumer in a group: give it a group_id"),
        ({"group_instance_id": "a"}, "group_instance_id is for a consumer in a group"),
    ],
)
def test_options_of_groups_are_checked(log: Log, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Consumer(log, **options)


def test_a_consumer_without_a_group_says_what_committing_needs(log: Log) -> None:
    with Consumer(log) as consumer:
        for call in (consumer.commit, consumer.commit_async, consumer.group_metadata):
            with pytest.raises(ConfigError, match=r"in no group.*group_id="):
                call()
        with pytest.raises(ConfigError, match="on_assigned: without a group_id"):
            consumer.subscribe("t", on_assigned=print)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("batch_size", "here it is batch_bytes"),
        ("compression_type", "here it is compression"),
        ("partitioner.class", "here it is partitioner, and without it"),
        ("partitioner_ignore_keys", 'here it is partitioner="sticky" with partitioner_override=True'),
        ("linger.ms", "here it is linger_ms"),
        ("lingerms", r"did you mean linger_ms\?"),
        ("bootstrap_servers", "there are no servers"),
        ("colour", "there are acks, linger_ms, .*, name$"),
    ],
)
def test_what_may_have_been_meant_is_said_of_an_option_that_no_producer_has(log: Log, option: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"Producer has no option '{option}'; {hint}"):
        Producer(log, **{option: 5})


@pytest.mark.parametrize("name", ["", "a b", "..", "x" * 250])
def test_no_one_subscribes_to_what_is_no_topic_name(tmp_log_dir: Path, name: str) -> None:
    for group in (None, "g"):
        with Log(tmp_log_dir) as log, Consumer(log, group_id=group) as consumer, pytest.raises(InvalidTopicName):
            consumer.subscribe(["t", name])


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("group.id", "here it is group_id"),
        ("bootstrap.servers", "there are no servers: the first argument is the Log"),
        ("partition.assignment.strategy", "here it is assignor: "),
        ("heartbeat_interval_ms", "the interval is fixed; leave it out"),
        ("enable.auto.offset.store", r".*commit\(offsets\), or enable_auto_commit"),
        ("fetch_max_wait_ms", r".*poll\(timeout\) returns as soon"),
        ("on_commit", ".*commit_async"),
    ],
)
def test_what_may_have_been_meant_is_said_of_an_option_that_no_consumer_has(log: Log, option: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"Consumer has no option '{option}'; {hint}"):
        Consumer(log, **{option: 5})


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("readonly", r"did you mean read_only of Log\(path\)\?"),
        ("retain_ms", r"did you mean retention_ms\?"),
        ("num_partitions", r"create_topic\(name, partitions=n\), later with add_partitions"),
        ("replication.factor", "there are no replicas"),
        ("colour", "there are segment_bytes, .*, writable$"),
    ],
)
def test_what_may_have_been_meant_is_said_of_an_option_that_no_topic_has(log: Log, option: str, hint: str) -> None:
    options: dict[str, Any] = {option: 5}
    for call in (lambda: log.create_topic("new", **options), lambda: log.alter_topic("t", **options)):
        with pytest.raises(ConfigError, match=f"no topic option '{option}'; .*{hint}"):
            call()
    with pytest.raises(ConfigError, match=f"no topic option '{option}'; .*{hint}"):
        Log(log.path, **options)
    grown: dict[str, Any] = {"partitions": 4}
    for change in (partial(log.alter_topic, "t", **grown), partial(Log, log.path, **grown)):
        with pytest.raises(ConfigError, match=r"no topic option 'partitions'; .*add_partitions\(name, total\)"):
            change()


def test_a_path_where_no_log_is_and_none_is_made_says_how_one_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for options in ({}, {"create": False}, {"read_only": True}):
        with pytest.raises(LogNotFound, match="file' is a file, and a log is a directory") as caught:
            Log(tmp_path / "file", **options)
        assert caught.value.path == str(tmp_path / "file")
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(LogNotFound, match=r"no log at .*missing'; correct .* pylog\.Log\(path\) does"):
            Log(tmp_path / "missing", **options)


def test_who_may_not_read_a_log_is_told_whose_it_is(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = StorageError("cannot open 'manifest.json': Permission denied", path="manifest.json", errno=errno.EACCES)

    def read_manifest(*_: object) -> None:
        raise refused

    monkeypatch.setattr("pylog.catalog.detect.read_manifest", read_manifest)
    with pytest.raises(StorageError, match=r"Permission denied; a log is its owner's alone, .* shared_group") as caught:
        Log(log.path)
    assert caught.value.facts == refused.facts
    refused.errno = errno.EIO
    with pytest.raises(StorageError, match=r"Permission denied$"):
        Log(log.path)


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_has_files_and_locks_is_neither_copied_nor_sent_to_another_process(
    log: Log, way: Callable[[object], object]
) -> None:
    """A copy of a consumer shared the positions and the membership of the first one."""
    with Producer(log) as producer, Consumer(log) as consumer, Consumer(log, group_id="g") as member:
        member.subscribe("t")
        for handle in (log, log.partition("t", 0), producer, consumer, member):
            with pytest.raises(
                TypeError, match=f"a {type(handle).__name__} can't be copied or pickled: open .* in each process"
            ):
                way(handle)
        for outcome in (producer.send("t", b"v"), producer.send_many("t", [b"v"])):
            with pytest.raises(TypeError, match=r"can't be copied or pickled: .* pass on what result\(\) returns"):
                way(outcome)


def test_no_topic_is_to_be_created_by_who_wanted_to_change_or_check_one(log: Log) -> None:
    calls: list[Callable[[], object]] = [
        lambda: log.delete_topic("nope"),
        lambda: log.alter_topic("nope", segment_ms=5),
        lambda: log.add_partitions("nope", 2),
        lambda: log.verify("nope"),
    ]
    for call in calls:
        with pytest.raises(TopicNotFound, match=r"no topic 'nope' in .* \(topics: t\)$"):
            call()
    with pytest.raises(TopicNotFound, match="; create it with create_topic"):
        log.partition("nope", 0)


def test_who_sends_too_large_a_record_is_told_which_limit_to_raise(log: Log) -> None:
    log.create_topic("large", max_message_bytes=1 << 24)
    record = ProducerRecord(b"x" * 2_000_000)
    with pytest.raises(RecordTooLarge, match="the topic's max_message_bytes; raise it with alter_topic") as caught:
        log.partition("t", 0).append([record])
    assert caught.value.limit_bytes == log.describe_topic("t").config.max_message_bytes
    for buffer_bytes, whose in (
        (1 << 20, "is 1048576, the producer's buffer_bytes"),
        (1 << 24, "the topic's max_message_bytes; raise it with alter_topic"),
    ):
        topic = "large" if buffer_bytes == 1 << 20 else "t"
        with Producer(log, buffer_bytes=buffer_bytes) as producer, pytest.raises(RecordTooLarge, match=whose):
            producer.send(topic, record.value)


@pytest.mark.parametrize("pattern", ["^ord.*", "a|b", "t[0-9]"])
def test_a_pattern_that_was_not_compiled_is_no_topic(log: Log, pattern: str) -> None:
    with Consumer(log) as consumer:
        with pytest.raises(InvalidTopicName) as caught:
            consumer.subscribe(pattern)
        assert str(caught.value).endswith(f"compile a pattern of topics: subscribe(re.compile({pattern!r}))")


@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_a_misspelled_option_is_named(kind: Any, log: Log) -> None:
    with pytest.raises(ConfigError, match=rf"{kind.__name__} has no option 'max_pol_records'"):
        kind(log, max_pol_records=5)


def test_a_misspelled_target_of_a_reset_is_named_with_the_method(log: Log) -> None:
    with pytest.raises(TypeError, match=r"reset_offsets\(\) got an unexpected keyword argument 'to_latest'"):
        log.reset_offsets("g", ["t"], to_latest=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("partitions", [5, b"t", [b"t"], [("t", "0")]])
def test_what_is_no_topic_and_no_partition_is_refused_by_a_reset(log: Log, partitions: Any) -> None:
    with Consumer(log, group_id="g") as consumer:
        consumer.commit({TopicPartition("t", 0): 0})
    with pytest.raises(ConfigError, match=r"partitions must be several values|expected a TopicPartition"):
        log.reset_offsets("g", partitions, to="earliest")


def test_a_log_that_can_only_be_read_says_why(log: Log) -> None:
    with Log(log.path, read_only=True) as asked, Log(KAFKA) as kafkas:
        for opened, why in ((asked, "it was opened with read_only=True"), (kafkas, "Kafka wrote this directory")):
            partition = opened.partition(opened.topics()[0], 0)
            calls: list[Any] = [
                lambda opened=opened: opened.create_topic("new"),
                lambda opened=opened: Producer(opened),
                lambda opened=opened: opened.manager.next_producer_id(),
                lambda partition=partition: partition.append([ProducerRecord(b"x")]),
            ]
            for call in calls:
                with pytest.raises(ReadOnlyLog, match=f"can only be read: {why}"):
                    call()


ONE = [ProducerRecord(b"x")]
NOT_RECORDS = r"expected ProducerRecord values, got {}; append\(\[ProducerRecord"
WHOLE = "must be a whole number"
SECONDS = "timeout must be a number of seconds, or None"

# The call (of a partition with three records, as Any), the error, and what its message says.
WRONG_CALLS_OF_A_PARTITION: dict[str, tuple[Callable[[Any], object], type[PylogError], str]] = {
    "append(record)": (lambda p: p.append(ONE[0]), ConfigError, NOT_RECORDS.format("one ProducerRecord")),
    "append([bytes])": (lambda p: p.append([b"abcd"]), ConfigError, NOT_RECORDS.format("bytes at index 0")),
    "append(str)": (lambda p: p.append("abcd"), ConfigError, NOT_RECORDS.format("str at index 0")),
    "append([dict])": (lambda p: p.append([*ONE, {"v": 1}]), ConfigError, NOT_RECORDS.format("dict at index 1")),
    "append([tuple])": (lambda p: p.append([(b"v", b"k")]), ConfigError, NOT_RECORDS.format("tuple at index 0")),
    "append(read)": (lambda p: p.append(p.read(0)), ConfigError, NOT_RECORDS.format("Record at index 0")),
    "append([None])": (lambda p: p.append([None]), ConfigError, NOT_RECORDS.format("NoneType at index 0")),
    "append(None)": (lambda p: p.append(None), ConfigError, NOT_RECORDS.format("NoneType")),
    "append(5)": (lambda p: p.append(5), ConfigError, NOT_RECORDS.format("int")),
    "append(value str)": (
        lambda p: p.append([ProducerRecord("v")]),
        SerializationError,
        "value is str, expected bytes",
    ),
    "expected_offset=str": (lambda p: p.append(ONE, expected_offset="10"), ConfigError, f"expected_offset {WHOLE}"),
    "expected_offset=True": (lambda p: p.append(ONE, expected_offset=True), ConfigError, f"expected_offset {WHOLE}"),
    "expected_offset=-1": (lambda p: p.append(ONE, expected_offset=-1), ConfigError, "at least 0, not -1"),
    "expected_offset=float": (lambda p: p.append(ONE, expected_offset=3.0), ConfigError, f"expected_offset {WHOLE}"),
    "timeout_ms=-5": (lambda p: p.append(ONE, timeout_ms=-5), ConfigError, f"timeout_ms {WHOLE} of at least 0, not -5"),
    "timeout_ms=str": (lambda p: p.append(ONE, timeout_ms="1"), ConfigError, f"timeout_ms {WHOLE}"),
    "acks=True": (lambda p: p.append(ONE, acks=True), ConfigError, "acks=True, expected 'all' or 1"),
    "acks=0": (lambda p: p.append(ONE, acks=0), ConfigError, "acks=0, expected 'all' or 1"),
    "acks=list": (lambda p: p.append(ONE, acks=[]), ConfigError, r"acks=\[\], expected 'all' or 1"),
    "read(str)": (lambda p: p.read("0"), ConfigError, f"offset {WHOLE}, not '0'"),
    "read(float)": (lambda p: p.read(2.0), ConfigError, f"offset {WHOLE}, not 2.0"),
    "read(True)": (lambda p: p.read(True), ConfigError, f"offset {WHOLE}"),
    "read(-1)": (lambda p: p.read(-1), OffsetOutOfRange, "the log holds 0 to 3"),
    "max_bytes=0": (lambda p: p.read(0, max_bytes=0), ConfigError, f"max_bytes {WHOLE} of at least 1, not 0"),
    "max_bytes=-1": (lambda p: p.read(0, max_bytes=-1), ConfigError, "max_bytes .* not -1"),
    "max_records=-1": (lambda p: p.read(0, max_records=-1), ConfigError, "max_records .* of at least 1, not -1"),
    "max_records=0": (lambda p: p.read(0, max_records=0), ConfigError, f"max_records {WHOLE} of at least 1, not 0"),
    "max_records=str": (lambda p: p.read(0, max_records="a"), ConfigError, f"max_records {WHOLE}"),
    "isolation_level": (lambda p: p.read(0, isolation_level=3), ConfigError, "isolation_level=3, expected"),
    "scan(str)": (lambda p: p.scan("a"), ConfigError, f"start {WHOLE}, not 'a'"),
    "scan(-1)": (lambda p: p.scan(-1), OffsetOutOfRange, "offset -1 of t-0 is out of range: the log holds 0 to 3"),
    "scan(9999)": (lambda p: p.scan(9999), OffsetOutOfRange, "offset 9999 of t-0 .* 0 to 3"),
    "scan(0, str)": (lambda p: p.scan(0, "a"), ConfigError, f"end {WHOLE}"),
    "scan(0, -1)": (lambda p: p.scan(0, -1), ConfigError, "end .* at least 0, not -1"),
    "scan(2, 1)": (lambda p: p.scan(2, 1), ConfigError, "end 1 is before start 2"),
    "to_arrow(str)": (lambda p: p.to_arrow("a"), ConfigError, f"start {WHOLE}"),
    "to_arrow(50, 2)": (lambda p: p.to_arrow(50, 2), OffsetOutOfRange, "offset 50 of t-0"),
    "to_arrow(2, 1)": (lambda p: p.to_arrow(2, 1), ConfigError, "end 1 is before start 2"),
    "offset_for_time(str)": (lambda p: p.offset_for_time("a"), ConfigError, f"timestamp_ms {WHOLE}"),
    "offset_for_time(-1)": (lambda p: p.offset_for_time(-1), ConfigError, "timestamp_ms .* at least 0, not -1"),
    "delete_before(float)": (lambda p: p.log.delete_before(0.5), ConfigError, f"offset {WHOLE}, not 0.5"),
    "delete_before(9999)": (lambda p: p.log.delete_before(9999), OffsetOutOfRange, "holds 0 to 3"),
}


@pytest.mark.parametrize("name", WRONG_CALLS_OF_A_PARTITION)
def test_wrong_calls_of_a_partition(log: Log, name: str) -> None:
    call, error, message = WRONG_CALLS_OF_A_PARTITION[name]
    partition = log.partition("t", 0)
    with pytest.raises(PylogError, match=message) as caught:
        call(partition)
    assert type(caught.value) is error
    assert (partition.earliest_offset, partition.latest_offset) == (0, 3)


WRONG_CALLS_OF_A_LOG: dict[str, tuple[Callable[[Any], object], type[PylogError], str]] = {
    "partition(list)": (lambda log: log.partition(["t"], 0), InvalidTopicName, "a topic name is a str, got list"),
    "describe_topic(list)": (lambda log: log.describe_topic([]), InvalidTopicName, "a topic name is a str, got list"),
    "delete_records(str)": (
        lambda log: log.delete_records("t", 0),
        ConfigError,
        "expected a TopicPartition .* not 't'",
    ),
    "delete_records(int)": (lambda log: log.delete_records(5, 0), ConfigError, "expected a TopicPartition"),
    "delete_records(before)": (lambda log: log.delete_records(("t", 0), "1"), ConfigError, f"offset {WHOLE}"),
    "verify(5)": (lambda log: log.verify(5), InvalidTopicName, "a topic name is a str, got int"),
    "alter_topic()": (
        lambda log: log.alter_topic("t"),
        ConfigError,
        "nothing to alter of 't': name options as keywords",
    ),
    "find_problems(str)": (lambda log: log.find_problems("t"), ConfigError, "topics must be several values"),
}


@pytest.mark.parametrize("name", WRONG_CALLS_OF_A_LOG)
def test_wrong_calls_of_a_log(log: Log, name: str) -> None:
    call, error, message = WRONG_CALLS_OF_A_LOG[name]
    with pytest.raises(PylogError, match=message) as caught:
        call(log)
    assert type(caught.value) is error
    assert log.partition("t", 0).earliest_offset == 0


WRONG_CALLS_OF_A_PRODUCER: dict[str, tuple[Callable[[Any], object], type[PylogError], str]] = {
    "send(list)": (lambda p: p.send([], b"x"), InvalidTopicName, "a topic name is a str, got list"),
    "send(typo)": (lambda p: p.send("typo topic", b"x"), InvalidTopicName, "'typo topic' is no topic name"),
    "timestamp_ms=True": (lambda p: p.send("t", b"x", timestamp_ms=True), InvalidTimestamp, "timestamp True"),
    "send_many(5)": (lambda p: p.send_many("t", 5), ConfigError, "values must be several values, .* not int"),
    "send_many(bytes)": (lambda p: p.send_many("t", b"ab"), ConfigError, "values must be several values, .* not bytes"),
    "send_many(keys=5)": (lambda p: p.send_many("t", [b"x"], keys=5), ConfigError, "keys must be several values"),
    "send_many(list)": (lambda p: p.send_many([], [b"x"]), InvalidTopicName, "a topic name is a str, got list"),
    "partitions_for(list)": (lambda p: p.partitions_for([]), InvalidTopicName, "a topic name is a str, got list"),
    "flush(str)": (lambda p: p.flush("a"), ConfigError, SECONDS),
    "flush(nan)": (lambda p: p.flush(float("nan")), ConfigError, f"{SECONDS}, not nan"),
    "close(str)": (lambda p: p.close("a"), ConfigError, SECONDS),
    "result(str)": (lambda p: p.send("t", b"x").result("a"), ConfigError, SECONDS),
    "exception(True)": (lambda p: p.send("t", b"x").exception(True), ConfigError, f"{SECONDS}, not True"),
    "add_done_callback(None)": (
        lambda p: p.send("t", b"x").add_done_callback(None), ConfigError, "function must be a callable .* not None",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_CALLS_OF_A_PRODUCER)
def test_wrong_calls_of_a_producer(log: Log, name: str) -> None:
    call, error, message = WRONG_CALLS_OF_A_PRODUCER[name]
    with Producer(log, acks=1) as producer:
        with pytest.raises(PylogError, match=message) as caught:
            call(producer)
        assert type(caught.value) is error
        assert producer.send("t", b"last").result().offset in (3, 4)


def test_an_error_of_the_iterable_itself_stays_as_it_is(log: Log) -> None:
    def failing(before: int) -> Iterator[ProducerRecord]:
        yield from ONE * before
        raise ValueError("of the caller")

    for before in (0, 1):
        with pytest.raises(ValueError, match="of the caller"):
            log.partition("t", 0).append(failing(before))


def test_a_wrong_topic_is_one_error_without_the_look_up_that_failed_before(log: Log) -> None:
    with Producer(log) as producer, pytest.raises(InvalidTopicName) as caught:
        producer.send("typo topic", b"x")
    assert "During handling" not in "".join(traceback.format_exception(caught.value))


def test_a_scan_ends_where_the_log_ended_when_it_was_called(log: Log) -> None:
    partition: Partition = log.partition("t", 0)
    records = partition.scan()
    partition.append(ONE, acks=1)
    assert [record.offset for record in records] == [0, 1, 2]
    assert [record.offset for record in partition.scan(3, 99)] == [3]
    assert list(partition.scan(4)) == []


def test_a_scan_of_deleted_records_is_empty_unless_it_begins_with_them(log: Log) -> None:
    log.delete_records(TopicPartition("t", 0), 2)
    partition = log.partition("t", 0)
    assert list(partition.scan(end=1)) == []
    with pytest.raises(OffsetOutOfRange, match="offset 1 of t-0 is out of range: the log holds 2 to 3"):
        partition.scan(1)


def test_a_topic_that_is_there_is_returned_as_it_is_if_asked_for(log: Log) -> None:
    there = log.create_topic("orders", partitions=3, segment_ms=7)
    assert log.create_topic("orders", if_not_exists=True) == there
    assert log.create_topic("orders", partitions=5, segment_ms=9, if_not_exists=True) == there
    assert log.create_topic("new", partitions=2, if_not_exists=True).partitions == 2
    for name, options in (("orders", {}), ("Orders", {"if_not_exists": True})):
        with pytest.raises(TopicExists):
            log.create_topic(name, **options)
    with pytest.raises(ConfigError, match="if_not_exists must be True or False"):
        log.create_topic("other", if_not_exists=1)
    for wrong in ({"partitions": 0}, {"retention": 5}):
        with pytest.raises(ConfigError):
            log.create_topic("orders", if_not_exists=True, **wrong)


def test_kafkas_name_of_an_option_is_answered_with_the_name_here(log: Log) -> None:
    options: dict[str, Any] = {"segment.ms": 5}
    calls: list[Callable[[dict[str, Any]], object]] = [
        lambda options: log.create_topic("new", **options),
        lambda options: log.alter_topic("t", **options),
        lambda options: Log(log.path, **options),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"no topic option 'segment.ms'; here it is segment_ms") as caught:
            call(options)
        assert caught.value.expected == "segment_ms"
        with pytest.raises(ConfigError, match=r"no topic option 'retention.ms'; here it is retention_ms"):
            call({"retention.ms": 5})
    assert log.topics() == ["t"]
