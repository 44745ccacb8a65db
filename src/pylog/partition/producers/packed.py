"""Producers in the form that a snapshot has them: one after another by rising id, found by halving.

So a partition of a hundred thousand producers opens, and writes its next snapshot, in milliseconds:
only what is asked for becomes an object, and only what has changed is packed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pylog.codec import find_producer, without_expired
from pylog.codec.format import Buffer
from pylog.codec.producer_entries import PRODUCER_ENTRY, PRODUCER_ENTRY_BYTES, ProducerFields

FIRST_NAMED_ID = 1 << 62
"""The ids of named producers begin here: see producer/named.py. They are never forgotten."""


class PackedProducers:
    """``count`` possible entries by rising id."""

    __slots__ = ("_data", "count")

    def __init__(self, data: Buffer = b"") -> None:
        self._replace(data)

    def _replace(self, data: Buffer) -> None:
        self._data = data  # what was read, as long as nothing is packed into it: copies of megabytes take milliseconds
        self.count = len(data) // PRODUCER_ENTRY_BYTES

    def __iter__(self) -> Iterator[ProducerFields]:
        return map(ProducerFields._make, PRODUCER_ENTRY.iter_unpack(self._data))

    @property
    def data(self) -> Buffer:
        """All entries."""
        return self._data

    def get(self, producer_id: int) -> tuple[int, ...] | None:
        """The ``ProducerFields`` of a producer, if it is there."""
        index = find_producer(self._data, producer_id)
        return PRODUCER_ENTRY.unpack_from(self._data, index * PRODUCER_ENTRY_BYTES) if index >= 0 else None

    def merge(self, changed: Sequence[tuple[int, ...]]) -> None:
        """Take in ``ProducerFields`` by rising id: in the place of those of the same producers, or
        between the others."""
        if not self.count:
            self._replace(bytearray().join([PRODUCER_ENTRY.pack(*fields) for fields in changed]))
            return
        data = self._data if isinstance(self._data, bytearray) else bytearray(self._data)
        pieces: list[Buffer] = []
        taken = 0
        for fields in changed:
            index = find_producer(data, fields[0])
            if index >= 0:
                PRODUCER_ENTRY.pack_into(data, index * PRODUCER_ENTRY_BYTES, *fields)
            else:
                at = ~index * PRODUCER_ENTRY_BYTES
                pieces += [data[taken:at], PRODUCER_ENTRY.pack(*fields)]
                taken = at
        self._replace(bytearray().join([*pieces, data[taken:]]) if pieces else data)

    def expire(self, before_ms: int, before_offset: int) -> None:
        """Leave out those that ``without_expired`` leaves out, but none with a name."""
        found = find_producer(self._data, FIRST_NAMED_ID)
        end = (found if found >= 0 else ~found) * PRODUCER_ENTRY_BYTES  # of those without a name
        named = bytes(self._data[end:])
        left = without_expired(self._data[:end] if named else self._data, before_ms, before_offset)
        self._replace(bytearray().join((left, named)) if named else left)
