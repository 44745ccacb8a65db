"""Small files are read with little memory, whatever they may hold at most or claim to hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pylog.checks import OFFSETS_TOPIC
from pylog.cli.main import main
from pylog.consumer import Consumer
from pylog.group.offsets_checkpoint import Checkpoint, write_checkpoint
from pylog.group.state_file import SLOTS, SLOTS_BYTES, STATE_LIMIT_BYTES, Slot
from pylog.log import Log
from pylog.partition.directory import boot_of
from pylog.storage import OsFileSystem
from tests.partition.logs import one, topic_of
from tests.processes.sharing import forked, result_of
from tests.spark.writing import QUERY, Driver

resource = pytest.importorskip("resource", reason="no limits of memory here")
STATUS = Path("/proc/self/status")

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not STATUS.exists(), reason="the memory that a process has is read from /proc"),
]

ROOM_BYTES = 32 << 20  # less than any of the bounds that are looked at here: 64 and 256 MiB


@pytest.fixture
def log(tmpfs_dir: Path) -> Iterator[Log]:
    """With the small files whose readers bound them by tens of megabytes."""
    with Log(tmpfs_dir / "log") as opened:
        partition = topic_of(opened, "orders")
        partition.append(one("v"), acks="all")
        partition.log.roll()
        with Consumer(opened, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("orders")
            consumer.poll(0)
            consumer.commit()
        Driver(opened.path).write([[b"staged"]])
        for number in opened.describe_topic(OFFSETS_TOPIC).numbers:
            topic_id = opened.describe_topic(OFFSETS_TOPIC).id
            path = f"{opened.path}/.pylog/offsets-{number}.checkpoint"
            write_checkpoint(OsFileSystem(), path, Checkpoint(topic_id, 0, []))
        state = opened.path / ".pylog" / "groups" / "claims" / "state"
        state.parent.mkdir()
        slot, _ = SLOTS.slot(Slot(1, boot_of(OsFileSystem()), SLOTS_BYTES, STATE_LIMIT_BYTES, 0, 1).body())
        state.write_bytes(slot + slot)
        yield opened


def in_little_memory(work: Callable[[], object]) -> object:
    """What ``work`` returns in a process that can have little more memory than it has."""

    def limited() -> object:
        has_kib = re.search(r"VmSize:\s+(\d+) kB", STATUS.read_text())
        assert has_kib is not None
        limit = int(has_kib[1]) * 1024 + ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        return work()

    return result_of(forked(limited))


def test_the_limit_is_one() -> None:
    def take() -> str:
        try:
            return str(len(bytes(64 * ROOM_BYTES)))  # more than earlier tests can have given back
        except MemoryError:
            return "refused"

    assert in_little_memory(take) == "refused"


def test_small_files_need_little_memory(log: Log) -> None:
    root = log.path

    def use() -> object:
        with Log(root) as mine:
            read = [record.value for record in mine.partition("orders", 0).scan()]
            with Consumer(mine, group_id="g") as consumer:
                consumer.subscribe("orders")
                found = [record.value for record in consumer.poll(0)]
                consumer.commit()
            with Consumer(mine, group_id="claims") as consumer:
                consumer.subscribe("orders")
                consumer.poll(0)
            groups = mine.groups()
            problems = mine.verify().problems
        sink = Driver(root)
        sink.write([[b"more"]], 1)
        return read, found, groups, problems, main(["stats", "--log", str(root)])

    assert in_little_memory(use) == ([b"v", b"staged"], [b"staged"], ["g", f"spark:{QUERY}"], [], 0)
