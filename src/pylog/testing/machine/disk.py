"""A disk with a page cache: the content that processes see, and the content after a power failure.

Each file and directory has two contents. Reads see the cached one, which survives the death of a
process. The durable one was synced. Between them are the changes since the sync, in order;
``images.py`` decides which of them a power failure may keep. A file's sync makes only its bytes and
size durable, its directory's sync the *name*. That is POSIX at its strictest; ext4 keeps more.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple

PAGE_BYTES = 4096
_NAME_BYTES_MAX = 255  # the limit of every filesystem in use


class Write(NamedTuple):
    """A write of bytes at a position. ``sequence`` counts the changes of the whole disk."""

    sequence: int
    position: int
    data: bytes


class Cut(NamedTuple):
    """A change of a file's size."""

    sequence: int
    size: int


class Rename(NamedTuple):
    """One change of names in a directory: ``removed`` is gone, ``added`` leads to ``node``.

    A creation only adds, a removal only removes, a rename inside a directory does both. An exchange
    also lets the name ``other`` lead to ``other_node``.
    """

    sequence: int
    removed: str | None
    added: str | None
    node: File | Directory | None
    other: str | None = None
    other_node: File | Directory | None = None


class File:
    """A file's bytes, whatever its name. Open files keep it after its last name is removed."""

    __slots__ = ("changes", "content", "durable", "lost_pages", "modified_ns", "number")

    def __init__(self, number: int, durable: bytes = b"") -> None:
        self.number = number
        self.content = bytearray(durable)
        self.durable = durable
        self.changes: list[Write | Cut] = []
        self.lost_pages: set[int] = set()  # cached, counted as written, but not on the disk
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
        """Leave the state of a failed sync: see ``SyncFailure``."""
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

    def __deepcopy__(self, _memo: object) -> File:
        made = File(self.number, self.durable)
        made.content[:] = self.content
        made.changes, made.lost_pages, made.modified_ns = list(self.changes), set(self.lost_pages), self.modified_ns
        return made


def apply_change(content: bytearray, change: Write | Cut) -> None:
    """Apply a change to ``content``. A gap between its end and a write after it reads as zeros."""
    if isinstance(change, Cut):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
    else:
        content.extend(bytes(max(change.position - len(content), 0)))
        content[change.position : change.position + len(change.data)] = change.data


class Directory:
    """Names and their files or directories."""

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
    if change.removed is not None:
        entries.pop(change.removed, None)
    if change.added is not None and change.node is not None:
        entries[change.added] = change.node
    if change.other is not None and change.other_node is not None:
        entries[change.other] = change.other_node


def walk(root: File | Directory) -> Iterator[tuple[str, File | Directory]]:
    """All nodes reachable from ``root`` now or after a power failure: each once, with one path."""
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
    """One filesystem."""

    def __init__(self, root: Directory | None = None, numbers: int = 0) -> None:
        """``numbers``: the greatest number of a file or directory below ``root``."""
        self.root = root or Directory(0)
        self.sequence = 0
        self.removed: list[File] = []  # a later file may get their blocks and content
        self.numbers = numbers
        self.has_links = False  # whether a file may have two names

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def find(self, path: str) -> File | Directory | None:
        """The node at ``path``, or None. ``FileNotFoundError`` if its directory does not exist."""
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

    def names_of(self, file: File) -> int:
        """How many names the file has."""
        count, waiting = 0, [self.root]
        while waiting:
            for node in waiting.pop().entries.values():
                count += node is file
                if isinstance(node, Directory):
                    waiting.append(node)
        return count

    def look(self, path: str) -> File | Directory | None:
        """The node at ``path``; None if the path leads to no node."""
        try:
            return self.find(path)
        except OSError:
            return None

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
        """An independent copy, including the page cache."""
        return deepcopy(self)


@functools.lru_cache(maxsize=4096)
def parts_of(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def check_length(name: str) -> None:
    if len(os.fsencode(name)) > _NAME_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
