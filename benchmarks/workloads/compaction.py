"""Compaction: 1 GB with 10,000,000 keys, beside a copy of the same files with a check of their
bytes.

Each measures in a process of its own. Keys come in a random order; one record in eleven is an
update of a random one. Bytes are those before compaction. Those of one second of processor time are
told too: they say more on a machine that does other things.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.settings import TOPIC, Scale, check_count, fresh, in_own_process
from benchmarks.workload import Contender, Figure, Measure, Prepare, Sample, Value, Workload
from benchmarks.workloads.memory import resident
from pylog import Log, Producer
from pylog.codec.checksum import crc32c
from pylog.partition.compact.engine import compact

KEYS = 10_000_000
VALUE = b"v" * 70
AT_ONCE = 100_000
PIECE_BYTES = 1 << 20
SEED = 1
STEP = 7_368_787  # a prime: every number below ``KEYS`` comes once
COMPACTION, COPY = "compaction", "a checked copy"


def _fill(directory: Path, keys: int) -> Sample:
    choose, count = random.Random(SEED), keys + keys // 10
    with Log(directory) as log:
        log.create_topic(TOPIC, cleanup_policy="compact")
        with Producer(log, acks=1) as producer:
            for start in range(0, count, AT_ONCE):
                numbers = range(start, min(start + AT_ONCE, count))
                chosen = [b"%016d" % (n * STEP % keys if n < keys else choose.randrange(keys)) for n in numbers]
                producer.send_many(TOPIC, [VALUE] * len(chosen), keys=chosen)
        log.partition(TOPIC, 0).log.roll()
    return {}


def _sample(work: Callable[[], int]) -> Sample:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    size_bytes = work()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {"bytes_per_s": size_bytes / wall_s, "bytes_per_cpu_s": size_bytes / cpu_s, "bytes": resident(peak=True)}


def _compact(directory: Path, keys: int) -> Sample:
    with Log(directory) as log:
        partition = log.partition(TOPIC, 0).log
        partition.sync(partition.latest_offset)
        reports = []

        def work() -> int:
            reports.append(compact(partition))
            return reports[-1].bytes_before

        sample = _sample(work)
    check_count(reports[-1].records_kept, keys)
    return {**sample, "passes": reports[-1].passes}


def _copy(directory: Path, _: int) -> Sample:
    def work() -> int:
        done = 0
        for path in sorted(directory.glob(f"{TOPIC}-0/*.log")):
            crc = 0
            with path.open("rb", buffering=0) as source, path.with_suffix(".copy").open("wb", buffering=0) as copy:
                while piece := source.read(PIECE_BYTES):
                    crc = crc32c(piece, crc)
                    copy.write(piece)
                    done += len(piece)
                os.fdatasync(copy.fileno())
        return done

    return _sample(work)


_PARTS = {"fill": _fill, COMPACTION: _compact, COPY: _copy}


def _run(part: str, directory: Path, keys: int) -> Sample:
    return dict(json.loads(in_own_process("benchmarks.workloads.compaction", part, directory, keys)))


def _prepare(part: str) -> Prepare:
    @contextmanager
    def prepare(place: Path, scale: Scale) -> Iterator[Measure]:
        keys = scale.of(KEYS, at_least=1_000)

        def measure() -> Sample:
            with fresh(place) as directory:
                _run("fill", directory / "log", keys)
                sample = _run(part, directory / "log", keys)
                shutil.rmtree(directory / "log")
                return sample

        yield measure

    return prepare


WORKLOADS = (
    Workload(
        name="compaction",
        summary="compacting 1 GB with 10,000,000 keys",
        contenders=(
            Contender(
                COMPACTION,
                f"{KEYS:,} keys of 16 bytes in random order, then {KEYS // 10:,} random updates; values of {len(VALUE)} bytes; "
                "batches of 1 MiB; the default memory",
                _prepare(COMPACTION),
            ),
            Contender(
                COPY, "the segments of the same log are read, checked by CRC-32C, written and synced", _prepare(COPY)
            ),
        ),
        figures=(
            Figure("input a second", Value(COMPACTION, "bytes_per_s"), at_least=100e6, unit="B/s"),
            Figure(
                "the same, of a checked copy",
                Value(COMPACTION, "bytes_per_s"),
                Value(COPY, "bytes_per_s"),
                at_least=0.2,
            ),
            Figure("memory of the process", Value(COMPACTION, "bytes"), at_most=256 << 20, unit="B"),
        ),
        rounds_max=3,
    ),
)

if __name__ == "__main__":
    name, where, count = sys.argv[1:]
    print(json.dumps(_PARTS[name](Path(where), int(count))))
