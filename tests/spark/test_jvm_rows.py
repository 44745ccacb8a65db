"""The Java reader returns the rows of the Python source: checksums over all columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.spark.jvm.random_logs import TOPIC, random_log
from tests.spark.jvm.verdicts import COLUMNS, JavaReader, compile_reader, has_javac, verdicts
from tests.spark.reading import KAFKA, planned

pytestmark = pytest.mark.skipif(not has_javac(), reason="no javac")
DATA = KAFKA.parent
LEVELS = ["read_committed", "read_uncommitted"]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaReader]:
    with JavaReader(compile_reader(tmp_path_factory.mktemp("classes"))) as java:
        yield java


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("golden", sorted(path.name for path in DATA.glob("*-*") if (path / "expected").is_dir()))
def test_golden_directories(java: JavaReader, golden: str, level: str) -> None:
    for pieces in (1, 40):
        ranges = planned(
            DATA / golden / "log",
            subscribePattern="[^_].*",
            isolationLevel=level,
            minPartitions=pieces,
            startingOffsets="earliest",
        )
        found, expected = verdicts(java, ranges)
        assert found == expected
        assert found.startswith("rows ")
        assert found.split()[1] != "0"


@pytest.mark.parametrize("seed", range(20))
def test_random_logs(java: JavaReader, tmpfs_dir: Path, seed: int) -> None:
    chance = Random(seed)
    for number in range(10):
        path = tmpfs_dir / str(number)
        random_log(path, chance)
        check_log(java, path, chance)


def check_log(java: JavaReader, path: Path, chance: Random) -> None:
    """Whole, and in pieces that begin and end inside of batches, with all columns and with some."""
    for columns in (COLUMNS, (), chance.sample(COLUMNS, chance.randrange(1, 8))):
        cuts = chance.choice([{}, {"minPartitions": 9}, {"maxRecordsPerPartition": chance.randrange(1, 90)}])
        start = (
            {TOPIC: {"0": chance.randrange(30)}}
            if chance.random() < 0.5 and not path.joinpath(f"{TOPIC}-1").exists()
            else "earliest"
        )
        ranges = planned(path, subscribe=TOPIC, isolationLevel=chance.choice(LEVELS), startingOffsets=start, **cuts)
        found, expected = verdicts(java, ranges, columns)
        assert found == expected
