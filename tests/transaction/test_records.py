"""The records of ``__transaction_state``, byte by byte as Kafka's schemas ``TransactionLogKey`` and
``TransactionLogValue``."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pylog.errors import CorruptRecord
from pylog.model import TopicPartition
from pylog.transaction.records import Decision, decode, encode_key, encode_value
from pylog.transaction.state import Status

KEY = bytes.fromhex("000000056170702d30")  # version 0, STRING "app-0"
DECISION = Decision(
    "app-0", 0x0102030405060708, 9, 60_000, Status.PREPARE_COMMIT,
    frozenset({TopicPartition("t", 2), TopicPartition("t", 0), TopicPartition("log", 1)}), 1_700_000_000_001, 1_700_000_000_000,
)  # fmt: skip
VALUE = bytes.fromhex(
    "0000"  # version 0
    "0102030405060708"  # ProducerId, int64
    "0009"  # ProducerEpoch, int16
    "0000ea60"  # TransactionTimeoutMs, int32
    "02"  # TransactionStatus, int8
    "00000002"  # TransactionPartitions: 2 topics
    "00036c6f670000000100000001"  # "log": [1]
    "000174000000020000000000000002"  # "t": [0, 2]
    "0000018bcfe56801"  # TransactionLastUpdateTimestampMs, int64
    "0000018bcfe56800"  # TransactionStartTimestampMs, int64
)  # fmt: skip
FLEXIBLE = bytes.fromhex(
    "0001"  # version 1, which is flexible: compact arrays and strings, tagged fields
    "010203040506070800090000ea6002"
    "03"  # 2 topics + 1
    "046c6f67020000000100"  # "log", [1], no tags
    "0274030000000000000002010502abcd"  # "t", [0, 2], one tag 5 of 2 bytes
    "0000018bcfe568010000018bcfe56800"
    "010008ffffffffffffffff"  # PreviousProducerId, tag 0
)  # fmt: skip

NAMES = st.text(st.characters(codec="utf-8"), max_size=30)
DECISIONS = st.builds(
    Decision,
    NAMES,
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.sampled_from(Status),
    st.frozensets(st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), max_size=8),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.just(False),
)


def test_the_bytes_are_those_of_kafkas_schema() -> None:
    assert encode_key("app-0") == KEY
    assert encode_value(DECISION) == VALUE
    assert decode(KEY, VALUE) == DECISION


def test_an_empty_state_has_no_list_of_partitions_and_a_complete_one_an_empty_list() -> None:
    empty = Decision("app-0", 1, 0, 5, Status.EMPTY, frozenset(), 3, -1)
    assert encode_value(empty) == bytes.fromhex(
        "0000000000000000000100000000000500ffffffff0000000000000003ffffffffffffffff"
    )  # fmt: skip
    complete = empty._replace(status=Status.COMPLETE_COMMIT)
    assert encode_value(complete)[17:21] == bytes(4)
    assert decode(KEY, encode_value(empty)) == empty
    assert decode(KEY, encode_value(complete)) == complete


def test_version_1_is_read() -> None:
    assert decode(KEY, FLEXIBLE) == DECISION
    without = FLEXIBLE[:17] + b"\0" + FLEXIBLE[-27:]  # a null array
    assert decode(KEY, without) == DECISION._replace(partitions=frozenset())


def test_of_a_client_that_raises_the_epoch_with_each_decision_the_epoch_is_that_of_the_batches() -> None:
    value = FLEXIBLE[:-11] + bytes.fromhex("020008ffffffffffffffff02020002")  # ClientTransactionVersion 2, tag 2
    decided = decode(KEY, value)
    assert decided == DECISION._replace(raises_epoch=True)
    assert decided is not None
    assert decided.transaction == (DECISION.producer_id, DECISION.epoch - 1)
    assert DECISION.transaction == (DECISION.producer_id, DECISION.epoch)
    assert decode(KEY, value[:-1] + b"\1") == DECISION
    ongoing = value[:16] + bytes([Status.ONGOING]) + value[17:]
    assert decode(KEY, ongoing) == DECISION._replace(status=Status.ONGOING)


@pytest.mark.slow
@given(DECISIONS)
def test_what_is_written_is_read(decision: Decision) -> None:
    assert decode(encode_key(decision.transactional_id), encode_value(decision)) == decision


def test_a_tombstone_and_a_status_that_only_kafka_has_are_no_decision() -> None:
    assert decode(KEY, None) is None
    for status in (6, 7):  # Dead, PrepareEpochFence
        assert decode(KEY, VALUE[:16] + bytes([status]) + VALUE[17:]) is None


@given(st.binary(max_size=80), st.binary(max_size=120))
@example(KEY, b"\0\1" + FLEXIBLE[2:17] + b"\xff\xff\xff\xff\x0f\0")
@example(KEY, b"\0\1" + FLEXIBLE[2:17] + b"\3\0\0\0\0\0\0")
@example(KEY, VALUE[:17] + b"\x7f\xff\xff\xff")
def test_hostile_bytes_raise_only_what_says_so(key: bytes, value: bytes) -> None:
    for some_key, some_value in ((key, value), (KEY, value), (key, VALUE)):
        with suppress(CorruptRecord):
            decode(some_key, some_value)


@pytest.mark.parametrize("data", [VALUE, FLEXIBLE], ids=["version 0", "version 1"])
@given(st.data())
def test_a_cut_or_changed_value_raises_only_what_says_so(data: bytes, draw: st.DataObject) -> None:
    end = 79 - 26 if data is VALUE else len(FLEXIBLE) - 11
    cut = data[: draw.draw(st.integers(0, min(end, len(data)) - 1))]
    with pytest.raises(CorruptRecord):
        decode(KEY, cut)
    changed = bytearray(data)
    changed[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    with suppress(CorruptRecord):
        decode(KEY, bytes(changed))


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1\0\5app-0", b"\0\0\0\6app-0", b"\0\0\0\1\xff"])
def test_a_key_that_is_cut_or_of_another_version_is_refused(key: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        decode(key, VALUE)


@pytest.mark.parametrize("version", [-1, 2, 3])
def test_a_value_of_another_version_is_refused(version: int) -> None:
    with pytest.raises(CorruptRecord, match=f"version {version}"):
        decode(KEY, version.to_bytes(2, "big", signed=True) + VALUE[2:])
