"""The state file: whoever reads sees one state or the next, whatever a writer's death or damage
leaves."""

from __future__ import annotations

import gc
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import CorruptSegment, StorageError
from pylog.group import state_file
from pylog.group.state import Group, GroupTopic, Member
from pylog.group.state_file import (
    SLOT_BYTES,
    SLOTS,
    SLOTS_BYTES,
    GroupDecoder,
    StateFile,
    encode_group,
)
from pylog.model import TopicPartition
from pylog.storage import OsFileSystem, ReadableFile

FS = OsFileSystem()
BOOT = 7

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(0, 2**31)
partition = st.builds(TopicPartition, st.sampled_from(["a", "b", "ü"]), st.integers(0, 99))
ids = st.binary(min_size=16, max_size=16).map(bytes.hex)
members = st.builds(
    Member, ids, names, names, names, numbers, st.integers(0, 100), numbers, numbers, numbers, st.frozensets(names),
    st.dictionaries(partition, st.integers(0, 5)), st.frozensets(partition),
)  # fmt: skip
groups = st.builds(
    lambda generation, some, topics, starts: Group(generation, "range", {m.id: m for m in some}, topics, starts),
    st.integers(5, 2**31), st.lists(members, max_size=4), st.dictionaries(names, st.builds(GroupTopic, names, numbers)),
    st.dictionaries(st.builds(TopicPartition, names, numbers), numbers),
)  # fmt: skip


def opened(directory: Path, boot: int = BOOT) -> StateFile:
    return StateFile(FS.open_appendable(f"{directory}/state"), boot)


@pytest.mark.slow
@given(groups)
def test_a_group_comes_back(group: Group) -> None:
    assert GroupDecoder().decode(encode_group(group)) == group


@pytest.mark.slow
@given(groups, st.lists(st.tuples(st.integers(0, 3), members), max_size=6))
def test_one_group_after_another_comes_back(group: Group, changes: list[tuple[int, Member]]) -> None:
    """Members leave, and others come, or change, in their place."""
    decoder = GroupDecoder()
    for at, member in changes:
        assert decoder.decode(encode_group(group)) == group
        some = list(group.members.values())
        some[at : at + 1] = [member, member._replace(id=some[at].id)] if at < len(some) else [member]
        group = group._replace(members={m.id: m for m in some})
    assert decoder.decode(encode_group(group)) == group
    assert list(decoder.decode(encode_group(group)).members) == list(group.members)


def test_what_a_known_member_has_now_is_what_counts() -> None:
    member = Member("0" * 32, "", "", "h", 1, 1, 0, 1, 1, owned={TopicPartition("t", 0): 1})
    decoder = GroupDecoder()
    for now in (member, member._replace(owned={}), member):
        assert decoder.decode(encode_group(Group(1, "range", {now.id: now}))).members == {now.id: now}


def test_members_that_did_not_change_are_not_built_again() -> None:
    decoder = GroupDecoder()
    one, two = (Member(str(number) * 32, "", "", "h", 1, number, 0, 1, 1) for number in (1, 2))
    first = decoder.decode(encode_group(Group(1, "range", {m.id: m for m in (one, two)})))
    two = two._replace(owned={TopicPartition("t", 0): 1})
    second = decoder.decode(encode_group(Group(2, "range", {m.id: m for m in (one, two)})))
    assert second.members == {m.id: m for m in (one, two)}
    assert second.members[one.id] is first.members[one.id]


def test_members_of_one_process_decode_a_state_once(tmp_path: Path) -> None:
    writer, one, other, elsewhere = opened(tmp_path), opened(tmp_path), opened(tmp_path), opened(tmp_path, BOOT + 1)
    for generation in range(4):
        writer.publish(group_of(generation))
        if generation != 2:  # which one of them does not see
            assert one.read() == group_of(generation)
        assert other.read() == group_of(generation)
        assert one.read() is other.read()
        assert elsewhere.read() == Group(generation)  # a state of another boot has no members


def test_what_readers_share_goes_with_them(tmp_path: Path) -> None:
    def decoders() -> int:
        gc.collect()
        return sum(isinstance(thing, GroupDecoder) for thing in gc.get_objects())

    before = decoders()
    files = [opened(tmp_path) for _ in range(3)]
    assert decoders() == before + 1
    for file in files:
        file.close()
    del file, files
    assert decoders() == before


def group_of(generation: int, size: int = 1) -> Group:
    return Group(generation, "", {}, {"t" * size: GroupTopic("id", 1)}, {})


def test_others_see_every_state_that_is_published(tmp_path: Path) -> None:
    writer, reader = opened(tmp_path), opened(tmp_path)
    assert reader.read() == Group()
    for generation in range(20):
        writer.publish(group_of(generation, size=1 + generation * 37 % 11))
        assert reader.raw() != reader.known
        assert reader.read() == writer.read() == group_of(generation, size=1 + generation * 37 % 11)
        assert reader.raw() == reader.known
    assert (tmp_path / "state").stat().st_size < SLOTS_BYTES + 4 * len(encode_group(group_of(1, 11)))


@given(st.lists(st.integers(1, 400), min_size=2, max_size=12))
def test_a_writer_that_dies_before_its_slot_has_changed_nothing(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("group")
    writer = opened(directory)
    for generation, size in enumerate(sizes):
        before = writer.raw()
        writer.publish(group_of(generation, size))
        if generation:
            with (directory / "state").open("r+b") as file:
                file.write(before)  # as if the last slot had not been written
            assert opened(directory).read() == group_of(generation - 1, sizes[generation - 1])
            with (directory / "state").open("r+b") as file:
                file.write(writer.known)


class Between:
    """A file that calls ``work`` between a read of the slots and that of the state."""

    def __init__(self, file: ReadableFile, work: Callable[[], object]) -> None:
        self._file = file
        self.work = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pread(self, size: int, position: int) -> bytes:
        if position >= SLOTS_BYTES:
            self.work()
        return self._file.pread(size, position)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_reader_whose_state_is_overwritten_during_its_read_reads_again(tmp_path: Path, times: int) -> None:
    writer, numbers = opened(tmp_path), itertools.count(100)
    writer.publish(group_of(next(numbers)))

    def publish() -> None:
        if next(left, None) is not None:
            for _ in range(2):
                writer.publish(group_of(next(numbers)))

    left = iter(range(times))
    reader = StateFile(cast(ReadableFile, Between(FS.open_readable(f"{tmp_path}/state"), publish)), BOOT)
    assert reader.read() == writer.read() == group_of(100 + 2 * times)


def test_a_reader_that_never_gets_a_whole_state_says_so_and_takes_nobody_for_gone(tmp_path: Path) -> None:
    """An empty group would be taken for one whose members are gone, and read no more until the next
    publication."""
    writer, numbers = opened(tmp_path), itertools.count(100)

    def publish() -> None:
        for _ in range(2):
            writer.publish(group_of(next(numbers)))

    publish()
    file = Between(FS.open_readable(f"{tmp_path}/state"), publish)
    reader = StateFile(cast(ReadableFile, file), BOOT)
    with pytest.raises(StorageError, match="published twice during each of 100 reads"):
        reader.read()
    file.work = bool
    assert reader.read() == writer.read()


def test_nobody_is_in_a_group_of_another_boot_and_generations_go_on(tmp_path: Path) -> None:
    opened(tmp_path).publish(group_of(41))
    after = opened(tmp_path, boot=BOOT + 1)
    assert after.read() == Group(41)
    after.publish(group_of(42))
    assert opened(tmp_path, boot=BOOT + 1).read() == group_of(42)


@pytest.mark.parametrize("at", [0, 5, SLOT_BYTES + 1, SLOTS_BYTES + 3])
def test_a_flipped_bit_leaves_the_state_before_or_an_empty_group(tmp_path: Path, at: int) -> None:
    writer = opened(tmp_path)
    for generation in (1, 2, 3):
        writer.publish(group_of(generation))
    data = bytearray((tmp_path / "state").read_bytes())
    data[at] ^= 0x40
    (tmp_path / "state").write_bytes(data)
    found = opened(tmp_path).read()
    assert found.generation in (2, 3)
    assert found in (group_of(2), group_of(3), Group(2), Group(3))


def test_a_generation_that_none_can_follow_is_damage(tmp_path: Path) -> None:
    """The next one fits into no slot, so that the group could publish nothing any more."""
    opened(tmp_path).publish(group_of(2**63 - 1))
    after = opened(tmp_path)
    assert after.read() == Group()
    after.publish(group_of(1))
    assert opened(tmp_path).read() == group_of(1)


@given(st.binary(max_size=300))
def test_bytes_without_their_checksum_are_no_slots(data: bytes) -> None:
    assert SLOTS.latest(data) is None


@given(
    st.sampled_from(
        [
            b"", b"null", b"[]", b"{}", b"\xff", b'{"generation": 1e400}', b"[" * 100_000,
            b'{"generation":1,"assignor":"","topics":{"a":[1,2]},"members":[],"starts":[]}',
            b'{"generation":-1,"assignor":"","topics":{},"members":[],"starts":[]}',
            b'{"generation":true,"assignor":"","topics":{},"members":[],"starts":[]}',
            b'{"generation":9223372036854775807,"assignor":"","topics":{},"members":[],"starts":[]}',
            b'{"generation":1,"assignor":[],"topics":{},"members":[],"starts":[]}',
            b'{"generation":1,"assignor":"x","topics":{},"members":[{}],"starts":[]}',
            b'{"generation":1,"assignor":"x","topics":{},"members":5,"starts":[]}',
            b'{"generation":1,"assignor":"x","topics":{},"members":[],"starts":[["a",0]]}',
        ]
    )
    | st.binary(max_size=50)
)  # fmt: skip
def test_what_is_no_group_is_named(data: bytes) -> None:
    with pytest.raises(CorruptSegment, match="state of a group"):
        GroupDecoder().decode(data)


@pytest.mark.parametrize("id_", ["../../../x", "", "A" * 32, "0" * 31, "0" * 32 + "/..", 7, None])
def test_a_members_id_that_could_lead_elsewhere_is_none(id_: object) -> None:
    """It is a file's name, which is asked about and removed."""
    group = Group(1, "range", {"0" * 32: Member("0" * 32, "", "", "h", 1, 1, 0, 1, 1)}, {}, {})
    data = json.loads(encode_group(group))
    data["members"][0]["id"] = id_
    with pytest.raises(CorruptSegment, match="no member's id"):
        GroupDecoder().decode(json.dumps(data).encode())


@pytest.mark.parametrize("since", [[], [1, 2], [2], [-1], [True], 1, None])
def test_each_partition_of_a_member_has_the_generation_in_which_it_was_taken(since: object) -> None:
    one = Member("0" * 32, "", "", "h", 1, 1, 0, 1, 1, owned={TopicPartition("t", 0): 1})
    data = json.loads(encode_group(Group(1, "range", {one.id: one}, {}, {})))
    data["members"][0]["since"] = since
    with pytest.raises(CorruptSegment, match="state of a group"):
        GroupDecoder().decode(json.dumps(data).encode())


def test_a_state_that_others_could_not_read_is_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(tmp_path)
    writer.publish(Group(1))
    monkeypatch.setattr(state_file, "STATE_LIMIT_BYTES", 100)
    with pytest.raises(StorageError, match="at most 100 can be read; use fewer members"):
        writer.publish(Group(2, topics={"t" * 100: GroupTopic("id", 1)}))
    assert writer.read() == opened(tmp_path).read() == Group(1)
