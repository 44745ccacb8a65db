"""A process is stopped at each step of retention: others go on reading, writing and deleting, now
or when it is gone."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import DeliveryTimeout
from tests.processes.sharing import forked, result_of
from tests.soak.failpoints import Failpoint, FailpointFileSystem, moments_of

pytestmark = pytest.mark.processes
RECORDS, KEPT = 60, 10
PLACES = [
    (place, passes, moment)
    for place, passes in [
        ("pwrite .commit", 0), ("sync .commit", 0), ("sync .snapshot", 0), ("replace .log", 0), ("replace .log", 2),
        ("replace .seal", 1), ("remove .log", 0), ("remove .log", 2), ("remove .seal", 0), ("remove .index", 1),
    ]
    for moment in moments_of(place)
]  # fmt: skip


def maintain_and_stop(directory: Path, failpoint: Failpoint, seed: int) -> int:
    filesystem = FailpointFileSystem(None, random.Random(seed), lambda _: os.kill(os.getpid(), signal.SIGSTOP))
    with Log(directory, filesystem=filesystem) as log:
        filesystem.failpoint = failpoint
        report = log.maintain(["t"])
        assert report.problems == []
        return report.deleted_segments


@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL], ids=["goes on", "is killed"])
@pytest.mark.parametrize(("place", "passes", "moment"), PLACES)
@pytest.mark.one_in(8)
def test_others_go_on_while_a_process_is_stopped_in_retention(
    place: str, passes: int, moment: str, then: signal.Signals, tmpfs_dir: Path, seed: int
) -> None:
    with Log(tmpfs_dir / "log") as log:
        for topic in ("t", "u"):
            log.create_topic(topic, segment_bytes=4096)
            for number in range(RECORDS):
                log.partition(topic, 0).append([ProducerRecord(b"%d" % number + bytes(1000))], acks=1)
            log.partition(topic, 0).log.sync(RECORDS)
            log.alter_topic(topic, retention_bytes=KEPT * 1024)
        partition = log.partition("t", 0)
        child = forked(lambda: maintain_and_stop(tmpfs_dir / "log", Failpoint(place, passes, moment, "stop"), seed))
        _, status = os.waitpid(child[0], os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            pytest.fail(f"{place} is not reached")

        def check(appended: int) -> None:
            found = [record.offset for record in partition.scan()]
            assert found == [*range(found[0], RECORDS + appended)]
            assert found[0] <= RECORDS - KEPT

        check(0)  # readers wait for nothing
        assert log.maintain(["u"]).deleted_segments > 0  # nor do other partitions
        appended = 0
        try:
            partition.append([ProducerRecord(b"meanwhile")], acks=1, timeout_ms=50)
            appended = 1
        except DeliveryTimeout:
            pass  # it was stopped with the partition's lock
        check(appended)
        os.kill(child[0], then)
        if then == signal.SIGCONT:
            assert result_of(child) > 0
        else:
            os.waitpid(child[0], 0)
            os.close(child[1])
        partition.append([ProducerRecord(b"later")], acks=1, timeout_ms=5000)
        check(appended + 1)
        log.maintain()
        check(appended + 1)
        for _ in range(8):  # the next deletion removes what this one has left
            partition.append([ProducerRecord(bytes(1000))], acks=1)
        assert log.maintain(["t"]).problems == []
        sizes = [segment.size_bytes for segment in partition.segments]
        assert sum(sizes) < KEPT * 1024 + 2 * 4096
        bases = {f"{segment.base_offset:020d}" for segment in partition.segments}
        left = {path.name for path in (tmpfs_dir / "log" / "t-0").glob("0*")}
        assert {name.partition(".")[0] for name in left if not name.endswith(".snapshot")} == bases, left
        assert log.verify().problems == []
