"""Staged files that are not what was written: refused by name, and nothing of their commit is in
the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog import Log
from pylog.codec.checksum import crc32c
from pylog.errors import CorruptRecord, CorruptSegment, PylogError
from pylog.spark.sink.directory import SinkDirectory
from pylog.spark.sink.staging import Staged, StagedFile, Target, parts_of, staged_batches
from pylog.storage import OsFileSystem
from tests.arrow.rows import CORNERS, view_of
from tests.spark.writing import QUERY, Driver, values

NAME = f"0-1-{32 * 'a'}.staged"
TARGET = Target("orders", "id", 3)
HEAD = b"PYLGSTGD" + pack(">h", 1)  # of earlier builds: here the checksum covers all bytes


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> SinkDirectory:
    root = tmp_path_factory.mktemp("log")
    (root / ".pylog").mkdir()
    made = SinkDirectory.of(OsFileSystem(), str(root), QUERY)
    made.make()
    return made


def frame(kind: int, body: bytes, size: int | None = None) -> bytes:
    return pack(">BI", kind, len(body) if size is None else size) + body


def partition(text: bytes = b"orders\0id\x003") -> bytes:
    return frame(1, text)


def batch(data: bytes | None = None, number: int = 0) -> bytes:
    return frame(2, pack(">Iq", number, 0) + (bytes(view_of(CORNERS).buffer) if data is None else data))


def changed(position: int, value: bytes) -> bytes:
    data = bytearray(view_of(CORNERS).buffer)
    data[position : position + len(value)] = value
    return batch(bytes(data))


def read(place: SinkDirectory, data: bytes, **said: Any) -> list[Target]:
    Path(place.file(NAME)).write_bytes(data)
    staged = Staged(NAME, said.get("size", len(data)), said.get("crc", crc32c(data)))
    found = [target for target, _, _ in staged_batches(place, staged)]
    parts = parts_of(place, staged)
    assert {part.target: len(list(part.batches(place))) for part in parts} == Counter(found)
    return found


def test_a_staged_file_is_what_the_layout_says(place: SinkDirectory) -> None:
    assert read(place, HEAD + partition() + batch() + batch()) == [TARGET, TARGET]
    assert read(place, HEAD) == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "10 bytes expected"),
        (b"PYLGSTGD" + pack(">h", 3), "does not begin as a staged file of this version"),
        (HEAD + b"\1", "5 bytes expected"),
        (HEAD + frame(1, b"", 2**32 - 1), "a frame of kind 1"),
        (HEAD + partition() + frame(2, b"", 2**32 - 1), "expected, it ends at"),
        (HEAD + frame(3, b""), "a frame of kind 3"),
        (HEAD + partition(b"orders"), "names no partition"),
        (HEAD + partition(b"orders\0id\0-1"), "names no partition"),
        (HEAD + partition(b"orders\0id\x009999999999"), "names no partition"),
        (HEAD + batch(), "a batch for partition 0 of 0"),
        (HEAD + partition() + batch(b"x" * 61), "magic"),
        (HEAD + partition() + changed(8, pack(">i", 2**31 - 1)), "bytes in"),
        (HEAD + partition() + changed(43, pack(">qh", 5, 0)), "a batch of producer 5"),
        (HEAD + partition() + changed(22, b"\x20"), "attributes 0x20"),
        (HEAD + partition() + changed(22, b"\x08"), "attributes 0x8"),
        (HEAD + partition() + changed(70, b"\xff\xff"), "CRC"),
    ],
)
def test_a_staged_file_that_is_none_is_refused(place: SinkDirectory, data: bytes, problem: str) -> None:
    with pytest.raises((CorruptSegment, CorruptRecord), match=problem):
        read(place, data)


def test_a_staged_file_that_is_another_one_is_refused(place: SinkDirectory) -> None:
    whole = HEAD + partition() + batch()
    with pytest.raises(CorruptSegment, match=f"it has {len(whole)} bytes, 5 were staged"):
        read(place, whole, size=5)
    with pytest.raises(CorruptSegment, match=r"its checksum is .*, 00000005 was staged"):
        read(place, whole, crc=5)
    Path(place.file(NAME)).unlink()
    with pytest.raises(CorruptSegment, match="which a task has staged, is gone"):
        list(staged_batches(place, Staged(NAME, 1, 1)))


@given(st.data())
def test_any_flipped_byte_of_a_staged_file_is_found(place: SinkDirectory, data: st.DataObject) -> None:
    whole = bytearray(HEAD + partition() + batch() + batch())
    crc = crc32c(bytes(whole))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises((CorruptSegment, CorruptRecord)):
        read(place, bytes(whole), crc=crc)


@pytest.mark.slow
@given(st.data())
def test_any_flipped_byte_of_a_file_that_was_staged_now_is_found(place: SinkDirectory, data: st.DataObject) -> None:
    file, first = StagedFile(place, 0, 1), bytearray(view_of(CORNERS).buffer)
    file.append(TARGET, first, 7)
    file.append(TARGET._replace(partition=4), first, 8)
    file.append(TARGET, first, 9)
    staged = file.finish()
    assert staged is not None
    found = [(part.target.partition, list(part.batches(place))) for part in parts_of(place, staged)]
    assert found == [(3, [(first, 7), (first, 9)]), (4, [(first, 8)])]
    path = Path(place.file(staged.name))
    whole = bytearray(path.read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    with pytest.raises((CorruptSegment, CorruptRecord)):
        [list(part.batches(place)) for part in parts_of(place, staged)]
    path.unlink()


# In a commit


@pytest.fixture
def log(log: Log) -> Log:
    log.create_topic("orders")
    return log


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes() + b"x")])
def test_nothing_is_written_of_a_commit_of_which_a_file_is_damaged(log: Log, harm: Callable[[Path], None]) -> None:
    driver = Driver(log.path)
    messages = [driver.stage([b"a"]), driver.stage([b"b"])]
    assert messages[1].staged is not None
    harm(driver.directory / messages[1].staged.name)
    with pytest.raises(CorruptSegment):
        driver.commit(messages)
    driver.abort(messages)
    assert values(log) == [[]]
    driver.write([[b"a"], [b"b"]])
    assert values(log) == [[b"a", b"b"]]


def test_a_link_in_the_place_of_a_file_is_not_followed(log: Log, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    sinks = log.path / ".pylog/spark"
    sinks.mkdir()
    (sinks / QUERY).symlink_to(outside)
    with pytest.raises(PylogError, match="is a symbolic link, which pylog does not follow inside a log"):
        Driver(log.path).stage([b"a"])
    assert list(outside.iterdir()) == []


def test_what_lies_about_among_the_sinks_is_left_alone(log: Log) -> None:
    sinks = log.path / ".pylog/spark"
    (sinks / "notes").mkdir(parents=True)
    (sinks / "readme.txt").write_text("x")
    mine = Driver(log.path).directory / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("x")
    Driver(log.path).write([[b"a"]])
    Driver(log.path).write([[b"b"]], 1)
    assert values(log) == [[b"a", b"b"]]
    assert mine.exists()
    assert (sinks / "notes").is_dir()
