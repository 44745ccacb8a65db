"""The systems pylog is compared with. Each module has ``writes`` and ``reads``, a ``Prepare`` each,
of the records in ``settings``; ``WRITING`` and ``READING`` say how it is set. A system that the
machine lacks raises ``MissingError``.
"""

from __future__ import annotations

from types import ModuleType

from benchmarks.rivals import aiokafka, chronicle, jetstream, kafka, lmdb, redis, sqlite

RIVALS: dict[str, ModuleType] = {
    "LMDB": lmdb,
    "SQLite": sqlite,
    "Chronicle Queue": chronicle,
    "Redis Streams": redis,
    "NATS JetStream": jetstream,
    "Kafka": kafka,
    "aiokafka's codec": aiokafka,
}
