"""Reads topics with Spark's Kafka connector, and prints a verdict on each topic's rows, with the
topic's name in its log.

``python -m tests.spark.connector_driver ADDRESS LEVEL…``, with ``{"<topic>": "<its name in the
log>", …}`` as input. Prints a line of JSON for each level: ``{"<topic>": "rows <count> <CRC-32>",
…}``, without the topics that have no rows.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.workloads.spark_broker import connector
from benchmarks.workloads.spark_session import session
from tests.spark.jvm.verdicts import COLUMNS, _encoded


def verdict(rows: pa.Table, topic: str) -> str:
    """Of one topic's rows, by partition and offset, with ``topic`` as its name, as
    ``Verdicts.java`` gives it."""
    names = pa.array([topic] * rows.num_rows)
    named = rows.set_column(rows.column_names.index("topic"), "topic", names)
    crc = 0
    for batch in named.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_batches():
        crc = zlib.crc32(_encoded(batch, COLUMNS), crc)
    return f"rows {rows.num_rows} {crc}"


def main(address: str, levels: list[str], names: Mapping[str, str]) -> None:
    pattern = "|".join(map(re.escape, names))
    with session(connector()) as spark:
        for level in levels:
            options = {
                "kafka.bootstrap.servers": address,
                "kafka.isolation.level": level,
                "subscribePattern": pattern,
                "kafka.fetch.max.wait.ms": 10,  # a consumer waits for more at the end of every partition
            }
            frame = (
                spark.read.format("kafka").options(**options, startingOffsets="earliest", includeHeaders=True).load()
            )
            rows = frame.select(*COLUMNS).toArrow()
            found = {name: rows.filter(pc.equal(rows["topic"], name)) for name in pc.unique(rows["topic"]).to_pylist()}
            print(json.dumps({name: verdict(its, names[name]) for name, its in found.items()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:], json.load(sys.stdin))
