"""Redis Streams: a server in memory with an append-only file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.rivals.server import program, running
from benchmarks.settings import VALUE, Scale, check_count, keys, seconds
from benchmarks.workload import Measure, Sample, no_package

WRITING = "append-only file synced every second; XADD in pipelines of 1,000 over a Unix socket"
READING = "XRANGE of 1,000 entries a call over a Unix socket"
PIPELINE_RECORDS = 1_000
RECORDS = 100_000


@contextmanager
def _client(directory: Path) -> Iterator[Any]:
    try:
        import redis
    except ImportError:
        raise no_package("redis") from None
    address = directory / "redis.sock"
    client = redis.Redis(unix_socket_path=str(address))
    command = [
        program("redis-server", "redis-server"), "--port", "0", "--unixsocket", str(address), "--save", "",
        "--appendonly", "yes", "--appendfsync", "everysec", "--dir", str(directory),
    ]  # fmt: skip

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False

    with running(command, directory, answers):
        yield client
        client.close()


def _add_all(client: Any, stream: str, keys_: list[bytes]) -> None:
    for start in range(0, len(keys_), PIPELINE_RECORDS):
        pipeline = client.pipeline(transaction=False)
        for key in keys_[start : start + PIPELINE_RECORDS]:
            pipeline.xadd(stream, {key: VALUE})
        pipeline.execute()


@contextmanager
def writes(place: Path, scale: Scale) -> Iterator[Measure]:
    """Adding the records one by one, pipelined."""
    keys_, numbers = keys(scale.of(RECORDS)), count()
    with _client(place) as client:

        def measure() -> Sample:
            stream = f"events-{next(numbers)}"
            took = seconds(lambda: _add_all(client, stream, keys_))
            client.delete(stream)
            return {"records_per_s": len(keys_) / took}

        yield measure


@contextmanager
def reads(place: Path, scale: Scale) -> Iterator[Measure]:
    """All entries of a stream, in their order."""
    keys_ = keys(scale.of(RECORDS))
    with _client(place) as client:
        _add_all(client, "events", keys_)

        def read_all() -> None:
            found, start = 0, "-"
            while entries := client.xrange("events", start, count=PIPELINE_RECORDS):
                found += len(entries)
                start = b"(" + entries[-1][0]
            check_count(found, len(keys_))

        yield lambda: {"records_per_s": len(keys_) / seconds(read_all)}
