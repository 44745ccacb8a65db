"""The other processes of the example: started, awaited, and all ended as soon as one fails."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent
GRACE_S = 10.0


class ChildFailed(Exception):
    """A process ended with an error; its own message is on stderr."""


class Children:
    """Scripts of this directory, each in its own process. Leaving the block ends those that still
    run."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, script: str, *arguments: str, keep_output: bool = False) -> None:
        """With ``keep_output`` what the process prints is shown when all have ended, so that it
        can't disturb the board."""
        self._running[name] = subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments],
            stdout=subprocess.PIPE if keep_output else None,
            text=True,
            start_new_session=True,  # Ctrl-C on the terminal reaches this process only, which then ends the others
        )

    def wait(self) -> None:
        """Until all have ended well. ``ChildFailed`` as soon as one has not."""
        while any(child.poll() is None for child in self._running.values()):
            self._check()
            time.sleep(0.05)
        self._check()
        for child in self._running.values():
            print(child.communicate()[0] or "", end="")

    def _check(self) -> None:
        for name, child in self._running.items():
            code = child.poll()
            if code is not None and code < 0:
                raise ChildFailed(f"{name} was killed by {signal.Signals(-code).name}")
            if code:
                raise ChildFailed(f"{name} ended with exit code {code}")

    def __enter__(self) -> Children:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for child in self._running.values():
            if child.poll() is None:
                child.terminate()
        for child in self._running.values():
            try:
                child.communicate(timeout=GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()
