"""What a table must be: a dict made by a scan of the topic. And stores to try."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from pylog import Log
from pylog.partition.read.visibility import READ_COMMITTED

HAS_ROCKSDICT = importlib.util.find_spec("rocksdict") is not None
needs_rocksdict = pytest.mark.skipif(not HAS_ROCKSDICT, reason="rocksdict is not installed: pip install '.[table]'")

ROCKS = pytest.param("rocksdict", marks=needs_rocksdict)
STORES = ["memory", ROCKS]
STORES_AND_VALUES = [
    pytest.param(store, values, id=f"{store}-{values}", marks=[needs_rocksdict] if store == "rocksdict" else [])
    for store in ("memory", "rocksdict")
    for values in ("stored", "positions")
]


def scan(log: Log, topic: str = "t", isolation_level: str = READ_COMMITTED) -> dict[bytes, bytes]:
    """The newest value of each key, by reading everything."""
    found: dict[bytes, bytes] = {}
    for number in log.describe_topic(topic).numbers:
        for record in log.partition(topic, number).scan(isolation_level=isolation_level):
            if record.key is not None and record.value is None:
                found.pop(record.key, None)
            elif record.key is not None:
                found[record.key] = record.value
    return found


def crash(table: Any) -> None:
    """End a table as a kill would: nothing is written any more. The lock is freed."""
    table._store.abandon() if hasattr(table._store, "snapshots") else table._store.close()
    table._lock.close()


def options(store: str, values: str, path: Path) -> dict[str, Any]:
    return {"store": store, "values": values, "directory": path}
