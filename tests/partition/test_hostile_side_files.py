"""The small files beside the segments, whatever they hold: a typed error, or what can be said in
the same bytes again."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.clock import SystemClock
from pylog.errors import CorruptSegment, PylogError
from pylog.manager.producer_ids import ProducerIds
from pylog.partition.commit_slots import HEAD, SLOT_BYTES, CommitState, latest, whole_file
from pylog.partition.epochs import LeaderEpochs
from pylog.partition.producers.state import ProducerStates
from pylog.segment import read_seal
from pylog.segment.kafka_checkpoint import read_checkpoint, read_offsets
from pylog.segment.naming import base_offsets, offset_of
from pylog.segment.seal import Seal, decode, encode
from pylog.storage import OsFileSystem
from tests.partition.logs import append_encoded, batch, everything, log_file, open_partition

FS = OsFileSystem()
INT64 = st.sampled_from([-(2**63), -2, -1, 0, 1, 2**31, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
INT32 = st.sampled_from([-(2**31), -2, -1, 0, 1, 2**31 - 1]) | st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
UINT32 = st.integers(0, 2**32 - 1)
WORD = st.integers(-(10**25), 10**25).map(str) | st.text(max_size=5) | st.just("0")
CHECKPOINT = st.builds(
    lambda count, lines: f"0\n{len(lines) if count is None else count}\n" + "".join(f"{line}\n" for line in lines),
    st.none() | WORD,
    st.lists(st.lists(WORD, max_size=4).map(" ".join), max_size=4),
).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=60)


@contextmanager
def file_of(data: bytes, name: str = "file") -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/{name}"
        Path(path).write_bytes(data)
        yield path


@pytest.mark.slow
@given(CHECKPOINT)
def test_checkpoints(data: bytes) -> None:
    with file_of(data, "leader-epoch-checkpoint") as path:
        directory = os.path.dirname(path)
        with suppress(PylogError):
            epochs = LeaderEpochs.load(FS, directory)
            assert all(0 <= epoch < 2**31 and 0 <= start < 2**63 for epoch, start in epochs.starts)
            epochs.save(FS, directory, durable=False)
            assert LeaderEpochs.load(FS, directory).starts == epochs.starts
        with suppress(PylogError):
            assert all(0 <= offset < 2**63 for offset in read_offsets(FS, path).values())
        for fields in (1, 2, 3):
            with suppress(PylogError):
                assert all(len(entry) == fields for entry in read_checkpoint(FS, path, fields))


@pytest.mark.parametrize(
    "entry", ["99999999999 0", "0 99999999999999999999", "-1 0", "0 -1", "1_0 0", "+1 0", "\u0663 0"]
)
def test_numbers_that_are_no_epochs_and_offsets_are_named(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(f"0\n1\n{entry}\n", encoding="utf-8")
    with pytest.raises(CorruptSegment, match="expected a number") as caught:
        LeaderEpochs.load(FS, str(tmp_path))
    assert caught.value.path == str(path)


@pytest.mark.slow
def test_a_checkpoint_of_empty_lines_is_refused_by_their_number(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"0\n5\n" + b"\n" * (1 << 20))
    with pytest.raises(CorruptSegment, match="1048576 lines"):
        read_checkpoint(FS, str(tmp_path / "c"), 3)


ENTRY = Struct(">qhiqiqiq")


@pytest.mark.slow
@given(st.lists(st.tuples(INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64), max_size=3), INT32 | st.none())
def test_snapshots(entries: list[tuple[int, ...]], count: int | None) -> None:
    body = (len(entries) if count is None else count).to_bytes(4, "big", signed=True)
    body += b"".join(ENTRY.pack(*entry) for entry in entries)
    data = b"\x00\x01" + crc32c.crc32c(body).to_bytes(4, "big") + body
    with suppress(PylogError):
        states = ProducerStates.decode(data, "path")
        assert ProducerStates.decode(states.encode(), "path").encode() == states.encode()
        for entry in states.entries.values():
            assert all(0 <= trace.first_offset <= trace.last_offset for trace in entry.batches)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    for read in (ProducerStates.decode, decode):
        with suppress(PylogError):
            read(data, "path")
    assert latest(data) is None
    with file_of(data) as path:
        ids = ProducerIds(FS, SystemClock(), path)
        with suppress(PylogError):
            assert 0 <= ids.next() < 2**63
    with file_of(data, f"{0:020d}.seal") as path, suppress(PylogError):
        read_seal(FS, os.path.dirname(path), 0, 10_000)


@given(st.integers(0, 2**80).map(str) | st.text("0123456789 _-+", max_size=30))
def test_producer_ids(text: str) -> None:
    with file_of(text.encode()) as path:
        ids = ProducerIds(FS, SystemClock(), path)
        with suppress(PylogError):
            assert ids.next() + 1000 <= 2**63 - 1


SLOT = Struct(">IIiqiiqqqqqI52x")
OLD_SLOT = Struct(">IIiqiiqqqII")


@given(
    st.tuples(UINT32, UINT32, INT32, INT64, INT32, INT32, INT64, INT64, INT64, INT64, INT64, UINT32)
    | st.tuples(UINT32, UINT32, INT32, *[st.integers(-1, 5)] * 8, UINT32)
)
def test_slots(fields: tuple[int, ...]) -> None:
    body = SLOT.pack(*fields)
    state = latest(HEAD + crc32c.crc32c(body).to_bytes(4, "big") + body + bytes(SLOT_BYTES))
    if state is not None:
        assert state.body() == body
        require_ruler(state)
        again = state.successor()
        assert latest(whole_file(again)) == again


@given(
    st.tuples(UINT32, UINT32, INT32, INT64, INT32, INT32, INT64, INT64, INT64, UINT32, UINT32)
    | st.tuples(UINT32, UINT32, INT32, *[st.integers(-1, 5)] * 6, st.integers(0, 5), UINT32)
)
def test_slots_of_version_1(fields: tuple[int, ...]) -> None:
    body = OLD_SLOT.pack(*fields)
    state = latest(crc32c.crc32c(body).to_bytes(4, "big") + body + bytes(64))
    if state is not None:
        assert state[:5] == fields[:5]
        assert state.least_timestamp_ms == (2**63 - 1 if state.written_end == 0 else -(2**63))
        require_ruler(state)
        assert latest(whole_file(state)) == state


def require_ruler(state: CommitState) -> None:
    assert (
        0 <= state.log_start_offset <= state.last_stable_offset <= state.high_watermark <= state.log_end_offset < 2**63
    )
    assert 0 <= state.durable_offset <= state.log_end_offset


@pytest.mark.slow
@given(
    st.integers(-5, 5) | INT64,
    INT64,
    INT64,
    st.lists(st.sampled_from([0, 61, 62, 122, 300, 2**32 - 1]) | UINT32, max_size=4),
    st.text(st.characters(codec="ascii"), max_size=90),
)
def test_seals(size: int, first: int, last: int, positions: list[int], home: str) -> None:
    from array import array

    data = encode(Seal(size, first, last, -1, -1, array("I", positions), array("I", positions), home=home))
    with suppress(PylogError):
        seal = decode(data, "path")
        assert list(seal.positions) == sorted(set(positions)) == positions
        assert max(positions, default=-61) + 61 <= seal.size_bytes
        assert (seal.home, len(home) <= 80) == (home, True)
        assert encode(seal) == data


@given(st.integers(0, 10**20 - 1))
def test_names_beyond_int64_are_no_segments(number: int) -> None:
    name = f"{number:020d}.log"
    assert offset_of(name, ".log") == (number if number <= 2**63 - 2**31 else None)
    assert base_offsets([name]) == ([number] if number <= 2**63 - 2**31 else [])


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two closed segments and an active one; the slots are lost."""
    directory = tmp_path_factory.mktemp("laid_out") / "t-0"
    partition = open_partition(directory)
    for offset in range(6):
        if offset in (2, 4):
            partition.log.roll()
        append_encoded(partition, batch(b"v%d" % offset, producer_id=7, epoch=0, sequence=offset))
    partition.close()
    (directory / ".commit").unlink()
    return directory


def damaged(directory: Path, damage: Callable[[Path], None]) -> list[list[tuple[int, bytes]]]:
    """What is read then in a directory of Kafka's, by a reader, and by a writer, unless it is an
    error."""
    read: list[list[tuple[int, bytes]]] = []
    with tempfile.TemporaryDirectory() as root:
        copy = Path(root) / "t-0"
        shutil.copytree(directory, copy)
        damage(copy)
        for is_kafka, read_only in ((True, True), (False, True), (False, False)):
            with suppress(PylogError):
                partition = open_partition(copy, is_kafka=is_kafka, read_only=read_only)
                found = everything(partition)
                assert found == [(offset, b"v%d" % offset) for offset, _ in found]
                read.append(found)
                if not read_only:
                    append_encoded(partition, batch(b"v6"))
                partition.close()
    return read


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=60)
def test_a_partition_whose_small_files_hold_anything(laid_out: Path, data: st.DataObject) -> None:
    names = sorted(path.name for path in laid_out.iterdir() if path.suffix != ".log" and path.name != ".lock")
    name = data.draw(st.sampled_from([*names, ".commit"]))
    content = data.draw(CHECKPOINT if name == "leader-epoch-checkpoint" else st.binary(max_size=200))
    damaged(laid_out, lambda directory: (directory / name).write_bytes(content) and None)


@given(st.sampled_from([2**31 - 1, 2**63 - 2**31, 2**63 - 1, 2**63, 10**20 - 1]), st.booleans())
@settings(max_examples=20)
def test_a_partition_with_a_segment_of_any_name(laid_out: Path, number: int, alone: bool) -> None:
    def damage(directory: Path) -> None:
        if alone:
            for path in directory.glob("*.log"):
                path.unlink()
        log_file(directory, number).touch()

    damaged(laid_out, damage)


@pytest.mark.parametrize("is_kafka", [True, False])
@pytest.mark.parametrize("base", [0, 2, 4])
def test_a_segment_that_is_a_link_to_nowhere_is_a_typed_error(
    laid_out: Path, tmp_path: Path, base: int, is_kafka: bool
) -> None:
    """It is listed, and cannot be opened: a FileNotFoundError came out of it where nothing else
    said what is published."""
    directory = Path(shutil.copytree(laid_out, tmp_path / "t-0"))
    log_file(directory, base).unlink()
    log_file(directory, base).symlink_to("nowhere")
    partition = open_partition(directory, is_kafka=is_kafka, read_only=True)
    partition.log.change_token()
    with pytest.raises(PylogError):
        everything(partition)
    partition.close()


def test_the_small_files_of_a_log_that_nobody_damaged_say_the_same_again(laid_out: Path) -> None:
    assert damaged(laid_out, lambda directory: None) == [[(offset, b"v%d" % offset) for offset in range(6)]] * 3
    assert LeaderEpochs.load(FS, str(laid_out)).starts == [(0, 0)]
    for path in laid_out.glob("*.seal"):
        assert encode(decode(path.read_bytes(), "path")) == path.read_bytes()
    for path in laid_out.glob("*.snapshot"):
        assert ProducerStates.decode(path.read_bytes(), "path").encode() == path.read_bytes()
