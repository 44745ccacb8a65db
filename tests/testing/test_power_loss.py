"""What a loss of power leaves of a disk is exactly what it may leave: small cases by hand, large
ones by a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.storage import AppendableFile, FileSystem
from pylog.testing.machine import Image, Machine
from pylog.testing.machine.images import TAILS, images, pending_units

SECTOR = 4
Contents = dict[str, bytes | None]


def machine_with(**files: bytes) -> Machine:
    """A machine whose files are durable, by name and by content."""
    machine = Machine()
    filesystem = machine.process().filesystem
    for name, content in files.items():
        write(filesystem, name, content).sync()
    filesystem.sync_directory("/")
    return machine


def write(filesystem: FileSystem, name: str, data: bytes, position: int = 0) -> AppendableFile:
    file = filesystem.open_appendable(f"/{name}")
    file.pwrite(data, position)
    return file


def left(machine: Machine) -> list[Contents]:
    """What the losses of power leave, each once."""
    found: list[Contents] = []
    for after in machine.power_losses(sector_bytes=SECTOR):
        contents = after.disk.contents()
        if contents not in found:
            found.append(contents)
    return found


def files(*contents: bytes, name: str = "/f") -> list[Contents]:
    return [{name: content} for content in contents]


def same(found: Iterable[Contents], expected: Iterable[Contents]) -> bool:
    def key(contents: Contents) -> list[tuple[str, bytes]]:
        return sorted((path, b"directory" if data is None else data) for path, data in contents.items())

    return sorted(map(key, found)) == sorted(map(key, expected))


# By hand


def test_what_is_synced_has_one_image() -> None:
    machine = machine_with(f=b"AAAA")
    assert left(machine) == files(b"AAAA")
    assert len(list(machine.power_losses())) == 1


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        ([(1, b"x")], [b"AAAABBBB", b"AxAABBBB"]),
        ([(1, b"x"), (2, b"y")], [b"AAAABBBB", b"AxAABBBB", b"AxyABBBB"]),
        ([(1, b"x"), (5, b"y")], [b"AAAABBBB", b"AxAABBBB", b"AAAAByBB", b"AxAAByBB"]),
        ([(3, b"xy")], [b"AAAABBBB", b"AAAxBBBB", b"AAAAyBBB", b"AAAxyBBB"]),
        ([(0, b"xxxx"), (0, b"yyyy"), (0, b"AAAA")], [b"AAAABBBB", b"xxxxBBBB", b"yyyyBBBB"]),
    ],
    ids=["one write", "two of one sector", "two of two sectors", "one over two sectors", "one sector, back again"],
)
def test_a_sector_is_any_of_its_versions_and_no_mixture(writes: list[tuple[int, bytes]], expected: list[bytes]) -> None:
    machine = machine_with(f=b"AAAABBBB")
    filesystem = machine.process().filesystem
    for position, data in writes:
        write(filesystem, "f", data, position)
    assert same(left(machine), files(*expected))


def test_a_cut_is_lost_or_kept() -> None:
    machine = machine_with(f=b"AAAABBBB")
    machine.process().filesystem.open_appendable("/f").truncate(2)
    assert same(left(machine), files(b"AAAABBBB", b"AA"))


def test_a_file_that_was_made_longer_reads_as_zeros_and_never_as_noise() -> None:
    machine = machine_with(f=b"AA")
    machine.process().filesystem.open_appendable("/f").truncate(6)
    assert same(left(machine), files(b"AA", b"AA\0\0\0\0"))


def test_what_was_never_written_reads_as_zeros() -> None:
    machine = machine_with(f=b"AAAA")
    write(machine.process().filesystem, "f", b"x", 8)
    for tail in TAILS[:4]:
        assert machine.after_power_loss(Image((1,), tail), sector_bytes=SECTOR).disk.contents() == {
            "/f": b"AAAA\0\0\0\0x"
        }


def test_a_rename_is_lost_or_kept() -> None:
    machine = machine_with(f=b"AAAA")
    machine.process().filesystem.replace("/f", "/g")
    assert same(left(machine), [{"/f": b"AAAA"}, {"/g": b"AAAA"}])


def test_names_of_one_directory_are_independent_of_one_another() -> None:
    machine = machine_with(f=b"AAAA")
    filesystem = machine.process().filesystem
    filesystem.make_directory("/d")
    filesystem.remove("/f")
    assert same(left(machine), [{}, {"/d": None}, {"/f": b"AAAA"}, {"/d": None, "/f": b"AAAA"}])


def test_a_rename_into_another_directory_may_leave_both_names_or_none() -> None:
    machine = machine_with(f=b"AAAA")
    filesystem = machine.process().filesystem
    filesystem.make_directory("/d")
    filesystem.sync_directory("/")
    filesystem.replace("/f", "/d/f")
    both: list[Contents] = [{"/d": None, "/f": b"AAAA"}, {"/d": None, "/d/f": b"AAAA"}]
    assert same(left(machine), [*both, both[0] | both[1], {"/d": None}])


def test_a_removal_is_lost_or_kept() -> None:
    machine = machine_with(f=b"AAAA")
    machine.process().filesystem.remove("/f")
    assert same(left(machine), [{"/f": b"AAAA"}, {}])


def test_a_file_replaced_without_a_sync_may_have_any_content_under_either_name() -> None:
    machine = machine_with(f=b"old!")
    filesystem = machine.process().filesystem
    write(filesystem, "f.tmp", b"new")
    filesystem.replace("/f.tmp", "/f")
    found = left(machine)
    new = {data for contents in found for data in contents.values() if data not in (None, b"old!")}
    (noise,) = new - {b"", b"new", b"\0\0\0", b"old"}  # what was lost reads as zeros, noise, or what the old file left
    assert noise is not None
    assert len(noise) == 3
    assert len(new) == 5
    expected: list[Contents] = [{"/f": b"old!"}]
    for content in new:
        expected += [{"/f": content}, {"/f": b"old!", "/f.tmp": content}]
    assert same(found, expected)


def test_a_file_replaced_as_it_should_be_is_the_old_or_the_new() -> None:
    machine = machine_with(f=b"old!")
    filesystem = machine.process().filesystem
    write(filesystem, "f.tmp", b"new!").sync()
    filesystem.replace("/f.tmp", "/f")
    assert same(left(machine), [*files(b"old!", b"new!"), {"/f": b"old!", "/f.tmp": b"new!"}])
    filesystem.sync_directory("/")
    assert left(machine) == files(b"new!")


@pytest.mark.parametrize(
    ("kept", "natural", "zeros", "stale"),
    [
        ((0, 0), b"AAAA", b"AAAA\0\0\0\0\0\0", b"AAAAssssss"),
        ((1, 0), b"AAAABBBB", b"AAAABBBB\0\0", b"AAAABBBBss"),
        ((0, 1), b"AAAA\0\0\0\0CC", b"AAAA\0\0\0\0CC", b"AAAAssssCC"),
        ((1, 1), b"AAAABBBBCC", b"AAAABBBBCC", b"AAAABBBBCC"),
    ],
)
def test_the_end_of_a_file_that_grew(kept: tuple[int, int], natural: bytes, zeros: bytes, stale: bytes) -> None:
    machine = machine_with(f=b"AAAA", g=b"s" * 99)
    filesystem = machine.process().filesystem
    filesystem.remove("/g")
    filesystem.sync_directory("/")
    write(filesystem, "f", b"BBBBCC", 4)
    found = {
        tail: machine.after_power_loss(Image(kept, tail), sector_bytes=SECTOR).disk.contents()["/f"] for tail in TAILS
    }
    noise = found.pop("noise")
    assert found == {"natural": natural, "zeros": zeros, "stale": stale, "old size": b"AAAA"}
    assert noise is not None
    assert [a == b for a, b in zip(noise, zeros, strict=True)] == [a == b for a, b in zip(stale, zeros, strict=True)]
    every = [Image((first, second), tail) for first in (0, 1) for second in (0, 1) for tail in TAILS]
    different = {machine.after_power_loss(image, sector_bytes=SECTOR).disk.contents()["/f"] for image in every}
    given = [image.disk.contents()["/f"] for image in machine.power_losses(sector_bytes=SECTOR)]
    assert set(given) == different, "each once"
    assert len(given) == len(different)


def test_a_file_that_was_cut_and_grew_again_has_an_uncertain_end_too() -> None:
    machine = machine_with(f=b"AAAABBBB")
    file = machine.process().filesystem.open_appendable("/f")
    file.truncate(4)
    file.pwrite(b"CC", 4)
    found = left(machine)
    known = files(b"AAAABBBB", b"AAAACCBB", b"AAAA", b"AAAACC", b"AAAA\0\0")
    (noise,) = (contents["/f"] for contents in found if contents not in known)
    assert noise is not None
    assert len(noise) == 6
    assert same(found, [*known, {"/f": noise}])


def test_the_content_of_a_removed_file_is_found_at_the_end_of_another() -> None:
    machine = machine_with(secret=b"secret")
    filesystem = machine.process().filesystem
    filesystem.remove("/secret")
    filesystem.sync_directory("/")
    write(filesystem, "f", b"......")
    assert {"/f": b"secret"} in left(machine)


# Names and bytes


def test_sync_makes_the_bytes_durable_and_not_the_name() -> None:
    machine = Machine()
    write(machine.process().filesystem, "f", b"AAAA").sync()
    assert same(left(machine), [{}, {"/f": b"AAAA"}])


def test_sync_directory_makes_the_name_durable_and_not_the_bytes() -> None:
    machine = Machine()
    filesystem = machine.process().filesystem
    write(filesystem, "f", b"AAAA")
    filesystem.sync_directory("/")
    found = left(machine)
    assert {"/f": b""} in found
    assert {"/f": b"AAAA"} in found
    assert all(list(contents) == ["/f"] for contents in found)


def test_sync_directory_says_nothing_of_the_directory_above_or_below() -> None:
    machine = Machine()
    filesystem = machine.process().filesystem
    filesystem.make_directory("/a")
    filesystem.make_directory("/a/b")
    filesystem.sync_directory("/a")
    assert same(left(machine), [{}, {"/a": None, "/a/b": None}])
    filesystem.sync_directory("/")
    write(filesystem, "a/b/f", b"")
    assert same(left(machine), [{"/a": None, "/a/b": None}, {"/a": None, "/a/b": None, "/a/b/f": b""}])


# How many


def many_sectors(count: int) -> Machine:
    machine = machine_with(f=b"A" * SECTOR * count)
    filesystem = machine.process().filesystem
    for number in range(count):
        write(filesystem, "f", b"x", number * SECTOR)
    return machine


@pytest.mark.slow
def test_up_to_4096_combinations_all_are_given() -> None:
    found = [after.disk.contents()["/f"] for after in many_sectors(12).power_losses(sector_bytes=SECTOR)]
    assert len(found) == len(set(found)) == 4096


def test_of_more_combinations_a_choice_is_given() -> None:
    count = 13
    machine = many_sectors(count)
    found = [image.kept for image in images(pending_units(machine.disk, SECTOR), Random(1), samples=20)]
    kept = set(found)
    assert len(kept) < 4096
    ones, zeros = (1,) * count, (0,) * count
    assert {ones[:n] + zeros[n:] for n in range(count + 1)} <= kept, "every moment in between"
    for at in range(count):
        assert (*ones[:at], 0, *ones[at + 1 :]) in kept, "every one lost"
        assert (*zeros[:at], 1, *zeros[at + 1 :]) in kept, "every one alone"
    assert sum(image.count(0) == 2 for image in kept) >= 20, "pairs lost"
    more = images(pending_units(machine.disk, SECTOR), Random(1), samples=500)
    assert len({image.kept for image in more}) > len(kept) + 300


def test_moments_long_past_give_no_images() -> None:
    machine = many_sectors(40)
    few = len(list(machine.power_losses(sector_bytes=SECTOR, samples=0)))
    file = machine.process().filesystem.open_appendable("/other")
    for number in range(500):
        file.pwrite(b"x", number)
    file.sync()
    machine.process().filesystem.sync_directory("/")
    assert len(list(machine.power_losses(sector_bytes=SECTOR, samples=0))) == few == 41 + 80 - 2, (
        "all but the last, and the first alone, are moments too"
    )


def test_the_same_seed_gives_the_same_images(seed: int) -> None:
    def found(number: int) -> list[Contents]:
        machine = many_sectors(20)
        write(machine.process().filesystem, "g", b"grows")
        return [after.disk.contents() for after in machine.power_losses(sector_bytes=SECTOR, seed=number)]

    assert found(seed) == found(seed)
    assert found(seed) != found(seed + 1)


def test_a_machine_after_a_loss_of_power_has_booted_again() -> None:
    machine = machine_with(f=b"AAAA")
    machine.wall_offset_ms = 7
    before = machine.process()
    assert before.filesystem.lock("/f").try_acquire()
    (after,) = machine.power_losses()
    process = after.process()
    assert process.filesystem.boot_id() != before.filesystem.boot_id()
    assert process.filesystem.random_bytes(8) != before.filesystem.random_bytes(8)
    assert process.clock.now_ms() > before.clock.now_ms()
    assert process.filesystem.lock("/f").try_acquire()
    assert left(after) == files(b"AAAA")
    write(process.filesystem, "f", b"x")
    assert machine.disk.contents() == {"/f": b"AAAA"}


# By a model

NAMES = ("a", "b", "c")


class Model:
    """The contents that each file had since it was last synced, and the files that each name led to
    since the directory was."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.filesystem = self.machine.process().filesystem
        self.versions: list[list[bytes]] = []
        self.cut: set[int] = set()  # files that were cut since their sync
        self.now: dict[str, int] = {}
        self.led_to: dict[str, set[int | None]] = {name: {None} for name in NAMES}

    def change(self, name: str, use: Callable[[AppendableFile], None]) -> int:
        if name not in self.now:
            self.now[name] = len(self.versions)
            self.versions.append([b""])
        file = self.filesystem.open_appendable(f"/{name}")
        use(file)
        self.versions[self.now[name]].append(file.pread(999, 0))
        file.close()
        self.note_names()
        return self.now[name]

    def note_names(self) -> None:
        for name in NAMES:
            self.led_to[name].add(self.now.get(name))

    def step(self, what: str, name: str, other: str, number: int, data: bytes) -> None:
        if what == "write":
            self.change(name, lambda file: file.pwrite(data, number))
        elif what == "cut":
            self.cut.add(self.change(name, lambda file: file.truncate(number)))
        elif what == "sync":
            at = self.change(name, lambda file: file.sync())
            self.versions[at] = self.versions[at][-1:]
            self.cut.discard(at)
        elif what == "sync_directory":
            self.filesystem.sync_directory("/")
            self.led_to = {name: {self.now.get(name)} for name in NAMES}
        elif what == "remove":
            self.filesystem.remove(f"/{name}")
            self.now.pop(name, None)
        elif name in self.now:
            self.filesystem.replace(f"/{name}", f"/{other}")
            self.now[other] = self.now.pop(name)
        self.note_names()

    def problems(self, contents: Contents, tail: str) -> Iterator[str]:
        for name in NAMES:
            data, files = contents.get(f"/{name}"), self.led_to[name]
            if data is None:
                if None not in files:
                    yield f"{name} is gone"
            elif not any(file is not None and self.explains(file, data, tail) for file in files):
                yield f"{name} is {data!r}, expected sectors of {[self.versions[f] for f in files if f is not None]}"

    def explains(self, file: int, data: bytes, tail: str) -> bool:
        versions = self.versions[file]
        if len(data) > max(map(len, versions)):
            return False
        unit = 1 if file in self.cut else SECTOR  # a cut is kept apart from what was written in the same sector
        certain = min(map(len, versions)) if tail in ("noise", "stale") else len(data)
        for at in range(0, min(certain, len(data)), unit):
            sector = data[at : min(at + unit, certain)]
            if not any(version[at : at + unit].ljust(unit, b"\0").startswith(sector) for version in versions):
                return False
        return True


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "cut", "sync", "sync_directory", "remove", "rename"]),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.integers(0, 12),
        st.binary(min_size=1, max_size=9).map(lambda data: bytes(byte | 1 for byte in data)),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=150)
@given(STEPS, st.integers(0, 9))
def test_every_byte_after_a_loss_of_power_is_one_that_was_written(
    steps: list[tuple[str, str, str, int, bytes]], number: int
) -> None:
    model = Model()
    for what, name, other, position, data in steps:
        model.step(what, name, other, position, data)
        assert set(model.filesystem.names("/")) == set(model.now)
    chosen = list(images(pending_units(model.machine.disk, SECTOR), Random(number), samples=20))
    for image in Random(number).sample(chosen, min(len(chosen), 60)):
        after = model.machine.after_power_loss(image, sector_bytes=SECTOR)
        assert list(model.problems(after.disk.contents(), image.tail)) == [], image
