"""What every test may ask for: a seed, directories, one Spark session.

Every run has one seed, printed on top; a test that uses ``seed`` and fails says how to run it again
with the same one.
"""

from __future__ import annotations

import functools
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
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from pylog.codec import COMPILED
from pylog.log import Log
from tests import system

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Not for the processes that tests start, which have seeds of their own.
RUN_SEED = int(os.environ.pop("PYLOG_TEST_SEED", "") or random.randrange(2**32))
JAVA_NEEDED = 17
TMPFS = Path("/dev/shm")
SLOW_ONE_IN = 3
TESTS = Path(__file__).parent
JVM = TESTS.parent / "src" / "pylog" / "spark" / "jvm"
JAR = JVM / "pylog-spark.jar"
# Runs side by side share this directory, and with it the tests: see ``is_mine``. Not for the
# processes that tests start.
SHARED = os.environ.pop("PYLOG_TEST_SHARED", None)
ON_SPARK: set[Path] = set()  # files with a test on Spark
# The JVMs of tests end before optimized code pays off, and each optimizing compiler would keep a
# second core busy.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# What reaches no record, or only to have some, is the same with either codec: once is enough.
# Marked ``one_codec``.
ONE_CODEC = {
    "backup": "copies of files",
    "benchmarks": "what measures, and how it is told",
    "catalog": "topics' files and directories, JSON",
    "cleaner": "what is due; records are dropped by partition, whose tests run on both",
    "cli/test_consume_group.py": "who reads what; the records it shows are test_consume.py's",
    "cli/test_docs.py": "what the documents print",
    "cli/test_formats.py": "a record as text, which is decoded by then",
    "cli/test_group_reset.py": "offsets of groups",
    "cli/test_groups.py": "states of groups",
    "cli/test_hostile_directories.py": "every command; damaged records are partition's and codec's",
    "cli/test_main.py": "arguments, exit codes",
    "cli/test_names_on_disk.py": "names",
    "cli/test_options.py": "arguments",
    "cli/test_output.py": "text",
    "cli/test_progress.py": "text",
    "cli/test_terminal.py": "text",
    "cli/test_topics.py": "topics' files",
    "examples": "programs above the library",
    "fuzz/test_no_code.py": "the source",
    "group/test_assignor.py": "a function of members and partitions",
    "group/test_deleted_topics.py": "orders of steps; commits are test_commits.py's",
    "group/test_forks_and_expulsions.py": "processes and times",
    "group/test_interrupts.py": "places in the source",
    "group/test_irregular_files.py": "directories",
    "group/test_member_liveness.py": "locks and times",
    "group/test_pending_offsets.py": "orders of steps; offsets in transactions are test_transactional_offsets.py's",
    "group/test_protocol.py": "the state of a group, in a file of JSON; commits are numbers",
    "group/test_races.py": "orders of steps",
    "group/test_state.py": "a value that changes",
    "group/test_state_file.py": "a file of JSON",
    "group/test_stopped_holder.py": "locks and times",
    "index": "files of offsets and times; the times of a batch are codec/test_least_time.py's",
    "mutants": "texts of the source; the bugs themselves are tried on the readable codec",
    "outbox": "rows and positions; records are made and read by producer and consumer, whose tests run on both",
    "partition/test_opening_cost.py": "numbers of reads",
    "producer/test_fork.py": "processes",
    "producer/test_threads.py": "threads",
    "simulation": "orders of steps, crashes and faults; records are made and read by partition, whose tests run on both",
    "spark": "plans, offsets and commits; records are made and read by producer and arrow, whose tests run on both",
    "storage": "files, locks, names and modes",
    "tables": "the newest of each key; records are read by consumer, whose tests run on both",
    "test_architecture.py": "the source",
    "test_documentation.py": "links; what is printed is run with the compiled one",
    "test_interrupts.py": "places in the source",
    "test_kafka_names.py": "names",
    "test_public_names.py": "names",
    "test_sharing.py": "runs of tests",
    "test_turn.py": "a lock",
    "test_wall_clock.py": "clocks",
    "test_words.py": "the source",
    "testing": "the simulated machine's disk, histories and their checker",
    "topic_changes": "orders of records, which are read and made by partition, whose tests run on both",
    "transaction/test_admin.py": "states",
    "transaction/test_rules_prevent_losses.py": "orders of steps; records are test_records.py's and test_readers.py's",
    "transaction/test_model.py": "orders of calls",
    "transaction/test_producer.py": "orders of steps",
    "transaction/test_state.py": "a value that changes",
    "transaction/test_state_file.py": "a file",
    "transaction/test_take_over.py": "orders of steps",
    "transaction/test_threads.py": "threads",
    "transaction/test_timeouts.py": "times",
    "transaction/test_outcomes_told_to_producers.py": "orders of steps",
}

EXAMPLES = 100 if COMPILED else 40  # the readable codec takes several times as long
settings.register_profile("pylog", deadline=None, print_blob=True, max_examples=EXAMPLES)
settings.load_profile("pylog")


def pytest_configure() -> None:
    """What the processes of tests inherit.

    A shell without job control starts what runs beside it with Ctrl-C ignored.
    """
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"seed: PYLOG_TEST_SEED={RUN_SEED}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    are_named = config.args_source is config.ArgsSource.ARGS or config.option.keyword
    if not are_named:
        leave_to_engines(items)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if "classes" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.processes)
        if needs_one_codec(item.path):
            item.add_marker(pytest.mark.one_codec)
    ON_SPARK.update(item.path for item in items if item.get_closest_marker("spark") is not None)
    if SHARED:  # the longest first, so that the runs end together: Spark's tests, which one run must take all
        items.sort(key=lambda item: item.path not in ON_SPARK)


def leave_to_engines(items: list[pytest.Item]) -> None:
    """Of tests marked ``one_in(n)`` this run has one in n, of those marked ``slow`` a third, others
    with each seed.

    The engines' run with the same seed has the rest.
    """
    families = Counter[str]()
    for item in items:
        one_in = item.get_closest_marker("one_in")
        if one_in is None and item.get_closest_marker("slow") is None:
            continue
        family, *_ = item.nodeid.partition("[")
        if (zlib.crc32(family.encode()) + families[family] + RUN_SEED) % (one_in.args[0] if one_in else SLOW_ONE_IN):
            item.add_marker(pytest.mark.engine)
        families[family] += 1


@functools.cache
def needs_one_codec(path: Path) -> bool:
    return any(path.is_relative_to(TESTS / place) for place in ONE_CODEC)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """As pytest's own, but for those that are this run's: which, is known only while others run
    theirs."""
    if SHARED is None or session.testsfailed or session.config.option.collectonly:
        return None
    mine = (item for item in session.items if is_mine(claim_of(item.path)))
    item = next(mine, None)
    while item is not None:
        following = next(mine, None)
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        if reason := session.shouldfail or session.shouldstop:
            raise session.Interrupted(reason)
        item = following
    return True


def claim_of(path: Path) -> str:
    """What one run must take together: tests of one file share fixtures, those on Spark a
    session."""
    return "spark" if path in ON_SPARK else path.relative_to(TESTS).as_posix().replace("/", " ")


@functools.cache
def is_mine(claim: str) -> bool:
    """Of runs side by side, the first that comes to some tests makes a directory of their name, and
    runs them."""
    assert SHARED is not None
    try:
        Path(SHARED, claim).mkdir()
    except FileExistsError:
        return False
    return True


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
    """This test's own number, the same whenever the run's seed is the same, whichever tests run
    beside it."""
    return zlib.crc32(request.node.nodeid.encode(), RUN_SEED)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """The interpreter changes threads within a microsecond: they meet more often, and wait less for
    each other."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


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
    """Asks which files this process has open, among which no collector closes what earlier tests
    have left."""
    gc.collect()
    gc.disable()
    yield system.names_of_open_files
    gc.enable()


@pytest.fixture
def disk_dir(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty directory on a disk, also if ``tmp_path`` is in memory, as it is in scripts/test. It
    stays if the test fails."""
    directory, failed = Path(tempfile.mkdtemp(prefix="pylog-")), request.session.testsfailed
    yield directory
    if request.session.testsfailed == failed:
        shutil.rmtree(directory)


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
    if jar_problem() is None:
        options |= {
            "spark.jars": str(JAR),
            "spark.pylog.python": sys.executable,
            "spark.pylog.pythonPath": str(TESTS.parent / "src"),
        }
    session = SparkSession.builder.master("local[2]").appName("pylog tests").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def jvm(spark: SparkSession) -> SparkSession:
    """The same session, which has ``format("pylog-jvm")``. Without the jar: a skip, or under CI a
    failure."""
    if problem := jar_problem():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    return spark


def jar_problem() -> str | None:
    """Why the tests cannot use the Java reader's jar, or None."""
    made = JAR.stat().st_mtime if JAR.exists() else 0.0
    if any(source.stat().st_mtime > made for source in (JVM / "java").rglob("*.*")):
        return f"{JAR.name} is not there, or is older than its sources: scripts/jvm makes it"
    return None


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
