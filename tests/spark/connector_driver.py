"""Reads one topic with Spark's Kafka connector and with pylog's two formats: ``<format> rows <count> <CRC-32>``, a line each.

``python -m tests.spark.connector_driver ADDRESS LOG TOPIC LEVEL…``
"""

from __future__ import annotations

import sys
import zlib
from typing import Any

import pyarrow as pa

from benchmarks.workloads.spark_broker import connector, reader
from benchmarks.workloads.spark_session import session
from tests.spark.jvm.verdicts import COLUMNS, _encoded


def verdict(table: pa.Table) -> str:
    """Of the rows in order, as ``Verdicts.java`` gives it."""
    crc = 0
    for batch in table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_batches():
        crc = zlib.crc32(_encoded(batch, COLUMNS), crc)
    return f"rows {table.num_rows} {crc}"


def main(address: str, log: str, topic: str, *levels: str) -> None:
    with session((*connector(), *reader())) as spark:
        for level in levels:
            common: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": True}
            kafka = {"kafka.bootstrap.servers": address, "kafka.isolation.level": level}
            frames = {"kafka": spark.read.format("kafka").options(**common, **kafka).load()}
            for ours in ("pylog", "pylog-jvm"):
                frames[ours] = spark.read.format(ours).options(**common, isolationLevel=level).load(log)
            for name, frame in frames.items():
                print(name, verdict(frame.select(*COLUMNS).toArrow()))


if __name__ == "__main__":
    main(*sys.argv[1:])
