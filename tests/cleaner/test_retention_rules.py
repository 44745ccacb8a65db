"""What retention deletes of a partition, as a table and as properties. Pure: no file is made."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.catalog import TopicConfig
from pylog.cleaner.retention import Bounds, Plan, Segment, planned

NOW_MS = 10_000


def segments(*sizes: int, appended_ms: Sequence[int] = (), active: bool = True) -> list[Segment]:
    """Segments of ten offsets each."""
    times = appended_ms or [NOW_MS] * len(sizes)
    return [
        Segment(
            10 * number, 10 * number + (10 if size else 0), size, times[number], active and number == len(sizes) - 1
        )
        for number, size in enumerate(sizes)
    ]


def plan(found: list[Segment], times: Sequence[int | None] = (), bounds: Bounds | None = None, **options: Any) -> Plan:
    config = TopicConfig().with_changes(options)
    newest_ms = (times or [NOW_MS] * len(found)).__getitem__
    return planned(found, newest_ms, config, bounds or Bounds(0, found[-1].end_offset), NOW_MS)


TABLE: list[tuple[str, Plan, int, str, bool]] = [
    ("nothing is limited", plan(segments(5, 5, 5)), 0, "not due", False),
    ("the rest is smaller than the limit", plan(segments(5, 5, 5), retention_bytes=11), 0, "not due", False),
    ("the rest has just the limit", plan(segments(5, 5, 5), retention_bytes=10), 10, "not due", False),
    ("two go", plan(segments(5, 5, 5), retention_bytes=5), 20, "not due", False),
    ("by size the active one stays", plan(segments(5, 5, 5), retention_bytes=0), 20, "active segment", False),
    ("exactly as old as the limit", plan(segments(5, 5), [9000, NOW_MS], retention_ms=1000), 0, "not due", False),
    ("older than the limit", plan(segments(5, 5), [8999, NOW_MS], retention_ms=1000), 10, "not due", False),
    ("a young one keeps the old one after it", plan(segments(5, 5), [NOW_MS, 0], retention_ms=1000), 0, "not due", False),
    ("by time the active one goes, after a roll", plan(segments(5, 5), [0, 0], retention_ms=1000), 20, "nothing to delete", True),
    ("an empty active one is not rolled", plan(segments(5, 0), [0, 0], retention_ms=1000), 10, "nothing to delete", False),
    ("a time to come", plan(segments(5, 5), [NOW_MS + 1, 0], retention_ms=0), 0, "timestamp in the future", False),
    (
        "a time to come, but it was appended long ago",
        plan(segments(5, 5, appended_ms=[0, NOW_MS]), [NOW_MS + 1, 0], retention_ms=1, retention_clock="append"),
        10, "not due", False,
    ),
    (
        "an old time, but it was appended now",
        plan(segments(5, 5), [0, 0], retention_ms=1, retention_clock="append"),
        0, "not due", False,
    ),
    (
        "without a time the append counts",
        plan(segments(5, 5, appended_ms=[0, NOW_MS]), [None, None], retention_ms=1),
        10, "not due", False,
    ),
    ("kept by policy", plan(segments(5, 5), [0, 0], retention_ms=1, cleanup_policy="none"), 0, "not due", False),
    (
        "an open transaction",
        plan(segments(5, 5, 5), bounds=Bounds(0, 15), retention_bytes=0), 10, "open transaction", False,
    ),
    (
        "in the active segment",
        plan(segments(5, 5), [0, 0], bounds=Bounds(0, 15), retention_ms=1), 10, "open transaction", False,
    ),
    (
        "consumed goes at once",
        plan(segments(5, 5, 5), bounds=Bounds(0, 30, 25), retention="consumed"), 20, "not consumed", False,
    ),
    (
        "all is consumed, but the active one stays",
        plan(segments(5, 5), bounds=Bounds(0, 20, 20), retention="consumed"), 10, "active segment", False,
    ),
    ("none is consumed", plan(segments(5, 5), bounds=Bounds(0, 20, 0), retention="consumed"), 0, "not consumed", False),
    (
        "consumed, but there is room",
        plan(segments(5, 5, 5), bounds=Bounds(0, 30, 30), retention="consumed", retention_bytes=10), 10, "not due", False,
    ),
    (
        "too much, but not consumed",
        plan(segments(5, 5, 5), bounds=Bounds(0, 30, 10), retention="consumed", retention_bytes=0), 10, "not consumed", False,
    ),
    (
        "old, but not consumed",
        plan(segments(5, 5), [0, 0], bounds=Bounds(0, 20, 5), retention="consumed", retention_ms=1), 0, "not consumed", False,
    ),
    (
        "what a crash has left of deleted records",
        plan(segments(5, 5, 5), bounds=Bounds(20, 30)), 20, "not due", False,
    ),
    (
        "deleted records are not asked for",
        plan(segments(5, 5, 5), bounds=Bounds(12, 30, 0), retention="consumed"), 12, "not consumed", False,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "log_start", "kept", "roll"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_what_goes_and_why_the_next_one_stays(found: Plan, log_start: int, kept: str, roll: bool) -> None:
    assert (found.log_start, found.kept, found.roll) == (log_start, kept, roll)


def test_a_time_is_asked_for_no_more_segments_than_it_needs() -> None:
    asked: list[int] = []

    def newest_ms(number: int) -> int:
        asked.append(number)
        return 0 if number < 2 else NOW_MS

    found = segments(*[5] * 9)
    planned(found, newest_ms, TopicConfig(retention_ms=1), Bounds(0, 90), NOW_MS)
    assert asked == [0, 1, 2]
    planned(found, newest_ms, TopicConfig(retention_ms=1, retention_clock="append"), Bounds(0, 90), NOW_MS)
    assert asked == [0, 1, 2]


def test_since_when_something_is_due() -> None:
    by_time = plan(segments(5, 5), [2000, NOW_MS], retention_ms=1000)
    assert by_time.due_since_ms == 3000
    closed = segments(5, 5, 5, 5, appended_ms=[1000, 2000, 3000, 4000])
    assert plan(closed, retention_bytes=10).due_since_ms == 3000  # the two after the first were full then
    assert plan(segments(5, 5), retention_ms=1000).due_since_ms is None


def test_a_segment_that_compaction_has_emptied_is_not_overdue_since_its_append() -> None:
    found = plan([Segment(0, 10, 0, 5), *segments(5, 5)[1:]], retention_ms=1000)
    assert (found.going, found.rules, found.due_since_ms) == (1, ("emptied by compaction",), NOW_MS)


def test_what_is_over_a_limit_and_held_says_by_which_limit_and_since_when() -> None:
    old = plan(segments(5, 5, 5), [2000, 3000, NOW_MS], Bounds(0, 15), retention_ms=1000)
    assert (old.going, old.due_since_ms, old.kept, old.held_rule, old.held_since_ms) == (
        *(1, 3000, "open transaction", "time", 4000),
    )  # fmt: skip
    closed = segments(5, 5, 5, appended_ms=[1000, 2000, 3000])
    large = plan(closed, (), Bounds(0, 30, 5), retention="consumed", retention_bytes=10)
    assert (large.going, large.kept, large.held_rule, large.held_since_ms) == (0, "not consumed", "size", 3000)
    active = plan(segments(5), [2000], Bounds(0, 5), retention_ms=1000)
    assert (active.roll, active.held_rule, active.held_since_ms) == (False, "time", 3000)


@pytest.mark.parametrize(
    "found",
    [
        plan(segments(5, 5), [NOW_MS, NOW_MS], Bounds(0, 0), retention_ms=1000),
        plan(segments(5, 5), bounds=Bounds(0, 20, 0), retention="consumed"),
        plan(segments(5, 5), retention_bytes=0),
        plan(segments(5, 5), [NOW_MS + 1, 0], retention_ms=0),
    ],
    ids=["young", "not consumed and without a limit", "the active one, by size", "a time to come"],
)
def test_what_no_limit_asks_for_is_not_held(found: Plan) -> None:
    assert (found.held_rule, found.held_since_ms) == ("", None)


sizes = st.lists(st.integers(1, 9), min_size=1, max_size=8)
times = st.integers(0, NOW_MS + 50)


@pytest.mark.slow
@given(
    sizes,
    st.lists(times, min_size=8, max_size=8),
    st.sampled_from([-1, 0, 1, 100, 5000]),
    st.sampled_from([-1, 0, 1, 10, 30]),
    st.sampled_from([None, "consumed"]),
    st.sampled_from(["delete", "none", "compact", "compact,delete"]),
    st.integers(0, 80),
    st.integers(0, 80),
    st.integers(0, 80),
)
def test_what_never_goes(
    found_sizes: list[int],
    newest: list[int],
    retention_ms: int,
    retention_bytes: int,
    retention: str | None,
    policy: str,
    log_start: int,
    stable: int,
    consumed: int,
) -> None:
    config = TopicConfig().with_changes({
        "retention_ms": retention_ms, "retention_bytes": retention_bytes, "retention": retention, "cleanup_policy": policy,
    })  # fmt: skip
    found = segments(*found_sizes)
    end = found[-1].end_offset
    log_start = min(log_start, end)
    stable = max(min(stable, end), log_start)
    bounds = Bounds(log_start, stable, consumed if retention else None)
    made = planned(found, newest.__getitem__, config, bounds, NOW_MS)
    gone, stay = found[: made.going], found[made.going :]
    assert log_start <= made.log_start <= stable
    assert made.log_start == max([log_start, *(segment.end_offset for segment in gone)])
    fresh = [segment for segment in gone if segment.end_offset > log_start]
    if fresh:
        assert "delete" in policy
        assert all(segment.end_offset <= stable for segment in fresh)
        assert retention is None or all(segment.end_offset <= consumed for segment in fresh)
        assert not fresh[-1].is_active or made.roll
    left_bytes = sum(segment.size_bytes for segment in stay)
    if made.roll:
        assert retention_ms >= 0
        assert not stay
    for number, (_, rest) in enumerate(zip(gone, list(accumulate(reversed(found_sizes)))[::-1][1:], strict=False)):
        if found[number].end_offset > log_start and retention_ms == -1 and not retention:
            assert rest >= retention_bytes  # only what is too much
    if "delete" in policy and retention is None and stable == end and retention_bytes >= 0 and len(stay) > 1:
        assert left_bytes - stay[0].size_bytes < retention_bytes  # and all of that
    again = [segment for segment in stay if not segment.is_active or not made.roll]
    if again:  # a second look finds nothing more
        later = planned(
            again, newest[made.going :].__getitem__, config, bounds._replace(log_start=made.log_start), NOW_MS
        )
        assert later.going == 0
    assert all(first.end_offset == second.base_offset for first, second in pairwise(found))
