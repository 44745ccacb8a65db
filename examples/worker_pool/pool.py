"""The processes: one that sends, and workers that come and go. Leaving the block ends all that
still run."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent
TICK_S = 0.05
GRACE_S = 10.0


class ChildFailed(Exception):
    """A process ended with an error; its own message is on stderr."""


class Pool:
    """Keeps as many workers as are wanted. ``note`` is told what happens, in a few words."""

    def __init__(self, directory: Path, work_ms: float, note: Callable[[str], None]) -> None:
        self.started = self.stopped = self.killed = 0
        self._arguments = ["--work-ms", str(work_ms)]
        self._directory = directory
        self._note = note
        self._sender: subprocess.Popen[str] | None = None
        self._sent: int | None = None
        self._workers: dict[str, subprocess.Popen[str]] = {}
        self._leaving: dict[str, subprocess.Popen[str]] = {}  # asked to stop

    # The sender

    def start_sender(self, *arguments: str) -> None:
        with uninterrupted():
            self._sender = self._start("sender.py", *arguments, stdout=subprocess.PIPE)

    def sent(self) -> int | None:
        """How many orders the sender has sent, once it has ended. ``ChildFailed`` where it could
        not."""
        assert self._sender is not None
        if self._sent is None and self._sender.poll() is not None:
            if self._sender.returncode:
                raise ChildFailed(f"the sender {how_it_ended(self._sender.returncode)}")
            self._sent = int(self._sender.communicate()[0])
        return self._sent

    # The workers

    def keep(self, count: int, reason: str) -> None:
        """Start or stop workers until so many run."""
        while len(self._workers) < count:
            self.started += 1
            name = f"worker-{self.started}"
            with uninterrupted():
                self._workers[name] = self._start("worker.py", name, *self._arguments)
            self._note(f"started {name}: {reason}")
        while len(self._workers) > count:
            name, youngest = self._workers.popitem()
            youngest.terminate()
            self._leaving[name] = youngest
            self.stopped += 1
            self._note(f"stopped {name}: {reason}")

    def kill_one(self, chance: random.Random) -> None:
        name = chance.choice(list(self._workers))
        self._note(f"killing {name}")
        self._workers[name].kill()

    def check(self) -> None:
        """Forget those that are gone. ``ChildFailed`` where one has ended with an error."""
        for children in (self._workers, self._leaving):
            for name, worker in list(children.items()):
                code = worker.poll()
                if code is None:
                    continue
                if code == -signal.SIGKILL:  # by this pool, or by a user who tries it
                    self.killed += 1
                elif code not in (0, -signal.SIGTERM):  # SIGTERM: before it had begun
                    raise ChildFailed(f"{name} {how_it_ended(code)}")
                del children[name]

    def finish(self) -> None:
        """Have all workers commit and leave."""
        self.check()
        self.keep(0, "all is handled")
        deadline_s = time.monotonic() + GRACE_S
        while self._leaving and time.monotonic() < deadline_s:
            time.sleep(TICK_S)
            self.check()

    # Processes

    def _start(self, script: str, *arguments: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(HERE / script), str(self._directory), *arguments],
            stdout=stdout,
            text=True,
            start_new_session=True,  # Ctrl-C on the terminal reaches the parent only, which then ends the others
        )

    def __enter__(self) -> Pool:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        children = [*self._workers.values(), *self._leaving.values(), *([self._sender] if self._sender else [])]
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdout:
                child.stdout.close()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM come at the end of the block: no process is started that the pool doesn't
    know of."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in came:
        signal.raise_signal(number)


def how_it_ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
