"""Which jars the session of a workload beside a broker gets, and what is said of those it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.rivals.maven import Artifact
from benchmarks.workload import MissingError
from benchmarks.workloads import spark_broker
from benchmarks.workloads.spark_broker import NEWEST_KNOWN, check_has, connector, module_of_spark
from benchmarks.workloads.spark_session import shared


@pytest.fixture
def maven(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Path]]]:
    """What Maven has, by version."""
    has: dict[str, list[Path]] = {}

    def jars(artifact: Artifact) -> list[Path]:
        if artifact.version not in has:
            raise MissingError(f"Maven could not fetch {artifact.name} {artifact.version}")
        return has[artifact.version]

    monkeypatch.setattr(spark_broker, "jars", jars)
    module_of_spark.cache_clear()
    yield has
    module_of_spark.cache_clear()


def test_the_connector_is_the_one_of_sparks_version_without_the_jars_that_spark_has(maven: dict[str, Any]) -> None:
    pyspark = pytest.importorskip("pyspark")
    own = Path("spark-sql-kafka-0-10_2.13-x.jar")
    maven[NEWEST_KNOWN] = [Path("older.jar")]
    maven[pyspark.__version__] = [Path("snappy-java-0.1.jar"), own]
    assert connector() == (own,)


def test_the_newest_connector_stands_in_while_maven_has_none_of_sparks_version(maven: dict[str, Any]) -> None:
    pytest.importorskip("pyspark")
    maven[NEWEST_KNOWN] = [Path("older.jar")]
    assert connector() == (Path("older.jar"),)


def test_a_machine_without_the_connector_says_so(maven: dict[str, Any]) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(MissingError, match="could not fetch spark-sql-kafka"):
        connector()


def test_a_session_that_somebody_else_started_lacks_the_jars() -> None:
    session: Any = SimpleNamespace(conf={"spark.jars": "/somewhere/one.jar"})
    check_has(session, (Path("/elsewhere/one.jar"),))
    with pytest.raises(MissingError, match=r"started without two\.jar"):
        check_has(session, (Path("/elsewhere/two.jar"),))


def test_contenders_share_what_the_first_of_them_made(tmp_path: Path) -> None:
    made = []

    @contextmanager
    def make(directory: Path) -> Any:
        made.append(directory)
        (directory / "file").touch()
        yield directory

    with shared(tmp_path / "it", make) as first, shared(tmp_path / "it", make) as second:
        assert first == second
    assert made == [tmp_path / "it"]
    assert not list(tmp_path.iterdir())
