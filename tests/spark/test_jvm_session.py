"""A session with the jar, as a program makes it; the jar itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pylog import Log, spark
from pylog.errors import ConfigError
from pylog.spark import session
from tests.arrow.rows import CORNERS, view_of
from tests.conftest import JAR, TESTS, jar_problem, java_problem
from tests.spark.reading import append_view

PROGRAM = """
import sys
from pylog.errors import ConfigError
from pylog.spark import session_builder

def session(**other):
    for name, value in {"bindAddress": "127.0.0.1", "host": "127.0.0.1"}.items():
        other[f"spark.driver.{name}"] = value
    spark = builder.master("local[1]").config("spark.ui.enabled", False).config(map=other).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark

def read(spark):
    try:
        print(spark.read.format("pylog-jvm").load(sys.argv[1]).count())
    except Exception as error:
        print(str(error))
    spark.stop()

builder = session_builder()
spark = session()
print(spark.conf.get("spark.sql.python.filterPushdown.enabled", "false"))
read(spark)
read(session(**{"spark.pylog.python": "/bin/false"}))
read(session(**{"spark.pylog.python": "/no/such/python"}))
try:
    session_builder()
except ConfigError as error:
    print(error)
"""


@pytest.mark.spark
@pytest.mark.processes
def test_a_program_gets_a_session_and_errors_that_say_which_python(log: Log, tmp_path: Path) -> None:
    """Its working directory has a module that hides one of Python's own, which the planner must not take."""
    for problem in (java_problem(), jar_problem()):
        if problem:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    log.create_topic("orders")
    append_view(log, view_of(CORNERS))
    place = tmp_path / "place"
    place.mkdir()
    (place / "base64.py").write_text("raise SystemExit('imported from the working directory')")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(log.path)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent / "src")}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    pushes, count, false, missing, late = done.stdout.splitlines()
    if sys.version_info >= (3, 11):  # PYTHONSAFEPATH
        assert count == str(len(CORNERS))
    assert pushes == "false"  # PySpark plans a frame once: what one query filters, the next would miss
    assert "/bin/false -m pylog.spark.jvm cannot run: it has ended without a word" in false
    assert "spark.pylog.python, else PYSPARK_PYTHON, names a Python that has pylog" in false
    assert "/no/such/python" in missing
    assert "call session_builder() first" in late


def test_an_installation_without_the_jar_says_how_to_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_JAR", "other.jar")
    with pytest.raises(ConfigError, match="scripts/jvm makes it"):
        spark.jar()
    monkeypatch.setattr(session, "_HERE", Path("/nowhere"))
    with pytest.raises(ConfigError, match=r"/nowhere/jvm|scripts/jvm makes it"):
        spark.jar()


def test_the_jar_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    if problem := jar_problem():
        pytest.skip(problem)
    assert spark.jar() == str(JAR)


def test_there_are_no_other_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'jars'"):
        _ = spark.jars


@pytest.mark.processes
def test_the_same_sources_make_the_same_jar(tmp_path: Path) -> None:
    if problem := jar_problem():
        pytest.skip(problem)
    for name in ("one.jar", "two.jar"):
        subprocess.run([sys.executable, TESTS.parent / "scripts" / "jvm", "--to", tmp_path / name], check=True)
    assert (tmp_path / "one.jar").read_bytes() == (tmp_path / "two.jar").read_bytes() == JAR.read_bytes()
