"""Jars are fetched once, whole or not at all, and a run says which it lacks. A script stands for
Maven here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rivals.maven import Artifact, jars
from benchmarks.workload import MissingError

ARTIFACT = Artifact("org.example", "queue", "1.2", without=("org.left.out",))
FETCHES = """#!/bin/sh
for word in "$@"; do
    case "$word" in
        -DoutputDirectory=*) mkdir "${word#*=}" && touch "${word#*=}/queue-1.2.jar" "${word#*=}/needed-3.jar" ;;
        */pom.xml) cp "$word" "$XDG_CACHE_HOME/asked.xml" ;;
    esac
done
"""
FAILS = """#!/bin/sh
echo '[ERROR] Could not find queue'
exit 1
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def maven(cache: Path, script: str) -> Path:
    program = cache.parent / "bin" / "mvn"
    program.write_text(script)
    program.chmod(0o755)
    return program


def test_jars_are_fetched_once(cache: Path) -> None:
    maven(cache, FETCHES)
    found = jars(ARTIFACT)
    assert [jar.name for jar in found] == ["needed-3.jar", "queue-1.2.jar"]
    asked = (cache / "asked.xml").read_text()
    assert "<groupId>org.example</groupId><artifactId>queue</artifactId><version>1.2</version>" in asked
    assert "<exclusion><groupId>org.left.out</groupId>" in asked
    maven(cache, FAILS)
    assert jars(ARTIFACT) == found


def test_a_fetch_that_fails_is_said_and_leaves_nothing(cache: Path) -> None:
    maven(cache, FAILS)
    with pytest.raises(MissingError, match=r"could not fetch queue 1\.2: \[ERROR\] Could not find queue"):
        jars(ARTIFACT)
    assert not list((cache / "pylog").iterdir())
    maven(cache, FETCHES)
    assert len(jars(ARTIFACT)) == 2


def test_a_machine_without_maven_is_told_which_package_has_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache.parent / "bin"))
    with pytest.raises(MissingError, match=r"mvn is not installed .*apt-get install maven"):
        jars(ARTIFACT)
