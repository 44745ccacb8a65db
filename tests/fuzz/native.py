"""The compiled decoder alone, as often as possible: mutants in place, behind them a page that may
not be read.

One payload is laid down and then poked: some bytes are changed, it is decoded, the bytes are put
back. A decoder that reads one byte too far dies of it; what it was reading stands in the scratch
file, which is where the payload lies (``scratch.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

from pylog.codec.format import MIN_RECORD_BYTES
from pylog.errors import CorruptRecord
from tests.fuzz.record_targets import NUMBERS, compare, compiled
from tests.fuzz.scratch import Scratch
from tests.fuzz.target import Target

BURST = 2000  # executions with one payload laid down
_BYTES = bytes([0, 1, 2, 3, 4, 0x0C, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF])


def burst(target: Target, pool: list[bytes], chance: Random, scratch: Scratch) -> tuple[int, int]:
    """So many executions from one mutant: how many there were, and how many of them decoded
    something."""
    data = target.mutator(chance, pool).mutant()
    if len(data) < NUMBERS.size + 1:
        data = pool[0]
    numbers = NUMBERS.unpack_from(data)
    if chance.random() < 0.8:  # numbers that let the records be looked at
        count = min(numbers[0] % 8, (len(data) - NUMBERS.size) // MIN_RECORD_BYTES)
        numbers = (count, abs(numbers[1] >> 2), numbers[2] >> 2, numbers[3], numbers[4] & 0x7FFFFFFF | 0xFFFF)
    payload = scratch.lay_down(NUMBERS.pack(*numbers), data[NUMBERS.size :])
    right = _poke(payload, _ways(numbers), chance)
    _agree(payload, numbers)
    return BURST, right


def once(data: bytes, scratch: Scratch) -> None:
    """Every way through one input, in front of the page that may not be read."""
    if len(data) <= NUMBERS.size:
        return
    payload = scratch.lay_down(data[: NUMBERS.size], data[NUMBERS.size :])
    for way in _ways(NUMBERS.unpack_from(data)):
        with contextlib.suppress(CorruptRecord):
            way(payload)


def _ways(numbers: tuple[int, ...]) -> tuple[Callable[[Any], object], ...]:
    count, base_offset, base_timestamp, append_time, last_delta = numbers
    decoder, columns = compiled.RecordDecoder, compiled.decode_columns
    target = min(base_offset + 2, 2**63 - 1)

    def take(view: Any) -> object:
        return decoder(view, count, base_offset, base_timestamp, append_time, "t", 0, last_delta).take(9)

    def skip(view: Any) -> object:
        walk = decoder(view, count, base_offset, base_timestamp, append_time, "t", 0, last_delta)
        walk.skip_to(target)
        return walk.take(1)

    def with_headers(view: Any) -> object:
        return columns(view, count, base_offset, base_timestamp, append_time, True, last_delta)

    def without_headers(view: Any) -> object:
        return columns(view, count, base_offset, base_timestamp, append_time, False, last_delta)

    return take, with_headers, without_headers, take, skip


def _poke(payload: memoryview, ways: tuple[Callable[[Any], object], ...], chance: Random) -> int:
    """The tightest loop there is: a byte is another, and another, then the payload is right
    again."""
    size, right, way, ends = len(payload), 0, 0, len(ways)
    original = bytes(payload)
    draws = memoryview(chance.randbytes(BURST * 4)).cast("I")
    palette = len(_BYTES)
    for number, draw in enumerate(draws):
        at = (draw >> 8) % size
        payload[at] = _BYTES[draw % palette] if draw & 0x80 else draw & 0xFF
        try:
            ways[way](payload[at & 3 :] if draw & 0x40000000 else payload)
            right += 1
        except CorruptRecord:
            pass
        way += 1
        if way == ends:
            way = 0
        if number & 3 == 3:
            payload[:] = original
    payload[:] = original
    return right


def _agree(payload: memoryview, numbers: tuple[int, ...]) -> None:
    """One of each burst is looked at by both codecs."""
    with contextlib.suppress(CorruptRecord):
        compare(bytes(payload), numbers)
