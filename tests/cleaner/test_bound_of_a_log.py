"""What goes so that a whole log keeps within its bound. Pure: no file is made."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pylog import Log, ProducerRecord
from pylog.cleaner.bound import Candidate, Part, shared
from pylog.cleaner.cleaner import BOUND, RETENTION, Cleaner
from pylog.errors import StorageError
from pylog.model import TopicPartition
from tests.system import fail

A, B, C = (TopicPartition(name, 0) for name in "abc")


def part(name: TopicPartition, *segments: tuple[int, int], kept: str = "active segment", kept_bytes: int = 0) -> Part:
    """Segments as ``(time, bytes)``."""
    return Part(name, [Candidate(at, 10 * n + 10, size) for n, (at, size) in enumerate(segments)], kept, kept_bytes)


def test_the_oldest_of_all_goes_first() -> None:
    parts = [part(A, (1, 5), (4, 5), (9, 5)), part(B, (2, 5), (3, 5)), part(C, (8, 5))]
    for max_bytes, expected in (
        (30, {}),
        (29, {A: 1}),
        (20, {A: 1, B: 1}),
        (15, {A: 1, B: 2}),
        (6, {A: 2, B: 2, C: 1}),
    ):
        share = shared(parts, max_bytes)
        assert share.counts == expected
        assert share.excess_bytes == 0


def test_what_can_not_go_is_said_with_the_reason() -> None:
    parts = [part(A, (1, 5), kept_bytes=7), part(B, kept="internal topic", kept_bytes=3), part(C, kept_bytes=1)]
    share = shared(parts, 4)
    assert (share.counts, share.freed_bytes, share.excess_bytes) == ({A: 1}, 5, 7)
    assert share.why == {"active segment": 8, "internal topic": 3}
    assert shared(parts, 11) == ({A: 1}, 5, 0, {})


def test_no_more_goes_than_must_and_never_past_what_stays(seed: int) -> None:
    random = Random(seed)
    for _ in range(300):
        parts = []
        for number in range(random.randint(1, 20)):
            times = sorted(random.choices(range(50), k=random.randint(0, 6)))
            found = [(at, random.randint(1, 9)) for at in times]
            parts.append(part(TopicPartition("t", number), *found, kept_bytes=random.randint(0, 9)))
        total = sum(each.kept_bytes + sum(c.disk_bytes for c in each.candidates) for each in parts)
        max_bytes = random.randint(0, total + 5)
        share = shared(parts, max_bytes)
        gone = [c for each in parts for c in each.candidates[: share.counts.get(each.name, 0)]]
        stay = [c for each in parts for c in each.candidates[share.counts.get(each.name, 0) :]]
        assert share.freed_bytes == sum(c.disk_bytes for c in gone)
        assert total - share.freed_bytes <= max_bytes or not stay
        assert share.excess_bytes == max(total - share.freed_bytes - max_bytes, 0)
        if gone:
            last = max(gone, key=lambda c: c.appended_ms)
            assert total - share.freed_bytes + last.disk_bytes > max_bytes or len(gone) > 1
            assert all(last.appended_ms <= c.appended_ms for c in stay)
        else:
            assert total <= max_bytes or not stay


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_dry_run_says_what_the_next_maintenance_does(tmp_log_dir: Path, policy: str) -> None:
    with Log(tmp_log_dir) as log:
        for topic, options in (("a", {"cleanup_policy": policy}), ("b", {})):
            log.create_topic(topic, segment_bytes=4096, **options)
            for number in range(40):
                log.partition(topic, 0).append([ProducerRecord(bytes(500), key=b"%d" % number)])
        log.alter(max_bytes=25_000)
        log.alter_topic("a", retention_bytes=8192)

        def done(*, dry_run: bool) -> list[object]:
            report = log.maintain(dry_run=dry_run)
            rows = [
                (each.topic, each.step, each.log_start_offset, each.deleted_segments, each.deleted_bytes, each.rules)
                for each in report.partitions
                if each.step in (RETENTION, BOUND)
            ]
            return [*rows, report.log.excess_bytes]

        would = done(dry_run=True)
        assert len(would) == (4 if policy == "delete" else 3), would
        assert would == done(dry_run=False)


def test_a_record_that_begins_a_segment_is_in_although_retention_fails_after_it(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Cleaner, "after_roll", lambda *_: fail(StorageError("the disk refuses", path="x")))
    with Log(tmp_log_dir) as log:
        log.create_topic("t", segment_bytes=1024, retention_bytes=1024)
        partition = log.partition("t", 0)
        offsets = [partition.append([ProducerRecord(bytes(500))], acks=1).base_offset for _ in range(4)]
        assert (offsets, partition.latest_offset) == ([0, 1, 2, 3], 4)
    assert "what retention does is left to the next roll: the disk refuses" in caplog.text
