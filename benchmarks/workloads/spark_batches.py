"""What a micro-batch of a few rows costs: of a log, and of a Kafka broker with Spark's own
source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.settings import TOPIC, VALUE, Scale, fresh
from benchmarks.workload import Contender, Figure, Measure, Sample, Value, Workload
from benchmarks.workloads.pylog_log import NAME
from benchmarks.workloads.spark_broker import BROKER, CONNECTOR, address_of, broker_for, session_with_jars
from benchmarks.workloads.spark_stream import micro_batches_ms
from pylog import Log, Producer

KAFKA = "Kafka's source"
BATCHES = 60
ROWS = 10  # of a micro-batch
SPARE = 2  # micro-batches more than are counted, while the query ends
OPTIONS = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": ROWS}


@contextmanager
def _pylog(place: Path, scale: Scale) -> Iterator[Measure]:
    batches = scale.of(BATCHES, 2)
    with session_with_jars() as spark:

        def measure() -> Sample:
            with fresh(place) as directory:
                path = str(directory / "log")
                with Log(path) as log, Producer(log, acks=1) as producer:
                    log.create_topic(TOPIC)
                    producer.send_many(TOPIC, [VALUE] * ROWS * (batches + SPARE))
                return micro_batches_ms(spark.readStream.format("pylog").options(**OPTIONS).load(path), place, batches)

        yield measure


@contextmanager
def _kafka(place: Path, scale: Scale) -> Iterator[Measure]:
    batches = scale.of(BATCHES, 2)
    with session_with_jars() as spark, broker_for(place, spark) as broker:
        broker.create(TOPIC)
        broker.produce(TOPIC, ROWS * (batches + SPARE))
        source = spark.readStream.format("kafka").options(**address_of(broker), subscribe=TOPIC, **OPTIONS)
        yield lambda: micro_batches_ms(source.load(), place, batches)


WORKLOADS = [
    Workload(
        "spark_batches",
        f"micro-batches of {ROWS} rows in local[2], beside a broker",
        (
            Contender(NAME, 'readStream.format("pylog"), one partition, noop', _pylog),
            Contender(KAFKA, f"{CONNECTOR}, the same options; {BROKER}", _kafka),
        ),
        (
            Figure("a small batch, time over the Kafka source's", Value(NAME, "p50_ms"), Value(KAFKA, "p50_ms"),
                   at_most=1.2),
        ),
    ),
]  # fmt: skip
