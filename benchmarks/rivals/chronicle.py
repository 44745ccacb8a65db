"""Chronicle Queue: a log in memory-mapped files, embedded in Java programs as pylog is in Python
ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.rivals import maven
from benchmarks.rivals.server import program
from benchmarks.settings import Scale, fresh
from benchmarks.workload import Measure, Sample

WRITING = "page cache: its defaults, no CRC; a loop in Java, compiled by then: a document for each key and value"
READING = "a tailer in Java, compiled by then: key and value of each document copied to byte arrays"
RECORDS = 2_000_000  # twice before the first round, so that the loops are compiled
QUEUE = maven.Artifact("net.openhft", "chronicle-queue", "2026.4")
SOURCE = Path(__file__).with_name("ChronicleLoop.java")
# What the library needs of Java 17, and no reports of its use to its makers
FLAGS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "-Dchronicle.analytics.disable=true",
)

Ask = Callable[[str, Path, int], float]


@contextmanager
def _loop(place: Path) -> Iterator[Ask]:
    """The Java program: what it is asked it does, and says how many seconds it took."""
    java = program("java", "default-jdk-headless")
    jars, classes, printed = maven.jars(QUEUE), place / "classes", place / "chronicle.txt"
    maven.javac([SOURCE], jars, classes)
    command = [java, *FLAGS, "-Xmx1g", "-cp", maven.classpath([classes, *jars]), SOURCE.stem]
    with printed.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)

    def ask(what: str, directory: Path, count: int) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{what}\t{directory}\t{count}\n")
        process.stdin.flush()
        for line in process.stdout:  # its log, and then the answer
            if line.startswith("took "):
                return int(line.split()[1]) / 1e9
        raise RuntimeError(f"{SOURCE.stem} has ended: {printed.read_text(errors='replace')[-2_000:]}")

    with process:
        yield ask


@contextmanager
def writes(place: Path, scale: Scale) -> Iterator[Measure]:
    """Appending the records one by one."""
    count = scale.of(RECORDS)
    with _loop(place) as ask:

        def measure() -> Sample:
            with fresh(place) as directory:
                return {"records_per_s": count / ask("append", directory / "queue", count)}

        measure()
        yield measure


@contextmanager
def reads(place: Path, scale: Scale) -> Iterator[Measure]:
    """One queue, read from its beginning."""
    count = scale.of(RECORDS)
    with _loop(place) as ask:
        ask("append", place / "queue", count)
        ask("read", place / "queue", count)
        yield lambda: {"records_per_s": count / ask("read", place / "queue", count)}
