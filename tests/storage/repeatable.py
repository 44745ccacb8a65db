"""A log that is the same in every byte whenever it is written: fixed clock, ids and random numbers.
Prints its digest."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from pylog.log import Log
from pylog.model import ProducerRecord
from pylog.producer import Producer
from tests.partition.logs import START_MS, ManualClock, append_encoded, batch, marker, topic_of
from tests.storage.filesystems import OtherBoot


class Repeatable(OtherBoot):
    """Draws the same numbers every time, for the same process of the same boot."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = 0

    def random_bytes(self, size: int) -> bytes:
        self.drawn += 1
        return hashlib.shake_128(b"%d" % self.drawn).digest(size)

    def process_id(self) -> int:
        return 1


def write(root: Path) -> None:
    clock = ManualClock()
    with Log(root, filesystem=Repeatable(), clock=clock) as log:
        for codec in ("none", "gzip", "zstd"):
            log.create_topic(codec, partitions=2, compression_type=codec, segment_bytes=4000, index_interval_bytes=100)
            with Producer(log, acks="all", batch_bytes=1000, linger_ms=100_000) as producer:
                for number in range(60):
                    producer.send(
                        codec, b"value %d" % number * 5, key=b"%d" % number, partition=number % 2,
                        headers=[("h", b"%d" % number), ("empty", None)], timestamp_ms=START_MS + number,
                    )  # fmt: skip
                    clock.sleep(0.5)
        partition = topic_of(log, "t", index_interval_bytes=0)
        append_encoded(partition, batch(b"v", producer_id=7, epoch=0, sequence=0, transactional=True))
        append_encoded(partition, marker(7, 0, commit=False))
        partition.log.roll()
        partition.append([ProducerRecord(None, b"key"), ProducerRecord(b"", b"", [("", b"")])], acks=1)
        log.manager.next_producer_id()
        log.delete_records(("none", 0), 10)
        log.alter_topic("gzip", segment_ms=5)


def contents(root: Path) -> dict[str, bytes]:
    """Every file by its path, with what is in it."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def digest(root: Path, *, seals: bool) -> str:
    """Of all files; of seals, which the readable codec makes shorter, or of all others."""
    whole = hashlib.sha256()
    for name, content in contents(root).items():
        if name.endswith(".seal") == seals:
            whole.update(b"%d %d %s" % (len(name), len(content), name.encode()))
            whole.update(content)
    return whole.hexdigest()


if __name__ == "__main__":
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    write(Path(sys.argv[1]))
    print(digest(Path(sys.argv[1]), seals=False), digest(Path(sys.argv[1]), seals=True))
