"""The pure-Python codec, which is used where no C compiler was: the same work, in a process without
the compiled one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.settings import Scale, in_own_process
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from benchmarks.workloads import pylog_log

PURE = "pylog, pure Python"


def one_round(place: Path, scale: Scale) -> Sample:
    """Both directions, in this process."""
    with pylog_log.writes(place, scale) as measure:
        written = measure()
    with pylog_log.reads(place, scale) as measure:
        measure()
        read = measure()
    return {"send_records_per_s": written["records_per_s"], "consume_records_per_s": read["records_per_s"]}


@contextmanager
def _pure(place: Path, scale: Scale) -> Iterator[Measure]:
    def measure() -> Sample:
        target = place / "round"
        target.mkdir(exist_ok=True)
        done = in_own_process("benchmarks.workloads.fallback", target, scale.share, PYLOG_PURE_PYTHON="1")
        sample: Sample = json.loads(done)
        return sample

    yield measure


WORKLOADS = [
    Workload(
        "fallback",
        "sending and consuming without the compiled codec",
        (Contender(PURE, "as append_send and consume, with PYLOG_PURE_PYTHON=1", _pure),),
        (
            Figure("send", Value(PURE, "send_records_per_s"), at_least=1e6, unit="rec/s"),
            Figure("consume", Value(PURE, "consume_records_per_s"), at_least=0.7e6, unit="rec/s"),
        ),
    )
]

if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as directory:
        print(json.dumps(one_round(Path(directory), Scale(float(sys.argv[2])))))
