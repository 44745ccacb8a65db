"""Whatever prefix of a file a loss of power leaves, exactly the whole batches in it are recovered.

The segment is 65,536 bytes, eight batches of different size. All 65,537 lengths are tried, on two
cores, each through the way a Log takes: open the partition's writer under another boot, let it
recover, append behind what was kept.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path

import pytest

from pylog.catalog import TopicConfig
from pylog.errors import CorruptSegment
from tests.partition.logs import (
    append_encoded,
    assert_indexes_follow_from_the_log,
    batch,
    batch_of_size,
    everything,
    file_of,
    log_file,
    open_partition,
    open_writer,
    values,
)
from tests.storage.filesystems import OtherBoot

SIZES = (61 + 20, 4096, 1000, 12_345, 8192, 16_384, 20_000, 3438)
SEGMENT_BYTES = 65_536
ENDS = tuple(accumulate(SIZES))
WORKERS = 2
NOBODY_READS = "pylog"


@pytest.fixture
def quiet() -> Iterator[None]:
    """Tens of thousands of warnings about cut tails help nobody."""
    logging.getLogger(NOBODY_READS).setLevel(logging.CRITICAL)
    yield
    logging.getLogger(NOBODY_READS).setLevel(logging.NOTSET)


def lay_out(directory: Path, *, durable: bool = False) -> tuple[bytes, bytes]:
    """A segment of exactly 64 KiB in the first boot; its bytes and those of the commit slots."""
    partition = open_partition(directory, OtherBoot(0))
    for number, size in enumerate(SIZES):
        append_encoded(partition, batch_of_size(size, number))
    if durable:
        partition.log.sync(len(SIZES))
    partition.close()
    content = log_file(directory).read_bytes()
    assert len(content) == SEGMENT_BYTES == ENDS[-1]
    return content, (directory / ".commit").read_bytes()


def recover_all(directory: Path, lengths: range | list[int], *, with_slots: bool, torn_indexes: bool) -> int:
    """Recover the prefix of each length and append behind it; how many were right."""
    logging.getLogger(NOBODY_READS).setLevel(logging.CRITICAL)
    content, slots = lay_out(directory)
    config = TopicConfig()
    filesystem = OtherBoot(1)
    more = bytes(batch(b"after the cut"))
    log, commit = log_file(directory), directory / ".commit"
    index, times = file_of(directory, 0, ".index"), file_of(directory, 0, ".timeindex")
    descriptor = os.open(log, os.O_RDWR)
    good = 0
    for length in lengths:
        os.pwrite(descriptor, content[:length], 0)
        os.ftruncate(descriptor, length)
        if with_slots:
            commit.write_bytes(slots)
        else:
            commit.unlink(missing_ok=True)
        if torn_indexes:
            index.write_bytes(bytes(length % 29))
            times.write_bytes(b"\x7f" * (length % 31))
        whole = bisect_right(ENDS, length)
        end = ENDS[whole - 1] if whole else 0
        writer = open_writer(directory, filesystem, config)
        state = writer.recovered(1000)
        seen = (state.log_end_offset, state.written_end, state.high_watermark, state.durable_offset)
        assert seen == (whole, end, whole, whole), f"prefix of {length} bytes: {seen}"
        assert os.pread(descriptor, SEGMENT_BYTES, 0) == content[:end], f"prefix of {length} bytes: other bytes kept"
        assert writer.append(bytearray(more), expected_offset=whole, timeout_ms=1000).base_offset == whole
        writer.close()
        assert os.fstat(descriptor).st_size == end + len(more)
        if torn_indexes:
            assert_indexes_follow_from_the_log(directory, config.index_interval_bytes)
        good += 1
    os.close(descriptor)
    return good


def recover_in_parallel(root: Path, lengths: list[int], *, with_slots: bool = True, torn_indexes: bool = False) -> int:
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("fork")) as pool:
        parts = [
            pool.submit(
                recover_all,
                root / f"{n}" / "t-0",
                lengths[n::WORKERS],
                with_slots=with_slots,
                torn_indexes=torn_indexes,
            )
            for n in range(WORKERS)
        ]
        return sum(part.result() for part in parts)


def near_the_ends(seed: int, more: int) -> list[int]:
    """The lengths around every end of a batch and of its header, and ``more`` others."""
    near = {end + at + step for end in (0, *ENDS) for at in (0, 12, 21, 61) for step in (-1, 0, 1)}
    return sorted(
        length
        for length in near | set(random.Random(seed).sample(range(SEGMENT_BYTES + 1), more))
        if 0 <= length <= SEGMENT_BYTES
    )


@pytest.mark.engine  # a minute of two cores
@pytest.mark.timeout(600)
def test_every_prefix_of_a_segment_recovers_exactly_its_whole_batches(tmpfs_dir: Path) -> None:
    good = recover_in_parallel(tmpfs_dir, list(range(SEGMENT_BYTES + 1)))
    print(f"{good} of {SEGMENT_BYTES + 1} prefixes recovered")
    assert good == 65_537


@pytest.mark.slow
def test_a_prefix_recovers_exactly_its_whole_batches(tmpfs_dir: Path, seed: int, quiet: None) -> None:
    lengths = near_the_ends(seed, 1000)
    assert recover_all(tmpfs_dir / "t-0", lengths, with_slots=True, torn_indexes=False) == len(lengths)


@pytest.mark.one_in(8)
def test_a_prefix_recovers_without_commit_slots_too(tmpfs_dir: Path, seed: int, quiet: None) -> None:
    lengths = near_the_ends(seed, 1000)
    assert recover_all(tmpfs_dir / "t-0", lengths, with_slots=False, torn_indexes=False) == len(lengths)


@pytest.mark.one_in(8)
def test_a_prefix_recovers_with_torn_indexes_too(tmpfs_dir: Path, seed: int, quiet: None) -> None:
    lengths = near_the_ends(seed, 1000)
    assert recover_all(tmpfs_dir / "t-0", lengths, with_slots=True, torn_indexes=True) == len(lengths)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("with_slots", "torn_indexes"), [(False, False), (True, True), (False, True)])
def test_every_prefix_recovers_whatever_else_is_lost(tmpfs_dir: Path, with_slots: bool, torn_indexes: bool) -> None:
    lengths = list(range(SEGMENT_BYTES + 1))
    assert recover_in_parallel(tmpfs_dir, lengths, with_slots=with_slots, torn_indexes=torn_indexes) == 65_537


@pytest.mark.parametrize("boot", [0, 1], ids=["same boot", "another boot"])
def test_a_prefix_below_the_durable_end_is_an_error_and_nothing_is_cut(
    tmpfs_dir: Path, seed: int, boot: int, quiet: None
) -> None:
    directory = tmpfs_dir / "t-0"
    content, slots = lay_out(directory, durable=True)
    lengths = [length for length in near_the_ends(seed, 100) if length < SEGMENT_BYTES and length not in (0, *ENDS)]
    for length in lengths:
        log_file(directory).write_bytes(content[:length])
        (directory / ".commit").write_bytes(slots)
        writer = open_writer(directory, OtherBoot(boot), TopicConfig())
        with pytest.raises(CorruptSegment) as caught:
            writer.recovered(1000)
        writer.close()
        assert caught.value.path == str(log_file(directory))
        assert log_file(directory).read_bytes() == content[:length], f"prefix of {length} bytes was changed"


@pytest.mark.parametrize("boot", [0, 1], ids=["same boot", "another boot"])
@pytest.mark.parametrize("length", [0, *ENDS[:-1]])
def test_a_prefix_that_ends_with_a_batch_below_the_durable_end_is_an_error(
    directory: Path, length: int, boot: int
) -> None:
    content, _ = lay_out(directory, durable=True)
    log_file(directory).write_bytes(content[:length])
    writer = open_writer(directory, OtherBoot(boot), TopicConfig())
    with pytest.raises(CorruptSegment):
        writer.recovered(1000)
    assert log_file(directory).read_bytes() == content[:length]


@pytest.mark.parametrize("name", ["00000000000000000000.index", "00000000000000000000.timeindex"])
@pytest.mark.parametrize("boot", [0, 1], ids=["same boot", "another boot"])
def test_every_prefix_of_an_index_of_the_active_segment_gives_the_same_reads(
    directory: Path, name: str, boot: int
) -> None:
    lay_out(directory)
    whole = (directory / name).read_bytes()
    for length in range(len(whole)):
        (directory / name).write_bytes(whole[:length])
        with_open = open_partition(directory, OtherBoot(boot))
        assert [offset for offset, _ in everything(with_open)] == list(range(len(SIZES))), f"{length} bytes of {name}"
        for offset in range(len(SIZES)):
            assert with_open.read(offset, max_records=1)[0].offset == offset
            found = with_open.offset_for_time(1_700_000_000_000 + offset)
            assert found is not None
            assert found.offset == offset
        with_open.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("boot", "kind"),
    [
        pytest.param(0, ".index", id="index, same boot"),
        pytest.param(1, ".index", id="index, another boot"),
        pytest.param(0, ".timeindex", id="time index, same boot"),
        pytest.param(1, ".timeindex", id="time index, another boot"),
        pytest.param(0, ".seal", id="seal, same boot"),
        pytest.param(1, ".seal", id="seal, another boot"),
    ],
)
def test_every_prefix_of_a_side_file_of_a_closed_segment_gives_the_same_reads(
    tmp_path: Path, boot: int, kind: str
) -> None:
    directory = tmp_path / "t-0"
    options = {"segment_bytes": 8192, "index_interval_bytes": 1024}
    partition = open_partition(directory, OtherBoot(0), **options)
    for number in range(12):
        append_encoded(partition, batch_of_size(1024, number))
    partition.close()
    path = file_of(directory, 0, kind)
    whole = path.read_bytes()
    assert whole
    shutil.copytree(directory, tmp_path / "kept")
    for length in range(len(whole)):
        shutil.rmtree(directory)
        shutil.copytree(tmp_path / "kept", directory)
        path.write_bytes(whole[:length])
        partition = open_partition(directory, OtherBoot(boot), **options)
        for offset in range(12):
            assert partition.read(offset, max_records=1)[0].offset == offset
            found = partition.offset_for_time(1_700_000_000_000 + offset)
            assert found is not None, f"{length} bytes of {kind}: no record at or after that of offset {offset}"
            assert found.offset == offset
        partition.close()


@pytest.mark.slow
@pytest.mark.parametrize("boot", [0, 1], ids=["same boot", "another boot"])
def test_every_prefix_of_the_commit_slots_loses_nothing_that_was_published(directory: Path, boot: int) -> None:
    _, slots = lay_out(directory)
    for length in range(len(slots) + 1):
        (directory / ".commit").write_bytes(slots[:length])
        partition = open_partition(directory, OtherBoot(boot))
        assert len(everything(partition)) == len(SIZES), f"{length} bytes of the commit slots"
        partition.close()


def test_a_record_appended_after_the_cut_is_read_back(directory: Path) -> None:
    content, _ = lay_out(directory)
    log_file(directory).write_bytes(content[: ENDS[2] + 100])
    partition = open_partition(directory, OtherBoot(1))
    assert partition.append(batch(b"new")).base_offset == 3
    assert values(partition.read(3)) == ["new"]
    assert partition.latest_offset == 4
