"""A session with the jar, as a program makes it; the jar itself."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from pylog import Log, spark
from pylog.errors import ConfigError
from pylog.spark import session
from tests.arrow.rows import CORNERS, view_of
from tests.conftest import JAR, TESTS, jar_problem, java_problem
from tests.spark.reading import append_view

READER = "src/pylog/spark/jvm/java/pylog/spark"
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
builder = session_builder()  # as a notebook does whose cell runs again
read(session())
"""

SUBMITTED = """
import sys
from pyspark import SparkContext
from pylog.errors import ConfigError
from pylog.spark import session_builder

if "first" in sys.argv:
    SparkContext._ensure_initialized()
try:
    builder = session_builder().master("local[1]").config("spark.ui.enabled", False)
except ConfigError as error:
    sys.exit(print("refused", error))
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
print("rows", spark.read.format("pylog-jvm").load(sys.argv[1]).count())
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.processes
def test_a_program_gets_a_session_and_errors_that_say_which_python(log: Log, tmp_path: Path) -> None:
    """Its working directory has a module that hides one of Python's own, which the planner must not
    take."""
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
    pushes, count, false, missing, again = done.stdout.splitlines()
    assert count == again == str(len(CORNERS))
    assert pushes == "false"  # PySpark plans a frame once: what one query filters, the next would miss
    assert "/bin/false -m pylog.spark.jvm cannot run: it has ended without a word" in false
    assert "spark.pylog.python, else PYSPARK_PYTHON, names a Python that has pylog" in false
    assert "/no/such/python" in missing


@pytest.mark.engine  # each starts a JVM
@pytest.mark.parametrize("how", ["submitted", "submitted with the jar", "another session was first"])
def test_a_jvm_that_runs_must_have_the_jar(log: Log, tmp_path: Path, how: str) -> None:
    for problem in (java_problem(), jar_problem()):
        if problem:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    log.create_topic("orders")
    append_view(log, view_of(CORNERS))
    (tmp_path / "program.py").write_text(SUBMITTED)
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit")]
    if how == "another session was first":
        command = [sys.executable]
    elif "jar" in how:
        command += ["--jars", str(JAR)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent / "src"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [*command, str(tmp_path / "program.py"), str(log.path), how.rsplit(maxsplit=1)[-1]],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    if "jar" in how:
        assert done.stdout.splitlines()[-1] == f"rows {len(CORNERS)}"
    else:
        assert "refused Spark's JVM runs already, without the jar" in done.stdout
        assert f"with --jars {JAR}" in done.stdout


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
        _ = spark.jars  # type: ignore[attr-defined]


@pytest.mark.one_in(8)
@pytest.mark.processes
def test_the_same_sources_make_the_same_jar(tmp_path: Path) -> None:
    if problem := jar_problem():
        pytest.skip(problem)
    for name in ("one.jar", "two.jar"):
        subprocess.run([sys.executable, TESTS.parent / "scripts" / "jvm", "--to", tmp_path / name], check=True)
    assert (tmp_path / "one.jar").read_bytes() == (tmp_path / "two.jar").read_bytes() == JAR.read_bytes()


# What a build takes


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a build of the package begins with, with one source file of the reader."""
    root = TESTS.parent
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "scripts/jvm", f"{READER}/Bytes.java"):
        to = tmp_path / "tree" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, to)
    return tmp_path / "tree"


def build(tree: Path) -> subprocess.CompletedProcess[str]:
    """Without a JDK, as where a jar must have been made before."""
    return subprocess.run(
        [sys.executable, "setup.py", "build_py"],
        cwd=tree, env={**os.environ, "JAVA_HOME": "/nowhere"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.processes
def test_a_build_takes_a_jar_of_its_sources_and_refuses_another(tree: Path) -> None:
    done = build(tree)
    assert done.returncode == 0, done.stderr
    assert 'format("pylog-jvm") is left out: scripts/jvm makes it' in done.stderr
    script = runpy.run_path(str(tree / "scripts" / "jvm"))
    script["pack"](tree / "no-classes", script["JAR"])
    done = build(tree)
    assert done.returncode == 0, done.stderr
    assert "is left out" not in done.stderr
    with (tree / READER / "Bytes.java").open("a") as source:
        source.write("// changed\n")
    done = build(tree)
    assert done.returncode != 0
    assert "pylog-spark.jar is of other sources: make it again with scripts/jvm, or delete it" in done.stderr
