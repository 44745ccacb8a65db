"""Measures pylog beside what one would use instead, in the same run, interleaved; ratios are what counts.

    pip install -r benchmarks/requirements.txt
    python -m benchmarks [append_send] [consume] [open] [import] [--records N] [--rounds N] [--directory DIR] [--json]

Machines drift and are shared, so each round measures both, and the median of the rounds' ratios is given with its spread.
``append_send`` and ``consume`` use the same records: values of 100 bytes, keys of 11. Neither side syncs (``acks=1``; LMDB
with ``sync=False``, transactions of 8,000, append mode). ``wall`` is the clock on the wall, ``cpu`` the process's own time,
which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import lmdb

from pylog import Consumer, Log, Producer

VALUE = b"v" * 100
LMDB_TRANSACTION = 8_000
LMDB_MAP_BYTES = 4 << 30


class Timed(NamedTuple):
    """Seconds of one measured piece of work."""

    wall: float
    cpu: float


def timed(work: Callable[[], Any]) -> Timed:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Timed(time.perf_counter() - wall, time.process_time() - cpu)


def pylog_round(directory: Path, keys: list[bytes]) -> tuple[Timed, Timed]:
    """Sending the records one by one from one thread, and iterating over them."""
    with Log(directory / "log") as log:
        log.create_topic("events")
        producer = Producer(log, acks=1)

        def send_all() -> None:
            send = producer.send
            for key in keys:
                send("events", VALUE, key=key)
            producer.flush()

        sent = timed(send_all)
        producer.close()
        with Consumer(log, auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
            consumer.subscribe("events")
            read = timed(lambda: check_count(sum(1 for _ in consumer), len(keys)))
    return sent, read


def lmdb_round(directory: Path, keys: list[bytes]) -> tuple[Timed, Timed]:
    """Putting the records one by one, and iterating over a cursor."""
    environment = lmdb.open(str(directory / "lmdb"), map_size=LMDB_MAP_BYTES, sync=False, metasync=False)

    def put_all() -> None:
        for start in range(0, len(keys), LMDB_TRANSACTION):
            with environment.begin(write=True) as transaction:
                put = transaction.put
                for key in keys[start : start + LMDB_TRANSACTION]:
                    put(key, VALUE, append=True)

    def read_all() -> None:
        with environment.begin() as transaction:
            check_count(sum(1 for _ in transaction.cursor()), len(keys))

    put, read = timed(put_all), timed(read_all)
    environment.close()
    return put, read


def check_count(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"{found} records read, {wanted} written")


def ratios(name: str, records: int, ours: list[Timed], theirs: list[Timed]) -> dict[str, Any]:
    """How many times as fast as LMDB, by wall clock and by processor time."""
    result: dict[str, Any] = {"workload": name, "rival": "lmdb", "rounds": len(ours)}
    for clock in ("wall", "cpu"):
        pairs = [getattr(their, clock) / getattr(our, clock) for our, their in zip(ours, theirs, strict=True)]
        result[f"{clock}_ratio"] = {"median": statistics.median(pairs), "min": min(pairs), "max": max(pairs)}
        result[f"{clock}_records_per_s"] = {
            "pylog": round(records / statistics.median(getattr(our, clock) for our in ours)),
            "lmdb": round(records / statistics.median(getattr(their, clock) for their in theirs)),
        }
    return result


def against_lmdb(directory: Path, records: int, rounds: int) -> list[dict[str, Any]]:
    keys = [b"key-%07d" % number for number in range(records)]
    ours: list[tuple[Timed, Timed]] = []
    theirs: list[tuple[Timed, Timed]] = []
    sides = [(pylog_round, ours), (lmdb_round, theirs)]
    for number in range(rounds + 1):  # the first warms up
        place = directory / str(number)
        place.mkdir()
        sides.reverse()  # who comes second has the other's dirty pages written back beside it
        for side, times in sides:
            times.append(side(place, keys))
        shutil.rmtree(place)
    return [
        ratios(name, records, [our[part] for our in ours[1:]], [their[part] for their in theirs[1:]])
        for part, name in enumerate(("append_send", "consume"))
    ]


def opening(directory: Path, rounds: int) -> dict[str, Any]:
    """A new log, a topic, one record produced and consumed."""

    def first_record(place: Path) -> None:
        with Log(place) as log:
            log.create_topic("events")
            with Producer(log) as producer:
                producer.send("events", b"first").result()
            with Consumer(log, auto_offset_reset="earliest") as consumer:
                consumer.subscribe("events")
                check_count(len(consumer.poll(1.0)), 1)

    took = [
        timed(lambda number=number: first_record(directory / f"open-{number}")).wall * 1e3
        for number in range(rounds + 1)
    ]
    return {"workload": "open", "ms": {"median": statistics.median(took[1:]), "min": min(took[1:]), "first": took[0]}}


def importing(rounds: int) -> dict[str, Any]:
    """``import pylog`` in new processes, from bytecode, which an installed package has. The first round writes it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    program = "import time; t = time.perf_counter(); import pylog; print((time.perf_counter() - t) * 1e3)"
    took = [
        float(
            subprocess.run(
                [sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True
            ).stdout
        )
        for _ in range(rounds + 1)
    ]
    return {"workload": "import", "ms": {"median": statistics.median(took[1:]), "min": min(took[1:])}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[[], "append_send", "consume", "open", "import"], default=[])
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="where to write; the filesystem matters")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    wanted = set(options.workloads) or {"append_send", "consume", "open", "import"}
    directory = Path(tempfile.mkdtemp(dir=options.directory, prefix="pylog-benchmark-"))
    results: list[dict[str, Any]] = []
    try:
        if wanted & {"append_send", "consume"}:
            measured = against_lmdb(directory, options.records, options.rounds)
            results += [result for result in measured if result["workload"] in wanted]
        if "open" in wanted:
            results.append(opening(directory, options.rounds))
        if "import" in wanted:
            results.append(importing(options.rounds))
    finally:
        shutil.rmtree(directory)
    for result in results:
        print(
            json.dumps(result) if options.json else "\n".join(f"{key}: {value}" for key, value in result.items()) + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
