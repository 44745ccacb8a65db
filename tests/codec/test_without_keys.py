"""What an erasure takes out of a batch, and what it leaves: whole records, damage included where it
is not in the way."""

from __future__ import annotations

import pytest

from pylog.codec.batch import BatchView, read_header
from pylog.codec.without_keys import TakenOut, may_hold, split
from pylog.errors import CorruptRecord
from tests.codec.reference import Raw, batch_of, payload_of

MANY = [b"%d" % number for number in range(100, 120)]


def view_of(*records: Raw, after: bytes = b"") -> BatchView:
    data = batch_of(payload_of(records) + after, len(records))
    return BatchView(memoryview(data), read_header(data))


@pytest.mark.parametrize("keys", [[b"a"], [*MANY, b"a"]], ids=["few keys", "many keys"])
def test_a_batch_with_a_record_of_a_key_is_found(keys: list[bytes]) -> None:
    view = view_of(Raw(key=b"b"), Raw(offset_delta=1, key=b"a", value=None))
    assert may_hold(view, keys)
    left = split(view, keys, 10)
    assert (left.kept, left.payload, left.taken) == (1, payload_of([Raw(key=b"b")]), [TakenOut(b"a", 1, True)])


@pytest.mark.parametrize("keys", [[b"a"], [*MANY, b"a"]], ids=["few keys", "many keys"])
def test_a_batch_without_a_record_of_a_key_is_left(keys: list[bytes]) -> None:
    assert not may_hold(view_of(Raw(key=b"ab", value=b"a"), Raw(offset_delta=1, key=None)), keys)


def test_headers_that_cannot_be_read_keep_no_record() -> None:
    """Nobody can read the record: that is a reason to erase it."""
    view = view_of(Raw(key=b"a", headers=((b"h", b""),), header_key_size=b"\x7f"), Raw(offset_delta=1, key=b"b"))
    assert may_hold(view, [b"a"])
    assert may_hold(view, [b"b", *MANY])
    assert [taken.key for taken in split(view, [b"a"], 10).taken] == [b"a"]


@pytest.mark.parametrize(
    ("view", "problem"),
    [
        (view_of(Raw(key=b"a"), after=b"more"), "4 bytes"),
        (view_of(Raw(key=b"a", key_size=50)), "keyLength"),
        (view_of(Raw(key=b"a", key_size=-2)), "keyLength"),
    ],
    ids=["bytes after the records", "a key longer than its record", "a key of less than nothing"],
)
def test_damage_that_hides_where_records_are_is_an_error(view: BatchView, problem: str) -> None:
    with pytest.raises(CorruptRecord, match=problem):
        split(view, [b"a"], 10)
