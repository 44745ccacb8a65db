"""What every test may ask for: a seed, directories, one Spark session.

Every run has one seed, printed on top; a test that uses ``seed`` and fails says how to run it again with the same one.
"""

from __future__ import annotations

import gc
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from pylog.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_SEED = int(os.environ.get("PYLOG_TEST_SEED") or random.randrange(2**32))
JAVA_NEEDED = 17
TMPFS = Path("/dev/shm")
TESTS = Path(__file__).parent

# What reaches no record, or only to have some, is the same with either codec: once is enough. Marked ``one_codec``.
ONE_CODEC = {
    "benchmarks": "what measures, and how it is told",
    "catalog": "topics' files and directories, JSON",
    "cli/test_consume_group.py": "who reads what; the records it shows are test_consume.py's",
    "cli/test_docs.py": "what the documents print",
    "cli/test_formats.py": "a record as text, which is decoded by then",
    "cli/test_group_reset.py": "offsets of groups",
    "cli/test_groups.py": "states of groups",
    "cli/test_main.py": "arguments, exit codes",
    "cli/test_names_on_disk.py": "names",
    "cli/test_options.py": "arguments",
    "cli/test_output.py": "text",
    "cli/test_progress.py": "text",
    "cli/test_terminal.py": "text",
    "cli/test_topics.py": "topics' files",
    "examples": "programs above the library",
    "group/test_assignor.py": "a function of members and partitions",
    "group/test_protocol.py": "the state of a group, in a file of JSON; commits are numbers",
    "group/test_state.py": "a value that changes",
    "group/test_state_file.py": "a file of JSON",
    "mutants": "texts of the source; the bugs themselves are tried on the readable codec",
    "spark": "plans, offsets and commits; records are made and read by producer and arrow, whose tests run on both",
    "storage": "files, locks, names and modes",
    "test_architecture.py": "the source",
    "test_documentation.py": "links; what is printed is run with the compiled one",
    "test_public_names.py": "names",
    "test_turn.py": "a lock",
    "testing": "the simulated machine's disk, histories and their checker",
}

settings.register_profile("pylog", deadline=None, print_blob=True)
settings.load_profile("pylog")


def pytest_configure() -> None:
    """A shell without job control starts what runs behind it with Ctrl-C ignored, which the processes of tests would inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"seed: PYLOG_TEST_SEED={RUN_SEED}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if any(item.path.is_relative_to(TESTS / place) for place in ONE_CODEC):
            item.add_marker(pytest.mark.one_codec)


def pytest_collection_finish() -> None:
    """What pytest has collected stays to the end: no collection of garbage looks through it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        report.sections.append(("seed", f"again: PYLOG_TEST_SEED={RUN_SEED} pytest '{item.nodeid}'"))
    return report


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """This test's own number, the same whenever the run's seed is the same, whichever tests run beside it."""
    return zlib.crc32(request.node.nodeid.encode(), RUN_SEED)


@pytest.fixture
def tmp_log_dir(tmp_path: Path) -> Path:
    """Where a log may be created; nothing is there yet."""
    return tmp_path / "log"


@pytest.fixture
def log(tmp_log_dir: Path) -> Iterator[Log]:
    """A log without topics."""
    with Log(tmp_log_dir) as opened:
        yield opened


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a partition may be laid out; nothing is there yet."""
    return tmp_path / "t-0"


@pytest.fixture
def open_files() -> Iterator[Callable[[], list[str]]]:
    """Asks which descriptors this process has open, among which no collector closes what earlier tests have left."""
    gc.collect()
    gc.disable()
    yield lambda: os.listdir("/proc/self/fd")
    gc.enable()


@pytest.fixture
def tmpfs_dir() -> Iterator[Path]:
    """An empty directory in memory, where syncing costs nothing."""
    if not (TMPFS.is_dir() and os.access(TMPFS, os.W_OK)):
        pytest.skip(f"{TMPFS} is not a writable directory: this machine has no tmpfs for tests")
    with tempfile.TemporaryDirectory(prefix="pylog-", dir=TMPFS) as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The run's one Spark session, on two threads. Without Java: a skip, or under CI a failure."""
    if problem := java_problem():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers must have what the tests have
    options: dict[str, Any] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    session = SparkSession.builder.master("local[2]").appName("pylog tests").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def java_problem() -> str | None:
    """Why Spark cannot start here, or None."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return f"no Java found; Spark needs Java {JAVA_NEEDED} or newer"
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < JAVA_NEEDED:
        return f"Spark needs Java {JAVA_NEEDED} or newer; {java} says {shown.strip()!r}"
    return None
