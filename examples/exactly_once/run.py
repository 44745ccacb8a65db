"""Count the words of pylog's own documentation by several workers, kill some of them on the way,
and check the counts.

python examples/exactly_once/run.py --kills 20
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from words import COUNTS, GROUP, LINES, count_words

from pylog import Consumer, Log, Producer
from pylog.errors import GroupNotFound, PylogError

HERE = Path(__file__).parent
PARTITIONS = 4
PATIENCE_S = 60.0
TICK_S = 0.002


class Workers:
    """The processes. Leaving the block kills all of them: they need no better end."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for number in range(count):
            self._start(f"words-{number}")

    def _start(self, name: str) -> None:
        self._running[name] = subprocess.Popen([sys.executable, HERE / "worker.py", self._directory, name])

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait()

    def replace(self, name: str) -> None:
        """Kill a worker wherever it is now, and start another one with its transactional id."""
        self.kill(name)
        self._start(name)

    def names(self) -> list[str]:
        return sorted(self._running)

    def check(self) -> None:
        for name, worker in self._running.items():
            if worker.poll() is not None:
                raise RuntimeError(f"{name} ended with exit code {worker.returncode}")

    def __enter__(self) -> Workers:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._running:
            self.kill(name)


def main() -> int:
    arguments = parse_arguments()
    try:
        with directory_of(arguments) as directory:
            return run(directory, arguments)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except (PylogError, RuntimeError) as error:
        print(f"\nfailed: {error}", file=sys.stderr)
    return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Exactly once, with workers that are killed.")
    parser.add_argument("--workers", type=int, default=2, help="default: 2")
    parser.add_argument("--kills", type=int, default=20, help="how many workers to kill (default: 20)")
    parser.add_argument("--seed", type=int, default=random.randrange(1000), help="of the choice whom to kill and when")
    parser.add_argument("--directory", type=Path, help="where to put the log, and keep it; default: temporary")
    return parser.parse_args()


@contextmanager
def directory_of(arguments: argparse.Namespace) -> Iterator[Path]:
    if arguments.directory:
        yield arguments.directory
    else:
        with TemporaryDirectory(prefix="exactly-once-") as directory:
            yield Path(directory)


def run(directory: Path, arguments: argparse.Namespace) -> int:
    chance = random.Random(arguments.seed)
    text = documentation()
    with Log(directory) as log:
        log.create_topic(LINES, partitions=PARTITIONS)
        log.create_topic(COUNTS, partitions=2)
        with Workers(directory, arguments.workers) as workers, Producer(log) as producer:
            sent = 0
            for part in portions(text, arguments.kills + 1):
                producer.send_many(LINES, part)
                producer.flush()
                if sent:
                    workers.replace(chance.choice(workers.names()))  # it is reading, writing, or committing
                sent += len(part)
                left = chance.randrange(len(part))
                wait_for(lambda: sent - counted(log) <= left, workers)  # noqa: B023 - called before the next turn
            wait_for(lambda: counted(log) == len(text), workers)
        return compare(log, text, arguments)


def documentation() -> list[bytes]:
    project = HERE.parents[1]
    files = [project / "README.md", *sorted((project / "docs").glob("*.md"))]
    return [line for file in files for line in file.read_bytes().splitlines()]


def portions(text: list[bytes], count: int) -> list[list[bytes]]:
    size = -(-len(text) // count)
    return [text[start : start + size] for start in range(0, len(text), size)]


def counted(log: Log) -> int:
    """How many lines the group has committed."""
    try:
        partitions = log.describe_group(GROUP).partitions.values()
    except GroupNotFound:
        return 0
    return sum(partition.committed.offset for partition in partitions if partition.committed is not None)


def wait_for(is_over: Callable[[], bool], workers: Workers) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_over():
        workers.check()
        if time.monotonic() > end_s:
            raise RuntimeError(f"nothing was committed for {PATIENCE_S:g} s")
        time.sleep(TICK_S)


def totals(log: Log, isolation_level: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    with Consumer(
        log, auto_offset_reset="earliest", isolation_level=isolation_level, consumer_timeout_ms=0
    ) as consumer:
        consumer.subscribe(COUNTS)
        for record in consumer:
            found[record.key] += int(record.value)
    return found


def compare(log: Log, text: list[bytes], arguments: argparse.Namespace) -> int:
    expected, found = count_words(text), totals(log, "read_committed")
    aborted = totals(log, "read_uncommitted").total() - found.total()
    different = [word for word in expected | found if expected[word] != found[word]]
    print(f"lines                  {len(text):8,}")
    print(f"workers killed         {arguments.kills:8,}   (--seed {arguments.seed})")
    print(f"words                  {expected.total():8,}")
    print(f"words counted          {found.total():8,}")
    print(f"counted, then aborted  {aborted:8,}   (invisible to read_committed)")
    print(f"wrong counts           {len(different):8,}   of {len(expected):,} different words")
    for word in different[:10]:
        print(f"{word.decode()}: counted {found[word]} times, not {expected[word]}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
