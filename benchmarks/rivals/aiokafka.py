"""aiokafka's C code for record batches, alone: the fastest Kafka client in Python before it does
any I/O."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.settings import VALUE, Scale, check_count, keys, seconds
from benchmarks.workload import Measure, no_package

WRITING = "no I/O: DefaultRecordBatchBuilder.append into batches of 1 MiB, built"
READING = "no I/O: MemoryRecords over those batches, CRCs checked, every record made"
BATCH_BYTES = 1 << 20


def _batches(keys_: list[bytes]) -> list[bytes]:
    try:
        from aiokafka.record.default_records import DefaultRecordBatchBuilder
    except ImportError:
        raise no_package("aiokafka") from None

    def builder() -> Any:
        return DefaultRecordBatchBuilder(
            magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1,
            batch_size=BATCH_BYTES,
        )  # fmt: skip

    done: list[bytes] = []
    batch, number, time_ms = builder(), 0, 1_700_000_000_000
    for key in keys_:
        if batch.append(number, time_ms, key, VALUE, []) is None:
            done.append(bytes(batch.build()))
            batch, number = builder(), 0
            batch.append(number, time_ms, key, VALUE, [])
        number += 1
    done.append(bytes(batch.build()))
    return done


@contextmanager
def writes(_place: Path, scale: Scale) -> Iterator[Measure]:
    """Building batches record by record."""
    keys_ = keys(scale.of(500_000))
    _batches(keys_[:1])
    yield lambda: {"records_per_s": len(keys_) / seconds(lambda: _batches(keys_))}


@contextmanager
def reads(_place: Path, scale: Scale) -> Iterator[Measure]:
    """Iterating over them."""
    keys_ = keys(scale.of(500_000))
    batches = _batches(keys_)
    from aiokafka.record.memory_records import MemoryRecords

    def read_all() -> None:
        found = 0
        for batch in batches:
            records = MemoryRecords(batch)
            while (one := records.next_batch()) is not None:
                if not one.validate_crc():
                    raise RuntimeError("aiokafka finds a wrong CRC in its own batch")
                found += sum(1 for _ in one)
        check_count(found, len(keys_))

    yield lambda: {"records_per_s": len(keys_) / seconds(read_all)}
