"""A file of one writer that gathers what is appended. A batch of 16 KiB costs three calls of the
system otherwise.

Such a call costs more than it takes: a thread that returns from it waits until another thread lets
it run.
"""

from __future__ import annotations

from pylog.storage import AppendableFile, Buffer

_GATHERED_BYTES = 1 << 20


class GatheredFile:
    """An ``AppendableFile``. ``sync`` writes what was gathered; ``close`` does not, nor does
    anything after an error."""

    def __init__(self, file: AppendableFile) -> None:
        self._file = file
        self._size = file.size()  # with what was gathered
        self._gathered = bytearray()

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._size

    def pwrite(self, data: Buffer, position: int) -> None:
        if position == self._size and len(data) < _GATHERED_BYTES:
            self._gathered += data
        else:
            self._write()
            self._file.pwrite(data, position)
        self._size = max(self._size, position + len(data))
        if len(self._gathered) >= _GATHERED_BYTES:
            self._write()

    def _write(self) -> None:
        data, self._gathered = self._gathered, bytearray()
        if data:
            self._file.pwrite(data, self._size - len(data))

    def pread(self, size: int, position: int) -> bytes:
        self._write()
        return self._file.pread(size, position)

    def truncate(self, size: int) -> None:
        self._write()
        self._file.truncate(size)
        self._size = size

    def sync(self) -> None:
        self._write()
        self._file.sync()

    def close_when_idle(self) -> None:
        self._file.close_when_idle()

    def close(self) -> None:
        self._file.close()
