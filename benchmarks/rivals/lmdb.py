"""LMDB: the fastest store that is embedded like pylog. Ordered keys, append mode, nothing
synced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.settings import VALUE, Scale, check_count, fresh, keys, seconds
from benchmarks.workload import Measure, Sample, no_package

WRITING = "page cache: sync=False; transactions of 8,000 puts, append mode"
READING = "a cursor over key and value, both copied to bytes"
TRANSACTION_RECORDS = 8_000
MAP_BYTES = 4 << 30


def _open(directory: Path) -> Any:
    try:
        import lmdb
    except ImportError:
        raise no_package("lmdb") from None
    return lmdb.open(str(directory), map_size=MAP_BYTES, sync=False, metasync=False)


def _put_all(environment: Any, keys_: list[bytes]) -> None:
    for start in range(0, len(keys_), TRANSACTION_RECORDS):
        with environment.begin(write=True) as transaction:
            put = transaction.put
            for key in keys_[start : start + TRANSACTION_RECORDS]:
                put(key, VALUE, append=True)


@contextmanager
def writes(place: Path, scale: Scale) -> Iterator[Measure]:
    """Putting the records one by one."""
    keys_ = keys(scale.of(500_000))
    _open(place).close()

    def measure() -> Sample:
        with fresh(place) as directory:
            environment = _open(directory)
            took = seconds(lambda: _put_all(environment, keys_))
            environment.close()
        return {"records_per_s": len(keys_) / took}

    yield measure


@contextmanager
def reads(place: Path, scale: Scale) -> Iterator[Measure]:
    """Iterating over all of them."""
    keys_ = keys(scale.of(500_000))
    environment = _open(place)
    _put_all(environment, keys_)

    def read_all() -> None:
        with environment.begin() as transaction:
            check_count(sum(1 for _ in transaction.cursor()), len(keys_))

    yield lambda: {"records_per_s": len(keys_) / seconds(read_all)}
    environment.close()
