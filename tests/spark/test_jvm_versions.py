"""The Java reader with each supported PySpark: the jar of one is the jar of all, and reads the same rows there."""

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


@pytest.fixture(scope="module", params=VERSIONS)
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A PySpark of its own: some 500 MB, which pip fetches once. PYLOG_TEST_PYSPARKS/<version> may have it already."""
    for problem in (java_problem(), jar_problem()):
        if problem:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    there = Path(os.environ.get("PYLOG_TEST_PYSPARKS", "/nowhere"), request.param)
    if not there.is_dir():
        there = tmp_path_factory.mktemp("pyspark")
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", there]
        subprocess.run([*command, f"pyspark=={request.param}.*"], check=True)
    return request.param, there


def test_the_jar_is_the_same_and_so_are_the_rows(home: tuple[str, Path], log: Log, tmp_path: Path) -> None:
    version, there = home
    made, program = tmp_path / "made.jar", tmp_path / "program.py"
    build = [sys.executable, TESTS.parent / "scripts" / "jvm", "--jars", there / "pyspark" / "jars", "--to", made]
    subprocess.run(build, check=True)
    assert made.read_bytes() == JAR.read_bytes()
    log.create_topic("orders", partitions=2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        append_view(log, view_of(CORNERS, codec=codec))
    program.write_text(PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{there}{os.pathsep}{TESTS.parent / 'src'}",
        "PYSPARK_PYTHON": sys.executable,
    }
    environment.pop("SPARK_HOME", None)
    paths = [str(log.path), str(KAFKA / "log")]
    done = subprocess.run(
        [sys.executable, program, *paths], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    running, *counts = json.loads(done.stdout.splitlines()[-1])
    assert running.startswith(version)
    assert counts[0] == 5 * len(CORNERS)
    assert counts[1] > 100
