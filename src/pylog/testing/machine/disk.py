"""A disk with a page cache: what every process sees, and what a loss of power would leave.

Each file and directory has two contents. The cached one is what reads see and a process's death leaves. The durable one is
what was synced. In between stand the changes made since, in their order, and ``images.py`` says which of them a loss of
power may keep. A file's sync makes its bytes and size durable, and nothing else: its *name* belongs to the directory, and lasts
once that is synced. That is POSIX at its strictest; ext4 keeps more.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

PAGE_BYTES = 4096
_NAME_BYTES_MAX = 255  # of one name, on every filesystem in use


class Write(NamedTuple):
    """Bytes that went to a position. ``sequence`` counts the changes of the whole disk."""

    sequence: int
    position: int
    data: bytes


class Cut(NamedTuple):
    """A file was given another size."""

    sequence: int
    size: int


class Rename(NamedTuple):
    """Names of one directory that changed in one step: ``removed`` are gone, ``added`` leads to ``node``.

    A creation only adds, a removal only removes, a rename inside a directory does both.
    """

    sequence: int
    removed: str | None
    added: str | None
    node: File | Directory | None


class File:
    """A file's bytes, wherever its name is, and after its last name is gone for those who have it open."""

    __slots__ = ("changes", "content", "durable", "lost_pages", "modified_ns", "number")

    def __init__(self, number: int, durable: bytes = b"") -> None:
        self.number = number
        self.content = bytearray(durable)
        self.durable = durable
        self.changes: list[Write | Cut] = []
        self.lost_pages: set[int] = set()  # cached, counted as written, and not on the medium
        self.modified_ns = 0

    def apply(self, change: Write | Cut) -> None:
        apply_change(self.content, change)
        if self.lost_pages and isinstance(change, Write):  # whole pages are written
            first, last = change.position // PAGE_BYTES, (change.position + len(change.data) - 1) // PAGE_BYTES
            if self.lost_pages.intersection(range(first, last + 1)):
                self.lost_pages.difference_update(range(first, last + 1))
                start = first * PAGE_BYTES
                change = Write(change.sequence, start, bytes(self.content[start : (last + 1) * PAGE_BYTES]))
        self.changes.append(change)

    def sync(self) -> None:
        synced = bytearray(self.content)
        for page in self.lost_pages:
            start, stop = page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, len(synced))
            old = self.durable[start:stop]
            synced[start:stop] = old + bytes(max(stop - start - len(old), 0))
        self.durable = bytes(synced)
        self.changes.clear()

    def fail_to_sync(self, behaviour: str) -> None:
        """What a sync that failed leaves: see ``SyncFailure``."""
        if behaviour == "clean":
            for change in self.changes:
                if isinstance(change, Write):
                    end = change.position + len(change.data)
                    self.lost_pages.update(range(change.position // PAGE_BYTES, -(-end // PAGE_BYTES)))
            self.changes.clear()
        elif behaviour == "lost":
            self.changes.clear()
            self.content[:] = self.durable
        elif behaviour != "dirty":
            raise ValueError(f"a sync fails as dirty, clean or lost, not as {behaviour!r}")

    def copy(self) -> File:
        made = File(self.number, self.durable)
        made.content[:] = self.content
        made.changes, made.lost_pages, made.modified_ns = list(self.changes), set(self.lost_pages), self.modified_ns
        return made


def apply_change(content: bytearray, change: Write | Cut) -> None:
    """Change ``content`` as the file was changed. What lies between its end and a write behind it reads as zeros."""
    if isinstance(change, Cut):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
    else:
        content.extend(bytes(max(change.position - len(content), 0)))
        content[change.position : change.position + len(change.data)] = change.data


class Directory:
    """Names, and what they lead to."""

    __slots__ = ("changes", "durable", "entries", "modified_ns", "number")

    def __init__(self, number: int, durable: dict[str, File | Directory] | None = None) -> None:
        self.number = number
        self.durable = durable or {}
        self.entries = dict(self.durable)
        self.changes: list[Rename] = []
        self.modified_ns = 0

    def apply(self, change: Rename) -> None:
        self.changes.append(change)
        apply_rename(self.entries, change)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes.clear()


def apply_rename(entries: dict[str, File | Directory], change: Rename) -> None:
    """Change ``entries`` as the directory was changed."""
    if change.removed is not None:
        entries.pop(change.removed, None)
    if change.added is not None and change.node is not None:
        entries[change.added] = change.node


def walk(root: File | Directory) -> Iterator[tuple[str, File | Directory]]:
    """``root``, and everything that can be reached from it now, or after a loss of power, each once, with one of its paths."""
    seen = {id(root)}
    waiting: list[tuple[str, File | Directory]] = [("", root)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        if isinstance(node, Directory):
            named = [*node.entries.items(), *node.durable.items()]
            named += [(c.added, c.node) for c in node.changes if c.added is not None and c.node is not None]
            for name, child in named:
                if id(child) not in seen:
                    seen.add(id(child))
                    waiting.append((f"{path}/{name}", child))


class Disk:
    """One filesystem, from its root directory down."""

    def __init__(self, root: Directory | None = None, numbers: int = 0) -> None:
        """``numbers``: the greatest that a file or directory below ``root`` has."""
        self.root = root or Directory(0)
        self.sequence = 0
        self.removed: list[File] = []  # whose blocks a later file may get, with what stands in them
        self.numbers = numbers

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def find(self, path: str) -> File | Directory | None:
        """What stands at ``path``; None if its directory is there and the name is not. Else ``FileNotFoundError``."""
        node: File | Directory = self.root
        parts = parts_of(path)
        for number, part in enumerate(parts):
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            found = node.entries.get(part)
            if found is None:
                check_length(part)
                if number == len(parts) - 1:
                    return None
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = found
        return node

    def look(self, path: str) -> File | Directory | None:
        """What stands at ``path``; None if nothing can be reached there."""
        try:
            return self.find(path)
        except OSError:
            return None

    def walk(self) -> Iterator[tuple[str, File | Directory]]:
        """Everything that can be reached now, or after a loss of power, each once, with one of its paths."""
        return walk(self.root)

    def contents(self) -> dict[str, bytes | None]:
        """The cached bytes of every file by path; None for a directory."""
        found: dict[str, bytes | None] = {}
        waiting: list[tuple[str, Directory]] = [("", self.root)]
        while waiting:
            path, directory = waiting.pop()
            for name, node in directory.entries.items():
                if isinstance(node, Directory):
                    found[f"{path}/{name}"] = None
                    waiting.append((f"{path}/{name}", node))
                else:
                    found[f"{path}/{name}"] = bytes(node.content)
        return found

    def copy(self) -> Disk:
        """The same disk, page cache and all, that changes by itself from here on."""
        made: dict[int, File | Directory] = {}
        for _, node in self.walk():
            made[id(node)] = node.copy() if isinstance(node, File) else Directory(node.number)
        for _, node in self.walk():
            if isinstance(node, Directory):
                twin = made[id(node)]
                assert isinstance(twin, Directory)
                twin.durable = {name: made[id(child)] for name, child in node.durable.items()}
                twin.entries = {name: made[id(child)] for name, child in node.entries.items()}
                twin.changes = [c._replace(node=made[id(c.node)] if c.node is not None else None) for c in node.changes]
                twin.modified_ns = node.modified_ns
        root = made[id(self.root)]
        assert isinstance(root, Directory)
        disk = Disk(root, self.numbers)
        disk.sequence = self.sequence
        for file in self.removed:  # some are reachable still, by a name that is durable
            twin = made.get(id(file)) or file.copy()
            assert isinstance(twin, File)
            disk.removed.append(twin)
        return disk


def parts_of(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def check_length(name: str) -> None:
    if len(os.fsencode(name)) > _NAME_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
