"""Times in microseconds, by both codecs: all of them, or the word that one is out of range."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import ConfigError

LATEST_MS = INT64_MAX // 1000


@given(st.lists(st.integers(-LATEST_MS, LATEST_MS)))
def test_each_time_is_a_thousand_times_as_much(both: tuple[ModuleType, ModuleType], times: list[int]) -> None:
    for codec in both:
        found = codec.microseconds(array("q", times).tobytes(), bytearray)
        assert memoryview(found).cast("q").tolist() == [1000 * time for time in times]


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize("wrong", [LATEST_MS + 1, -LATEST_MS - 1, INT64_MAX, INT64_MIN])
def test_one_that_is_out_of_range_is_said(codec: ModuleType, wrong: int, place: int) -> None:
    times = array("q", [LATEST_MS, -LATEST_MS, 0, 1, -1, 2])
    times.insert(place, wrong)
    assert codec.microseconds(times.tobytes(), bytearray) is None


def test_space_of_another_size_is_refused(codec: ModuleType) -> None:
    with pytest.raises(ConfigError, match="allocate gave 24 bytes, expected 16"):
        codec.microseconds(bytes(16), lambda size: bytearray(size + 8))
