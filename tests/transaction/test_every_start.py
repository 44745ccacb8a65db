"""Transactions of one producer that follow and interleave within one fetch, read from every
starting offset by every face."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pylog import Consumer, Log, TopicPartition
from tests.transaction.story import GROUP, Story, at_random, commit_abort_commit, story
from tests.transaction.views import TOPIC, seen

LEVELS = ["read_committed", "read_uncommitted"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with Log(tmp_path / "log") as log:
        log.create_topic(TOPIC)
    return tmp_path / "log"


def check(root: Path, it: Story) -> None:
    """Every face, from every offset, with and without permission to write."""
    for read_only in (False, True):
        with Log(root, read_only=read_only) as log:
            end = log.partition(TOPIC, 0).latest_offset
            for level in LEVELS:
                for start in range(end + 1):
                    found = seen(log, start, isolation_level=level)
                    assert found == {0: it.visible(start, level)}, (read_only, level, start)


@pytest.mark.slow
def test_commit_abort_commit_of_one_producer_beside_another_one(root: Path) -> None:
    with Log(root) as log, story(log) as it:
        commit_abort_commit(it)
        check(root, it)
        assert it.visible(0, "read_committed") == [
            "p0",
            "a0",
            "a1",
            "a2",
            "a3",
            "a4",
            "p1",
            "p2",
            "c0",
            "y0",
            "y1",
            "c1",
            "c2",
            "p3",
        ]
        it.begin("two")
        it.send("two", "open")
        it.plain("after")
        check(root, it)
        assert it.visible(0, "read_committed")[-1] == "p3"
        with Consumer(log, group_id=GROUP) as consumer:
            assert consumer.committed(TopicPartition(TOPIC, 0)) == 7


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(3))
def test_random_transactions_of_three_producers(root: Path, seed: int, round_: int) -> None:
    with Log(root) as log, story(log, ("one", "two", "three")) as it:
        at_random(it, Random(seed + round_), 25)
        check(root, it)


@pytest.mark.one_in(8)
@pytest.mark.slow
def test_the_same_in_segments_of_a_few_batches(root: Path, seed: int) -> None:
    with Log(root) as log:
        log.alter_topic(TOPIC, segment_bytes=1024)
        with story(log, ("one", "two", "three")) as it:
            at_random(it, Random(seed), 40)
            assert len(log.partition(TOPIC, 0).segments) > 3
            check(root, it)
