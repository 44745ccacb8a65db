"""A writer is stopped where it holds the lock, at every place: others wait, and what it wrote
counts afterwards."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import DeliveryTimeout
from tests.processes.sharing import forked, result_of
from tests.soak.failpoints import UNDER_LOCK, WRITING, Failpoint, FailpointFileSystem, moments_of

pytestmark = pytest.mark.processes
PLACES = [(place, moment) for place in sorted(UNDER_LOCK) if place in WRITING for moment in moments_of(place)]
BEFORE, AFTER = b"before", b"after"


def append_and_stop(directory: Path, failpoint: Failpoint, seed: int) -> int:
    """Append until the failpoint stops this process, and come to the end of that append; the number
    of records."""

    def stop(path: str) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    filesystem = FailpointFileSystem(None, random.Random(seed), stop)
    with Log(directory, filesystem=filesystem) as log:
        partition = log.partition("t", 0)
        partition.append([ProducerRecord(BEFORE)], acks=1)
        filesystem.failpoint = failpoint
        appended = 1
        while filesystem.failpoint is not None:
            partition.append([ProducerRecord(b"%d" % appended + bytes(500))], acks=1)
            appended += 1
        return appended


@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL], ids=["goes on", "is killed"])
@pytest.mark.parametrize(("place", "moment"), PLACES)
def test_a_stopped_writer_keeps_the_lock_and_nothing_stale_is_seen_afterwards(
    place: str, moment: str, then: signal.Signals, tmpfs_dir: Path, seed: int
) -> None:
    with Log(tmpfs_dir / "log") as log:
        log.create_topic("t", index_interval_bytes=1000)
        partition = log.partition("t", 0)
        child = forked(lambda: append_and_stop(tmpfs_dir / "log", Failpoint(place, 0, moment, "stop"), seed))
        _, status = os.waitpid(child[0], os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        seen = [record.value for record in partition.scan()]
        with pytest.raises(DeliveryTimeout):
            partition.append([ProducerRecord(AFTER)], acks=1, timeout_ms=20)
        assert [record.value for record in partition.scan()] == seen
        os.kill(child[0], then)
        if then == signal.SIGCONT:
            stood = result_of(child)
        else:
            os.waitpid(child[0], 0)
            os.close(child[1])
            stood = None
        partition.append([ProducerRecord(AFTER)], acks=1, timeout_ms=5000)
        found = [record.value for record in partition.scan()]
    assert found[: len(seen)] == seen
    assert found[-1] == AFTER
    assert found[:-1] == [BEFORE, *(b"%d" % number + bytes(500) for number in range(1, len(found) - 1))]
    assert len(found) - 1 == stood if stood is not None else len(found) - 1 - len(seen) in (0, 1)
