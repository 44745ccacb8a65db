"""The state file: what is published is read; torn, foreign and hostile slots are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.testing.machine import Machine
from pylog.transaction.state import EPOCH_MAX, OWNER_BYTES, Status, TransactionState
from pylog.transaction.state_file import FILE_BYTES, SLOT_BYTES, StateFile
from tests.storage.filesystems import ReadsInTurn

BOOT = 77
STATES = st.builds(
    TransactionState,
    st.integers(0, 2**63 - 1),
    st.integers(0, EPOCH_MAX),
    st.sampled_from(Status),
    st.binary(min_size=OWNER_BYTES, max_size=OWNER_BYTES),
    st.integers(0, 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
)


class Bench:
    """One file, and the bytes in it."""

    def __init__(self) -> None:
        self.filesystem = Machine().process().filesystem
        self.writer = self.file()

    def file(self, boot: int = BOOT) -> StateFile:
        return StateFile(self.filesystem.open_appendable("/state"), boot)

    def data(self) -> bytes:
        return self.filesystem.open_readable("/state").pread(FILE_BYTES + 1, 0)

    def put(self, data: bytes) -> None:
        file = self.filesystem.open_appendable("/state")
        file.truncate(0)
        file.pwrite(data, 0)


@pytest.mark.slow
@given(st.lists(STATES, min_size=1, max_size=6))
def test_the_last_state_published_is_read_by_this_and_other_processes(states: list[TransactionState]) -> None:
    bench = Bench()
    reader = bench.file()
    assert reader.read() is None
    for state in states:
        assert bench.writer.publish(state) == state
        assert bench.writer.read() == reader.read() == bench.file().read() == state
    assert len(bench.data()) == FILE_BYTES


@pytest.mark.slow
@given(st.lists(STATES, min_size=1, max_size=4), st.binary(max_size=FILE_BYTES))
def test_a_publisher_knows_what_is_in_the_file_without_reading_it(states: list[TransactionState], there: bytes) -> None:
    bench = Bench()
    bench.put(there)
    for state in states:
        bench.writer.publish(state)
        assert bench.writer._known.raw == bench.data()
        assert bench.writer._known.sequence == bench.file()._look().sequence


@pytest.mark.slow
@given(st.lists(STATES, min_size=2, max_size=4), st.integers(0, SLOT_BYTES - 1))
def test_a_torn_publication_leaves_the_state_before(states: list[TransactionState], written: int) -> None:
    bench = Bench()
    for state in states[:-1]:
        bench.writer.publish(state)
    before = bench.data().ljust(FILE_BYTES, b"\0")
    bench.writer.publish(states[-1])
    after = bench.data().ljust(FILE_BYTES, b"\0")
    at = SLOT_BYTES * (before[:SLOT_BYTES] == after[:SLOT_BYTES])
    torn = before[:at] + after[at : at + written] + before[at + written :]
    bench.put(torn)
    found = bench.file().read()
    assert found == states[-2] or (found == states[-1] and torn == after)
    again = bench.file()
    again.publish(states[0])
    assert bench.file().read() == states[0]


@given(STATES, STATES)
def test_a_state_of_another_boot_counts_for_nothing_and_publishing_goes_on(
    state: TransactionState, later: TransactionState
) -> None:
    bench = Bench()
    bench.writer.publish(state)
    bench.writer.publish(state)
    rebooted = bench.file(BOOT + 1)
    assert rebooted.read() is None
    rebooted.publish(later)
    assert rebooted.read() == later
    assert bench.file(BOOT).read() is None


@given(st.binary(max_size=2 * FILE_BYTES))
def test_hostile_bytes_are_no_state(data: bytes) -> None:
    bench = Bench()
    bench.put(data)
    assert bench.file().read() is None
    assert bench.file().publish(TransactionState(1, 1, Status.ONGOING, b"o" * OWNER_BYTES, 1, 1)) == bench.file().read()


def test_slots_that_read_torn_are_read_again() -> None:
    bench = Bench()
    state = TransactionState(1, 1, Status.ONGOING, b"o" * OWNER_BYTES, 1, 1)
    for _ in range(2):
        bench.writer.publish(state)
    whole = bench.data()
    torn = bytes([whole[0] ^ 1]) + whole[1:SLOT_BYTES] + bytes([whole[SLOT_BYTES] ^ 1]) + whole[SLOT_BYTES + 1 :]
    file = ReadsInTurn(torn, torn, whole)
    assert StateFile(file, BOOT).read() == state
    assert file.reads == [whole]


@given(STATES, st.integers(0, SLOT_BYTES - 1), st.integers(1, 255))
def test_no_changed_byte_of_a_slot_is_believed(state: TransactionState, at: int, change: int) -> None:
    bench = Bench()
    bench.writer.publish(state)
    data = bytearray(bench.data())
    data[SLOT_BYTES + at] ^= change
    bench.put(bytes(data))
    assert bench.file().read() is None
