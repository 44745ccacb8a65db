"""Each supported PySpark: the jar of one is the jar of all, and reads the same rows there; streams
and the sink run, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pylog import Log
from tests.arrow.rows import CORNERS, view_of
from tests.conftest import JAR, TESTS, jar_problem, java_problem
from tests.spark.reading import KAFKA, append_view

pytestmark = [pytest.mark.engine, pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(1800)]

VERSIONS = ("4.1", "4.2")  # older than the installed one, which all other tests run with
PROGRAM = """
import json, sys
import pyspark
from pylog.spark import session_builder

builder = session_builder().master("local[2]").config("spark.ui.enabled", False).config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
told = [pyspark.__version__]
for path in sys.argv[1:]:
    ours, other = (spark.read.format(kind).option("includeHeaders", True).load(path) for kind in ("pylog-jvm", "pylog"))
    assert ours.exceptAll(other).count() == other.exceptAll(ours).count() == 0
    counted = ["count(*)", "min(offset)", "max(offset)", "max(timestamp)"]
    assert ours.selectExpr(*counted).collect() == other.selectExpr(*counted).collect()
    narrowed = "offset >= 2 AND partition = 0 AND topic IS NOT NULL"
    assert ours.where(narrowed).count() == other.where(narrowed).count()
    told.append(other.count())
print(json.dumps(told))
"""
STREAM = """
import sys
from pyspark.sql import SparkSession
from pylog.spark import offsets_behind

path, room = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.getOrCreate()


def copy(stream, topic):
    writer = stream.writeStream.format("pylog").option("topic", topic).option("checkpointLocation", f"{room}/{topic}")
    query = writer.trigger(availableNow=True).start(path)
    query.awaitTermination()
    return query


rows = spark.range(100).selectExpr("encode(string(id), 'utf-8') AS key", "encode('first', 'utf-8') AS value")
rows.write.parquet(f"{room}/rows")
numbers = spark.readStream.schema(rows.schema).parquet(f"{room}/rows")
log = spark.readStream.format("pylog").options(subscribe="numbers", startingOffsets="earliest").load(path)
for _ in range(2):
    rows.write.format("pylog").mode("append").option("topic", "numbers").save(path)
    copy(numbers, "numbers")
    try:
        query = copy(log.drop("topic", "partition"), "copied")
    except Exception as error:
        assert spark.version < "4.2" and "streams need pyspark 4.2 or newer" in str(error), error
    else:
        assert set(offsets_behind(query.recentProgress[-1]).values()) == {0}
    rows.write.mode("append").parquet(f"{room}/rows")
found = [spark.read.format("pylog").option("subscribe", topic).load(path) for topic in ("numbers", "copied")]
print(spark.version, *(frame.count() for frame in found), found[0].select("key").distinct().count())
"""


@pytest.fixture(scope="module", params=VERSIONS)
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A PySpark of its own: some 500 MB, which pip fetches once. PYLOG_TEST_PYSPARKS/<version> may
    have it already."""
    for problem in (java_problem(), jar_problem()):
        if problem:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    there = Path(os.environ.get("PYLOG_TEST_PYSPARKS", "/nowhere"), request.param)
    if not there.is_dir():
        there = tmp_path_factory.mktemp("pyspark")
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", str(there)]
        subprocess.run([*command, f"pyspark=={request.param}.*"], check=True)
    return request.param, there


def test_the_jar_is_the_same_and_so_are_the_rows(home: tuple[str, Path], log: Log, tmp_path: Path) -> None:
    version, there = home
    made = tmp_path / "made.jar"
    build = [sys.executable, TESTS.parent / "scripts" / "jvm", "--jars", there / "pyspark" / "jars", "--to", made]
    subprocess.run(build, check=True)
    assert made.read_bytes() == JAR.read_bytes()
    log.create_topic("orders", partitions=2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        append_view(log, view_of(CORNERS, codec=codec))
    running, *counts = json.loads(printed_by(PROGRAM, there, tmp_path, str(log.path), str(KAFKA / "log")))
    assert running.startswith(version)
    assert counts[0] == 5 * len(CORNERS)
    assert counts[1] > 100


def test_streams_and_the_sink_copy_each_row_once(home: tuple[str, Path], log: Log, tmp_path: Path) -> None:
    version, there = home
    for topic in ("numbers", "copied"):
        log.create_topic(topic, partitions=2)
    running, *counts = printed_by(STREAM, there, tmp_path, str(log.path), str(tmp_path)).split()
    assert running.startswith(version)
    assert counts == ["400", "400" if version >= "4.2" else "0", "100"], "4.1 has no streams from a log"


def printed_by(program: str, home: Path, tmp_path: Path, *arguments: str) -> str:
    """The last line that a program prints with the PySpark at ``home``."""
    file = tmp_path / "program.py"
    file.write_text(program)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{home}{os.pathsep}{TESTS.parent / 'src'}",
        "PYSPARK_PYTHON": sys.executable,
    }
    environment.pop("SPARK_HOME", None)
    command = [sys.executable, file, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1]
