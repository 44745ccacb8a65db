"""Logs with commit slots of version 1, and what processes of that version do with them."""

from __future__ import annotations

import json
from struct import Struct

import crc32c

from pylog.partition.commit_slots import CommitState, latest
from pylog.storage import FileLock, FileSystem

_BODY = Struct(">IIiqiiqqqII")
FILE_BYTES = 128


def slots_of_version_1(state: CommitState) -> bytes:
    """A whole file as version 1 wrote it: the slot before says the same, the other one is
    published."""
    return slots_of_two(state._replace(sequence=state.sequence - 1), state)


def slots_of_two(before: CommitState, state: CommitState) -> bytes:
    """A whole file with both; ``state`` is published."""
    slots = [_slot(before), _slot(state)]
    return b"".join(slots if state.sequence & 1 else slots[::-1])


def _slot(state: CommitState) -> bytes:
    body = _BODY.pack(
        state.sequence, state.boot, state.leader_epoch, state.active_base, state.written_end,
        state.log_end_offset - state.active_base, state.durable_offset, state.last_stable_offset, state.log_start_offset,
        state.log_end_offset - state.high_watermark, state.segments_version,
    )  # fmt: skip
    return crc32c.crc32c(body).to_bytes(4, "big") + body


def says_anything(data: bytes) -> bool:
    """Whether version 1 takes one of the two slots for valid, by its own check."""
    return any(
        len(slot) == 64 and int.from_bytes(slot[:4], "big") == crc32c.crc32c(slot[4:])
        for slot in (data[:64], data[64:FILE_BYTES])
    )


def read(filesystem: FileSystem, path: str) -> bytes:
    file = filesystem.open_readable(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def overwrite(filesystem: FileSystem, path: str, data: bytes) -> None:
    file = filesystem.open_appendable(path)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()


def make_version_1(filesystem: FileSystem, root: str, topic: str) -> CommitState:
    """Take the log, which nobody has open, back to what version 1 wrote. Durable on return. Returns
    what is published."""
    path = f"{root}/{topic}-0/.commit"
    state = latest(read(filesystem, path))
    assert state is not None
    overwrite(filesystem, path, slots_of_version_1(state))
    recorded = f"{root}/.pylog/topics/{topic}.json"
    content = json.loads(read(filesystem, recorded))
    del content["config"]["commit_slots"]
    overwrite(filesystem, recorded, json.dumps(content).encode())
    return state


class OldWriter:
    """What a writer of version 1 has open, and what it asks before it appends."""

    def __init__(self, filesystem: FileSystem, root: str, topic: str) -> None:
        self._filesystem = filesystem
        self._commit, self._topic = f"{root}/{topic}-0/.commit", f"{root}/.pylog/topics/{topic}.json"
        self.lock: FileLock = filesystem.lock(f"{root}/{topic}-0/.lock")

    def may_append(self) -> bool:
        """It appends if its lock is in place and a slot is valid. Else it looks at the topic before
        it makes slots again."""
        if not self.lock.is_in_place():
            return False
        if says_anything(read(self._filesystem, self._commit)):
            return True
        return not self.refuses_topic()

    def refuses_topic(self) -> bool:
        """Whether it opens nothing of the topic: ``FormatVersionError`` for an option that it
        doesn't know."""
        return "commit_slots" in json.loads(read(self._filesystem, self._topic))["config"]

    def close(self) -> None:
        self.lock.close()
