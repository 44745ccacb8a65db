"""The options: what is accepted, what is refused with which words, and what is visibly not
there."""

from __future__ import annotations

import inspect

import pytest

from pylog.consumer import Consumer, ConsumerConfig
from pylog.errors import ConfigError
from tests.consumer.fakes import FakeLog, consumer_of


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("auto_offset_reset", "newest"),
        ("auto_offset_reset", None),
        ("isolation_level", "read-committed"),
        ("isolation_level", 1),
        ("visibility", "synced"),
        ("max_poll_records", 0),
        ("max_poll_records", "500"),
        ("max_poll_records", True),
        ("fetch_max_bytes", 0),
        ("fetch_max_bytes", 1.5),
        ("max_partition_fetch_bytes", -1),
        ("key_deserializer", "utf-8"),
        ("value_deserializer", b""),
        ("consumer_timeout_ms", -1),
        ("consumer_timeout_ms", 0.5),
        ("consumer_timeout_ms", 10**400),
        ("consumer_timeout_ms", float("inf")),
    ],
)
def test_a_wrong_option_is_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(ConfigError, match=option) as caught:
        consumer_of(FakeLog(), **{option: value})
    assert caught.value.option == option


def test_the_consumer_takes_every_option_of_the_config_with_the_same_default_and_no_other() -> None:
    _, *parameters = inspect.signature(Consumer).parameters.values()
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters)
    assert {parameter.name: parameter.default for parameter in parameters} == ConsumerConfig._field_defaults


def test_the_defaults_are_kafkas_but_for_memory_and_librdkafkas_isolation() -> None:
    config = ConsumerConfig()
    assert (config.auto_offset_reset, config.isolation_level) == ("latest", "read_committed")
    assert (config.max_poll_records, config.max_partition_fetch_bytes) == (500, 1 << 20)
    assert config.fetch_max_bytes == 32 << 20


def test_a_config_does_not_change() -> None:
    with pytest.raises(AttributeError):
        ConsumerConfig().max_poll_records = 1
