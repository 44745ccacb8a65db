"""``Log(housekeeping=True)``: one process maintains the log for all, and another one after it."""

from __future__ import annotations

import gc
import logging
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from pylog import Log, ProducerRecord
from pylog.errors import ConfigError, ReadOnlyLog
from tests.processes.sharing import forked, result_of
from tests.producer.fakes import wait_until

OLD_MS = 1_000_000


def fill(log: Log, count: int = 6) -> None:
    log.create_topic("t", if_not_exists=True, segment_bytes=2000, retention_ms=1000, retention_clock="append")
    for _ in range(count):
        log.partition("t", 0).append([ProducerRecord(b"x" * 900, timestamp_ms=OLD_MS)], acks=1)
    log.alter_topic("t", retention_clock="record")


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pylog-housekeeping"]


def test_what_is_due_is_done_without_a_call(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir, housekeeping=True, housekeeping_interval_ms=1) as log:
        fill(log)
        wait_until(lambda: log.partition("t", 0).earliest_offset == 6)
        assert len(threads()) == 1
    wait_until(lambda: threads() == [])


def test_one_process_does_it_for_all_and_then_another(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        fill(log)
        first = log.manager.filesystem.lock(log.manager.layout.housekeeping_lock)
        assert first.try_acquire()
        with Log(tmp_log_dir, housekeeping=True, housekeeping_interval_ms=3_600_000) as other:
            housekeeping = other._housekeeping
            assert housekeeping is not None
            housekeeping.stop()  # its ticks come from here
            for _ in range(3):
                assert housekeeping.tick()
            assert log.partition("t", 0).earliest_offset == 0
            first.close()
            housekeeping.tick()
            assert log.partition("t", 0).earliest_offset == 6


def test_a_forked_child_has_no_thread_and_its_parent_keeps_the_lock(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir, housekeeping=True, housekeeping_interval_ms=1) as log:
        fill(log)
        wait_until(lambda: log.partition("t", 0).earliest_offset == 6)
        path = log.manager.layout.housekeeping_lock

        def child() -> None:
            assert threads() == []
            assert log._housekeeping is not None
            log.partition("t", 0).append([ProducerRecord(b"v")], acks=1)
            log.close()

        result_of(forked(child))
        assert log.manager.filesystem.is_locked(path)


def test_a_log_that_was_dropped_ends_its_thread(tmp_log_dir: Path) -> None:
    log = Log(tmp_log_dir, housekeeping=True, housekeeping_interval_ms=1)
    manager = weakref.ref(log.manager)
    del log
    wait_until(lambda: gc.collect() >= 0 and manager() is None and threads() == [])


def test_a_failure_is_told_once_and_tried_again(tmp_log_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Log(tmp_log_dir, housekeeping=True, housekeeping_interval_ms=3_600_000) as log:
        housekeeping = log._housekeeping
        assert housekeeping is not None
        housekeeping.stop()  # its ticks come from here
        fill(log)
        segment = Path(log.partition("t", 0).segments[0].path)
        content = segment.read_bytes()
        for seal in segment.parent.glob("*.seal"):
            seal.unlink()
        segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with caplog.at_level(logging.WARNING, "pylog.cleaner"):
            for _ in range(3):
                assert housekeeping.tick()
        assert len([record for record in caplog.records if "retention failed" in record.getMessage()]) == 1
        segment.write_bytes(content)
        housekeeping.tick()
        assert log.partition("t", 0).earliest_offset == 6


@pytest.mark.parametrize(
    "wrong", [{"housekeeping": 1}, {"housekeeping_interval_ms": 0}, {"housekeeping_interval_ms": 1.5}]
)
def test_wrong_options_are_refused(tmp_log_dir: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Log(tmp_log_dir, **wrong)


def test_a_log_that_can_only_be_read_is_not_maintained(tmp_log_dir: Path) -> None:
    Log(tmp_log_dir).close()
    with pytest.raises(ReadOnlyLog):
        Log(tmp_log_dir, read_only=True, housekeeping=True)
    assert os.listdir(tmp_log_dir) == [".pylog"]
