"""A process that is killed between two steps: of the log's filesystem, or of the database."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from pylog.database import Database

STEPS_OF_A_DATABASE = ("change", "query", "commit", "rollback")
FINISHED = 7


class Steps:
    """Counts the steps of this process, and kills it at one of them."""

    def __init__(self, killed_at: int) -> None:
        self._left = killed_at

    def happens(self, *_: object) -> None:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch_the_database(self) -> None:
        """Each statement is a step, and so is what comes after it."""
        for name in STEPS_OF_A_DATABASE:
            setattr(Database, name, self._counted(getattr(Database, name)))

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.happens()
            result = method(*arguments)
            self.happens()
            return result

        return counted


def is_killed(work: Callable[[Steps], object], at: int) -> bool:
    """Whether ``work``, in a child, was killed at this step. False if it has fewer."""
    child = os.fork()
    if child == 0:
        try:
            steps = Steps(at)
            steps.watch_the_database()
            work(steps)
            os._exit(FINISHED)
        except Exception:  # noqa: BLE001 - the parent only sees that it failed
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == FINISHED, "see the child's traceback"
    return False
