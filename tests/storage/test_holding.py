"""Waiting for a lock, and giving it back whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.errors import LogLocked
from pylog.log import Log
from pylog.storage import OsFileSystem, holding
from tests.partition.logs import ManualClock


def is_free(path: str) -> bool:
    lock = OsFileSystem().lock(path)
    try:
        return lock.try_acquire()
    finally:
        lock.close()


def test_a_lock_is_held_inside_the_block_and_free_behind_it(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with holding(OsFileSystem(), ManualClock(), path):
        assert not is_free(path)
    assert is_free(path)
    with pytest.raises(ZeroDivisionError), holding(OsFileSystem(), ManualClock(), path):
        raise ZeroDivisionError
    assert is_free(path)


def test_a_lock_that_stays_taken_is_an_error_after_the_timeout(tmp_path: Path) -> None:
    path, clock = str(tmp_path / "lock"), ManualClock()
    with holding(OsFileSystem(), clock, path):
        with pytest.raises(LogLocked, match="stayed locked for 2 s") as caught, holding(OsFileSystem(), clock, path, 2):
            raise AssertionError("it was taken twice")
        assert (caught.value.path, caught.value.timeout_s, caught.value.retriable) == (path, 2, True)
        assert clock.seconds == pytest.approx(2.0, abs=0.01)
    assert is_free(path)


def test_a_lock_that_comes_free_while_waiting_is_taken(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = OsFileSystem().lock(path)
    assert lock.try_acquire()

    class Freeing(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.seconds > 1.0:
                lock.release()

    clock = Freeing()
    with holding(OsFileSystem(), clock, path):
        assert not is_free(path)
    assert 1.0 < clock.seconds < 1.1
    lock.close()


@pytest.mark.parametrize("file", [".pylog/catalog.lock", "t-0/.lock"])
def test_a_deletion_waits_for_the_catalogs_lock_and_for_writers(tmp_log_dir: Path, file: str) -> None:
    with Log(tmp_log_dir, clock=ManualClock()) as log:
        log.create_topic("t")
        with holding(OsFileSystem(), ManualClock(), str(tmp_log_dir / file)):
            with pytest.raises(LogLocked) as caught:
                log.delete_topic("t")
            assert caught.value.path == str(tmp_log_dir / file)


def test_producer_ids_wait_for_their_lock(tmp_log_dir: Path) -> None:
    Log(tmp_log_dir).close()
    with Log(tmp_log_dir, clock=ManualClock()) as log:
        path = str(tmp_log_dir / ".pylog" / "producer-ids.lock")
        with holding(OsFileSystem(), ManualClock(), path):
            with pytest.raises(LogLocked) as caught:
                log.next_producer_id()
            assert caught.value.path == path
        assert log.next_producer_id() >= 0
