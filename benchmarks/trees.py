"""Compares appends of two checkouts: python -m benchmarks.trees BEFORE AFTER [--directory DIRECTORY]

Each figure is the time of ``send`` of some records and ``flush``, or of ``send(...).result()``. The
checkouts take turns in processes of their own, so that a busy machine slows both. ``bare`` is a
write and an fdatasync of as many bytes: what no Python can save. Each checkout needs its compiled
codec (``python setup.py build_ext --inplace``).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter_ns, process_time_ns

from pylog import Log, Producer
from pylog.codec.format import HEADER_BYTES

_VALUE_BYTES = 100
_RECORDS = (1, 100)
_WARM_UP = 50


def _measured(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """The median time and the mean time of the processor of one call, in microseconds."""
    for _ in range(_WARM_UP):
        work()
    times_ns = []
    began_ns = process_time_ns()
    for _ in range(repeats):
        start_ns = perf_counter_ns()
        work()
        times_ns.append(perf_counter_ns() - start_ns)
    return statistics.median(times_ns) / 1000, (process_time_ns() - began_ns) / repeats / 1000


def _bare(directory: str, size_bytes: int, repeats: int) -> tuple[float, float]:
    with tempfile.TemporaryFile(dir=directory) as file:
        descriptor, data, position = file.fileno(), bytes(size_bytes), 0

        def work() -> None:
            nonlocal position
            os.pwrite(descriptor, data, position)
            os.fdatasync(descriptor)
            position += size_bytes

        return _measured(work, repeats)


def measure(directory: str, repeats: int) -> dict[str, tuple[float, float]]:
    """All figures of the pylog that this process imports."""
    figures = {}
    value = bytes(_VALUE_BYTES)

    def work(count: int, producer: Producer) -> None:
        for _ in range(count):
            producer.send("t", value)
        producer.flush()

    for count in _RECORDS:
        with _producer(directory, "all") as producer:
            figures[f"flush of {count}"] = _measured(partial(work, count, producer), repeats)
        figures[f"bare of {count}"] = _bare(directory, HEADER_BYTES + count * (_VALUE_BYTES + 8), repeats)
    with _producer(directory, 1) as producer:
        figures["result, acks=1"] = _measured(lambda: producer.send("t", value).result(), repeats)
    return figures


@contextmanager
def _producer(directory: str, acks: int | str) -> Iterator[Producer]:
    with tempfile.TemporaryDirectory(dir=directory) as path, Log(path) as log:
        log.create_topic("t")
        with Producer(log, acks=acks, linger_ms=60_000) as producer:
            yield producer


def _in_process(tree: str, directory: str, repeats: int) -> dict[str, tuple[float, float]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((f"{tree}/src", str(Path(__file__).parent.parent)))}
    command = [sys.executable, "-m", "benchmarks.trees", "--measure", directory, "--repeats", str(repeats)]
    answer: dict[str, tuple[float, float]] = json.loads(
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    )
    return answer


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", metavar="CHECKOUT", help="two directories with src/pylog")
    parser.add_argument("--directory", action="append", help="where the logs are made; may be repeated")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(measure(options.measure, options.repeats)))
        return 0
    if len(options.trees) != 2:
        parser.error("name two checkouts")
    before, after = options.trees
    for directory in options.directory or [tempfile.gettempdir()]:
        found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for number in range(options.rounds):
            for tree in (before, after) if number % 2 else (after, before):
                for name, figure in _in_process(tree, directory, options.repeats).items():
                    found[name, tree].append(figure)
        for name in dict.fromkeys(name for name, _ in found):
            for label, tree in (("before", before), ("after", after)):
                medians, processor = zip(*found[name, tree], strict=True)
                print(
                    f"{directory:10} {name:18} {label:7} {statistics.median(medians):8.1f} µs"
                    f"  ({min(medians):.1f} to {max(medians):.1f}), processor {statistics.median(processor):.1f}"
                )
            ratios = [a[0] / b[0] for a, b in zip(found[name, after], found[name, before], strict=True)]
            print(
                f"{directory:10} {name:18} ratio   {statistics.median(ratios):8.2f}     ({min(ratios):.2f} to {max(ratios):.2f})"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
