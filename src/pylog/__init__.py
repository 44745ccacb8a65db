"""Kafka's log as a Python library: topics, producers and consumers in a directory, no broker.

In short::

    from pylog import Consumer, Log, Producer

    log = Log("var/events")
    log.create_topic("orders", partitions=3)
    with Producer(log) as producer:
        producer.send("orders", b"400", key=b"costco")
"""

# General layout, from what a program uses down to the foundations. A line may use lines below it.
#
#   cli  spark  testing  outbox  tables   commands; Spark; a pytest plugin; an outbox; tables
#   log  producer  consumer         the public face; batching and sending; fetching and iterating
#   topic_changes                   another name, or other partitions, of a topic in use
#   transaction                     states, decisions and owners of transactions
#   group  cleaner  backup          members and offsets of groups; retention; copies of a log
#   manager                         one open log: partitions, waiting, producer ids, opening, checks
#   partition  catalog              appending and reading under one lock; topics and their settings
#   segment                         one .log file with its indexes: written, read, scanned
#   index                           from offsets and times to positions
#   arrow                           decoded columns as Arrow record batches, tables as rows to send
#   codec  storage                  bytes and records (compiled if possible); the operating system
#   clock  turn  checks  database   time; locks of threads; arguments; an application's database
#   interrupts                      separates a signal handler's exceptions from pylog's own
#   model  limits                   values that all rooms use; sizes and times of several rooms
#   errors                          what can go wrong, and the remedy
#   kafka_names                     other names in Kafka's Python clients
#
# docs/design.md gives the reasons; tests/test_architecture.py checks the layout.

from importlib import import_module
from typing import TYPE_CHECKING

from pylog import errors
from pylog import kafka_names as _kafka_names

if TYPE_CHECKING:
    from pylog.backup.report import BackupReport
    from pylog.catalog import TopicConfig, TopicDescription
    from pylog.catalog.settings import LogSettings
    from pylog.cleaner.description import PartitionDescription
    from pylog.cleaner.erasure import ErasureReport
    from pylog.cleaner.report import LogMaintenance, MaintenanceReport, PartitionMaintenance
    from pylog.consumer import Consumer
    from pylog.group.descriptions import GroupDescription, MemberDescription, OffsetChange, PartitionProgress
    from pylog.log import Log
    from pylog.model import (
        AppendResult,
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OffsetRange,
        ProducerRecord,
        Record,
        RecordMetadata,
        TopicPartition,
    )
    from pylog.partition import Partition
    from pylog.partition.compact.erasure import ErasedPartition
    from pylog.partition.segments import SegmentInfo
    from pylog.partition.verify import Problem, VerifyReport
    from pylog.producer import Delivery, Producer
    from pylog.tables import Table, WritableTable, table
    from pylog.transaction.descriptions import OpenTransactionDescription, TransactionDescription

__version__ = "0.1.0"

# The module of each name, imported at first use: Consumer, unlike Log, loads no writing part.
_HOMES = {
    "AppendResult": "model",
    "BackupReport": "backup.report",
    "Consumer": "consumer",
    "ConsumerGroupMetadata": "model",
    "Delivery": "producer",
    "ErasedPartition": "partition.compact.erasure",
    "ErasureReport": "cleaner.erasure",
    "GroupDescription": "group.descriptions",
    "Log": "log",
    "LogMaintenance": "cleaner.report",
    "LogSettings": "catalog.settings",
    "MaintenanceReport": "cleaner.report",
    "MemberDescription": "group.descriptions",
    "OffsetAndMetadata": "model",
    "OffsetAndTimestamp": "model",
    "OffsetChange": "group.descriptions",
    "OffsetRange": "model",
    "OpenTransactionDescription": "transaction.descriptions",
    "Partition": "partition.partition",
    "PartitionDescription": "cleaner.description",
    "PartitionMaintenance": "cleaner.report",
    "PartitionProgress": "group.descriptions",
    "Problem": "partition.verify",
    "Producer": "producer",
    "ProducerRecord": "model",
    "Record": "model",
    "RecordMetadata": "model",
    "SegmentInfo": "partition.segments",
    "Table": "tables",
    "TopicConfig": "catalog",
    "TopicDescription": "catalog",
    "TopicPartition": "model",
    "TransactionDescription": "transaction.descriptions",
    "VerifyReport": "partition.verify",
    "WritableTable": "tables",
    "table": "tables",
}

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise _kafka_names.no_name(__name__, name)
        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})


__all__ = [
    "AppendResult",
    "BackupReport",
    "Consumer",
    "ConsumerGroupMetadata",
    "Delivery",
    "ErasedPartition",
    "ErasureReport",
    "GroupDescription",
    "Log",
    "LogMaintenance",
    "LogSettings",
    "MaintenanceReport",
    "MemberDescription",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetChange",
    "OffsetRange",
    "OpenTransactionDescription",
    "Partition",
    "PartitionDescription",
    "PartitionMaintenance",
    "PartitionProgress",
    "Problem",
    "Producer",
    "ProducerRecord",
    "Record",
    "RecordMetadata",
    "SegmentInfo",
    "Table",
    "TopicConfig",
    "TopicDescription",
    "TopicPartition",
    "TransactionDescription",
    "VerifyReport",
    "WritableTable",
    "__version__",
    "errors",
    "table",
]
