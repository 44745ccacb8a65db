"""What filters narrow: a query with them gives what the same query without gives to somebody who
filters its rows himself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pylog import Log, Producer, arrow
from pylog.codec import COMPILED
from pylog.errors import OffsetOutOfRange
from pylog.model import ProducerRecord
from pylog.partition.commit_slots import latest
from pylog.segment.naming import SEAL
from pylog.spark.source.batch import FilteringReader
from pylog.spark.source.plan import plan
from pylog.spark.source.pushed_filters import wanted_by
from pylog.storage.os_filesystem import OsReadableFile
from tests.spark.reading import KAFKA, options, read, read_ranges
from tests.spark.writing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_700_000_000_000
UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS: list[Any] = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
OF_TEXT: list[Any] = [StringStartsWith, StringEndsWith, StringContains]


def filtered(path: Path | str, filters: list[Filter], **given: Any) -> list[dict[str, Any]]:
    """The rows that the source gives, and of these what Spark keeps: it applies what it gets
    back."""
    wanted, left = wanted_by(filters)
    found = read_ranges(plan(options(path, **given), wanted))
    return [row for row in found if all(truth(it, row) for it in left)]


def truth(it: Filter, row: dict[str, Any]) -> bool | None:
    """SQL's answer, by the book: None is its third one."""
    if isinstance(it, Not):
        answer = truth(it.child, row)
        return None if answer is None else not answer
    value = row[it.attribute[0]]  # type: ignore[attr-defined]
    if it.attribute == ("timestamp",) and isinstance(value, int):  # type: ignore[attr-defined]
        value = EPOCH + timedelta(microseconds=value)
    if isinstance(it, IsNull | IsNotNull):
        return (value is None) is isinstance(it, IsNull)
    other = it.value  # type: ignore[attr-defined]
    if isinstance(it, In):
        return True if value in [one for one in other if one is not None] else None if None in other else False
    if isinstance(it, EqualNullSafe):
        return bool(value == other)
    if value is None or other is None:
        return None
    answers: dict[Any, Callable[[], bool]] = {
        EqualTo: lambda: value == other,
        GreaterThan: lambda: value > other,
        GreaterThanOrEqual: lambda: value >= other,
        LessThan: lambda: value < other,
        LessThanOrEqual: lambda: value <= other,
        StringStartsWith: lambda: value.startswith(other),
        StringEndsWith: lambda: value.endswith(other),
        StringContains: lambda: other in value,
    }
    return answers[type(it)]()


def at(ms: float) -> datetime:
    return EPOCH + timedelta(microseconds=round(ms * 1000))


# Any filters on any log

TIMES = st.integers(-300, 1_300).map(lambda tenth: at(T0 + tenth / 10))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["a", "b", "ab", "", "ä"]),
    "partition": st.integers(-1, 3),
    "offset": st.integers(-1, 70),
    "timestamp": TIMES,
    "timestampType": st.integers(0, 1),
    "value": st.just(b"x"),
}


def of_column(name: str) -> st.SearchStrategy[Filter]:
    value = st.none() | VALUES[name]
    made = [
        *(st.builds(kind, st.just((name,)), value) for kind in COMPARISONS),
        st.builds(In, st.just((name,)), st.lists(value, max_size=4).map(tuple)),
        *(st.builds(kind, st.just((name,))) for kind in (IsNull, IsNotNull)),
    ]
    if name == "topic":
        made += [st.builds(kind, st.just((name,)), VALUES[name]) for kind in OF_TEXT]
    return st.one_of(made)


ONE = st.sampled_from([*VALUES, "offset", "timestamp", "timestamp"]).flatmap(of_column)
FILTERS = st.lists(ONE | ONE.map(Not), min_size=1, max_size=4)
SHAPES: dict[str, Callable[[int], int]] = {
    "rising": lambda n: n,
    "falling": lambda n: 120 - n,
    "random": lambda n: (n * 7919) % 120,
    "all the same": lambda n: 50,
    "late now and then": lambda n: n if n % 13 else n // 3,
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[dict[str, Any]]]]:
    """Each shape of times, in two topics (the second of append times), compressed in part; sealed,
    not sealed, or open."""
    found: dict[str, tuple[Path, list[dict[str, Any]]]] = {}
    for shape, offset_of in SHAPES.items():
        for state in ("sealed", "unsealed", "compressed"):
            path = tmp_path_factory.mktemp("filters") / "log"
            _fill(path, offset_of, "zstd" if state == "compressed" else "none")
            if state == "unsealed":
                for seal in path.glob(f"*/*{SEAL}"):
                    seal.unlink()
            else:
                assert len([*path.glob(f"a-0/*{SEAL}")]) > 2
            found[f"{shape}, {state}"] = path, read(path)
    kafka = KAFKA / "log"
    found["Kafka's"] = kafka, read(kafka)
    return found


def _fill(path: Path, offset_of: Callable[[int], int], codec: str) -> None:
    from pylog import Producer

    with Log(path) as log:
        log.create_topic("a", partitions=2, segment_bytes=1_500)
        log.create_topic("b", segment_bytes=1_500, message_timestamp_type="LogAppendTime")
        with Producer(log, acks=1, compression=codec) as producer:
            for number in range(120):
                topic, partition = ("b", 0) if number % 6 == 5 else ("a", number % 2)
                when = T0 + offset_of(number)
                value = random.Random(number).randbytes(60).hex().encode()  # which zstd makes smaller
                producer.send(topic, value, key=b"%d" % number, partition=partition, timestamp_ms=when)
                if number % 5 == 0:
                    producer.flush()


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), FILTERS)
def test_filters_give_the_rows_that_pass_them(
    logs: dict[str, tuple[Path, list[dict[str, Any]]]], data: st.DataObject, filters: list[Filter]
) -> None:
    path, everything = logs[data.draw(st.sampled_from([*logs]))]
    assert filtered(path, filters) == [row for row in everything if all(truth(it, row) for it in filters)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])
@pytest.mark.parametrize("negated", [False, True])
def test_each_comparison_with_every_offset_and_every_time(
    logs: dict[str, tuple[Path, list[dict[str, Any]]]], kind: Any, negated: bool
) -> None:
    path, everything = logs["late now and then, sealed"]
    for number in (*range(-1, 52, 4), None):
        for it in (kind(("offset",), number), kind(("timestamp",), None if number is None else at(T0 + number * 2))):
            one = Not(it) if negated else it
            assert filtered(path, [one]) == [row for row in everything if truth(one, row)]


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize(("column", "value"), [("topic", "a"), ("partition", 1), ("offset", 3), ("timestamp", at(T0))])
def test_null_is_equal_to_nothing_and_unequal_to_nothing(
    logs: dict[str, tuple[Path, list[dict[str, Any]]]], column: str, value: Any, negated: bool
) -> None:
    path, everything = logs["rising, sealed"]
    filters = [*(kind((column,), None) for kind in COMPARISONS), In((column,), (value, None)), In((column,), ())]
    for it in filters:
        one = Not(it) if negated else it
        assert filtered(path, [one]) == [row for row in everything if truth(one, row)]


def test_what_spark_must_apply_is_what_is_not_exact() -> None:
    done: list[Filter] = [
        EqualTo(("topic",), "a"),
        Not(In(("partition",), (1, None))),
        GreaterThan(("offset",), 3),
        IsNotNull(("timestamp",)),
        Not(IsNull(("offset",))),
        IsNull(("topic",)),
        StringStartsWith(("topic",), "a"),
    ]
    left: list[Filter] = [
        EqualTo(("timestamp",), at(T0)),
        EqualTo(("timestamp",), datetime(2026, 1, 1)),  # of no time zone  # noqa: DTZ001
        EqualTo(("timestampType",), 1),
        IsNotNull(("key",)),
        EqualTo(("value",), b"x"),
        EqualTo(("offset",), 2.5),
        EqualTo(("offset",), True),
        EqualTo(("headers", "key"), "x"),
        In(("offset",), tuple(range(0, 1_000, 2))),
        StringContains(("value",), "x"),
    ]
    assert wanted_by([*done, *left])[1] == left


def test_many_single_offsets_are_read_as_what_lies_between_the_first_and_the_last() -> None:
    wanted, left = wanted_by([In(("offset",), tuple(range(10, 1_000, 2)))])
    assert len(left) == 1
    assert wanted.within(0, 5_000) == [(10, 999)]
    assert wanted_by([In(("offset",), (5, 1, 2))])[0].within(0, 5_000) == [(1, 3), (5, 6)]


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(("topic",), "a"), EqualTo(("topic",), "b")],
        [GreaterThan(("offset",), 5), LessThan(("offset",), 6)],
        [GreaterThan(("timestamp",), at(T0)), LessThan(("timestamp",), at(T0 + 0.9))],
        [EqualTo(("timestamp",), at(T0 + 0.5))],
        [EqualNullSafe(("offset",), None)],
        [IsNull(("timestamp",))],
        [In(("partition",), ())],
        [GreaterThan(("timestamp",), at(T0 + 4_000_000_000_000))],
    ],
)
def test_what_contradicts_itself_or_the_log_reads_nothing(
    logs: dict[str, tuple[Path, list[dict[str, Any]]]], filters: list[Filter]
) -> None:
    path, _ = logs["rising, sealed"]
    reader = FilteringReader(options(path), arrow.schema())
    reader.pushFilters(filters)
    assert reader.partitions() == []


# Loss


def test_offsets_that_are_gone_are_no_loss_unless_the_options_ask_for_them(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("a", partitions=2)
        for number in range(20):
            log.partition("a", number % 2).append([ProducerRecord(b"x")], acks=1)
        log.delete_records(("a", 0), 5)
    gone: list[Filter] = [LessThan(("offset",), 5), EqualTo(("partition",), 0)]
    assert filtered(tmp_log_dir, gone) == []
    assert [row["offset"] for row in filtered(tmp_log_dir, [LessThan(("offset",), 7), gone[1]])] == [5, 6]
    asked = {"startingOffsets": {"a": {"0": 2, "1": 0}}}
    for filters in (gone, [EqualTo(("partition",), 1)], [GreaterThan(("offset",), 8)], [IsNull(("offset",))]):
        with pytest.raises(OffsetOutOfRange, match="retention has removed the first of them"):
            filtered(tmp_log_dir, filters, **asked)
    assert len(filtered(tmp_log_dir, [EqualTo(("partition",), 1)], **asked, failOnDataLoss=False)) == 10


# Bytes


@contextmanager
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many bytes each read has got."""
    pread, found = OsReadableFile.pread, []

    def counted(file: OsReadableFile, size: int, position: int) -> bytes:
        data = pread(file, size, position)
        found.append(len(data))
        return data

    with monkeypatch.context() as patch:
        patch.setattr(OsReadableFile, "pread", counted)
        yield found


RECORDS, SEGMENT_BYTES = 60_000, 256 << 10


def fill(path: Path, **topic: Any) -> Path:
    """25 MB, a record a second, none late by more than three: a year of a busy partition, made
    small."""
    with Log(path) as log:
        log.create_topic("a", **topic)
        for first in range(0, RECORDS, 20):
            made = [ProducerRecord(b"x" * 400, timestamp_ms=T0 + 1000 * (n - n % 3)) for n in range(first, first + 20)]
            log.partition("a", 0).append(made, acks=1)
    return path


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a hundred segments."""
    return fill(tmp_path_factory.mktemp("bytes") / "log", segment_bytes=SEGMENT_BYTES)


@pytest.fixture(scope="module")
def open_hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In one segment, which is open still."""
    return fill(tmp_path_factory.mktemp("open") / "log")


@pytest.fixture(scope="module")
def compressed_hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """25 MB as they are compressed, in five segments and an open one."""
    path = tmp_path_factory.mktemp("compressed") / "log"
    rng = random.Random(1)
    with Log(path) as log, Producer(log, acks=1, compression="zstd", batch_bytes=16_000) as producer:
        log.create_topic("a", segment_bytes=5_000_000)
        for n in range(RECORDS):
            producer.send("a", rng.randbytes(300) + bytes(100), timestamp_ms=T0 + 1000 * (n - n % 3))
    return path


@pytest.fixture(scope="module")
def hours_of_a_sink(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """25 MB that Spark's sink compressed, in five segments and an open one."""
    path = tmp_path_factory.mktemp("sink") / "log"
    rng = random.Random(1)
    with Log(path) as log:
        log.create_topic("orders", segment_bytes=5_000_000)
        driver = Driver(path, compression="zstd", batchBytes=16_000)
        for batch_id in range(10):
            numbers = range(batch_id * RECORDS // 10, (batch_id + 1) * RECORDS // 10)
            rows = [
                {"value": rng.randbytes(300) + bytes(100), "timestamp": at(T0 + 1000 * (n - n % 3))} for n in numbers
            ]
            driver.write([rows], batch_id)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("percent", [0, 37, 50, 98])
@pytest.mark.parametrize(
    "made",
    [
        pytest.param("hours", marks=pytest.mark.skipif(not COMPILED, reason="of such segments the seals tell alone")),
        "open_hours",
        "compressed_hours",
        "hours_of_a_sink",
    ],
)
@pytest.mark.one_in(8)
def test_a_hundredth_of_the_time_is_read_from_few_of_the_bytes(
    made: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, percent: int
) -> None:
    path: Path = request.getfixturevalue(made)
    first = T0 + RECORDS * 10 * percent
    filters: list[Filter] = [
        GreaterThanOrEqual(("timestamp",), at(first)),
        LessThan(("timestamp",), at(first + RECORDS * 10)),
    ]
    with read_bytes(monkeypatch) as sizes:
        found = filtered(path, filters)
    assert abs(len(found) - RECORDS // 100) <= 3
    *closed, active = (file.stat().st_size for file in sorted(path.glob("[ao]*-0/*.log")))
    assert sum(closed) + active > 15_000_000
    [slots] = path.glob("[ao]*-0/.commit")
    state = latest(slots.read_bytes())
    assert state is not None
    is_active = state.least_timestamp_ms < first + RECORDS * 10
    assert is_active == (not closed or (percent == 98 and made != "hours"))
    allowed = 0.03 * sum(closed) + 1.01 * active * is_active  # with a look at its headers
    assert sum(sizes) < allowed, f"of {sum(closed)} and {active}"


def test_offsets_are_read_from_the_bytes_they_are_in(hours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with read_bytes(monkeypatch) as sizes:
        found = filtered(hours, [GreaterThan(("offset",), 30_000), LessThanOrEqual(("offset",), 30_010)])
    assert [row["offset"] for row in found] == [*range(30_001, 30_011)]
    assert sum(sizes) < 150_000


# In Spark


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """Push-down switched on, in a time zone that is not that of the times."""
    switch, zone = "spark.sql.python.filterPushdown.enabled", "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(switch, "true")
    spark.conf.set(zone, "America/New_York")
    yield spark
    spark.conf.unset(switch)
    spark.conf.set(zone, str(before))


def test_spark_pushes_filters_and_gets_the_rows(pushing: SparkSession, tmp_log_dir: Path) -> None:
    """A record a millisecond from 17:13:20 in New York; two partitions of fifty."""
    with Log(tmp_log_dir) as log:
        log.create_topic("orders", partitions=2, segment_bytes=1_024)
        for number in range(50):
            for partition in (0, 1):
                record = ProducerRecord(b"x" * 40, timestamp_ms=T0 + number)
                log.partition("orders", partition).append([record], acks=1)
    for condition, count, is_exact in (
        ("topic = 'orders' AND partition IN (1, 7, NULL) AND offset >= 45", 5, True),
        ("timestamp > timestamp'2023-11-14 17:13:20.0470005'", 4, False),
        ("timestamp <= timestamp'2023-11-14T22:13:20.001Z'", 4, False),
        ("timestamp < timestamp'2023-11-14 17:13:20' OR offset <=> NULL", 0, False),
        ("NOT (offset <=> NULL) AND NOT (offset IN (1, 2)) AND topic LIKE 'ord%'", 96, True),
    ):
        found = pushing.read.format("pylog").load(str(tmp_log_dir)).where(condition)
        assert found.count() == count, condition
        assert (" Filter (" not in found._jdf.queryExecution().executedPlan().toString()) is is_exact, condition
