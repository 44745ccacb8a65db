"""What a partition does whose files were closed because they were idle, and are gone or can't be
opened now."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pylog import Consumer, Log, ProducerRecord
from pylog.errors import CorruptSegment, TopicNotFound
from pylog.storage.descriptor_pool import POOL


def close_idle_files() -> None:
    for _ in range(2):  # the first look clears the marks of use
        POOL.close_some(1 << 30)


@pytest.fixture
def written(tmp_log_dir: Path) -> Path:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.partition("t", 0).append([ProducerRecord(b"v")], acks=1)
    return tmp_log_dir


def test_a_reader_of_a_topic_that_was_deleted_while_it_was_idle_is_told(written: Path) -> None:
    """It read its slots again and again, for ever."""
    with Log(written, read_only=True) as log, Log(written) as other:
        partition = log.partition("t", 0)
        assert len(partition.read(0)) == 1
        close_idle_files()
        other.delete_topic("t")
        with pytest.raises(TopicNotFound):
            partition.read(0)


def test_a_consumer_whose_slots_were_removed_while_it_was_idle_does_not_hang(written: Path) -> None:
    with Log(written, read_only=True) as log, Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        assert len(consumer.poll(0)) == 1
        close_idle_files()
        (written / "t-0" / ".commit").unlink()
        with suppress(CorruptSegment):
            assert consumer.poll(0) == []


MANY = """
import os, resource, sys
from pylog import Log, ProducerRecord

resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
log = Log(sys.argv[1])
log.create_topic("t", partitions=20)
for number in range(20):
    log.partition("t", number).append([ProducerRecord(b"v")], acks=1)
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
for number in range(20):
    assert [record.value for record in log.partition("t", number).read(0)] == [b"v"]
    log.partition("t", number).append([ProducerRecord(b"w")], acks="all")
"""


def test_an_application_that_takes_all_descriptors_first_finds_the_log_working(tmp_log_dir: Path) -> None:
    """What is needed to close an idle file was loaded only then, which took a descriptor."""
    done = subprocess.run([sys.executable, "-c", MANY, str(tmp_log_dir)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
