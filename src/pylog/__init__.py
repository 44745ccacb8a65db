"""Kafka's log as a Python library: topics, producers and consumers over a directory, without a broker.

In short::

    from pylog import Consumer, Log, Producer

    log = Log("var/events")
    log.create_topic("orders", partitions=3)
    with Producer(log) as producer:
        producer.send("orders", b"400", key=b"costco")
"""

# General layout, from what a program uses down to what everything rests on. A line may use the lines below it.
#
#   cli  spark  testing             the command line; Spark's source; a pytest plugin
#   log  producer  consumer         the public face of a log; batching and sending; fetching, positions and iteration
#   group                           who shares a topic, and how far they have come
#   manager                         one open log: its partitions, waiting, producer ids, opening it, checking all of it
#   partition  catalog              appending and reading under one lock; topics and their settings
#   segment                         one .log file with its indexes: written, read, scanned
#   index                           from offsets and times to positions
#   arrow                           decoded columns as Arrow record batches, tables as rows to send
#   codec  storage                  bytes and records (compiled where possible); the operating system
#   clock  checks                   time; what a caller may pass
#   interrupts                      whose an exception is: a signal handler's, or an answer
#   model  limits                   the values every room speaks; sizes and times that several rooms share
#   errors                          what can go wrong, and what to do about it
#   kafka_names                     what Kafka's Python clients call otherwise
#
# docs/design.md says why; tests/test_architecture.py holds it.

from importlib import import_module
from typing import TYPE_CHECKING

from pylog import errors
from pylog import kafka_names as _kafka_names

if TYPE_CHECKING:
    from pylog.catalog import TopicConfig, TopicDescription
    from pylog.consumer import Consumer, ConsumerGroupMetadata
    from pylog.group.descriptions import GroupDescription, MemberDescription, OffsetChange, PartitionProgress
    from pylog.log import Log
    from pylog.model import (
        AppendResult,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        OffsetRange,
        ProducerRecord,
        Record,
        RecordMetadata,
        TopicPartition,
    )
    from pylog.partition import Partition
    from pylog.producer import Delivery, Producer

__version__ = "0.1.0"

# Where the names are. Each is loaded when it is first used: a process that only reads loads no part that writes.
_HOMES = {
    "AppendResult": "model",
    "Consumer": "consumer",
    "ConsumerGroupMetadata": "consumer",
    "Delivery": "producer",
    "GroupDescription": "group.descriptions",
    "Log": "log",
    "MemberDescription": "group.descriptions",
    "OffsetAndMetadata": "model",
    "OffsetAndTimestamp": "model",
    "OffsetChange": "group.descriptions",
    "OffsetRange": "model",
    "Partition": "partition.partition",
    "PartitionProgress": "group.descriptions",
    "Producer": "producer",
    "ProducerRecord": "model",
    "Record": "model",
    "RecordMetadata": "model",
    "TopicConfig": "catalog",
    "TopicDescription": "catalog",
    "TopicPartition": "model",
}

if not TYPE_CHECKING:  # a checker would take every name for one that is here

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
    "Consumer",
    "ConsumerGroupMetadata",
    "Delivery",
    "GroupDescription",
    "Log",
    "MemberDescription",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetChange",
    "OffsetRange",
    "Partition",
    "PartitionProgress",
    "Producer",
    "ProducerRecord",
    "Record",
    "RecordMetadata",
    "TopicConfig",
    "TopicDescription",
    "TopicPartition",
    "__version__",
    "errors",
]
