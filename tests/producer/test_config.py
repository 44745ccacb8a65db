from __future__ import annotations

import inspect
from typing import Any

import pytest

from pylog.errors import ConfigError, PylogError
from pylog.producer import Producer, ProducerConfig
from tests.producer.fakes import FakeLog


@pytest.mark.parametrize(
    "option",
    [
        {"acks": 2}, {"acks": "some"}, {"acks": True}, {"acks": None}, {"acks": 1.0}, {"acks": [1]},
        {"linger_ms": -1}, {"linger_ms": "5"}, {"linger_ms": float("nan")}, {"linger_ms": True},
        {"batch_bytes": 0}, {"batch_bytes": 81}, {"batch_bytes": 1 << 31}, {"batch_bytes": 1e6},
        {"buffer_bytes": 100}, {"buffer_bytes": 1 << 19}, {"buffer_bytes": None},
        {"max_block_ms": -1}, {"delivery_timeout_ms": float("inf")}, {"delivery_timeout_ms": 4},
        {"max_block_ms": 10**400},
        {"compression": "zip"}, {"compression": 1}, {"compression": "gzip", "compression_level": 10},
        {"compression_level": 3}, {"compression": "snappy", "compression_level": 1},
        {"partitioner": "crc32"}, {"partitioner": 3}, {"partitioner": b"murmur3"}, {"partitioner_override": None},
        {"enable_idempotence": 1}, {"key_serializer": "json"}, {"value_serializer": 1}, {"on_delivery": "print"},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_option_is_refused_by_name_before_the_first_record(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(option))):
        FakeLog().producer(**{"linger_ms": 5, **option})


@pytest.mark.parametrize(("given", "meant"), [(0, 0), ("0", 0), (1, 1), ("1", 1), ("all", -1), (-1, -1), ("-1", -1)])
def test_acks_is_taken_as_kafka_clients_write_it(given: Any, meant: int) -> None:
    assert ProducerConfig(acks=given).acks == meant


def test_options_are_keyword_only_and_the_producers_are_those_of_the_config() -> None:
    parameters = inspect.signature(Producer).parameters
    config = inspect.signature(ProducerConfig).parameters
    assert list(parameters)[1:] == [*config]
    assert {name: parameters[name].default for name in config} == {name: config[name].default for name in config}
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in config)


def test_a_compression_library_that_is_missing_is_found_when_the_producer_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lz4", None)
    with pytest.raises(PylogError, match="lz4"):
        FakeLog().producer(compression="lz4")


def test_a_topics_compression_whose_library_is_missing_is_found_with_the_first_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lz4", None)
    with FakeLog(compression_type="lz4").producer() as producer, pytest.raises(PylogError, match="lz4"):
        producer.send("t", b"v")
