"""Maintenance ends the transaction that a dead producer has left, so that its segments can go."""

from __future__ import annotations

from contextlib import suppress
from errno import ENOSPC
from typing import Any

import pytest

from pylog.testing.machine import Killed, Process, Step
from tests.transaction.stage import ROOT, Stage
from tests.transaction.test_rules_prevent_losses import kill_at

VALUES = {0: "of the dead one"}


def maintained(stage: Stage, **options: Any) -> tuple[int, int, list[str]]:
    """By another process: the log start and last stable offsets of the partition, and why it keeps
    what is left."""
    with stage.machine.process().open_log(ROOT) as log:
        report = log.maintain(**options)
        (described, *_) = log.describe_partitions("t")
        assert described.log_start_offset is not None
        assert described.last_stable_offset is not None
        kept = [
            each.kept
            for each in report.partitions
            if (each.topic, each.partition, each.step) == ("t", 0, "retention") and each.kept
        ]
        return described.log_start_offset, described.last_stable_offset, kept


@pytest.fixture
def stage() -> Stage:
    """A topic that keeps nothing."""
    found = Stage()
    with found.machine.process().open_log(ROOT) as log:
        log.alter_topic("t", retention_ms=0)
    return found


def stable_end(stage: Stage) -> int | None:
    with stage.machine.process().open_log(ROOT, read_only=True) as log:
        return log.describe_partitions("t")[0].last_stable_offset


def later(stage: Stage) -> None:
    stage.machine.seconds += 60.0


def test_the_transaction_of_a_dead_producer_is_ended(stage: Stage) -> None:
    owner = stage.owner()
    owner.begin(VALUES)
    later(stage)
    assert maintained(stage) == (0, 0, ["open transaction"]), "its producer lives"
    owner.process.kill()
    assert maintained(stage, dry_run=True) == (0, 0, ["open transaction"]), "this changes nothing"
    start, stable, kept = maintained(stage)
    assert (start, stable) == (2, 2), "the record, and the marker that maintenance has written, are gone"
    assert "open transaction" not in kept


def test_the_bound_of_the_log_is_not_held_by_a_dead_producer() -> None:
    """The topic itself has no limit."""
    stage = Stage()
    owner = stage.owner()
    with stage.machine.process().open_log(ROOT) as log:
        log.alter_topic("t", segment_bytes=2000)
        log.alter(max_bytes=1000)
    owner.begin(VALUES)
    for _ in range(5):
        owner.write({0: "x" * 900})
    owner.process.kill()
    with stage.machine.process().open_log(ROOT) as log:
        assert log.maintain(dry_run=True).log.excess_bytes > 1000
        log.maintain()
        assert log.partition("t", 0).earliest_offset > 0


def test_the_transaction_of_a_late_producer_is_ended(stage: Stage) -> None:
    owner = stage.owner(timeout_ms=1000)
    owner.begin(VALUES)
    later(stage)
    assert maintained(stage)[:2] == (2, 2)


def test_a_commit_that_was_decided_stays_one(stage: Stage) -> None:
    """Its producer dies before it writes the markers."""
    with stage.machine.process().open_log(ROOT) as log:
        log.alter_topic("t", retention_ms=-1, retention_bytes=10**9)
    owner = stage.owner()
    owner.begin({0: "both", 1: "both"})
    kill_at(owner, "pwrite", "/t-0/0000")
    with suppress(Killed):
        owner.producer.commit_transaction()
    assert stable_end(stage) == 0, "the marker is missing"
    maintained(stage)
    assert stable_end(stage) == 2
    assert stage.read() == {0: ["both"], 1: ["both"], 2: [], 3: []}


def test_a_transaction_that_cannot_be_ended_now_keeps_its_segment(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    owner = stage.owner()
    owner.begin(VALUES)
    owner.process.kill()
    later(stage)

    def is_full(_: Process, step: Step) -> None:
        if step.name == "pwrite" and "/t-0" in step.path:
            raise OSError(ENOSPC, "no space left on device")

    stage.machine.before_step.append(is_full)
    assert maintained(stage) == (0, 0, ["open transaction"])
    assert "open transactions stay open for now" in caplog.text
    stage.machine.before_step.clear()
    assert maintained(stage)[:2] == (2, 2)
