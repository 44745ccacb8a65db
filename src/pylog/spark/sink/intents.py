"""A sink's decisions, in two small files that are replaced whole: ``intent`` and ``state``.

A durable intent is a commit: everything it names will be in the log, even if another sink must
finish it. ``state`` records a streaming query's last published batch and its producer id.

A file contains the CRC-32C of what follows the newline in eight hexadecimal digits, the newline,
and a JSON object with ``version`` 1.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pylog.codec.checksum import crc32c
from pylog.codec.format import INT32_MAX, INT64_MAX, MAX_SEQUENCE
from pylog.errors import CorruptSegment, FormatVersionError, NotAppended
from pylog.interrupts import own
from pylog.spark.sink.directory import SinkDirectory, is_staged_name
from pylog.spark.sink.staging import Staged, Target
from pylog.storage import FileSystem, read_whole, write_atomically

VERSION = 1
LIMIT_BYTES = 64 << 20

_CRC_BYTES = 9
_INT63 = range(INT64_MAX + 1)


class Share(NamedTuple):
    """A commit's records for one partition. They start at ``start_offset`` or later."""

    target: Target
    first_sequence: int
    records: int
    start_offset: int


class Intent(NamedTuple):
    """A commit of the batches of ``files``, in this order."""

    batch_id: int
    producer_id: int
    files: tuple[Staged, ...]
    shares: tuple[Share, ...]


class SinkState(NamedTuple):
    """``batch_id`` is the last batch in the log."""

    batch_id: int
    producer_id: int


def write_intent(directory: SinkDirectory, intent: Intent) -> None:
    """The commit point: durable on return. ``NotAppended`` if the intent is too large."""
    content = {
        "batch_id": intent.batch_id,
        "producer_id": intent.producer_id,
        "files": [list(staged) for staged in intent.files],
        "shares": [[*share.target, *share[1:]] for share in intent.shares],
    }
    data = _encoded(content)
    if len(data) > LIMIT_BYTES:
        raise NotAppended(
            f"a commit of {len(intent.files)} tasks to {len(intent.shares)} partitions is too large to be noted down; write with "
            "fewer tasks (coalesce)",
            size_bytes=len(data), limit_bytes=LIMIT_BYTES,
        )  # fmt: skip
    write_atomically(directory.filesystem, directory.intent, data)


def read_intent(directory: SinkDirectory) -> Intent | None:
    """None if there is no intent. ``CorruptSegment``, ``FormatVersionError``."""
    content = _read(directory.filesystem, directory.intent)
    if content is None:
        return None
    try:
        files = tuple(Staged(*entry) for entry in content["files"])
        shares = tuple(Share(Target(*entry[:3]), *entry[3:]) for entry in content["shares"])
        intent = Intent(content["batch_id"], content["producer_id"], files, shares)
    except own(KeyError, TypeError) as error:
        raise _damaged(directory.intent, f"it is no commit ({error!r})") from error
    for problem in _problems(intent):
        raise _damaged(directory.intent, problem)
    return intent


def _problems(intent: Intent) -> list[str]:
    """What an intent cannot contain."""
    checks = [
        (_is(intent.batch_id, _INT63) and _is(intent.producer_id, _INT63), "numbers of batch and producer"),
        *((_is_staged(staged), f"the file {staged.name!r:.80}") for staged in intent.files),
        *((_is_share(share), f"the share of {share.target.topic!r:.80}") for share in intent.shares),
    ]
    return [f"it can't have {what} as it does" for is_fine, what in checks if not is_fine]


def _is_staged(staged: Staged) -> bool:
    return is_staged_name(staged.name) and _is(staged.size_bytes, _INT63) and _is(staged.crc, range(2**32))


def _is_share(share: Share) -> bool:
    topic, topic_id, partition = share.target
    return (
        isinstance(topic, str)
        and isinstance(topic_id, str)
        and _is(partition, range(INT32_MAX + 1))
        and _is(share.first_sequence, range(MAX_SEQUENCE + 1))
        and _is(share.records, range(1, MAX_SEQUENCE + 1))
        and _is(share.start_offset, _INT63)
    )


def write_state(directory: SinkDirectory, state: SinkState) -> None:
    """Durable on return."""
    write_atomically(directory.filesystem, directory.state, _encoded(state._asdict()))


def read_state(directory: SinkDirectory) -> SinkState | None:
    """None if there is no state. ``CorruptSegment``, ``FormatVersionError``."""
    content = _read(directory.filesystem, directory.state)
    if content is None:
        return None
    state = SinkState(content.get("batch_id", -1), content.get("producer_id", -1))
    if not all(_is(number, _INT63) for number in state):
        raise _damaged(directory.state, f"it can't say {state}")
    return state


def _is(value: object, allowed: range) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in allowed


def _encoded(content: dict[str, Any]) -> bytes:
    body = json.dumps({"version": VERSION, **content}).encode()
    return b"%08x\n" % crc32c(body) + body


def _read(filesystem: FileSystem, path: str) -> dict[str, Any] | None:
    try:
        data = read_whole(filesystem, path, LIMIT_BYTES + 1)
    except own(FileNotFoundError):
        return None
    body = data[_CRC_BYTES:]
    if len(data) > LIMIT_BYTES or data[:_CRC_BYTES] != b"%08x\n" % crc32c(body):
        raise _damaged(path, f"{len(data)} bytes that don't fit their checksum")
    try:
        content = json.loads(body.decode())
    except own(ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise _damaged(path, "it is no JSON object")
    if content.get("version") != VERSION:
        raise FormatVersionError(
            f"{path} has version {content.get('version')!r:.80}, this pylog knows {VERSION}; upgrade pylog",
            path=path, version=content.get("version"), expected=VERSION,
        )  # fmt: skip
    return content


def _damaged(path: str, problem: str) -> CorruptSegment:
    return CorruptSegment(
        f"{path} is damaged: {problem}; restore it from a copy. Without it the sink forgets what it has published",
        path=path, position=0,
    )  # fmt: skip
