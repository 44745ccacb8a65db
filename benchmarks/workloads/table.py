"""Tables: how long a start with a snapshot takes, and updates and lookups of 10,000,000 keys in
RocksDB.

Each measures in a process of its own. Keys come in a random order. The updates and lookups of one
second of processor time are told too: they say more on a machine that does other things.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pylog
from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, in_own_process
from benchmarks.workload import Contender, Figure, Measure, Prepare, Sample, Value, Workload, no_package
from benchmarks.workloads.memory import resident
from pylog import Log, Producer

HOT_KEYS, UPDATES = 1_000, 10_000_000
KEYS = 10_000_000
LOOKUPS = 100_000
AT_ONCE = 100_000
SEED = 1
MEMORY = "dict with a snapshot"
ROCKS = "RocksDB"
ROCKS_POSITIONS = "RocksDB, positions"


def _key(number: int) -> bytes:
    return b"%016d" % number


def _fill(log: Log, keys: int, count: int) -> None:
    """Each key once, as far as the records go, then random ones."""
    step = 7_368_787 if keys % 7_368_787 else 1  # a prime: every number below ``keys`` comes once
    choose = random.Random(SEED)
    with Producer(log, acks=1) as producer:
        for start in range(0, count, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, count))
            chosen = [_key(number * step % keys if number < keys else choose.randrange(keys)) for number in numbers]
            producer.send_many(TOPIC, [VALUE] * len(chosen), keys=chosen)


def _opened(directory: Path, store: str, values: str, keys: int, lookups: int) -> Sample:
    """What opening reads, then random lookups."""
    with Log(directory / "log") as log:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        with pylog.table(log, TOPIC, store=store, values=values, directory=directory / "table") as table:
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
            records = table.metrics()["records"]
            found = {"ms": 1e3 * wall_s, "updates_per_s": records / wall_s, "updates_per_cpu_s": records / cpu_s}
            choose = random.Random(SEED)
            chosen = [_key(choose.randrange(keys)) for _ in range(lookups)]
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            check_count(sum(len(table[key]) for key in chosen) // len(VALUE), lookups)
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {
        **found,
        "lookups_per_s": lookups / wall_s,
        "lookups_per_cpu_s": lookups / cpu_s,
        "bytes": resident(peak=True),
    }


def _run(part: str, directory: Path, *arguments: object) -> Sample:
    return dict(json.loads(in_own_process("benchmarks.workloads.table", part, directory, *arguments)))


@contextmanager
def _starts_again(place: Path, scale: Scale) -> Iterator[Measure]:
    keys, count = scale.of(HOT_KEYS, at_least=10), scale.of(UPDATES, at_least=100)
    _run("fill", place, keys, count)
    first = _run("open", place, "memory", "stored", keys, 1)

    def measure() -> Sample:
        again = _run("open", place, "memory", "stored", keys, scale.of(LOOKUPS, at_least=10))
        return {**again, "updates_per_s": first["updates_per_s"], "updates_per_cpu_s": first["updates_per_cpu_s"]}

    yield measure


def _in_rocksdb(values: str) -> Prepare:
    @contextmanager
    def prepare(place: Path, scale: Scale) -> Iterator[Measure]:
        if find_spec("rocksdict") is None:
            raise no_package("rocksdict")
        keys = scale.of(KEYS, at_least=100)

        def measure() -> Sample:
            with fresh(place) as directory:
                _run("fill", directory, keys, keys + keys // 5)
                return _run("open", directory, "rocksdict", values, keys, scale.of(LOOKUPS, at_least=10))

        yield measure

    return prepare


_SETTINGS = (
    f"{KEYS:,} keys of 16 bytes in random order, then {KEYS // 5:,} random updates; values of {len(VALUE)} bytes"
)

WORKLOADS = (
    Workload(
        name="table",
        summary="tables: starting with a snapshot, and 10,000,000 keys within 200 MB",
        contenders=(
            Contender(MEMORY, f"{UPDATES:,} updates of {HOT_KEYS:,} keys; the second start", _starts_again),
            Contender(ROCKS, f"store='rocksdict': {_SETTINGS}", _in_rocksdb("stored")),
            Contender(ROCKS_POSITIONS, f"the same with values='positions': {_SETTINGS}", _in_rocksdb("positions")),
        ),
        figures=(
            Figure("start with a snapshot", Value(MEMORY, "ms"), at_most=1_000, unit="ms"),
            Figure("10,000,000 keys in RocksDB: memory at most", Value(ROCKS, "bytes"), at_most=200e6, unit="B"),
            Figure("updates", Value(ROCKS, "updates_per_s"), at_least=200_000, unit="rec/s"),
            Figure("lookups", Value(ROCKS, "lookups_per_s"), at_least=8_000, unit="rec/s"),
        ),
        rounds_max=3,
    ),
)

if __name__ == "__main__":
    part, where, *rest = sys.argv[1:]
    if part == "fill":
        with Log(Path(where) / "log") as opened:
            opened.create_topic(TOPIC, if_not_exists=True)
            _fill(opened, int(rest[0]), int(rest[1]))
        print("{}")
    else:
        print(json.dumps(_opened(Path(where), rest[0], rest[1], int(rest[2]), int(rest[3]))))
