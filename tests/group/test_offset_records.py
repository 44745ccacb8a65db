"""The layout of committed offsets is Kafka's: its golden directory is read, its generated code
reads ours (see foreign)."""

from __future__ import annotations

import base64
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog import Log
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import CorruptRecord
from pylog.group.offset_records import (
    Committed,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    partition_of_group,
)
from pylog.model import TopicPartition

GOLDEN = Path(__file__).parents[1] / "data" / "kafka-4.3.1" / "log"

ids = st.binary(min_size=16, max_size=16).map(lambda data: base64.urlsafe_b64encode(data).decode().rstrip("="))
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)


@given(text, st.builds(TopicPartition, text, int32))
def test_a_key_comes_back(group: str, partition: TopicPartition) -> None:
    assert decode_key(encode_key(group, partition)) == (group, partition)


@given(st.builds(Committed, int64, int32, text, int64, st.just("") | ids.filter(lambda i: i != "A" * 22)))
def test_a_value_comes_back(committed: Committed) -> None:
    assert decode_value(encode_value(committed)) == committed


def test_golden_bytes() -> None:
    key = encode_key("billing", TopicPartition("orders", 3))
    assert key.hex() == "0001" + "0007" + b"billing".hex() + "0006" + b"orders".hex() + "00000003"
    value = encode_value(Committed(400, 2, "note", 1_700_000_000_000, "AAECAwQFBgcICQoLDA0ODw"))
    assert value.hex() == (
        "0004" + "0000000000000190" + "00000002" + "05" + b"note".hex() + "0000018bcfe56800" + "01" + "00" + "10"
        + bytes(range(16)).hex()
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 0000000000000007 0002 6869 0000000000000009", Committed(7, -1, "hi", 9, "")),
        ("0001 0000000000000007 0000 0000000000000009 000000000000000a", Committed(7, -1, "", 9, "")),
        ("0002 0000000000000007 0000 0000000000000009", Committed(7, -1, "", 9, "")),
        ("0003 0000000000000007 00000005 0000 0000000000000009", Committed(7, 5, "", 9, "")),
        ("0004 0000000000000007 00000005 01 0000000000000009 00", Committed(7, 5, "", 9, "")),
        ("0004 0000000000000007 00000005 01 0000000000000009 01 07 02 ffff", Committed(7, 5, "", 9, "")),
    ],
)  # fmt: skip
def test_every_version_is_read_and_unknown_tags_are_passed_over(value: str, expected: Committed) -> None:
    assert decode_value(bytes.fromhex(value)) == expected


def test_a_topic_id_that_is_cut_off_is_a_named_error() -> None:
    value = encode_value(Committed(400, 2, "note", 1_700_000_000_000, "AAECAwQFBgcICQoLDA0ODw"))
    with pytest.raises(CorruptRecord):
        decode_value(value[:-1])


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b"\0\4" + rest))
def test_any_bytes_are_an_offset_or_a_named_error(data: bytes) -> None:
    for decode in (decode_key, decode_value):
        with suppress(CorruptRecord):
            decode(data)


def test_keys_of_other_kinds_are_no_offsets() -> None:
    assert decode_key(bytes.fromhex("0002000161")) is None


@pytest.mark.parametrize(
    ("group", "expected"), [("", 0), ("a", 97 % 50), ("polygenelubricants", 0), ("billing", 9), ("gruppe-ü", 22)]
)
def test_a_group_is_in_the_partition_where_java_would_put_it(group: str, expected: int) -> None:
    """``polygenelubricants`` has the least int for a hash, whose absolute value Kafka takes for
    0."""
    assert partition_of_group(group, 50) == expected


def test_what_a_broker_wrote_is_read_and_would_be_written_alike() -> None:
    with Log(GOLDEN) as log:
        found = {}
        for number in log.describe_topic(OFFSETS_TOPIC).numbers:
            for record in log.partition(OFFSETS_TOPIC, number).scan(isolation_level="read_uncommitted"):
                name = decode_key(record.key)
                assert name is not None
                found[name] = decode_value(record.value)
                assert encode_key(*name) == record.key
                assert encode_value(found[name]) == record.value
        moved = found["golden-group", TopicPartition("keyed", 1)]
        assert (moved.offset, moved.leader_epoch, moved.metadata) == (12, 0, "moved")
        assert moved.topic_id == log.describe_topic("keyed").id
        assert found["golden-transactional-group", TopicPartition("codec-gzip", 0)].offset == 5
