"""What a process knows of topics, and of names that are missing, holds until any process changes a
topic."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from pylog import Log
from pylog.catalog import Catalog, KafkaCatalog, TopicDescription
from pylog.errors import TopicNotFound
from pylog.storage import OsFileSystem
from pylog.testing import ManualClock
from tests.processes.sharing import forked, result_of


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked for in the directory."""
    looked: list[str] = []
    for kind in (Catalog, KafkaCatalog):
        describe = kind.describe

        def noted(catalog: object, name: str, *more: str, describe=describe) -> TopicDescription:  # type: ignore[no-untyped-def]
            looked.append(name)
            return describe(catalog, name, *more)

        monkeypatch.setattr(kind, "describe", noted)
    return looked


def existing(log: Log, *names: str) -> list[str]:
    return list(log.manager.existing_topics(names))


def test_each_name_is_looked_for_once(tmp_log_dir: Path, clock: ManualClock, looks: list[str]) -> None:
    with Log(tmp_log_dir, clock=clock) as log:
        log.create_topic("there")
        assert existing(log, "there", "missing") == ["there"]
        clock.sleep(1)
        looks.clear()
        for _ in range(3):
            assert existing(log, "there", "missing", "no name") == ["there"]
        assert sorted(looks) == ["missing", "no name"]


def test_names_that_are_missing_take_no_memory_without_bound(tmp_log_dir: Path, clock: ManualClock) -> None:
    with Log(tmp_log_dir, clock=clock) as log:
        assert existing(log, "t") == []
        clock.sleep(1)
        for number in range(3_000):
            assert existing(log, f"t{number}") == []
        assert len(log.manager._known._known.missing) == 1_000


def test_a_missing_topic_is_found_as_soon_as_another_process_has_created_it(
    tmp_log_dir: Path, clock: ManualClock
) -> None:
    with Log(tmp_log_dir, clock=clock) as log, Log(tmp_log_dir) as other:
        for number in range(20):
            name = f"t{number}"
            for _ in range(2):
                assert existing(log, name) == []
                clock.sleep(1)
            other.create_topic(name)
            assert existing(log, name) == [name]
            other.delete_topic(name)
            assert existing(log, name) == []


@pytest.mark.parametrize("is_kafkas", [False, True])
def test_a_topic_that_appears_in_the_tick_of_a_change_is_found(
    tmp_log_dir: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, is_kafkas: bool
) -> None:
    """Its creator may die before it advances the version. Kafka does not know of one."""
    if is_kafkas:
        (tmp_log_dir / "there-0").mkdir(parents=True)
        (tmp_log_dir / "there-0" / f"{0:020}.log").touch()
    with Log(tmp_log_dir, clock=clock, read_only=is_kafkas) as log, Log(tmp_log_dir) as other:
        monkeypatch.setattr(OsFileSystem, "modified_ns", lambda *_: 7)
        for _ in range(3):
            assert existing(log, "t") == []
            clock.sleep(0.005)
        if is_kafkas:
            (tmp_log_dir / "t-0").mkdir()
            (tmp_log_dir / "t-0" / f"{0:020}.log").touch()
        else:
            monkeypatch.setattr(Catalog, "advance_version", bool)
            other.create_topic("t")
        clock.sleep(1)
        assert existing(log, "t") == ["t"]


def test_what_was_found_before_a_change_does_not_count_after_it(
    tmp_log_dir: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look and its note another process changes the topic, and a signal handler, or
    another thread, looks."""
    with Log(tmp_log_dir, clock=clock) as log, Log(tmp_log_dir) as other:
        log.create_topic("grows")
        assert existing(log, "t") == []
        clock.sleep(1)
        describe = Catalog.describe

        def too_early(catalog: Catalog, name: str, *more: str) -> TopicDescription:
            try:
                return describe(catalog, name, *more)
            finally:
                monkeypatch.setattr(Catalog, "describe", describe)
                if name == "t":
                    other.create_topic("t")
                else:
                    other.add_partitions("grows", 3)
                assert log.describe_topic("grows").partitions == (1 if name == "t" else 3)

        monkeypatch.setattr(Catalog, "describe", too_early)
        assert existing(log, "t") == []
        assert existing(log, "t") == ["t"]
        other.alter_topic("t", segment_ms=5)
        monkeypatch.setattr(Catalog, "describe", too_early)
        assert log.describe_topic("grows").partitions == 1
        assert log.describe_topic("grows").partitions == 3


def test_who_asks_for_a_missing_topic_by_name_is_told_what_is_there(tmp_log_dir: Path, clock: ManualClock) -> None:
    with Log(tmp_log_dir, clock=clock) as log:
        log.create_topic("there")
        for _ in range(3):
            assert existing(log, "t") == []
            clock.sleep(1)
            with pytest.raises(TopicNotFound, match="topics: there"):
                log.describe_topic("t")


def test_a_thread_that_waits_for_anothers_look_does_not_look_itself(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_waiting = threading.Event()
    looked: list[str] = []
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        known, describe, mutex = log.manager._known, Catalog.describe, threading.RLock()

        class Noting:
            def __enter__(self) -> None:
                if threading.current_thread() is waiting:
                    is_waiting.set()
                mutex.acquire()

            def __exit__(self, *_: object) -> None:
                mutex.release()

        def slow(catalog: Catalog, name: str, *more: str) -> TopicDescription:
            looked.append(name)
            waiting.start()
            assert is_waiting.wait(30)
            return describe(catalog, name, *more)

        waiting = threading.Thread(target=log.describe_topic, args=("t",))
        monkeypatch.setattr(known, "_mutex", Noting())
        monkeypatch.setattr(Catalog, "describe", slow)
        log.describe_topic("t")
        waiting.join()
    assert looked == ["t"]


def test_a_child_forked_during_another_threads_look_looks_itself(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_looking, may_end = threading.Event(), threading.Event()
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        describe = Catalog.describe

        def slow(catalog: Catalog, name: str, *more: str) -> TopicDescription:
            if threading.current_thread() is not threading.main_thread():
                is_looking.set()
                assert may_end.wait(30)
            return describe(catalog, name, *more)

        monkeypatch.setattr(Catalog, "describe", slow)
        looking = threading.Thread(target=existing, args=(log, "t"))
        looking.start()
        assert is_looking.wait(30)

        def child() -> list[str]:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # instead of waiting forever for the parent's thread
            return existing(log, "t")

        found = forked(child)
        may_end.set()
        looking.join()
        assert result_of(found) == ["t"]
