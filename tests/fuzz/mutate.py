"""Makes hostile inputs of right ones. Seeded: the same seed and the same inputs make the same
mutants.

What a mutation damages on its way is mended afterwards by the target's ``repair`` (lengths,
checksums), nearly always, so that mutants get past the checksum and at the code behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

from tests.codec.reference import padded, varint

Mutation = Callable[[Random, bytearray], None]
Repair = Callable[[bytearray], object]
Fields = Callable[[bytes], list[tuple[int, int]]]
"""Position and width of each number that stands in an input at a place of its own."""

SIZE_MAX = 16 << 10  # of a mutant: small inputs are quick, and say as much
BOUNDARIES = sorted(
    {
        sign * (1 << bits) + off
        for bits in (0, 5, 6, 7, 8, 13, 14, 15, 16, 31, 32, 62, 63)
        for sign in (1, -1)
        for off in (-1, 0, 1)
    }
)
VARINTS = [
    *(varint(value) for value in BOUNDARIES),
    *(padded(value, size) for value in (0, 1, -1, 3) for size in (2, 3, 5, 6, 10, 11)),
    *(b"\x80" * size for size in (1, 2, 4, 5, 9, 10, 200)),
    *(b"\xff" * size for size in (2, 4, 5, 9, 10)),
    b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x10", b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02",
]  # fmt: skip


def put_number(data: bytearray, at: int, width: int, value: int) -> None:
    """A big-endian number over what stands there, as much of it as there is room for."""
    encoded = (value & (1 << 8 * width) - 1).to_bytes(width, "big")
    data[at : at + width] = encoded[: max(len(data) - at, 0)]


def flip_bit(chance: Random, data: bytearray) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def set_byte(chance: Random, data: bytearray) -> None:
    data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, chance.randrange(256)))


def set_number(chance: Random, data: bytearray) -> None:
    put_number(data, chance.randrange(len(data)), chance.choice((1, 2, 4, 8)), chance.choice(BOUNDARIES))


def add_to_number(chance: Random, data: bytearray) -> None:
    at, width = chance.randrange(len(data)), chance.choice((1, 2, 4, 8))
    put_number(data, at, width, int.from_bytes(data[at : at + width], "big") + chance.randrange(-35, 36))


def set_varint(chance: Random, data: bytearray) -> None:
    """Another varint where one may stand; the bytes behind it move."""
    at = end = chance.randrange(len(data))
    while end < len(data) - 1 and data[end] >= 0x80:
        end += 1
    data[at : end + 1] = chance.choice(VARINTS) if chance.random() < 0.6 else varint(chance.randrange(-70, 300))


def truncate(chance: Random, data: bytearray) -> None:
    del data[chance.randrange(len(data)) :]


def remove_slice(chance: Random, data: bytearray) -> None:
    at, size = _slice(chance, data)
    del data[at : at + size]


def double_slice(chance: Random, data: bytearray) -> None:
    at, size = _slice(chance, data)
    data[at:at] = data[at : at + size] * chance.choice((1, 1, 2, 8))


def move_slice(chance: Random, data: bytearray) -> None:
    at, size = _slice(chance, data)
    piece = data[at : at + size]
    del data[at : at + size]
    to = chance.randrange(len(data) + 1)
    data[to:to] = piece


def fill_slice(chance: Random, data: bytearray) -> None:
    at, size = _slice(chance, data)
    data[at : at + size] = chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size)))


def insert(chance: Random, data: bytearray) -> None:
    at, size = chance.randrange(len(data) + 1), chance.choice((1, 1, 2, 4, 8, 61, 64))
    data[at:at] = chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size)))


def change_word(chance: Random, data: bytearray) -> None:
    """Another number where digits stand, as text."""
    found = list(re.finditer(rb"-?[0-9]+", data))
    if found:
        match = chance.choice(found)
        data[match.start() : match.end()] = b"%d" % (
            chance.choice(BOUNDARIES) if chance.random() < 0.7 else int(match[0][:400]) + chance.randrange(-3, 4)
        )


def _slice(chance: Random, data: bytearray) -> tuple[int, int]:
    return chance.randrange(len(data)), chance.choice((1, 2, 4, 8, 12, 21, 61, chance.randrange(1, len(data) + 1)))


MUTATIONS: tuple[Mutation, ...] = (
    flip_bit, flip_bit, set_byte, set_byte, set_number, add_to_number, set_varint, set_varint, truncate, remove_slice,
    double_slice, move_slice, fill_slice, insert, change_word,
)  # fmt: skip


def nothing(_data: bytearray) -> None:
    """A repair where there is nothing to repair."""


def no_fields(_data: bytes) -> list[tuple[int, int]]:
    return []


class Mutator:
    """Mutants of the inputs in ``pool``, which may grow meanwhile."""

    def __init__(
        self,
        chance: Random,
        pool: Sequence[bytes],
        *,
        repair: Repair = nothing,
        fields: Fields = no_fields,
        inner: Mutation | None = None,
        words: Sequence[bytes] = (),
        right: int = 0,
    ) -> None:
        """Half of the mutants come from the first ``right`` inputs, which are right ones, if it
        says how many these are.

        ``inner`` mutates behind a layer of its own (what is compressed, a framed record) and puts
        the layer back."""
        self._chance = chance
        self._pool = pool
        self._right = pool[:right] or pool
        self._repair = repair
        self._fields = fields
        self._inner = inner
        self._words = words

    def mutant(self) -> bytes:
        chance = self._chance
        data = bytearray(chance.choice(self._right if chance.random() < 0.5 else self._pool))
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5))):
            self._mutate(data)
        if chance.random() < 0.9:
            self._repair(data)
        return bytes(data[:SIZE_MAX])

    def _mutate(self, data: bytearray) -> None:
        chance, kind = self._chance, self._chance.random()
        if not data:
            data += chance.choice(self._pool)[: chance.randrange(1, 100)]
        if not data:
            data += chance.randbytes(chance.randrange(1, 100))
        elif kind < 0.25 and (fields := self._fields(bytes(data))):
            at, width = chance.choice(fields)
            put_number(data, at, width, chance.choice(BOUNDARIES) if chance.random() < 0.8 else chance.getrandbits(64))
        elif kind < 0.55 and self._inner is not None:
            self._inner(chance, data)
        elif kind < 0.6:
            other = chance.choice(self._pool)
            at = chance.randrange(len(data) + 1)
            data[at:] = other[chance.randrange(len(other) + 1) :]
        elif kind < 0.75 and self._words:
            at = chance.randrange(len(data) + 1)
            data[at : at + chance.choice((0, 0, 1, 4))] = chance.choice(self._words)
        else:
            chance.choice(MUTATIONS)(chance, data)


def mutate_once(chance: Random, data: bytearray) -> None:
    """Any mutation, for what lies behind a layer."""
    if data:
        chance.choice(MUTATIONS)(chance, data)
    else:
        data += chance.randbytes(chance.randrange(1, 20))
