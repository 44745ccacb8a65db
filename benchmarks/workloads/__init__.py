"""All workloads, by name, in the order in which ``all`` runs them."""

from __future__ import annotations

from itertools import chain

from benchmarks.workload import Workload
from benchmarks.workloads import (
    append,
    compression,
    consume,
    durable,
    fallback,
    latency,
    limits,
    memory,
    opening,
    processes,
    size,
)

_MODULES = (limits, append, durable, processes, consume, fallback, latency, opening, compression, memory, size)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload for workload in chain.from_iterable(module.WORKLOADS for module in _MODULES)
}
