"""The Java reader, compiled once for a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.spark.jvm.verdicts import JavaReader, compile_reader, has_javac


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaReader]:
    if not has_javac():
        pytest.skip("no javac")
    with closing(JavaReader(compile_reader(tmp_path_factory.mktemp("classes")))) as java:
        yield java
