"""Run by test_hostile_records: decodes mutated payloads in front of a page that may not be read,
and counts verdicts."""

import ctypes
import mmap
import random
import sys

from pylog.codec import _records as codec
from pylog.errors import CorruptRecord
from tests.codec.reference import TS0, Raw, payload_of

PROT_NONE = 0


def take(view: memoryview, count: int) -> None:
    codec.RecordDecoder(view, count, 0, TS0, -1, "t", 0).take(9)


def skip(view: memoryview, count: int) -> None:
    codec.RecordDecoder(view, count, 0, TS0, -1, "t", 0).skip_to(9)


def columns(view: memoryview, count: int) -> None:
    codec.decode_columns(view, count, 0, TS0, -1, True)


def newest(view: memoryview, count: int) -> None:
    codec.KeyMap(1 << 10, b"s" * 16).newest(view, count, 0, TS0, -1, 300, 300, False)


def main(seed: int, rounds: int) -> None:
    random.seed(seed)
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    corrupt = right = 0
    for _ in range(rounds):
        raws = [
            Raw(
                random.randrange(300),
                i,
                b"k" * random.randrange(80),
                b"v" * random.randrange(80),
                ((b"h", b"x"),) * (i % 2),
            )
            for i in range(random.randrange(1, 4))
        ]
        payload = bytearray(payload_of(raws))
        del payload[random.choice([len(payload), random.randrange(1, len(payload))]) :]
        for _ in range(random.choice([0, 0, 1, 2])):
            payload[random.randrange(len(payload))] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)])
        view = memoryview(pages)[mmap.PAGESIZE - len(payload) : mmap.PAGESIZE]
        view[:] = payload
        for decode in (take, skip, columns, newest):
            try:
                decode(view, len(raws))
                right += 1
            except CorruptRecord:
                corrupt += 1
    print(corrupt, right)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
