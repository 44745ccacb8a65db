"""The images of a disk after a power failure: all that are possible, or a seeded choice of many.

An image combines:

* **Sectors.** A write is never kept in part of a sector. If a sector was written several times
  since its file's sync, the disk has its content before or after any of them: a cache writes back
  the content of some moment. Sectors and files are independent, whatever the order of the writes.
* **Sizes and names.** Each cut, and each change of a directory's names, may be lost or kept,
  independent of the others and of the bytes: renames before data, removals before renames.
* **The end of a file that grew** (``TAILS``). The file may end with the bytes that were kept. Or
  its new size was kept, and lost bytes read as zeros (delayed allocation, xfs), as noise, or as the
  bytes of a removed file in the same blocks. Or the bytes were kept and the new size was not.

These are the states that "All File Systems Are Not Created Equal" (Pillai et al., OSDI 2014) and
"Crash consistency" studies found in ext4, xfs and btrfs, and some that are worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from math import prod
from random import Random
from typing import NamedTuple

from pylog.testing.machine.disk import Cut, Directory, Disk, File, Rename, Write, apply_change, apply_rename, walk

EXHAUSTIVE_MAX = 1 << 12
TAILS = ("natural", "zeros", "noise", "stale", "old size")
Change = Write | Cut | Rename


class Unit(NamedTuple):
    """Changes of which a power failure keeps the first ones, from none to all."""

    node: File | Directory
    changes: tuple[Change, ...]


class Image(NamedTuple):
    """How many changes of each unit are kept, and the tail of files that grew."""

    kept: tuple[int, ...]
    tail: str


def pending_units(disk: Disk, sector_bytes: int) -> list[Unit]:
    """The changes that are not durable, as units in the order of their first change."""
    units: list[Unit] = []
    for _, node in walk(disk.root):
        if isinstance(node, Directory):
            units += [Unit(node, (change,)) for change in node.changes]
        else:
            sectors: dict[int, list[Write]] = {}
            for change in node.changes:
                if isinstance(change, Cut):
                    units.append(Unit(node, (change,)))
                else:
                    for piece in _pieces(change, sector_bytes):
                        sectors.setdefault(piece.position // sector_bytes, []).append(piece)
            units += [Unit(node, tuple(pieces)) for pieces in sectors.values()]
    return sorted(units, key=lambda unit: unit.changes[0].sequence)


def _pieces(write: Write, sector_bytes: int) -> Iterator[Write]:
    at, end = write.position, write.position + len(write.data)
    while at < end:
        stop = min(end, (at // sector_bytes + 1) * sector_bytes)
        yield Write(write.sequence, at, write.data[at - write.position : stop - write.position])
        at = stop


def images(units: Sequence[Unit], random: Random, samples: int) -> Iterator[Image]:
    """All images, if at most ``EXHAUSTIVE_MAX``, each with every tail that makes a difference.

    Otherwise: nothing kept, everything, the state of every moment between, every single unit lost
    or kept alone, pairs of units lost, and ``samples`` drawn from ``random``.
    """
    tails = TAILS if any(len(f.content) > _floor(f, f.changes) for f in _files(units)) else TAILS[:1]
    full = [len(unit.changes) for unit in units]
    if prod(count + 1 for count in full) <= EXHAUSTIVE_MAX:
        for kept in product(*(range(count + 1) for count in full)):
            yield from (Image(kept, tail) for tail in tails)
        return
    moments = sorted({0, *(change.sequence for unit in units for change in unit.changes)})
    for tail in tails:
        for number in moments:
            yield Image(tuple(sum(c.sequence <= number for c in unit.changes) for unit in units), tail)
    singles = range(len(units))
    for tail in tails:
        for one in singles:
            yield Image(tuple(0 if at == one else full[at] for at in singles), tail)
            yield Image(tuple(full[at] if at == one else 0 for at in singles), tail)
    for pair in random.sample(list(combinations(singles, 2)), min(samples, len(units) * (len(units) - 1) // 2)):
        yield Image(tuple(0 if at in pair else full[at] for at in singles), random.choice(tails))
    for _ in range(samples):
        share = random.random()
        yield Image(
            tuple(random.randint(0, count) if random.random() < share else count for count in full),
            random.choice(tails),
        )


def _files(units: Sequence[Unit]) -> Iterator[File]:
    return (node for node in dict.fromkeys(unit.node for unit in units) if isinstance(node, File))


class Left(NamedTuple):
    """A file or directory after a power failure. Equal and hashable by its bytes."""

    number: int
    modified_ns: int
    content: bytes | tuple[tuple[str, Left], ...]

    def contents(self, path: str = "") -> Iterator[tuple[str, bytes | None]]:
        """The bytes of every file below it, by path; None for a directory."""
        if isinstance(self.content, tuple):
            for name, child in self.content:
                yield f"{path}/{name}", child.content if isinstance(child.content, bytes) else None
                yield from child.contents(f"{path}/{name}")


_NOTHING = Left(0, 0, b"")


class Listing(NamedTuple):
    """Sorted names; ``fixed`` is the same in every image, with placeholders for ``others``."""

    fixed: tuple[tuple[str, Left], ...]
    others: tuple[tuple[int, str, File | Directory], ...]


class PowerLoss:
    """The states after a power failure of one disk at one moment, by image."""

    def __init__(self, disk: Disk, units: Sequence[Unit], seed: int) -> None:
        self._disk = disk
        self._units = units
        self._seed = seed
        self._units_of: dict[int, list[int]] = {}
        for number, unit in enumerate(units):
            self._units_of.setdefault(id(unit.node), []).append(number)
        # caches, because images differ in few files
        self._files: dict[tuple[object, ...], Left] = {}
        self._listings: dict[tuple[object, ...], Listing] = {}
        self._the_same: dict[int, Left | None] = {}
        self._stale = next((bytes(f.content) for f in reversed(disk.removed) if f.content), b"")

    def left(self, image: Image) -> Left:
        """The root directory and all nodes below it."""
        return self._left(self._disk.root, image)

    def _left(self, node: File | Directory, image: Image) -> Left:
        if isinstance(node, File):
            return self._file(node, image)
        listing = self._listing(node, image)
        names = [*listing.fixed]
        for at, name, child in listing.others:
            names[at] = (name, self._left(child, image))
        return Left(node.number, node.modified_ns, tuple(names))

    def _file(self, file: File, image: Image) -> Left:
        key = (id(file), image.tail, *[image.kept[number] for number in self._units_of.get(id(file), ())])
        found = self._files.get(key)
        if found is None:
            noise = Random(f"{self._seed} {file.number}")
            content = _bytes_of(file, self._kept(file, image), image.tail, self._stale, noise)
            found = self._files[key] = Left(file.number, file.modified_ns, content)
        return found

    def _listing(self, directory: Directory, image: Image) -> Listing:
        key = (id(directory), *[image.kept[number] for number in self._units_of.get(id(directory), ())])
        found = self._listings.get(key)
        if found is None:
            entries = dict(directory.durable)
            for change in self._kept(directory, image):
                if isinstance(change, Rename):
                    apply_rename(entries, change)
            each = [(name, self._same_in_all(node, image), node) for name, node in sorted(entries.items())]
            fixed = tuple((name, left or _NOTHING) for name, left, _ in each)
            others = tuple((at, name, node) for at, (name, left, node) in enumerate(each) if left is None)
            found = self._listings[key] = Listing(fixed, others)
        return found

    def _same_in_all(self, node: File | Directory, image: Image) -> Left | None:
        """The state of a node in every image; None if not all of it, and below it, is durable."""
        if id(node) not in self._the_same:
            differs = any(id(below) in self._units_of for _, below in walk(node))
            self._the_same[id(node)] = None if differs else self._left(node, image)
        return self._the_same[id(node)]

    def _kept(self, node: File | Directory, image: Image) -> list[Change]:
        """The changes of a node that the image keeps, in their order."""
        numbers = self._units_of.get(id(node), ())
        kept = [change for number in numbers for change in self._units[number].changes[: image.kept[number]]]
        return sorted(kept, key=lambda change: change.sequence)


def disk_of(root: Left, numbers: int) -> Disk:
    """The disk after the restart. ``numbers``: the greatest file number that was used."""
    made: dict[int, File | Directory] = {}
    linked: list[File] = []

    def restore(left: Left) -> File | Directory:
        node = made.get(left.number)
        if isinstance(node, File):
            linked.append(node)
        if node is None:
            if isinstance(left.content, bytes):
                node = File(left.number, left.content)
            else:
                node = Directory(left.number, {name: restore(child) for name, child in left.content})
            node.modified_ns = left.modified_ns
            made[left.number] = node
        return node

    directory = restore(root)
    assert isinstance(directory, Directory)
    disk = Disk(directory, numbers)
    disk.has_links = bool(linked)
    return disk


def _floor(file: File, changes: Iterable[Change]) -> int:
    """How many durable bytes were never cut off: a tail may change only the bytes after them."""
    return min([len(file.durable), *(change.size for change in changes if isinstance(change, Cut))])


def _bytes_of(file: File, kept: Sequence[Change], tail: str, stale: bytes, noise: Random) -> bytes:
    if not file.changes:
        return file.durable
    content = bytearray(file.durable)
    for change in kept:
        if isinstance(change, Write | Cut):
            apply_change(content, change)
    floor = _floor(file, kept)
    if tail == "old size":
        del content[floor:]
    elif tail != "natural":
        content.extend(bytes(max(len(file.content) - len(content), 0)))
    if tail in ("noise", "stale"):
        lost = bytearray(len(content))  # 1: written and lost; 0: kept, or never written
        for changes, mark in ((file.changes, b"\1"), (kept, b"\0")):
            for change in changes:
                if isinstance(change, Write):
                    place = slice(change.position, min(change.position + len(change.data), len(content)))
                    lost[place] = mark * len(range(len(content))[place])
        junk = noise.randbytes(len(content)) if tail == "noise" else stale
        for at in range(floor, min(len(content), len(junk))):
            if lost[at]:
                content[at] = junk[at]
    return bytes(content)
