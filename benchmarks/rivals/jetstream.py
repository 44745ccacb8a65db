"""NATS JetStream: a server with streams in files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.rivals.server import free_port, listens, program, running
from benchmarks.settings import VALUE, Scale, check_count, keys, seconds
from benchmarks.workload import Measure, Sample, no_package

WRITING = "file storage, its own syncs every two minutes; publish_async, 4,000 unacknowledged at most"
READING = "a pull consumer without acknowledgements, 1,000 messages a fetch"
PENDING = 4_000
FETCH_RECORDS = 1_000
RECORDS = 50_000


class _Stream:
    """A client and its event loop, used from outside of it."""

    def __init__(self, port: int) -> None:
        import nats

        self._loop = asyncio.new_event_loop()
        self._client = self.run(nats.connect(f"nats://127.0.0.1:{port}"))
        self._jetstream = self._client.jetstream(publish_async_max_pending=PENDING)

    def run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    async def create(self, name: str) -> None:
        await self._jetstream.add_stream(name=name, subjects=[name])

    async def delete(self, name: str) -> None:
        await self._jetstream.delete_stream(name)

    async def add_all(self, name: str, keys_: list[bytes]) -> None:
        publish = self._jetstream.publish_async
        for key in keys_:
            await publish(name, VALUE, headers={"key": key.decode()})
        await self._jetstream.publish_async_completed()

    async def read_all(self, name: str, wanted: int) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig

        own = await self._jetstream.pull_subscribe(name, config=ConsumerConfig(ack_policy=AckPolicy.NONE))
        found = 0
        while found < wanted:
            found += len(await own.fetch(min(FETCH_RECORDS, wanted - found)))
        check_count(found, wanted)
        await own.unsubscribe()

    def close(self) -> None:
        self.run(self._client.close())
        self._loop.close()


@contextmanager
def _stream(directory: Path) -> Iterator[_Stream]:
    try:
        import nats  # noqa: F401
    except ImportError:
        raise no_package("nats-py") from None
    port = free_port()
    command = [
        program("nats-server", "nats-server"), "--jetstream", "--store_dir", str(directory), "--addr", "127.0.0.1",
        "--port", str(port),
    ]  # fmt: skip
    with running(command, directory, lambda: listens(port)):
        stream = _Stream(port)
        try:
            yield stream
        finally:
            stream.close()


@contextmanager
def writes(place: Path, scale: Scale) -> Iterator[Measure]:
    """Publishing the records one by one, acknowledged behind."""
    keys_, numbers = keys(scale.of(RECORDS)), count()
    with _stream(place) as stream:

        def measure() -> Sample:
            name = f"events-{next(numbers)}"
            stream.run(stream.create(name))
            took = seconds(lambda: stream.run(stream.add_all(name, keys_)))
            stream.run(stream.delete(name))
            return {"records_per_s": len(keys_) / took}

        yield measure


@contextmanager
def reads(place: Path, scale: Scale) -> Iterator[Measure]:
    """All messages of a stream, in their order."""
    keys_ = keys(scale.of(RECORDS))
    with _stream(place) as stream:
        stream.run(stream.create("events"))
        stream.run(stream.add_all("events", keys_))
        yield lambda: {"records_per_s": len(keys_) / seconds(lambda: stream.run(stream.read_all("events", len(keys_))))}
