"""A filesystem of a few files in memory, to read only: what the targets hand to the readers of
files."""

from __future__ import annotations

from typing import NoReturn

from pylog.storage import OsFileSystem, ReadableFile
from tests.system import fail


class BytesFile:
    """Bytes as a file."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self._data = data

    def pread(self, size: int, position: int) -> bytes:
        if size < 0 or position < 0:  # the system would refuse it with an OSError of no type of pylog's
            raise AssertionError(f"pread({size}, {position}) of {self.path}")
        return self._data[position : position + size]

    def size(self) -> int:
        return len(self._data)

    def close_when_idle(self) -> None:
        return None

    def close(self) -> None:
        return None


class Files(OsFileSystem):
    """These files and no others. What would change one fails, since nothing here may be changed by
    reading."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents

    def open_readable(self, path: str) -> ReadableFile:
        if path not in self.contents:
            fail(FileNotFoundError(path))
        return BytesFile(path, self.contents[path])

    def names(self, directory: str) -> list[str]:
        return sorted(path[len(directory) + 1 :] for path in self.contents if path.rpartition("/")[0] == directory)

    def exists(self, path: str) -> bool:
        return path in self.contents

    def is_directory(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self.contents)

    def size(self, path: str) -> int:
        return self.open_readable(path).size()

    def open_appendable(self, path: str, *, create: bool = True) -> NoReturn:
        raise AssertionError(f"reading wants to write {path}")
