"""What a durable acknowledgement costs, beside the write and fdatasync that it can't do without."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.rivals import raw_file
from benchmarks.settings import TOPIC, VALUE, Scale, check_count, fresh, keys, percentile
from benchmarks.workload import Contender, Figure, Measure, Prepare, Sample, Value, Workload
from pylog import Log, Producer

THREADS = 8
RECORDS_EACH = 1_000


def _appends(threads: int, *, share_producer: bool = False) -> Prepare:
    @contextmanager
    def prepare(place: Path, scale: Scale) -> Iterator[Measure]:
        keys_ = keys(scale.of(RECORDS_EACH, at_least=20))

        def measure() -> Sample:
            took: list[float] = []
            with fresh(place) as directory, Log(directory / "log") as log:
                log.create_topic(TOPIC)
                with Producer(log, acks="all", linger_ms=0) as first:
                    first.send(TOPIC, VALUE).result()  # what is synced once for a topic: the way to its files
                gate = threading.Barrier(threads + 1)

                def work(producer: Producer) -> None:
                    gate.wait()
                    own = []
                    for key in keys_:
                        start = time.perf_counter()
                        producer.send(TOPIC, VALUE, key=key).result()
                        own.append((time.perf_counter() - start) * 1e6)
                    took.extend(own)

                shared = Producer(log)
                producers = [shared if share_producer else Producer(log) for _ in range(threads)]
                workers = [threading.Thread(target=work, args=(producer,)) for producer in producers]
                for worker in workers:
                    worker.start()
                gate.wait()
                start = time.perf_counter()
                for worker in workers:
                    worker.join()
                check_count(len(took), threads * len(keys_))
                whole = time.perf_counter() - start
            took.sort()
            return {
                "p50_us": percentile(took, 0.5), "p99_us": percentile(took, 0.99), "records_per_s": len(took) / whole,
            }  # fmt: skip

        yield measure

    return prepare


WORKLOADS = [
    Workload(
        "append_durable",
        'send(...).result() with acks="all": each record on the medium before the next',
        (
            Contender("write + fdatasync", "4 KiB at the end of a file, then fdatasync", raw_file.synced_writes),
            Contender("1 thread", 'synced: acks="all", a record of 100 bytes a batch', _appends(1)),
            Contender(f"{THREADS} threads", "the same with one producer for all", _appends(THREADS, share_producer=True)),
            Contender(f"{THREADS} producers", "the same, each thread with a producer of its own", _appends(THREADS)),
        ),
        (
            Figure(
                "1 thread, median", Value("1 thread", "p50_us"), Value("write + fdatasync", "p50_us"), at_most=1.3
            ),
            Figure(
                f"{THREADS} threads beside 1, records a second", Value(f"{THREADS} threads", "records_per_s"),
                Value("1 thread", "records_per_s"), at_least=5,
            ),
        ),
    )
]  # fmt: skip
