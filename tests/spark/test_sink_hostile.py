"""Staged files, intents and states that are not what was written: refused by name, before anything is appended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog import Log
from pylog.codec.checksum import crc32c
from pylog.errors import CorruptRecord, CorruptSegment, FormatVersionError, PylogError
from pylog.spark.sink.directory import SinkDirectory
from pylog.spark.sink.intents import Intent, Share, SinkState, read_intent, read_state, write_intent, write_state
from pylog.spark.sink.staging import Staged, Target, staged_batches
from pylog.storage import OsFileSystem
from pylog.testing import ManualClock
from tests.arrow.rows import CORNERS, view_of
from tests.spark.writing import QUERY, Driver, values

NAME = f"0-1-{32 * 'a'}.staged"
TARGET = Target("orders", "id", 3)
HEAD = b"PYLGSTGD" + pack(">h", 1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> SinkDirectory:
    root = tmp_path_factory.mktemp("log")
    made = SinkDirectory.of(OsFileSystem(), ManualClock(), str(root), QUERY)
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
    return [found.target for found in staged_batches(place, staged)]


def test_a_staged_file_is_what_the_layout_says(place: SinkDirectory) -> None:
    assert read(place, HEAD + partition() + batch() + batch()) == [TARGET, TARGET]
    assert read(place, HEAD) == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "10 bytes expected"),
        (b"PYLGSTGD" + pack(">h", 2), "does not begin as a staged file of this version"),
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


# Intents and states

INTENT = Intent(3, 1000, (Staged(NAME, 100, 7),), (Share(TARGET, 5, 10, 20),))


def test_intents_and_states_are_read_as_they_were_written(place: SinkDirectory) -> None:
    write_intent(place, INTENT)
    assert read_intent(place) == INTENT
    write_state(place, SinkState(3, 1000))
    assert read_state(place) == (3, 1000)


def signed(content: object) -> bytes:
    body = json.dumps(content).encode()
    return b"%08x\n" % crc32c(body) + body


GOOD: dict[str, Any] = {
    "version": 1,
    "batch_id": 3,
    "producer_id": 1000,
    "files": [[NAME, 100, 7]],
    "shares": [["orders", "id", 3, 5, 10, 20]],
}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"00000000\n",
        signed(GOOD)[:-1],
        signed([]),
        b"%08x\n" % crc32c(b"[" * 100_000) + b"[" * 100_000,
        *(signed({name: value for name, value in GOOD.items() if name != left_out}) for left_out in GOOD),
        *(
            signed({**GOOD, **wrong})
            for wrong in (
                {"version": 2},
                {"batch_id": -1},
                {"batch_id": True},
                {"producer_id": 2**63},
                {"files": 5},
                {"files": [["../../../x", 100, 7]]},
                {"files": [[NAME, 100]]},
                {"files": [[NAME, -1, 7]]},
                {"files": [[NAME, 100, 2**32]]},
                {"shares": [["orders", "id", 3, 5, 10]]},
                {"shares": [[None, "id", 3, 5, 10, 20]]},
                {"shares": [["orders", "id", -3, 5, 10, 20]]},
                {"shares": [["orders", "id", 3, 2**31, 10, 20]]},
                {"shares": [["orders", "id", 3, 5, 0, 20]]},
                {"shares": [["orders", "id", 3, 5, 10, -20]]},
            )
        ),
    ],
)
def test_an_intent_that_is_none_is_refused_by_name(place: SinkDirectory, data: bytes) -> None:
    Path(place.intent).write_bytes(data)
    with pytest.raises((CorruptSegment, FormatVersionError), match="intent"):
        read_intent(place)


@pytest.mark.parametrize("content", [{"version": 1}, {"version": 1, "batch_id": -1, "producer_id": 5}])
def test_a_state_that_is_none_is_refused_by_name(place: SinkDirectory, content: dict[str, Any]) -> None:
    Path(place.state).write_bytes(signed(content))
    with pytest.raises(CorruptSegment, match="state is damaged"):
        read_state(place)


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
    assert values(log) == [[]]
    assert not (driver.directory / "intent").exists()


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
    Driver(log.path).write([[b"a"]])
    (Driver(log.path).directory / "mine.txt").write_text("x")
    Driver(log.path).write([[b"b"]], 1)
    assert values(log) == [[b"a", b"b"]]
    assert (sinks / "notes").is_dir()
