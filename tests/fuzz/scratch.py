"""Where the input at work stands, so that it is known after the process has died of it.

A file mapped into memory, which the parent reads: ``start, size`` of the head and of the rest, then
the bytes. The rest ends where the next page may not be read.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from pathlib import Path

_PLACES = struct.Struct("=4Q")
_HEAD_AT = 64
_ROOM_BYTES = 1 << 20
PROT_NONE = 0


class Scratch:
    """The writing side."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(_ROOM_BYTES + mmap.PAGESIZE)
            self._pages = mmap.mmap(file.fileno(), _ROOM_BYTES + mmap.PAGESIZE)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self._start + _ROOM_BYTES), ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
        self._view = memoryview(self._pages)

    def put(self, data: bytes) -> None:
        """Note what is about to be run."""
        _PLACES.pack_into(self._pages, 0, _HEAD_AT, 0, _HEAD_AT, len(data))
        self._view[_HEAD_AT : _HEAD_AT + len(data)] = data

    def lay_down(self, head: bytes, data: bytes) -> memoryview:
        """``data`` in front of the page that may not be read, to be changed in place."""
        start = _ROOM_BYTES - len(data)
        _PLACES.pack_into(self._pages, 0, _HEAD_AT, len(head), start, len(data))
        self._view[_HEAD_AT : _HEAD_AT + len(head)] = head
        self._view[start:_ROOM_BYTES] = data
        return self._view[start:_ROOM_BYTES]

    def content(self) -> bytes:
        """The input at work."""
        return _content(self._view[:_ROOM_BYTES])


def left_in(path: Path) -> bytes:
    """The input a process was at when it ended."""
    return _content(path.read_bytes())


def _content(data: bytes | memoryview) -> bytes:
    head, head_size, start, size = _PLACES.unpack_from(data)
    return bytes(data[head : head + head_size]) + bytes(data[start : start + size])
