"""Reading what is in the page cache: as objects, and as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.rivals import RIVALS
from benchmarks.settings import TOPIC, Scale, check_count, keys, seconds
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload, no_package
from benchmarks.workloads import pylog_log
from benchmarks.workloads.append import log_bytes
from benchmarks.workloads.pylog_log import NAME
from pylog import Log

WARM_UP_TABLES = 8


@contextmanager
def _to_arrow(place: Path, scale: Scale) -> Iterator[Measure]:
    try:
        import pyarrow as pa  # noqa: F401
    except ImportError:
        raise no_package("pyarrow") from None
    keys_ = keys(scale.of(2_000_000))
    with Log(place / "log") as log:
        pylog_log.fill(log, keys_)
        size = log_bytes(place)
        partition = log.partition(TOPIC, 0)
        for _ in range(WARM_UP_TABLES if scale.share == 1 else 1):
            partition.to_arrow()

        def measure() -> Sample:
            took = seconds(lambda: check_count(partition.to_arrow().num_rows, len(keys_)))
            return {"records_per_s": len(keys_) / took, "bytes_per_s": size / took}

        yield measure


WORKLOADS = [
    Workload(
        "consume",
        "one thread iterates over records of 100 bytes",
        (pylog_log.READS, *(Contender(name, rival.READING, rival.reads) for name, rival in RIVALS.items())),
        (Figure("LMDB's cursor", Value(NAME, "records_per_s"), Value("LMDB", "records_per_s"), at_least=1),),
    ),
    Workload(
        "to_arrow",
        "a partition of records of 100 bytes into an Arrow table",
        (
            Contender(
                NAME,
                "Partition.to_arrow(), all columns but headers, CRCs checked; after some tables, when Arrow's pool has grown",
                _to_arrow,
            ),
        ),
        (
            Figure("bytes of log", Value(NAME, "bytes_per_s"), at_least=2e9, unit="B/s"),
            Figure("records", Value(NAME, "records_per_s"), at_least=20e6, unit="rec/s"),
        ),
    ),
]
