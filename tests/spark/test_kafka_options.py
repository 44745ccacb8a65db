"""Every option of Spark's Kafka source and sink: honoured, or refused by name. Nothing is ignored.

The list is that of the "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

import pytest

from pylog.errors import ConfigError
from pylog.spark.source.options import SourceOptions

HONOURED = {
    "assign": '{"orders": [0]}',
    "subscribe": "orders",
    "subscribePattern": "ord.*",
    "startingTimestamp": "1700000000000",
    "startingOffsetsByTimestamp": '{"orders": {"0": 1700000000000}}',
    "startingOffsets": '{"orders": {"0": 3}}',
    "endingTimestamp": "1700000000000",
    "endingOffsetsByTimestamp": '{"orders": {"0": 1700000000000}}',
    "endingOffsets": '{"orders": {"0": 3}}',
    "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "false",
    "minPartitions": "3",
    "maxRecordsPerPartition": "3",
    "includeHeaders": "true",
}
WRONG = {"subscribe": " , ", "subscribePattern": "("}  # all else would be right
OF_A_STREAM = {
    "maxOffsetsPerTrigger": "3",
    "minOffsetsPerTrigger": "3",
    "maxTriggerDelay": "15m",
}
FOR_A_BROKER = {
    "kafka.bootstrap.servers": "host:9092",
    "kafkaConsumer.pollTimeoutMs": "120000",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "10",
    "groupIdPrefix": "spark-kafka-source",
    "kafka.group.id": "g",
    "kafka.isolation.level": "read_uncommitted",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.auto.offset.reset": "earliest",
    "kafka.max.partition.fetch.bytes": "1",
}
OF_THE_SINK = {"topic": "orders"}


@pytest.mark.parametrize("name", HONOURED)
def test_an_option_of_a_batch_query_is_honoured(name: str) -> None:
    plain, given = SourceOptions.parse({"path": "/log"}), SourceOptions.parse({"path": "/log", name: HONOURED[name]})
    assert given != plain
    assert SourceOptions.parse({"path": "/log", name.lower(): HONOURED[name]}) == given
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse({"path": "/log", name: WRONG.get(name, "no such value")})
    assert caught.value.option == name


@pytest.mark.parametrize(("name", "value"), [*OF_A_STREAM.items(), *FOR_A_BROKER.items(), *OF_THE_SINK.items()])
def test_an_option_that_has_no_effect_on_a_batch_query_is_refused_by_name(name: str, value: str) -> None:
    for spelled in (name, name.lower()):
        with pytest.raises(ConfigError, match=f"option '{name}'") as caught:
            SourceOptions.parse({"path": "/log", spelled: value})
        assert caught.value.option == name


@pytest.mark.parametrize("name", [name for name in (*HONOURED, *OF_A_STREAM) if not name.startswith("ending")])
def test_an_option_of_a_stream_is_honoured(name: str) -> None:
    value = {**HONOURED, **OF_A_STREAM, "maxTriggerDelay": "1m"}[name]
    plain, given = (
        SourceOptions.parse({"path": "/log", **options}, streaming=True) for options in ({}, {name.lower(): value})
    )
    assert given != plain


@pytest.mark.parametrize(
    "name", [*FOR_A_BROKER, *OF_THE_SINK, *(name for name in HONOURED if name.startswith("ending"))]
)
def test_an_option_that_has_no_effect_on_a_stream_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{name}'") as caught:
        SourceOptions.parse({"path": "/log", name.lower(): "1"}, streaming=True)
    assert caught.value.option == name
