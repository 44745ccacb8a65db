"""Records to bytes and back, on both codecs."""

from __future__ import annotations

import gc
import itertools
import mmap
import os
import pickle
import subprocess
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.clock import SystemClock
from pylog.codec.format import MAX_HEADERS
from pylog.errors import (
    ConfigError,
    CorruptRecord,
    InvalidTimestamp,
    PylogError,
    RecordTooLarge,
    SerializationError,
)
from pylog.model import ProducerRecord, Record
from tests.codec import strategies
from tests.codec.reference import TS0, Raw, payload_of, take_payload

LIMIT = 1 << 20
GOLDEN = (  # the records of the first batch of docs/format.md
    "18000000026b027602026802780e000a02010277000e000e04026b0100"
)


def encode(codec: ModuleType, records: Sequence[ProducerRecord], limit: int = LIMIT) -> Any:
    encoder = codec.RecordEncoder(limit)
    for record in records:
        assert encoder.append(record.timestamp_ms, record.key, record.value, record.headers) is True
    return encoder


def decode(
    codec: ModuleType, payload: bytes, count: int, base_timestamp: int = TS0, base_offset: int = 0
) -> list[Record]:
    decoder = codec.RecordDecoder(payload, count, base_offset, base_timestamp, -1, "topic", 7)
    return list(decoder.take(count or 1))


def state(encoder: Any) -> tuple[int, int, int, int]:
    return encoder.count, encoder.size_bytes, encoder.first_timestamp_ms, encoder.max_timestamp_ms


# Encoding


def test_the_golden_records_are_written_byte_for_byte(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder(LIMIT)
    encoder.append(TS0, b"k", b"v", [("h", b"x")])
    encoder.append(TS0 + 5, None, b"w", ())
    encoder.append(TS0 + 7, b"k", None, ())
    assert state(encoder) == (3, len(GOLDEN) // 2, TS0, TS0 + 7)
    assert take_payload(encoder).hex() == GOLDEN


@pytest.mark.slow
@given(records=strategies.records)
def test_what_is_encoded_is_decoded(codec: ModuleType, records: list[ProducerRecord]) -> None:
    encoder = encode(codec, records)
    assert encoder.count == len(records)
    assert encoder.first_timestamp_ms == (records[0].timestamp_ms if records else -1)
    assert encoder.max_timestamp_ms == max((r.timestamp_ms or 0 for r in records), default=-1)
    base = encoder.first_timestamp_ms if records else 0
    size = encoder.size_bytes
    payload = take_payload(encoder)
    assert len(payload) == size
    assert decode(codec, payload, len(records), base) == [
        Record("topic", 7, i, r.timestamp_ms or 0, r.key, r.value, pairs_of(r)) for i, r in enumerate(records)
    ]


def pairs_of(record: ProducerRecord) -> tuple[tuple[str, bytes | None], ...]:
    assert not isinstance(record.headers, Mapping)
    return tuple(record.headers)


@pytest.mark.slow
@given(records=strategies.records)
def test_both_codecs_write_what_the_format_says(
    both: tuple[ModuleType, ModuleType], records: list[ProducerRecord]
) -> None:
    first = records[0].timestamp_ms or 0 if records else 0
    expected = payload_of(
        Raw((r.timestamp_ms or 0) - first, i, r.key, r.value, tuple((k.encode(), v) for k, v in pairs_of(r)))
        for i, r in enumerate(records)
    )
    assert [take_payload(encode(codec, records)) for codec in both] == [expected, expected]


@pytest.mark.parametrize(
    "delta", [s * (2**e + d) for e in (6, 13, 20, 27, 34, 41, 48, 55, 62) for s in (1, -1) for d in (-1, 0, 1)]
)
def test_timestamp_deltas_of_every_width_come_back(codec: ModuleType, delta: int) -> None:
    first, second = (0, delta) if delta >= 0 else (-delta, 0)
    encoder = codec.RecordEncoder(LIMIT)
    encoder.append(first, b"", b"", ())
    encoder.append(second, b"", b"", ())
    payload = take_payload(encoder)
    assert payload == payload_of([Raw(0, 0, b"", b""), Raw(delta, 1, b"", b"")])
    assert [r.timestamp_ms for r in decode(codec, payload, 2, first)] == [first, second]


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193])
def test_offset_deltas_of_every_width_come_back(codec: ModuleType, count: int) -> None:
    encoder = codec.RecordEncoder(LIMIT)
    assert encoder.extend(TS0, [b"x"] * count, None, 0) == count
    payload = take_payload(encoder)
    assert payload == payload_of(Raw(0, i, None, b"x") for i in range(count))
    assert [r.offset for r in decode(codec, payload, count, TS0, 100)] == list(range(100, 100 + count))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 1 << 20, (1 << 20) + 1])
def test_values_of_every_width_of_length_come_back(codec: ModuleType, size: int) -> None:
    encoder = codec.RecordEncoder(1 << 23)
    value = os.urandom(size)
    encoder.append(TS0, value, value, [("h" * size, value)])
    payload = take_payload(encoder)
    assert payload == payload_of([Raw(0, 0, value, value, ((b"h" * size, value),))])
    (record,) = decode(codec, payload, 1)
    assert (record.key, record.value, record.headers) == (value, value, (("h" * size, value),))


def test_a_record_that_fills_the_limit_exactly_fits_and_one_byte_more_does_not(codec: ModuleType) -> None:
    for size in (1, 50, 100, 8100):
        value = b"v" * size
        needed = 61 + len(payload_of([Raw(0, 0, b"key", value)]))
        assert codec.RecordEncoder(needed).append(TS0, b"key", value, ())
        with pytest.raises(RecordTooLarge) as raised:
            codec.RecordEncoder(needed - 1).append(TS0, b"key", value, ())
        assert raised.value.facts == {"size_bytes": needed, "limit_bytes": needed - 1}


def test_a_record_that_does_not_fit_any_more_is_refused_and_changes_nothing(codec: ModuleType) -> None:
    two = payload_of([Raw(0, 0, None, b"v" * 30), Raw(0, 1, None, b"v" * 30)])
    encoder = codec.RecordEncoder(61 + len(two))
    assert encoder.append(TS0, None, b"v" * 30, ())
    assert encoder.append(TS0, None, b"v" * 30, ())
    before = state(encoder)
    assert encoder.append(TS0 + 1, None, b"", ()) is False
    assert encoder.append(TS0 - 1, b"k" * 4000, b"", [("h", None)]) is False  # larger than the limit, but not empty
    assert state(encoder) == before
    assert take_payload(encoder) == two


WRONG_TYPES: list[tuple[Any, ...]] = [
    (TS0, "text", b"", ()),
    (TS0, 5, b"", ()),
    (TS0, b"", "text", ()),
    (TS0, b"", [1], ()),
    (TS0, b"", {}, ()),
    (TS0, b"", 1.5, ()),
    (TS0, b"", b"", None),
    (TS0, b"", b"", 5),
    (TS0, b"", b"", "ab"),
    (TS0, b"", b"", ["abc"]),
    (TS0, b"", b"", [("h",)]),
    (TS0, b"", b"", [("h", b"", b"")]),
    (TS0, b"", b"", [5]),
    (TS0, b"", b"", [None]),
    (TS0, b"", b"", [(b"h", b"")]),
    (TS0, b"", b"", [(None, b"")]),
    (TS0, b"", b"", [("h", "text")]),
    (TS0, b"", b"", [("ok", b""), ("h", 5)]),
    (TS0, b"", b"", [("\ud800", b"")]),
    (TS0, b"", b"", {"h": "text"}),
    (TS0, b"", b"", {b"h": b""}),
]
WRONG_TIMESTAMPS: list[Any] = [-1, -(2**63), 2**63, 2**64, -(2**64), 1.0, "1", None, b"1"]


@pytest.mark.parametrize("arguments", WRONG_TYPES, ids=repr)
def test_what_is_no_bytes_is_refused_and_changes_nothing(codec: ModuleType, arguments: tuple[Any, ...]) -> None:
    encoder = codec.RecordEncoder(LIMIT)
    for expected in (0, 1):
        before = state(encoder)
        with pytest.raises(SerializationError):
            encoder.append(*arguments)
        assert state(encoder) == before
        assert encoder.count == expected
        encoder.append(TS0, b"k", b"v", ())
    assert take_payload(encoder) == payload_of([Raw(0, i, b"k", b"v") for i in range(2)])


@pytest.mark.parametrize("timestamp", WRONG_TIMESTAMPS, ids=repr)
def test_a_timestamp_out_of_range_is_refused(codec: ModuleType, timestamp: Any) -> None:
    encoder = codec.RecordEncoder(LIMIT)
    with pytest.raises(InvalidTimestamp):
        encoder.append(timestamp, b"", b"", ())
    with pytest.raises(InvalidTimestamp):
        encoder.extend(timestamp, [], None, 0)
    assert state(encoder) == (0, 0, -1, -1)


@pytest.mark.parametrize("limit", [0, -1, 2**31, 2**80, None, "1", 1.0], ids=repr)
def test_a_limit_that_is_no_batch_size_is_refused(codec: ModuleType, limit: Any) -> None:
    with pytest.raises(ConfigError):
        codec.RecordEncoder(limit)


class Bytes(bytes):
    pass


class Text(str):
    __slots__ = ()


def test_everything_like_bytes_is_encoded_by_its_content(codec: ModuleType) -> None:
    alike: list[Any] = [
        b"abcd",
        Bytes(b"abcd"),
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        memoryview(bytearray(b"abcd")),
        memoryview(b"dcba")[::-1],
        memoryview(b"abcd").cast("I"),
        memoryview(b"abcd").cast("B", (2, 2)),
    ]
    encoder = codec.RecordEncoder(LIMIT)
    for item in alike:
        encoder.append(TS0, item, item, [(Text("h"), item)])
    encoder.extend(TS0, alike, tuple(alike), 0)
    raws = [Raw(0, i, b"abcd", b"abcd", ((b"h", b"abcd"),)) for i in range(8)]
    assert take_payload(encoder) == payload_of(raws + [Raw(0, i, b"abcd", b"abcd") for i in range(8, 16)])


def test_a_released_view_is_refused(codec: ModuleType) -> None:
    view = memoryview(b"abcd")
    view.release()
    encoder = codec.RecordEncoder(LIMIT)
    with pytest.raises(SerializationError, match="value"):
        encoder.append(TS0, None, view, ())


def test_headers_may_be_any_sequence_of_pairs(codec: ModuleType) -> None:
    pairs = [("a", b"1"), ("ß", None)]
    encoder = codec.RecordEncoder(LIMIT)
    mapping = {"a": b"1", "ß": None}
    for headers in (
        pairs,
        tuple(pairs),
        [list(pair) for pair in pairs],
        mapping.items(),
        mapping,
        MappingProxyType(mapping),
    ):
        assert encoder.append(TS0, b"", b"", headers)
        assert encoder.try_append(codec.Receipt, None, TS0, b"", b"", headers)
    expected = ((b"a", b"1"), ("ß".encode(), None))
    assert take_payload(encoder) == payload_of([Raw(0, i, b"", b"", expected) for i in range(12)])


def test_headers_that_can_be_read_only_once_are_refused(codec: ModuleType) -> None:
    """A batch that is full has read them; the next one, which takes the record, would find none."""

    class Rows:
        def __init__(self) -> None:
            self._rows = iter(pairs)

        def __iter__(self) -> Iterator[tuple[str, bytes]]:
            yield from self._rows

    encoder = codec.RecordEncoder(LIMIT)
    pairs = [("a", b"1")]
    for headers in (iter(pairs), (pair for pair in pairs), zip(["a"], [b"1"], strict=True), Rows()):
        with pytest.raises(SerializationError, match=f"headers are {type(headers).__name__}, expected a sequence"):
            encoder.append(TS0, b"", b"", headers)
        assert list(headers) == pairs


def test_more_headers_than_a_reader_takes_are_not_written(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder(1 << 24)
    with pytest.raises(RecordTooLarge, match=str(MAX_HEADERS + 1)):
        encoder.append(TS0, b"", b"", [("", None)] * (MAX_HEADERS + 1))
    assert encoder.append(TS0, b"", b"", [("", None)] * MAX_HEADERS)
    (record,) = decode(codec, take_payload(encoder), 1)
    assert record.headers == (("", None),) * MAX_HEADERS


def test_taking_leaves_an_encoder_that_starts_anew(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder(LIMIT)
    first = [Raw(i, i, b"k" * i, b"v" * i) for i in range(100)]
    for raw in first:
        encoder.append(TS0 + raw.offset_delta, raw.key, raw.value, ())
    batch = encoder.take_batch()
    assert type(batch) is bytearray
    assert batch == bytes(61) + payload_of(first)
    assert state(encoder) == (0, 0, -1, -1)
    encoder.append(TS0 + 1000, b"second", None, ())
    batch[:] = b"\xff" * len(batch)
    batch.extend(b"more")
    assert encoder.first_timestamp_ms == TS0 + 1000
    assert encoder.take_batch() == bytes(61) + payload_of([Raw(0, 0, b"second", None)])
    assert encoder.take_batch() == bytes(61)
    assert take_payload(encoder) == b""


def test_the_limit_holds_after_taking_too(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder(200)
    for _ in range(3):
        while encoder.append(TS0, b"k", b"v" * 10, ()):
            pass
        assert 61 + encoder.size_bytes <= 200 < 61 + encoder.size_bytes + 19
        assert len(encoder.take_batch()) <= 200


# Many at once


class Items(Sequence[Any]):
    """A sequence that is neither list nor tuple, and may do something whenever an item is asked
    for."""

    def __init__(self, items: Sequence[Any], on_get: Callable[[int], None] = lambda index: None) -> None:
        self._items, self._on_get = items, on_get

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        self._on_get(index)
        return self._items[index]


@given(
    values=st.lists(strategies.data, max_size=40),
    keyed=st.booleans(),
    limit=st.integers(100, 2000),
    kind=st.sampled_from([list, tuple]),
    data=st.data(),
)
def test_extend_is_append_for_each(
    codec: ModuleType,
    values: list[bytes | None],
    keyed: bool,
    limit: int,
    kind: Callable[..., Any],
    data: st.DataObject,
) -> None:
    start = data.draw(st.integers(0, len(values)))
    keys = [None if v is None else v[:3] for v in reversed(values)] if keyed else None
    one, many = codec.RecordEncoder(limit), codec.RecordEncoder(limit)
    index, problem = start, None
    try:
        while index < len(values) and one.append(TS0, keys[index] if keys else None, values[index], ()):
            index += 1
    except RecordTooLarge as error:
        problem = str(error)
    if problem is None:
        assert many.extend(TS0, kind(values), kind(keys) if keys is not None else None, start) == index
    else:
        with pytest.raises(RecordTooLarge) as raised:
            many.extend(TS0, kind(values), kind(keys) if keys is not None else None, start)
        assert (str(raised.value), raised.value.index) == (problem, index)
    assert state(many) == state(one)
    assert take_payload(many) == take_payload(one)


def test_extend_goes_on_where_the_last_batch_was_full(codec: ModuleType) -> None:
    values = [b"%05d" % i for i in range(1000)]
    encoder = codec.RecordEncoder(300)
    index, seen = 0, []
    while index < len(values):
        index = encoder.extend(TS0, values, values, index)
        count = encoder.count
        seen += [(r.key, r.value) for r in decode(codec, take_payload(encoder), count)]
    assert seen == [(v, v) for v in values]


@pytest.mark.parametrize("kind", [list, tuple, Items], ids=["list", "tuple", "sequence"])
def test_a_wrong_value_among_many_is_named_and_nothing_of_the_call_is_kept(codec: ModuleType, kind: Any) -> None:
    encoder = codec.RecordEncoder(LIMIT)
    encoder.append(TS0, b"k", b"before", ())
    before = state(encoder)
    with pytest.raises(SerializationError) as raised:
        encoder.extend(TS0 + 9, kind([b"a", b"b" * 5000, "text", b"d"]), None, 0)
    assert raised.value.index == 2
    with pytest.raises(SerializationError) as raised:
        encoder.extend(TS0 + 9, kind([b"a", b"b"]), kind([None, 5]), 1)
    assert raised.value.index == 1
    assert state(encoder) == before
    encoder.append(TS0, b"k", b"after", ())
    assert take_payload(encoder) == payload_of([Raw(0, 0, b"k", b"before"), Raw(0, 1, b"k", b"after")])


@pytest.mark.parametrize(
    ("values", "keys", "start"), [([b""], [], 0), ([b""], [b"", b""], 0), ([b""], None, 2), ([b""], None, -1)]
)
def test_keys_and_start_must_fit_the_values(codec: ModuleType, values: Any, keys: Any, start: int) -> None:
    with pytest.raises(ConfigError):
        codec.RecordEncoder(LIMIT).extend(TS0, values, keys, start)


def test_any_sequence_can_be_extended_from(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder(LIMIT)
    assert encoder.extend(TS0, Items([b"a", None, b"c"]), Items([None, b"k", None]), 1) == 3
    assert take_payload(encoder) == payload_of([Raw(0, 0, b"k", None), Raw(0, 1, None, b"c")])


def test_a_sequence_that_takes_the_records_meanwhile_does_no_harm(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder(LIMIT)
    encoder.append(TS0, b"k" * 5000, b"v", ())
    taken: list[bytes] = []
    items = Items([b"a", b"b", 3.5], on_get=lambda index: taken.append(take_payload(encoder)) if index == 1 else None)
    with pytest.raises(SerializationError):
        encoder.extend(TS0, items, None, 0)
    assert taken == [payload_of([Raw(0, 0, b"k" * 5000, b"v"), Raw(0, 1, None, b"a")])]
    rest = encoder.count
    assert [r.value for r in decode(codec, take_payload(encoder), rest)] in ([], [b"b"])


def test_a_list_that_shrinks_meanwhile_does_no_harm(codec: ModuleType) -> None:
    keys: list[Any] = [b"k"] * 3
    values = Items([b"a", b"b", b"c"], on_get=lambda index: keys.clear())
    encoder = codec.RecordEncoder(LIMIT)
    with pytest.raises(IndexError):
        encoder.extend(TS0, values, keys, 0)
    assert state(encoder) == (0, 0, -1, -1)


@given(st.lists(strategies.data, max_size=40), st.booleans(), st.integers(100, 2000), st.data())
def test_entering_many_is_entering_each_until_one_does_not_fit(
    codec: ModuleType, values: list[bytes | None], keyed: bool, limit: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    keys = [None if v is None else v[:3] for v in reversed(values)] if keyed else None
    one, many = codec.RecordEncoder(limit), codec.RecordEncoder(limit)
    for encoder in (one, many):
        encoder.append(TS0 + 7, b"first", b"", ())
    index = start
    while index < stop and one.append(TS0, keys[index] if keys else None, values[index], ()):
        index += 1
    assert many.try_append_many(TS0, values, keys, start, stop) == (1, index - start)
    assert state(many) == state(one)
    assert take_payload(many) == take_payload(one)


@pytest.mark.slow
@given(st.lists(st.integers(0, 2**63 - 1) | st.integers(TS0, TS0 + 99), max_size=40), st.integers(100, 900), st.data())
def test_entering_many_with_a_time_each_is_entering_each(
    codec: ModuleType, times: list[int], limit: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(times)))
    stop = data.draw(st.integers(start, len(times)))
    is_first, each = data.draw(st.booleans()), array("q", times)
    values = [b"%d" % number for number in range(len(times))]
    one, many, extended = (codec.RecordEncoder(limit) for _ in range(3))
    for encoder in () if is_first else (one, many, extended):
        encoder.append(TS0, b"first", b"", ())
    index = start
    while index < stop and one.append(times[index], values[index], values[index], ()):
        index += 1
    assert many.try_append_many(each, values, values, start, stop) == (0 if is_first else 1, index - start)
    assert extended.extend(each, values, values, start, stop) == index
    assert state(one) == state(many) == state(extended)
    assert one.min_timestamp_ms == many.min_timestamp_ms == extended.min_timestamp_ms
    if one.count:
        assert take_payload(one) == take_payload(many) == take_payload(extended)


def test_entering_many_ends_before_a_wrong_time_of_an_array_and_extending_names_it(codec: ModuleType) -> None:
    encoder, values = codec.RecordEncoder(LIMIT), [b"a", b"b", b"c"]
    times = array("q", [TS0, TS0 + 1, -1])
    assert encoder.try_append_many(times, values, None, 0, 3) == (0, 2)
    before = state(encoder)
    assert encoder.try_append_many(times, values, None, 2, 3) == (2, 0)
    with pytest.raises(InvalidTimestamp, match="timestamp -1,") as caught:
        encoder.extend(times, values, None, 0)
    assert caught.value.facts["index"] == 2
    assert state(encoder) == before


@pytest.mark.parametrize(
    "times", [array("q", [1, 2]), array("q"), array("i", [1, 2, 3]), array("d", [1.0, 2.0, 3.0]), array("Q", [1, 2, 3])]
)
def test_times_of_another_kind_or_too_few_of_them_are_refused(codec: ModuleType, times: Any) -> None:
    encoder, values = codec.RecordEncoder(LIMIT), [b"a", b"b", b"c"]
    for refused in (
        lambda: encoder.try_append_many(times, values, None, 0, 3),
        lambda: encoder.try_append_many(array("q", [1, 2, 3]), values, None, 2, 1),
        lambda: encoder.try_append_many(array("q", [1, 2, 3]), values, None, -1, 2),
        lambda: encoder.extend(times, values, None, 0),
    ):
        with pytest.raises(ConfigError, match=r"timestamps for the values"):
            refused()
    assert state(encoder) == (0, 0, -1, -1)


@pytest.mark.parametrize("other", ["text", bytearray(b"v"), memoryview(b"v"), 5], ids=repr)
def test_entering_many_ends_before_what_is_not_plainly_bytes(codec: ModuleType, other: Any) -> None:
    encoder = codec.RecordEncoder(LIMIT)
    assert encoder.try_append_many(TS0, [b"a", None, other, b"c"], None, 0, 4) == (0, 2)
    assert encoder.try_append_many(TS0, (b"a", b"b"), (b"k", other), 0, 2) == (2, 1)
    assert encoder.try_append_many(TS0, [other], [b"k"], 0, 1) == (3, 0)
    assert take_payload(encoder) == payload_of([Raw(0, 0, None, b"a"), Raw(0, 1, None, None), Raw(0, 2, b"k", b"a")])


def test_entering_many_takes_nothing_after_close_and_raises_as_appending_does(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder(100)
    with pytest.raises(RecordTooLarge):
        encoder.try_append_many(TS0, [bytes(100)], None, 0, 1)
    with pytest.raises(InvalidTimestamp):
        encoder.try_append_many(-1, [b"v"], None, 0, 1)
    encoder.close()
    assert encoder.try_append_many(TS0, [b"v"], None, 0, 1) == (0, 0)
    assert state(encoder) == (0, 0, -1, -1)
    encoder.reopen()
    assert encoder.try_append_many(TS0, [b"v"], None, 0, 1) == (0, 1)


@pytest.mark.usefixtures("quick_switches")
def test_threads_may_enter_many_without_a_lock(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder(1 << 24)
    values = [b"%05d" % number for number in range(2000)]
    runs: list[tuple[int, int, int]] = []

    def work() -> None:
        at = 0
        while at < len(values):
            first, count = encoder.try_append_many(TS0, values, values, at, min(at + 20, len(values)))
            runs.append((first, at, count))
            at += count

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert encoder.count == 4 * len(values)
    found = [record.value for record in decode(codec, take_payload(encoder), 4 * len(values))]
    for first, at, count in runs:
        assert found[first : first + count] == values[at : at + count]


# Receipts


def test_a_record_entered_has_a_receipt(codec: Any) -> None:
    class Ticket(codec.Receipt):
        __slots__ = ()

    owner = object()
    entering, appending = codec.RecordEncoder(300), codec.RecordEncoder(300)
    index = 0
    while ticket := entering.try_append(Ticket, owner, TS0 + index, b"k", b"v" * 50, (("h", None),)):
        assert type(ticket) is Ticket
        assert (ticket.batch, ticket.index, ticket.timestamp_ms) == (owner, index, TS0 + index)
        assert appending.append(TS0 + index, b"k", b"v" * 50, (("h", None),))
        index += 1
    assert index == 3
    assert state(entering) == state(appending)
    assert take_payload(entering) == take_payload(appending)


def test_a_closed_encoder_gives_no_receipts_until_it_is_reopened(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder(LIMIT)
    assert encoder.try_append(codec.Receipt, None, TS0, b"1", None, ()).index == 0
    encoder.close()
    before = state(encoder)
    assert encoder.try_append(codec.Receipt, None, TS0, b"2", None, ()) is None
    assert state(encoder) == before
    assert encoder.append(TS0, b"3", None, ())  # who closed it may go on
    encoder.reopen()
    assert encoder.try_append(codec.Receipt, None, TS0, b"4", None, ()).index == 2
    assert take_payload(encoder) == payload_of([Raw(0, i, key, None) for i, key in enumerate([b"1", b"3", b"4"])])


def test_entering_raises_as_appending_does_and_changes_nothing(codec: ModuleType) -> None:
    encoder = codec.RecordEncoder(100)
    for timestamp, key, value, headers, error in (
        (TS0, "text", b"", (), SerializationError),
        (TS0, b"", 5, (), SerializationError),
        (TS0, b"", b"", [("h", "x")], SerializationError),
        (-1, b"", b"", (), InvalidTimestamp),
        (TS0, b"k" * 100, b"", (), RecordTooLarge),
    ):
        with pytest.raises(error):
            encoder.try_append(codec.Receipt, None, timestamp, key, value, headers)
        assert state(encoder) == (0, 0, -1, -1)


def test_a_record_entered_without_a_timestamp_has_the_time_of_now(codec: ModuleType) -> None:
    now = iter([TS0, TS0 + 7])
    encoder = codec.RecordEncoder(LIMIT, lambda: next(now))
    receipts = [encoder.try_append(codec.Receipt, None, given, b"", None, ()) for given in (None, TS0 + 3, None)]
    assert [receipt.timestamp_ms for receipt in receipts] == [TS0, TS0 + 3, TS0 + 7]
    assert [record.timestamp_ms for record in decode(codec, take_payload(encoder), 3)] == [TS0, TS0 + 3, TS0 + 7]


def test_the_time_of_now_is_the_machines_if_no_other_clock_is_given(codec: ModuleType) -> None:
    earliest = SystemClock().now_ms()
    receipt = codec.RecordEncoder(LIMIT).try_append(codec.Receipt, None, None, b"", b"", ())
    assert earliest <= receipt.timestamp_ms <= SystemClock().now_ms()


@pytest.mark.parametrize("now", [-1, 1 << 63, 1.5, None], ids=repr)
def test_a_clock_that_gives_no_time_is_refused(codec: ModuleType, now: Any) -> None:
    encoder = codec.RecordEncoder(LIMIT, lambda: now)
    with pytest.raises(InvalidTimestamp):
        encoder.try_append(codec.Receipt, None, None, b"", b"", ())
    assert state(encoder) == (0, 0, -1, -1)


def test_an_encoder_that_its_clock_refers_to_is_no_leak(codec: ModuleType) -> None:
    class Clock:
        def now_ms(self) -> int:
            return TS0

    clock = Clock()
    clock.encoder = codec.RecordEncoder(LIMIT, clock.now_ms)  # type: ignore[attr-defined]
    watched = weakref.ref(clock)
    del clock
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("kind", [None, 5, "Receipt", int, object, type(iter([]))], ids=repr)
def test_the_compiled_encoder_makes_nothing_but_receipts(both: tuple[ModuleType, ModuleType], kind: Any) -> None:
    encoder = both[1].RecordEncoder(LIMIT)
    with pytest.raises(TypeError):
        encoder.try_append(kind, None, TS0, b"", b"", ())
    assert state(encoder) == (0, 0, -1, -1)


@pytest.mark.usefixtures("quick_switches")
def test_threads_may_enter_records_without_a_lock(codec: ModuleType) -> None:
    each = 3000
    encoder = codec.RecordEncoder(1 << 22)
    receipts: list[list[Any]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        enter, kept = encoder.try_append, receipts[number]
        for i in range(each):
            kept.append((enter(codec.Receipt, number, TS0 + number, b"%d" % number, b"%d" % i, [("h", b"x")]), i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = encoder.first_timestamp_ms
    records = decode(codec, take_payload(encoder), 4 * each, first)
    for number, kept in enumerate(receipts):
        for receipt, i in kept:
            record = records[receipt.index]
            assert (record.key, record.value, record.timestamp_ms) == (b"%d" % number, b"%d" % i, receipt.timestamp_ms)


@pytest.mark.parametrize("meanwhile", ["try_append", "close"])
def test_what_comes_between_reading_and_writing_the_readable_encoder_comes_first(
    both: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """Another thread, or a signal handler: either may run while a record is encoded."""
    codec = both[0]
    encoder = codec.RecordEncoder(LIMIT)
    encode_record = codec.encode_record

    def interrupted(*fields: Any) -> bytes:
        monkeypatch.undo()
        if meanwhile == "try_append":
            assert encoder.try_append(codec.Receipt, None, TS0, b"first", None, ()).index == 0
        else:
            encoder.close()
        return bytes(encode_record(*fields))

    monkeypatch.setattr(codec, "encode_record", interrupted)
    receipt = encoder.try_append(codec.Receipt, None, TS0 + 5, b"second", None, [("h", b"x")])
    if meanwhile == "close":
        assert receipt is None
        assert state(encoder) == (0, 0, -1, -1)
        return
    assert receipt.index == 1
    first, second = decode(codec, take_payload(encoder), 2)
    assert (first.key, first.timestamp_ms, first.headers) == (b"first", TS0, ())
    assert (second.key, second.timestamp_ms, second.headers) == (b"second", TS0 + 5, (("h", b"x"),))


@pytest.mark.parametrize("meanwhile", ["try_append", "close"])
def test_what_comes_while_the_readable_encoder_enters_many_comes_first(
    both: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    codec = both[0]
    encoder = codec.RecordEncoder(LIMIT)
    encode_record = codec.encode_record

    def interrupted(*fields: Any) -> bytes:
        monkeypatch.undo()
        if meanwhile == "try_append":
            assert encoder.try_append(codec.Receipt, None, TS0, b"first", None, ()).index == 0
        else:
            encoder.close()
        return bytes(encode_record(*fields))

    monkeypatch.setattr(codec, "encode_record", interrupted)
    assert encoder.try_append_many(TS0 + 5, [b"second", b"third"], None, 0, 2) == (0, 0)
    if meanwhile == "try_append":
        assert take_payload(encoder) == payload_of([Raw(0, 0, b"first", None)])
    else:
        assert state(encoder) == (0, 0, -1, -1)


# Decoding


def batch(codec: ModuleType, count: int) -> bytes:
    encoder = codec.RecordEncoder(LIMIT)
    for i in range(count):
        encoder.append(TS0 + i, b"k%d" % i, b"v%d" % i, [("h", b"%d" % i)] if i % 3 == 0 else ())
    return take_payload(encoder)


@pytest.mark.parametrize("step", [1, 2, 7, 100, 1000])
def test_records_can_be_taken_piece_by_piece(codec: ModuleType, step: int) -> None:
    payload = batch(codec, 100)
    decoder = codec.RecordDecoder(payload, 100, 500, TS0, -1, "topic", 7)
    records: list[Record] = []
    while taken := decoder.take(step):
        assert len(taken) == min(step, 100 - len(records))
        records += taken
        assert decoder.remaining == 100 - len(records)
    assert records == decode(codec, payload, 100, TS0, 500)
    assert decoder.take(5) == []


def test_taking_none_takes_none(codec: ModuleType) -> None:
    decoder = codec.RecordDecoder(batch(codec, 3), 3, 0, TS0, -1, "topic", 7)
    assert decoder.take(0) == decoder.take(-5) == []
    assert decoder.remaining == 3


@pytest.mark.parametrize("offset", [0, 499, 500, 501, 537, 599, 600, 10_000])
@pytest.mark.parametrize("taken_before", [0, 1, 40])
def test_skipping_leads_to_the_first_record_not_below_the_offset(
    codec: ModuleType, offset: int, taken_before: int
) -> None:
    decoder = codec.RecordDecoder(batch(codec, 100), 100, 500, TS0, -1, "topic", 7)
    decoder.take(taken_before)
    decoder.skip_to(offset)
    first = max(500 + taken_before, min(offset, 600))
    assert decoder.remaining == 600 - first
    assert [r.offset for r in decoder.take(1000)] == list(range(first, 600))


def test_gaps_that_compaction_left_stay(codec: ModuleType) -> None:
    payload = payload_of([Raw(0, delta) for delta in (3, 4, 9000)])
    decoder = codec.RecordDecoder(payload, 3, 1000, TS0, -1, "topic", 7, 9000)
    decoder.skip_to(1004)
    assert [r.offset for r in decoder.take(10)] == [1004, 10000]


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, lambda p: memoryview(bytearray(b"xx" + p + b"x"))[2:-1]]
)
def test_a_payload_may_be_any_buffer(codec: ModuleType, kind: Callable[[bytes], Any]) -> None:
    payload = batch(codec, 10)
    assert decode(codec, kind(payload), 10) == decode(codec, payload, 10)
    assert codec.decode_columns(kind(payload), 10, 0, TS0, -1, True) == codec.decode_columns(
        payload, 10, 0, TS0, -1, True
    )


def test_the_append_time_stands_for_every_timestamp(codec: ModuleType) -> None:
    payload = payload_of([Raw(-(2**63), 0), Raw(2**63 - 1, 1)])  # deltas that would leave the range are not used
    decoder = codec.RecordDecoder(payload, 2, 0, TS0, TS0 + 77, "topic", 7)
    assert [r.timestamp_ms for r in decoder.take(2)] == [TS0 + 77] * 2


def test_a_record_is_a_plain_value(codec: ModuleType) -> None:
    payload = payload_of([Raw(0, 0, b"key", None, ((b"h", b"x"), (b"n", None)))])
    (record,) = decode(codec, payload, 1)
    expected = Record("topic", 7, 0, TS0, b"key", None, (("h", b"x"), ("n", None)))
    assert record == expected
    assert hash(record) == hash(expected) == hash(tuple(expected))
    assert {expected: 1}[record] == 1
    assert type(record) is Record
    assert [type(field) for field in record] == [str, int, int, int, bytes, type(None), tuple]
    assert [type(pair) for pair in record.headers] == [tuple, tuple]
    assert repr(record) == repr(expected)
    assert pickle.loads(pickle.dumps(record)) == expected
    assert record._replace(offset=5).offset == 5


def test_compiled_records_do_not_burden_the_collector(both: tuple[ModuleType, ModuleType]) -> None:
    (record,) = decode(both[1], payload_of([Raw(0, 0, b"key", None, ((b"h", b"x"),))]), 1)
    assert not any(map(gc.is_tracked, (record, record.headers, record.headers[0])))


def test_topic_and_partition_are_shared_by_all_records(codec: ModuleType) -> None:
    topic, partition = "a topic", 12345678
    records = codec.RecordDecoder(batch(codec, 3), 3, 0, TS0, -1, topic, partition).take(3)
    assert all(r.topic is topic and r.partition is partition for r in records)


@pytest.mark.slow
def test_very_many_headers_are_given_in_several_takes(codec: ModuleType) -> None:
    headers = ((b"", b""),) * (MAX_HEADERS // 2)
    payload = payload_of([Raw(0, i, b"", b"", headers) for i in range(5)])
    decoder = codec.RecordDecoder(payload, 5, 0, TS0, -1, "topic", 7)
    assert [len(decoder.take(100)) for _ in range(4)] == [2, 2, 1, 0]


# Columns


@pytest.mark.slow
@given(records=strategies.records, with_headers=st.booleans())
def test_columns_hold_the_same_in_both_codecs(
    both: tuple[ModuleType, ModuleType], records: list[ProducerRecord], with_headers: bool
) -> None:
    encoder = encode(both[0], records)
    base = max(encoder.first_timestamp_ms, 0)
    payload = take_payload(encoder)
    readable, compiled = (m.decode_columns(payload, len(records), 1000, base, -1, with_headers) for m in both)
    assert readable == compiled
    assert [type(field) for field in readable] == [type(field) for field in compiled]


@pytest.mark.slow
@given(records=strategies.records)
def test_columns_are_arrow_arrays_of_the_records(codec: ModuleType, records: list[ProducerRecord]) -> None:
    pa = pytest.importorskip("pyarrow")
    encoder = encode(codec, records)
    base, count = max(encoder.first_timestamp_ms, 0), len(records)
    columns = codec.decode_columns(take_payload(encoder), count, 1000, base, -1, True)

    def array(kind: Any, length: int, *buffers: bytes | None) -> Any:
        made = pa.Array.from_buffers(kind, length, [b if b is None else pa.py_buffer(b) for b in buffers])
        made.validate(full=True)
        return made

    assert columns.count == count
    assert array(pa.int64(), count, None, columns.offsets).to_pylist() == list(range(1000, 1000 + count))
    assert array(pa.int64(), count, None, columns.timestamps_ms).to_pylist() == [r.timestamp_ms for r in records]
    keys = array(pa.binary(), count, columns.key_validity, columns.key_offsets, columns.key_data)
    values = array(pa.binary(), count, columns.value_validity, columns.value_offsets, columns.value_data)
    assert keys.to_pylist() == [r.key for r in records]
    assert values.to_pylist() == [r.value for r in records]
    total = sum(len(r.headers) for r in records)
    names = array(pa.string(), total, None, columns.header_key_offsets, columns.header_key_data)
    header_values = array(
        pa.binary(), total, columns.header_value_validity, columns.header_value_offsets, columns.header_value_data
    )
    ends = array(pa.int32(), count + 1, None, columns.header_list_offsets).to_pylist()
    pairs = list(zip(names.to_pylist(), header_values.to_pylist(), strict=True))
    assert [tuple(pairs[a:b]) for a, b in itertools.pairwise(ends)] == [tuple(r.headers) for r in records]


def test_header_columns_are_left_out_where_not_asked_for(codec: ModuleType) -> None:
    columns = codec.decode_columns(batch(codec, 10), 10, 0, TS0, -1, False)
    assert columns[-6:] == (None,) * 6
    assert columns[:-6] == codec.decode_columns(batch(codec, 10), 10, 0, TS0, -1, True)[:-6]


def test_an_empty_batch_has_empty_columns(codec: ModuleType) -> None:
    columns = codec.decode_columns(b"", 0, 0, TS0, -1, True)
    assert columns.count == 0
    assert columns.offsets == columns.key_data == columns.key_validity == b""
    assert columns.key_offsets == columns.header_list_offsets == bytes(4)


def test_a_payload_beyond_what_columns_address_is_refused(codec: ModuleType) -> None:
    with mmap.mmap(-1, 2**31) as pages, memoryview(pages) as payload, pytest.raises(CorruptRecord, match="2147483648"):
        codec.decode_columns(payload, 1, 0, TS0, -1, False)


def test_columns_stand_in_the_memory_they_are_given(codec: ModuleType) -> None:
    given: list[bytearray] = []

    def allocate(size: int) -> bytearray:
        given.append(bytearray(b"\xff" * size))
        return given[-1]

    raws = [Raw(0, 0, b"key", None, ((b"h", b"x"), (b"n", None))), Raw(5, 1, None, b"value", ())]
    columns = codec.decode_columns(payload_of(raws), 2, 0, TS0, -1, True, allocate=allocate)
    assert columns == codec.decode_columns(payload_of(raws), 2, 0, TS0, -1, True)
    assert {id(buffer) for buffer in columns[1:]} <= {id(buffer) for buffer in given}
    given[-1].append(0)  # nobody holds it any more


@pytest.mark.parametrize("difference", [-1, 1])
def test_memory_of_another_size_is_refused(codec: ModuleType, difference: int) -> None:
    with pytest.raises(ConfigError, match=r"allocate gave \d+ bytes, expected \d+"):
        codec.decode_columns(batch(codec, 10), 10, 0, TS0, -1, True, allocate=lambda size: bytearray(size + difference))


def test_a_payload_that_changes_while_memory_is_given_harms_nobody(both: tuple[ModuleType, ModuleType]) -> None:
    one, none = payload_of([Raw(0, 0, b"", b"", ((b"h", b"x"),))]), payload_of([Raw(0, 0, b"1234", b"", ())])
    assert len(one) == len(none)
    for before, after in [(one, none), (none, one)]:
        payload = bytearray(before)

        def allocate(size: int, payload: bytearray = payload, after: bytes = after) -> bytearray:
            payload[:] = after
            return bytearray(size)

        with pytest.raises(CorruptRecord, match="changed while it was read"):
            both[1].decode_columns(payload, 1, 0, TS0, -1, True, allocate=allocate)


# Housekeeping


def test_a_payload_is_let_go_with_its_decoder(codec: ModuleType) -> None:
    payload = bytearray(batch(codec, 3))
    decoder = codec.RecordDecoder(payload, 3, 0, TS0, -1, "topic", 7)
    codec.decode_columns(payload, 3, 0, TS0, -1, True)
    with pytest.raises(CorruptRecord):
        codec.RecordDecoder(payload, 300, 0, TS0, -1, "topic", 7)
    with pytest.raises(CorruptRecord):
        codec.decode_columns(payload, 300, 0, TS0, -1, True)
    assert len(decoder.take(5)) == 3
    del decoder
    payload.clear()  # a BufferError where somebody still looks at it


@pytest.mark.slow
def test_references_are_neither_lost_nor_kept(codec: ModuleType) -> None:
    good = batch(codec, 50)
    bad = good[:-1] + b"\x01"
    topic, value, key = "t" * 20, b"v" * 20, b"k" * 20
    watched = [topic, value, key, None, codec.NO_HEADERS if hasattr(codec, "NO_HEADERS") else ()]

    def work() -> None:
        codec.RecordDecoder(good, 50, 0, TS0, -1, topic, 7).take(100)
        codec.decode_columns(good, 50, 0, TS0, -1, True)
        for broken in (
            lambda: codec.RecordDecoder(bad, 50, 0, TS0, -1, topic, 7).take(100),
            lambda: codec.decode_columns(bad, 50, 0, TS0, -1, True),
        ):
            with pytest.raises(CorruptRecord):
                broken()
        encoder = codec.RecordEncoder(LIMIT)
        encoder.append(TS0, key, value, [("h", value)])
        encoder.extend(TS0, [value] * 5, (key,) * 5, 0)
        with pytest.raises(PylogError):
            encoder.extend(TS0, [value, None, "text"], [key] * 3, 0)
        encoder.take_batch()

    work()
    gc.collect()
    before, blocks = [sys.getrefcount(item) for item in watched], sys.getallocatedblocks()
    for _ in range(200):
        work()
    gc.collect()
    grown = [sys.getrefcount(item) - count for item, count in zip(watched, before, strict=True)]
    assert max(map(abs, grown)) < 100, grown
    assert sys.getallocatedblocks() - blocks < 400


@pytest.mark.parametrize("wanted", ["1", "0", ""])
def test_the_environment_chooses_the_codec(wanted: str) -> None:
    try:
        import pylog.codec._records as _  # noqa: F401

        built = True
    except ImportError:
        built = False
    source = "from pylog.codec import COMPILED, RecordEncoder; print(COMPILED, RecordEncoder.__module__)"
    environment = os.environ | {"PYLOG_PURE_PYTHON": wanted, "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True)
    compiled = built and wanted != "1"
    assert shown.stdout.split() == [str(compiled), "pylog.codec._records" if compiled else "pylog.codec.records"]
