"""The Java reader, compiled once for a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.spark.jvm.verdicts import JavaReader, compile_reader, has_javac


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not has_javac():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no javac")
    return compile_reader(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="session")
def java(classes: Path) -> Iterator[JavaReader]:
    with closing(JavaReader(classes)) as java:
        yield java
