"""Counters in cells, and for how long each has stood still."""

from __future__ import annotations

from pathlib import Path

from pylog.group.liveness import Heartbeats, Silence
from pylog.storage import OsFileSystem


def test_each_counts_in_its_own_cell(tmp_path: Path) -> None:
    one, other = (Heartbeats(OsFileSystem().open_appendable(f"{tmp_path}/heartbeats")) for _ in range(2))
    one.beat(3)
    other.beat(1)
    one.beat(3)
    assert other.all() == (0, 1, 0, 2)


def test_a_counter_wraps(tmp_path: Path) -> None:
    (tmp_path / "heartbeats").write_bytes(b"\xff" * 8 + b"torn")
    beats = Heartbeats(OsFileSystem().open_appendable(f"{tmp_path}/heartbeats"))
    beats.beat(0)
    assert beats.all() == (0,)


def test_silence_is_how_long_a_counter_was_seen_to_stand_still() -> None:
    silence = Silence()
    assert silence.look({"a": 5, "b": 1}, 10.0) == {"a": 0.0, "b": 0.0}
    assert silence.look({"a": 5, "b": 2}, 13.0) == {"a": 3.0, "b": 0.0}
    assert silence.look({"a": 5, "c": 9}, 14.0) == {"a": 4.0, "c": 0.0}
    assert silence.look({"a": 6, "c": 9}, 20.0) == {"a": 0.0, "c": 6.0}
