"""Processes of Spark with a reader: a task comes without delay, and a planner ends in silence."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from pylog.spark.source.batch import batch_reader
from pylog.spark.source.options import SourceOptions
from pylog.spark.source.schema import arrow_schema, spark_schema
from pylog.spark.source.stream import StreamReader
from pylog.storage import os_sockets
from tests.storage.connections import delayed_connection, is_delayed

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="Linux only")


@pytest.fixture
def worker() -> Iterator[socket.socket]:
    with delayed_connection() as connection:
        yield connection


def batch() -> object:
    return batch_reader(
        SourceOptions.parse({"path": "/log"}), arrow_schema(spark_schema(include_headers=False), include_headers=False)
    )


def stream() -> object:
    return StreamReader({"path": "/log"}, spark_schema(include_headers=False))


@pytest.mark.parametrize("reader", [batch, stream])
def test_a_reader_that_comes_to_a_worker_is_acknowledged_at_once(
    worker: socket.socket, reader: Callable[[], object]
) -> None:
    sent = pickle.dumps(reader())
    assert is_delayed(worker)
    found = pickle.loads(sent)
    assert not is_delayed(worker)
    assert vars(found).keys() == vars(reader()).keys()


STOPPED = """
from pylog.spark.source.schema import spark_schema
from pylog.spark.source.stream import StreamReader
reader = StreamReader({"path": "/log"}, spark_schema(include_headers=False))
try:
    try:
        raise %s
    finally:
        reader.stop()
except Exception:
    raise %s
"""  # what python_streaming_source_runner.py of PySpark does


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at_the_end", "follows", "is_shown"),
    [
        ("EOFError", "BrokenPipeError", False),
        ("EOFError", "ConnectionResetError", False),
        ("EOFError", "ValueError", True),
        ("ValueError", "BrokenPipeError", True),
    ],
)
def test_a_planner_whose_driver_has_stopped_the_query_prints_nothing(
    at_the_end: str, follows: str, *, is_shown: bool
) -> None:
    program = STOPPED % (at_the_end, follows)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (follows in done.stderr, bool(done.stderr)) == (is_shown, is_shown)
    assert done.returncode == 1


def test_a_task_starts_without_proc_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os_sockets, "_DESCRIPTORS", "/nowhere/fd")
    assert pickle.loads(pickle.dumps(batch()))
