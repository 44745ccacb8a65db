"""Fetches a rival's jars with Maven into a cache outside of the repository:
``$XDG_CACHE_HOME/pylog/<name>-<version>``."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks.rivals.server import program
from benchmarks.workload import MissingError

COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"  # as scripts/kafka-oracle
FETCH_S_MAX = 600
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pylog</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>
    <exclusions>{exclusions}</exclusions>
  </dependency></dependencies>
</project>
"""


class Artifact(NamedTuple):
    """What Maven fetches, with its dependencies but those of the groups ``without``."""

    group: str
    name: str
    version: str
    without: tuple[str, ...] = ()


def jars(artifact: Artifact) -> list[Path]:
    """The jars of the artifact and of what it needs. ``MissingError`` if they are not there and
    Maven can't fetch them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pylog")
    directory = cache / f"{artifact.name}-{artifact.version}"
    if not directory.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        _fetch(artifact, directory)
    return sorted(directory.glob("*.jar"))


def _fetch(artifact: Artifact, directory: Path) -> None:
    """Into a directory of its own, renamed when it is whole: an interrupted fetch leaves no half
    cache."""
    maven = program("mvn", "maven")
    exclusions = "".join(
        f"<exclusion><groupId>{escape(group)}</groupId><artifactId>*</artifactId></exclusion>"
        for group in artifact.without
    )
    with tempfile.TemporaryDirectory(prefix="pylog-maven-", dir=directory.parent) as temporary:
        pom, fresh = Path(temporary, "pom.xml"), Path(temporary, "jars")
        pom.write_text(
            _POM.format(group=artifact.group, name=artifact.name, version=artifact.version, exclusions=exclusions)
        )
        command = [maven, "--batch-mode", "--quiet", "--file", str(pom), f"-DoutputDirectory={fresh}", COPY]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_S_MAX)
        except subprocess.TimeoutExpired:
            raise MissingError(f"Maven did not fetch {artifact.name} {artifact.version} in {FETCH_S_MAX} s") from None
        if done.returncode or not fresh.is_dir():
            said = next((line for line in done.stdout.splitlines() if "[ERROR]" in line), done.stderr.strip()[-300:])
            raise MissingError(f"Maven could not fetch {artifact.name} {artifact.version}: {said[:500]}")
        try:
            fresh.rename(directory)
        except OSError:
            if not directory.is_dir():  # else another run was first, and has fetched the same
                raise


def javac(sources: list[Path], libraries: list[Path], classes: Path) -> None:
    """Compile a rival's program into the directory ``classes``."""
    command = [program("javac", "default-jdk-headless"), "-cp", classpath(libraries), "-d", str(classes)]
    done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"javac failed: {done.stdout[-1_000:]}{done.stderr[-1_000:]}")


def classpath(paths: Iterable[Path]) -> str:
    """As ``java -cp`` takes it."""
    return os.pathsep.join(map(str, paths))
