"""What all contenders share: the records and how many of them, and how time is taken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VALUE = b"v" * 100
TOPIC = "events"


@dataclass(frozen=True)
class Scale:
    """How much of a full run is done: 1.0 is all of it, a smoke run next to nothing."""

    share: float = 1.0

    def of(self, full: int, at_least: int = 1) -> int:
        """So many of ``full``."""
        return max(at_least, round(full * self.share))


def keys(count: int) -> list[bytes]:
    """Different keys of 11 bytes, in order (what LMDB's append mode needs)."""
    return [b"key-%07d" % number for number in range(count)]


def seconds(work: Callable[[], Any]) -> float:
    """How long it takes, by the clock on the wall."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def percentile(sorted_values: list[float], share: float) -> float:
    """The value below which ``share`` of them lie."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]


def in_own_process(module: str, *arguments: object, **environment: str) -> str:
    """What a workload's module prints when it runs by itself."""
    done = subprocess.run(
        # The package has imported the module that Python runs. That is right here.
        [sys.executable, "-W", "ignore::RuntimeWarning:runpy", "-m", module, *map(str, arguments)],
        env={**os.environ, **environment}, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    return done.stdout


def check_count(found: int, wanted: int) -> None:
    """A contender that did less than the others is none."""
    if found != wanted:
        raise RuntimeError(f"{found} records read, {wanted} written")


@contextmanager
def fresh(place: Path) -> Iterator[Path]:
    """An empty directory for one round, removed behind it."""
    directory = Path(tempfile.mkdtemp(dir=place))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
