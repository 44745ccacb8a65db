"""Starts a rival's server in a directory of its own, on a free port of this machine, and stops
it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.workload import MissingError

START_S_MAX = 60.0
STOP_S_MAX = 30.0


def program(name: str, package: str) -> str:
    """Where a program is; ``MissingError`` says which of Debian's packages has it."""
    path = shutil.which(name)
    if path is None:
        raise MissingError(f"{name} is not installed (on Debian: apt-get install {package})")
    return path


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(command: list[str], directory: Path, answers: Callable[[], bool]) -> Iterator[None]:
    """The server, from when it answers to when it has stopped. What it prints is in
    ``server.txt``."""
    printed = directory / "server.txt"
    with printed.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        end_s = time.monotonic() + START_S_MAX
        while not answers():
            if process.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f"{command[0]} does not start: {printed.read_text(errors='replace')[-2_000:]}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with closing(socket.socket()) as client:
        client.settimeout(0.5)
        return client.connect_ex(("127.0.0.1", port)) == 0
