"""What the workloads beside a Kafka broker share: the jars of their session, and a broker for all
contenders of one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.rivals.kafka import Broker, running_broker
from benchmarks.rivals.maven import Artifact, jars
from benchmarks.workload import MissingError, no_package
from benchmarks.workloads.spark_session import session, shared
from pylog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP, NAME = "org.apache.spark", "spark-sql-kafka-0-10_2.13"
NEWEST_KNOWN = "4.2.0"
IN_SPARK = ("org.apache.hadoop", "org.scala-lang")  # groups that Spark has; they are large
CONNECTOR = f"{NAME} of Spark's version, or {NEWEST_KNOWN} while Maven has none of that"
BROKER = "Kafka 4.3, one node beside it, log.flush.* at Kafka's defaults"


def connector() -> tuple[Path, ...]:
    """The jars of Spark's Kafka connector that Spark itself lacks."""
    return module_of_spark(NAME)


@cache
def module_of_spark(name: str) -> tuple[Path, ...]:
    """The jars of this module that Spark itself lacks."""
    try:
        import pyspark
    except ImportError:
        raise no_package("pyspark") from None
    present = {_name(jar) for jar in Path(pyspark.__file__).parent.glob("jars/*.jar")}
    try:
        found = jars(Artifact(GROUP, name, pyspark.__version__, IN_SPARK))
    except MissingError:
        found = jars(Artifact(GROUP, name, NEWEST_KNOWN, IN_SPARK))
    return tuple(jar for jar in found if _name(jar) not in present)


def _name(jar: Path) -> str:
    """Without the version."""
    return re.sub(r"-\d.*", "", jar.stem)


def reader() -> tuple[Path]:
    """The jar of ``format("pylog-jvm")``."""
    try:
        from pylog.spark import jar
    except ImportError:
        raise MissingError("this version of pylog has no reader in the JVM") from None
    try:
        return (Path(jar()),)
    except ConfigError as error:
        raise MissingError(str(error)) from None


@contextmanager
def session_with_jars() -> Iterator[SparkSession]:
    """With those of the connector and of pylog's reader that there are."""
    found: tuple[Path, ...] = ()
    for some in (connector, reader):
        with suppress(MissingError):
            found += some()
    with session(found) as spark:
        yield spark


def check_has(spark: SparkSession, wanted: tuple[Path, ...]) -> None:
    """``MissingError`` if somebody else has started the session without these jars."""
    has = spark.conf.get("spark.jars", "") or ""
    for jar in wanted:
        if jar.name not in has:
            raise MissingError(f"the Spark session that runs has been started without {jar.name}")


@contextmanager
def broker_for(place: Path, spark: SparkSession) -> Iterator[Broker]:
    """One for all contenders of the workload to whom ``place`` belongs."""
    check_has(spark, connector())
    with shared(place.parent / "broker", running_broker) as broker:
        yield broker


def address_of(broker: Broker) -> dict[str, str]:
    """The option that the connector always needs."""
    return {"kafka.bootstrap.servers": broker.address}
