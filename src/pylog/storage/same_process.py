"""Tells a child that a signal handler has forked from the process that began a piece of work."""

from __future__ import annotations

from collections.abc import Callable

from pylog.errors import ForkedHandle
from pylog.storage.filesystem import FileSystem


def same_process(filesystem: FileSystem, what: str, **facts: object) -> Callable[[], None]:
    """A check that raises ``ForkedHandle`` in a child forked since. ``what`` was being done;
    ``facts`` are the error's.

    It is called just before each rename and removal of live files. Only a check in the same system
    call could keep a child from the one step that was interrupted.
    """
    process_id = filesystem.process_id()

    def check() -> None:
        if filesystem.process_id() != process_id:
            raise ForkedHandle(
                f"{what} when a signal handler forked; the parent process continues with it, the child must not",
                **facts,
            )

    return check
