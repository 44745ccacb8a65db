"""Several processes that append to one partition at once."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

from benchmarks.settings import TOPIC, Scale, fresh, keys
from benchmarks.workload import Contender, Figure, Measure, Prepare, Sample, Value, Workload
from benchmarks.workloads.pylog_log import send_all
from pylog import Log, Producer

RECORDS = 1_000_000
PATIENCE_S = 120.0
_SPAWN = get_context("spawn")


def _produce(directory: Path, count: int, gate: Barrier) -> None:
    keys_ = keys(count)
    with Log(directory, create=False) as log, Producer(log, acks=1) as producer:
        send_all(producer, keys_[:1])
        gc.collect()  # else a collection passes over all keys in some runs: 6 of 300 ms
        gate.wait()
        send_all(producer, keys_)
        gate.wait()


def _producers(processes: int) -> Prepare:
    @contextmanager
    def prepare(place: Path, scale: Scale) -> Iterator[Measure]:
        count = scale.of(RECORDS) // processes

        def measure() -> Sample:
            with fresh(place) as directory:
                with Log(directory / "log") as log:
                    log.create_topic(TOPIC)
                gate = _SPAWN.Barrier(processes + 1)
                workers = [
                    _SPAWN.Process(target=_produce, args=(directory / "log", count, gate)) for _ in range(processes)
                ]
                for worker in workers:
                    worker.start()
                gate.wait(PATIENCE_S)  # or a worker has died
                start = time.perf_counter()
                gate.wait(PATIENCE_S)
                took = time.perf_counter() - start
                for worker in workers:
                    worker.join()
                    if worker.exitcode:
                        raise RuntimeError(f"a producing process ended with {worker.exitcode}")
            return {"records_per_s": processes * count / took}

        yield measure

    return prepare


def _contender(processes: int) -> Contender:
    return Contender(name(processes), "page cache: acks=1, a producer in each, one partition", _producers(processes))


def name(processes: int) -> str:
    """Of the contender with so many processes."""
    return f"{processes} process" + ("es" if processes > 1 else "")


WORKLOADS = [
    Workload(
        "append_shared",
        "1, 2 and 4 processes that send to one partition: records a second of all together",
        (_contender(1), _contender(2), _contender(4)),
        (
            Figure(
                "2 processes beside 1", Value(name(2), "records_per_s"), Value(name(1), "records_per_s"), at_least=0.8
            ),
        ),
    )
]
