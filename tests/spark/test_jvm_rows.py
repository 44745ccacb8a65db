"""The Java reader, the Python source and plain Python return the same rows: checksums over all
columns."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest

from pylog import Log, Producer
from pylog.codec.format import CODEC_NAMES
from pylog.spark.source.partition_range import PartitionRange
from tests.spark.jvm.plain import plain_verdict
from tests.spark.jvm.random_logs import TOPIC, random_log
from tests.spark.jvm.verdicts import (
    COLUMNS,
    JavaReader,
    pieces_of,
    python_totals,
    verdicts,
)
from tests.spark.reading import KAFKA, planned

DATA = KAFKA.parent
DOCS = Path(__file__).parents[2] / "docs"
LEVELS = ["read_committed", "read_uncommitted"]


def check(java: JavaReader, ranges: list[PartitionRange], columns: tuple[str, ...] | list[str] = COLUMNS) -> int:
    """Rows and totals of both readers are the same. How many rows."""
    found, expected = verdicts(java, ranges, columns)
    assert found == expected
    assert found.startswith("rows ")
    expected_totals, expected_rows = python_totals(ranges), found.split()[1]
    for trusted in (True, False):
        assert java.ask(pieces_of(ranges), totals=True, trustHeaders=trusted) == expected_totals
        assert java.ask(pieces_of(ranges), [], trustHeaders=trusted) == f"rows {expected_rows} 0"
    return int(found.split()[1])


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("golden", sorted(path.name for path in DATA.glob("*-*") if (path / "expected").is_dir()))
@pytest.mark.parametrize("pieces", [1, 40])
def test_golden_directories(java: JavaReader, golden: str, level: str, pieces: int) -> None:
    options = {"subscribePattern": "[^_].*", "startingOffsets": "earliest", "minPartitions": pieces}
    ranges = planned(DATA / golden / "log", isolationLevel=level, **options)
    assert check(java, ranges) > 0
    assert java.ask(pieces_of(ranges)) == plain_verdict(DATA / golden / "log", ranges)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("seed", range(20))
def test_random_logs(java: JavaReader, tmpfs_dir: Path, seed: int) -> None:
    """Ten each, whole and in pieces that begin and end inside of batches, with all columns and with
    some."""
    chance, rows = Random(seed), 0
    for number in range(10):
        path = tmpfs_dir / str(number)
        random_log(path, chance)
        for columns in (COLUMNS, (), chance.sample(COLUMNS, chance.randrange(1, 8))):
            ranges = planned(path, subscribe=TOPIC, **random_options(path, chance))
            rows += check(java, ranges, columns)
            if columns is COLUMNS:
                assert java.ask(pieces_of(ranges)) == plain_verdict(path, ranges)
    assert rows > 10_000


def random_options(path: Path, chance: Random) -> dict[str, object]:
    found: dict[str, object] = chance.choice(
        [{}, {"minPartitions": 9}, {"maxRecordsPerPartition": chance.randrange(1, 90)}]
    )
    if chance.random() < 0.5 and not path.joinpath(f"{TOPIC}-1").exists():
        found["startingOffsets"] = {TOPIC: {"0": chance.randrange(30)}}
    return {**found, "isolationLevel": chance.choice(LEVELS)}


@pytest.mark.slow
def test_random_logs_have_what_is_hard(tmpfs_dir: Path) -> None:
    """Else the test above says less than it seems to."""
    chance, met = Random(0), Counter[str]()
    for number in range(10):
        path = tmpfs_dir / str(number)
        random_log(path, chance)
        for piece in pieces_of(planned(path, subscribe=TOPIC, isolationLevel="read_committed")):
            met["aborted"] += len(piece["aborted"])
            met["segments"] += len(piece["segments"])
        with Log(path, read_only=True) as log:
            offsets = [record.offset for record in log.partition(TOPIC, 0).scan()]
            records = [*log.partition(TOPIC, 0).scan()]
        met["gaps"] += sum(after - before > 1 for before, after in pairwise(offsets))
        met["headers"] += sum(bool(record.headers) for record in records)
        met["nulls"] += sum(record.value is None for record in records)
    assert min(met[what] for what in ("aborted", "segments", "gaps", "headers", "nulls")) > 10


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_text_in_large_batches(java: JavaReader, tmpfs_dir: Path, codec: str) -> None:
    """More than one buffer of bytes, and more than one array of rows."""
    lines = [line for path in sorted(DOCS.rglob("*.md")) for line in path.read_bytes().splitlines()]
    with Log(tmpfs_dir / "log") as log:
        log.create_topic(TOPIC, segment_bytes=16 << 20, max_message_bytes=8 << 20)
        with Producer(log, compression=codec, batch_bytes=300_000) as producer:
            producer.send_many(TOPIC, lines * 10, timestamp_ms=1_700_000_000_000)
            producer.flush()
            producer.send_many(TOPIC, [b"x" * 6_000_000, b"y" * 700_000], timestamp_ms=1_700_000_000_001)
    ranges = planned(tmpfs_dir / "log", subscribe=TOPIC)
    assert check(java, ranges) == len(lines) * 10 + 2
    assert check(java, [*islice(planned(tmpfs_dir / "log", subscribe=TOPIC, splitBytes=200_000), 1, 4)]) > 0
