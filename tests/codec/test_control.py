"""Transaction markers and other control batches."""

from __future__ import annotations

import struct

import pytest

from pylog.codec.batch import BatchView, check_header, read_header, stamp
from pylog.codec.control import ControlType, Marker, build_marker, read_marker
from pylog.errors import ConfigError, CorruptRecord
from tests.codec.reference import TS0, Raw, batch_of, payload_of

COMMIT = (
    "000000000000000300000042ffffffff02274bf8f80030000000000000018bcfe568090000018bcfe568090000000000000fa00002ffffffff"
    "000000012000000008000000010c00000000000700"
)


def control_batch(key: bytes | None, value: bytes | None, attributes: int = 0x20, count: int = 1) -> BatchView:
    payload = payload_of(Raw(0, i, key, value) for i in range(count))
    batch = batch_of(payload, count, attributes=attributes)
    return BatchView(batch, read_header(batch))


def test_the_golden_commit_marker_is_built_byte_for_byte() -> None:
    batch = build_marker(ControlType.COMMIT, 4000, 2, 7, TS0 + 9)
    stamp(batch, 3, -1)
    assert batch.hex() == COMMIT
    header = read_header(batch)
    assert check_header(header) is None
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
@pytest.mark.parametrize("coordinator_epoch", [0, 7, 2**31 - 1])
def test_a_marker_is_read_back(kind: ControlType, coordinator_epoch: int) -> None:
    batch = build_marker(kind, 4000, 2, coordinator_epoch, TS0)
    view = BatchView(batch, read_header(batch))
    view.check_crc()
    assert read_marker(view) == Marker(kind, coordinator_epoch)


@pytest.mark.parametrize("kind", [kind for kind in ControlType if kind not in (ControlType.COMMIT, ControlType.ABORT)])
def test_only_commit_and_abort_end_a_transaction(kind: ControlType) -> None:
    with pytest.raises(ConfigError):
        build_marker(kind, 4000, 2, 7, TS0)


@pytest.mark.parametrize("producer", [(-1, 0), (-1, -1), (5, -1), (-2, 3)])
def test_a_marker_belongs_to_a_producer(producer: tuple[int, int]) -> None:
    with pytest.raises(ConfigError):
        build_marker(ControlType.COMMIT, *producer, 7, TS0)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (2, ControlType.LEADER_CHANGE),
        (6, ControlType.KRAFT_VOTERS),
        (7, ControlType.UNKNOWN),
        (-1, ControlType.UNKNOWN),
    ],
)
def test_other_control_records_have_a_type_and_no_epoch(number: int, kind: ControlType) -> None:
    assert read_marker(control_batch(struct.pack(">hh", 0, number), b"anything")) == Marker(kind, -1)


def test_later_versions_are_read_as_the_highest_known() -> None:
    view = control_batch(struct.pack(">hhq", 9, 1, 5), struct.pack(">hiq", 9, 7, 5))
    assert read_marker(view) == Marker(ControlType.COMMIT, 7)


def test_of_several_control_records_the_first_counts() -> None:
    assert read_marker(control_batch(struct.pack(">hh", 0, 2), b"", count=3)).type is ControlType.LEADER_CHANGE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, struct.pack(">hi", 0, 7)),
        (b"", struct.pack(">hi", 0, 7)),
        (b"\0\0\0", struct.pack(">hi", 0, 7)),
        (struct.pack(">hh", -1, 1), struct.pack(">hi", 0, 7)),
        (struct.pack(">hh", 0, 1), None),
        (struct.pack(">hh", 0, 1), b""),
        (struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 7)[:-1]),
        (struct.pack(">hh", 0, 1), struct.pack(">hi", -1, 7)),
    ],
    ids=repr,
)
def test_a_control_record_too_short_or_of_a_negative_version_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecord, match="offset 0"):
        read_marker(control_batch(key, value))


def test_a_batch_of_data_and_an_emptied_batch_hold_no_marker() -> None:
    for view in (control_batch(b"\0\0\0\1", bytes(6), attributes=0), control_batch(None, None, count=0)):
        with pytest.raises(CorruptRecord, match="no control record"):
            read_marker(view)
