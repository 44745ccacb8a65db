"""Directories made so that they last."""

from __future__ import annotations

from pylog.storage.filesystem import FileSystem


def parent_of(path: str) -> str:
    """The directory that has ``path`` as a name in it: of ``/x`` it is ``/``, of ``x`` it is ``.``."""
    above, slash, _ = path.rstrip("/").rpartition("/")
    return above or slash or "."


def make_directory_durably(filesystem: FileSystem, path: str, mode: int | None = None) -> None:
    """Create a directory and its parents, from the top down; each new name is on the medium before the next is made.

    All of them have ``mode``; None: as ``FileSystem.make_directory`` has it.
    """
    missing: list[str] = []
    while path not in (".", "/") and not filesystem.is_directory(path):
        missing.append(path)
        path = parent_of(path)
    for new in reversed(missing):
        filesystem.make_directory(new, mode)
        filesystem.sync_directory(parent_of(new))
