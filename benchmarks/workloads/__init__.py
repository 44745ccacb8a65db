"""All workloads, by name, in the order in which ``all`` runs them; the machine itself runs in
each."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from benchmarks.workload import Workload
from benchmarks.workloads import (
    append,
    compaction,
    compression,
    consume,
    durable,
    fallback,
    groups,
    housekeeping,
    latency,
    limits,
    many_partitions,
    memory,
    opening,
    outbox,
    processes,
    size,
    spark,
    spark_batches,
    spark_kafka,
    spark_stream,
    spark_write,
    table,
    transactions,
)

_MODULES = (
    limits,
    append,
    durable,
    processes,
    consume,
    many_partitions,
    fallback,
    latency,
    groups,
    outbox,
    transactions,
    opening,
    compression,
    memory,
    size,
    table,
    compaction,
    housekeeping,
    spark,
    spark_kafka,
    spark_write,
    spark_stream,
    spark_batches,
)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    if workload in limits.WORKLOADS
    else replace(workload, contenders=(*workload.contenders, limits.MACHINE))
    for workload in chain.from_iterable(module.WORKLOADS for module in _MODULES)
}
