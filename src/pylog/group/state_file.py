"""The ``state`` file of a group: two slots, written in turn, that point to states in the same file.

A state is written before its slot, and never over the state of the previous slot. So a reader sees
one state or the next without a lock, and a writer that dies in between has changed nothing. It is
never synced: only committed offsets outlive a boot, and those are records of a log.

Layout of a slot, 64 bytes, big-endian (our own, see docs/format.md):

    0  uint32 CRC-32C of bytes 4..63     4  uint32 sequence (wraps)     8  uint32 boot
    12 uint32 position of the state      16 uint32 bytes of the state   20 uint32 its CRC-32C
    24 int64 generation                  32 zeros

The state is a ``Group`` of ``state.py`` as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, NamedTuple

from pylog.codec.checksum import crc32c
from pylog.codec.format import INT64_MAX
from pylog.codec.slot_pair import SEQUENCES, SlotPair
from pylog.errors import CorruptSegment, StorageError
from pylog.group.assignor import ASSIGNORS
from pylog.group.directory import MEMBER_ID_BYTES
from pylog.group.liveness import CELLS_MAX
from pylog.group.state import Group, GroupTopic, Member
from pylog.interrupts import WeakSet, own
from pylog.model import TopicPartition
from pylog.storage import AppendableFile, ReadableFile

SLOT_BYTES = 64
SLOTS_BYTES = 2 * SLOT_BYTES
STATE_LIMIT_BYTES = 64 << 20

_BODY = Struct(">IIIIIq32x")
_READS_MAX = 100
_NAME_LIMIT = 1024
_GENERATION_MAX = 1 << 62  # int64 has room for the next one
_MEMBER_ID = re.compile(f"[0-9a-f]{{{2 * MEMBER_ID_BYTES}}}")


class Slot(NamedTuple):
    """The content of one slot."""

    sequence: int
    boot: int
    position: int
    size_bytes: int
    crc: int
    generation: int

    def body(self) -> bytes:
        """A slot without its checksum."""
        return _BODY.pack(*self)


def _decode(body: bytes) -> Slot | None:
    slot = Slot(*_BODY.unpack(body))
    return slot if 0 <= slot.generation <= _GENERATION_MAX and slot.size_bytes <= STATE_LIMIT_BYTES else None


SLOTS = SlotPair(0, SLOT_BYTES, _decode)


class StateFile:
    """Reads the published state; publishes with the group's lock held."""

    def __init__(self, file: ReadableFile | AppendableFile, boot: int) -> None:
        self._file = file
        self._boot = boot
        self._raw: bytes | None = None  # the slots that the next two belong to
        self._slot: Slot | None = None
        self._group = Group()
        self._decoder = _decoder_of(file.path)

    def raw(self) -> bytes:
        """Return the raw slots, which differ after each publication."""
        return self._file.pread(SLOTS_BYTES, 0)

    @property
    def known(self) -> bytes:
        """The raw slots at the last read."""
        return self._raw or b""

    def forget(self) -> None:
        """Let the next ``read`` look at the state itself, also if the slots have not changed: it
        may be damaged."""
        self._raw = None

    def read(self) -> Group:
        """Read the published group. A damaged one, or one of another boot, has no members.

        ``StorageError`` if others publish so often that no state can be read whole.
        """
        raw, slot, group = self._file.pread(SLOTS_BYTES, 0), None, None
        for _ in range(_READS_MAX):
            if raw == self._raw:
                return self._group
            slot = SLOTS.latest(raw)
            group = self._at(slot)
            before, raw = raw, raw if group is not None else self.raw()
            if raw == before:
                break  # else it was published twice during this read
        else:
            path = self._file.path
            raise StorageError(f"{path} was published twice during each of {_READS_MAX} reads; try again", path=path)
        self._slot = slot
        self._group = group if group is not None else Group(0 if slot is None else slot.generation)
        self._raw = raw  # last: after an exception before this, it is read again
        return self._group

    def _at(self, slot: Slot | None) -> Group | None:
        if slot is None or slot.boot != self._boot:
            return None
        data = self._file.pread(slot.size_bytes, slot.position)
        if len(data) != slot.size_bytes or crc32c(data) != slot.crc:
            return None
        try:
            return self._decoder.decode(data)
        except own(CorruptSegment):
            return None

    def publish(self, group: Group) -> None:
        """Publish this group. The caller holds the lock, and has read the state under it.

        ``StorageError`` if its state is too large to be read again.
        """
        assert hasattr(self._file, "pwrite")
        data, before = encode_group(group), self._slot
        if len(data) > STATE_LIMIT_BYTES:
            raise StorageError(
                f"the group's state would have {len(data)} bytes, at most {STATE_LIMIT_BYTES} can be read; use fewer members, or "
                "fewer topics and partitions",
                path=self._file.path, size_bytes=len(data), limit_bytes=STATE_LIMIT_BYTES,
            )  # fmt: skip
        position = SLOTS_BYTES
        if before is not None and before.position < SLOTS_BYTES + len(data):
            position = before.position + before.size_bytes
        sequence = 0 if before is None else (before.sequence + 1) % SEQUENCES
        slot = Slot(sequence, self._boot, position, len(data), crc32c(data), group.generation)
        self._file.pwrite(data, position)
        self._raw = None
        self._file.pwrite(*SLOTS.slot(slot.body()))
        self._slot, self._group = slot, group
        self._raw = self.raw()

    def close(self) -> None:
        self._file.close()


# The group as JSON


def encode_group(group: Group) -> bytes:
    content = {
        "generation": group.generation,
        "assignor": group.assignor,
        "topics": {name: list(topic) for name, topic in group.topics.items()},
        "members": [
            {
                **member._asdict(),
                "topics": sorted(member.topics),
                "owned": _by_topic(member.owned),
                "since": [member.owned[partition] for partition in sorted(member.owned)],
                "target": _by_topic(member.target),
            }
            for member in group.members.values()
        ],
        "starts": [[*partition, offset] for partition, offset in group.starts.items()],
    }
    return json.dumps(content, separators=(",", ":")).encode()


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


_KnownMembers = Mapping[str, tuple[object, Member]]
"""Members of the last state by id, each with the JSON that it was built from."""


class GroupDecoder:
    """Decodes successive states. A state is decoded once for all members of the group in this
    process; of the next one, unchanged members are not checked and built again.

    Threads share it. It compares what it is given with what it keeps, so it may serve other files,
    too.
    """

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._last: tuple[bytes | None, Group, _KnownMembers] = None, Group(), {}

    def decode(self, data: bytes) -> Group:
        """Return the group. Raises ``CorruptSegment`` if the data is of none."""
        last, group, before = self._last
        if data == last:
            return group
        try:
            content = json.loads(data.decode())
            topics = {_name(name): GroupTopic(_name(id_), _whole(n)) for name, (id_, n) in content["topics"].items()}
            known = {
                member.id: (item, member) for item in content["members"] for member in [_known_or_built(item, before)]
            }
            starts = {
                TopicPartition(_name(topic), _whole(number)): _whole(offset)
                for topic, number, offset in content["starts"]
            }
            members = {id_: member for id_, (_, member) in known.items()}
            group = Group(
                _whole(content["generation"], _GENERATION_MAX), _name(content["assignor"]), members, topics, starts
            )
        except own(ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CorruptSegment(f"the state of a group is damaged: {error}", position=0) from error
        since = max((max(member.owned.values(), default=0) for member in members.values()), default=0)
        if since > group.generation:
            raise CorruptSegment(f"the state of a group has partitions taken in generation {since}", position=0)
        if members and group.assignor not in ASSIGNORS:
            raise CorruptSegment(f"the state of a group names an assignor {group.assignor!r}", position=0)
        self._last = data, group, known
        return group


_DECODERS: WeakSet[GroupDecoder] = WeakSet()  # of the files that are open


def _decoder_of(path: str) -> GroupDecoder:
    decoder = next((known for known in _DECODERS if known.path == path), None)
    if decoder is None:
        decoder = GroupDecoder(path)
        _DECODERS.add(decoder)
    return decoder


def _known_or_built(item: Mapping[str, Any], known: _KnownMembers) -> Member:
    before = known.get(item["id"])
    return before[1] if before is not None and before[0] == item else _member(item)


def _member(item: Mapping[str, Any]) -> Member:
    return Member(
        id=_member_id(item["id"]),
        instance_id=_name(item["instance_id"]),
        client_id=_name(item["client_id"]),
        host=_name(item["host"]),
        pid=_whole(item["pid"]),
        cell=_whole(item["cell"], CELLS_MAX - 1),
        joined_ms=_whole(item["joined_ms"]),
        max_poll_interval_ms=_whole(item["max_poll_interval_ms"]),
        session_timeout_ms=_whole(item["session_timeout_ms"]),
        topics=frozenset(map(_name, item["topics"])),
        owned=dict(zip(_partitions(item["owned"]), map(_whole, item["since"]), strict=True)),
        target=frozenset(_partitions(item["target"])),
    )


def _partitions(by_topic: Mapping[str, list[int]]) -> list[TopicPartition]:
    return [TopicPartition(_name(topic), _whole(number)) for topic, numbers in by_topic.items() for number in numbers]


def _name(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _NAME_LIMIT:
        raise ValueError(f"{value!r:.80} is no name")
    return value


def _member_id(value: Any) -> str:
    """Return the id. It is also a file name: no other text from a file may become one."""
    if not isinstance(value, str) or not _MEMBER_ID.fullmatch(value):
        raise ValueError(f"{value!r:.80} is no member's id")
    return value


def _whole(value: Any, most: int = INT64_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{value!r:.80} is not a number from 0 to {most}")
    return value
