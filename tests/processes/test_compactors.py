"""A compaction is stopped, killed, forked, refused or interrupted at its steps: nothing is lost,
and the next one works."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest

from pylog import Log
from pylog.errors import DeliveryTimeout, ForkedHandle, PylogError, StorageFull
from pylog.partition.compact.engine import IS_BUSY
from pylog.partition.compact.swap import SegmentsChanged
from tests.consumer.interrupts import interrupt_at
from tests.processes.compactors import TOPIC, History, compacted, kills
from tests.processes.sharing import forked, result_of
from tests.storage.filesystems import Faulty, full
from tests.test_interrupts import ROOMS

pytestmark = [pytest.mark.processes, pytest.mark.slow]
PLACES = int(os.environ.get("PYLOG_TEST_PLACES", "40"))  # for an exception, of many thousand
LOCKED = 3  # a compaction has its lock by then
EVERY = 5  # of the steps; which ones, the seed says


def compact_with(root: Path, at: int, act: Callable[[], None]) -> str:
    """Compact, and ``act`` before the change ``at``. Returns the outcome."""
    filesystem, steps = Faulty(), count()

    def before(_happens: str, _path: str) -> None:
        if next(steps) == at:
            act()

    with Log(root, filesystem=filesystem) as log:
        list(log.partition(TOPIC, 0).scan())
        filesystem.hook = before
        try:
            compacted(log)
        except SegmentsChanged:
            return "changed"
        finally:
            filesystem.hook = lambda *_: None
    return "done" if next(steps) > at else "over"


def histories(tmpfs_dir: Path, seed: int, every: int = EVERY) -> Iterator[tuple[History, int]]:
    """One after another, with a step each, until the test says ``break``."""
    for at in count(seed % every, every):
        history = History(tmpfs_dir / str(at), seed + at)
        with Log(history.root) as log:
            history.rounds(log)
        yield history, at
        shutil.rmtree(history.root)


@pytest.mark.slow
@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL], ids=["goes on", "is killed"])
def test_a_compaction_is_stopped_at_its_steps_and_others_go_on(
    then: signal.Signals, tmpfs_dir: Path, seed: int
) -> None:
    """They append, read, delete, and are told that another process compacts; only a swap itself
    makes appends wait."""
    waited = passed = 0
    for history, at in histories(tmpfs_dir, seed):
        child = forked(
            lambda root=history.root, at=at: compact_with(root, at, lambda: os.kill(os.getpid(), signal.SIGSTOP))
        )
        _, status = os.waitpid(child[0], os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            os.close(child[1])
            break
        start = 0
        with Log(history.root) as log:
            try:
                history.append(log, 1, timeout_ms=50)
                start = 5
                log.partition(TOPIC, 0).log.delete_before(start, timeout_ms=2000)
                passed += 1
            except DeliveryTimeout:
                waited += 1
            assert history.problems(log, start) == []
            if start and at > LOCKED:
                assert compacted(log).skipped == (IS_BUSY,)
            assert history.problems(log, start) == []
        os.kill(child[0], then)
        if then == signal.SIGCONT:
            assert result_of(child) in ("done", "changed")
        else:
            os.waitpid(child[0], 0)
            os.close(child[1])
        history.check(start)
    assert min(passed, waited) > 0


def test_a_compaction_that_is_killed_at_random_keeps_the_newest_records(tmpfs_dir: Path, seed: int) -> None:
    """``python -m tests.processes.compactors --kills 1000`` for more of them."""
    assert kills(tmpfs_dir / "log", 25, seed) == []


def test_a_compaction_whose_disk_is_full_at_any_step_frees_what_it_took(tmpfs_dir: Path, seed: int) -> None:
    refused = 0
    for history, at in histories(tmpfs_dir, seed, every=3):
        filesystem, steps = Faulty(), count()

        def refuse(happens: str, path: str, steps: Iterator[int] = steps, at: int = at) -> None:
            if happens in ("pwrite", "open", "sync", "replace") and next(steps) >= at:
                raise full(path)

        with Log(history.root, filesystem=filesystem) as log:
            list(log.partition(TOPIC, 0).scan())
            filesystem.hook = refuse
            told: PylogError | None = None
            try:
                compacted(log)
            except PylogError as error:
                told = error
                refused += 1
            assert told is None or isinstance(told, StorageFull) or isinstance(told.__cause__, StorageFull), repr(told)
            filesystem.hook = lambda *_: None
            names = log.partition(TOPIC, 0).log.directory.names()
            assert not [name for name in names if name.endswith(".cleaned")], names
            assert history.problems(log) == []
        history.check()
        if next(steps) <= at:
            break
    assert refused > 5


def test_a_child_that_returns_from_a_signal_handler_into_a_compaction_does_no_harm(tmpfs_dir: Path, seed: int) -> None:
    """It goes on while its parent does, until it is told; it emptied a finished segment, which then
    replaced three."""
    forks = 0
    for history, at in histories(tmpfs_dir, seed, every=3):
        children: list[int] = []

        def fork(children: list[int] = children) -> None:
            children.append(os.fork())

        try:
            compact_with(history.root, at, fork)
        except BaseException as error:
            if 0 in children:
                os._exit(0 if isinstance(error, ForkedHandle) else 2)
            if not isinstance(error, PylogError):  # its child may have taken one step for it
                raise
        if 0 in children:
            os._exit(1)  # what it had left to do was not the parent's any more
        if not children:
            break
        forks += 1
        os.waitpid(children[0], 0)
        history.check()
    assert forks > 5


def test_a_living_child_keeps_no_compaction_of_its_dead_parent_locked(tmpfs_dir: Path, seed: int) -> None:
    for history, at in histories(tmpfs_dir, seed, every=25):
        waits, ends = os.pipe()
        runs, is_running = os.pipe()

        def fork_and_die(waits: int = waits, ends: int = ends, is_running: int = is_running) -> None:
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            os.close(ends)
            os.close(is_running)  # what a fork calls in the child has given up the locks
            os.read(waits, 1)
            os._exit(0)

        child = forked(lambda root=history.root, at=at, act=fork_and_die: compact_with(root, at, act))
        os.close(waits)
        os.close(is_running)
        _, status = os.waitpid(child[0], 0)
        assert not os.read(runs, 1)
        os.close(runs)
        history.check()
        os.close(ends)
        os.close(child[1])
        if not os.WIFSIGNALED(status):
            break


@pytest.mark.one_in(4)
def test_an_exception_at_any_place_of_a_compaction_reaches_the_caller_and_loses_nothing(
    tmpfs_dir: Path, seed: int
) -> None:
    places = 1 << 40
    for number in range(PLACES):
        place = Random(seed + number).randrange(1, places) if number else places
        history = History(tmpfs_dir / str(number), seed + number)
        with Log(history.root) as log:
            history.rounds(log)
            error, raised = KeyboardInterrupt(), None
            try:
                with interrupt_at(place, ROOMS, error) as passed:
                    compacted(log)
            except KeyboardInterrupt as caught:
                raised = caught
            assert raised is (None if passed[0] < place else error), place
            assert history.problems(log) == []
        places = places if number else passed[0]
        error.__traceback__ = None
        del raised
        history.check()
        shutil.rmtree(history.root)
    assert places > 1000
