"""Maintenance on a thread of one process, which does it for all.

The process whose thread holds the housekeeping lock maintains the log; the others try the lock once
an interval, and one of them gets it when the holder closes the log or dies. The thread keeps no log
alive that the application has dropped. A forked child has no such thread.
"""

from __future__ import annotations

import logging
import threading  # the housekeeping thread itself
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import ref

from pylog.errors import Closed, PylogError
from pylog.interrupts import own, start_thread
from pylog.storage import FileLock, after_fork_in_child

if TYPE_CHECKING:
    from pylog.cleaner.report import MaintenanceReport
    from pylog.manager.manager import LogManager

logger = logging.getLogger("pylog.cleaner")

Maintain = Callable[["LogManager"], "MaintenanceReport"]

_JOIN_S = 1.0


class Housekeeping:
    """Maintains one log until ``stop``."""

    def __init__(self, manager: LogManager, maintain: Maintain, interval_ms: int) -> None:
        manager.require_writable()
        self._manager = ref(manager)
        self._maintain = maintain
        self._interval_s = interval_ms / 1000
        self._stopped = threading.Event()
        self._lock: FileLock | None = None
        self._told: list[str] = []
        self._thread: threading.Thread | None = threading.Thread(
            target=self._run, name="pylog-housekeeping", daemon=True
        )
        after_fork_in_child(self._forget_parent)
        start_thread(self._thread)

    def stop(self) -> None:
        """End the thread, and free the lock. Waits briefly for a maintenance under way."""
        self._stopped.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)

    def _run(self) -> None:
        stopped = self._stopped
        try:
            while not stopped.is_set() and self.tick():
                stopped.wait(self._interval_s)
        finally:
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.close()

    def tick(self) -> bool:
        """Maintain the log, if no other process does. False if there is no such log any more."""
        manager = self._manager()
        if manager is None or manager.closed:
            return False
        try:
            if self._lock is None:
                self._lock = manager.filesystem.lock(manager.layout.housekeeping_lock)
            if self._lock.try_acquire():
                self._tell(self._maintain(manager).problems)
        except own(Closed):
            return False
        except own(PylogError, OSError) as error:
            self._tell([str(error)])
        return True

    def _tell(self, problems: list[str]) -> None:
        """Log what was not logged after the last maintenance."""
        for problem in problems:
            if problem not in self._told:
                logger.warning("maintenance: %s", problem)
        self._told = problems

    def _forget_parent(self) -> None:
        lock, self._lock, self._thread = self._lock, None, None
        self._stopped = threading.Event()
        if lock is not None:
            lock.abandon()
