"""What files of at most 1 MiB cost whoever opens them: each is put into a log, which is verified,
consumed and dumped.

Run in a process of its own by ``test_bounds.py``; prints a line of JSON for each: name, outcome,
how far the peak of memory rose above what there was, and seconds. ``/proc/self/clear_refs`` makes
the peak start anew.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import zstandard

from pylog.codec import RecordEncoder
from pylog.codec.checksum import crc32c
from pylog.codec.compression import compress
from pylog.codec.format import GZIP, LZ4, SNAPPY, ZSTD
from pylog.errors import PylogError
from pylog.log import Log
from tests.codec.reference import TS0, Raw, batch_of, encode, take_payload, varint
from tests.fuzz import directories, engine
from tests.fuzz.record_targets import repair_crc
from tests.fuzz.segment_targets import repair_seal
from tests.partition.logs import headers_that_claim_everything

FILE_BYTES_MAX = 1 << 20
EMPTY_RECORDS = 300_000  # as many as compressed records of nothing fit into a file of a mebibyte, and some more
LOG = "00000000000000000000.log"


def _of(codec: int, payload: bytes, count: int = 1, **fields: int) -> bytes:
    return bytes(batch_of(payload, count, attributes=codec, leader_epoch=0, **fields))


def _zstd_bomb(blocks: int) -> bytes:
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return bytes.fromhex("28b52ffd0058") + block * blocks + b"\1\0\0"


def _gzip_bomb(size: int) -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(size >> 20)) + squeeze.flush()


def _empty_records() -> bytes:
    """Right records, with nothing in them: what they cost is objects."""
    encoder = RecordEncoder(1 << 24)
    encoder.extend(TS0, [None] * EMPTY_RECORDS, None, 0)
    return take_payload(encoder)


def _many_headers(count: int, real: int = 400_000) -> bytes:
    return encode(Raw(headers_count=count, rest=bytes(2 * real)))


def _headered_records(count: int) -> bytes:
    return b"".join(encode(Raw(0, at, headers_count=65_536, rest=bytes(2 * 65_536))) for at in range(count))


def _seal(count: int) -> bytes:
    data = bytearray(52 + 8 * count)
    repair_seal(data)
    struct.pack_into(">q", data, 16, 1 << 40)
    repair_seal(data)
    return bytes(data)


def _snapshot(count: int) -> bytes:
    entries = b"".join(struct.pack(">qhiqiqiq", at, 0, 1, 1, 0, TS0, 0, -1) for at in range(count))
    body = struct.pack(">i", count) + entries
    return struct.pack(">hI", 1, crc32c(body)) + body


def _claiming(length: int) -> bytes:
    batch = bytearray(_of(0, encode(Raw())))
    struct.pack_into(">i", batch, 8, length)
    repair_crc(batch)
    return bytes(batch)


INPUTS: dict[str, tuple[str, Callable[[], bytes]]] = {
    # within what one batch may hold, and yet no records
    "zstd of 120 MiB": (LOG, lambda: _of(ZSTD, _zstd_bomb(960))),
    # beyond it
    "gzip of 160 MiB": (LOG, lambda: _of(GZIP, _gzip_bomb(160 << 20))),
    "gzip within gzip": (LOG, lambda: _of(GZIP, compress(GZIP, _gzip_bomb(60 << 20), 9))),
    "gzip of many members": (LOG, lambda: _of(GZIP, _gzip_bomb(2 << 20) * 400)),
    "zstd of 32 GiB": (LOG, lambda: _of(ZSTD, _zstd_bomb(250_000))),
    "zstd that says its size": (LOG, lambda: _of(ZSTD, zstandard.compress(bytes(400 << 20)))),
    "lz4 of 240 MiB": (LOG, lambda: _of(LZ4, compress(LZ4, bytes(240 << 20), None))),
    "snappy that claims 4 GiB": (LOG, lambda: _of(SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(1000))),
    "snappy of 20 MiB": (LOG, lambda: _of(SNAPPY, compress(SNAPPY, bytes(20 << 20), None))),
    # numbers
    "2**31 - 1 headers": (LOG, lambda: _of(0, _many_headers(2**31 - 1))),
    "400,000 headers": (LOG, lambda: _of(0, _many_headers(400_000))),
    "65,536 headers a record": (LOG, lambda: _of(0, _headered_records(7), 7)),
    "2**31 - 1 records": (LOG, lambda: _of(ZSTD, compress(ZSTD, bytes(7000), None), 2**31 - 1)),
    "records of nothing": (LOG, lambda: _of(ZSTD, compress(ZSTD, _empty_records(), 3), EMPTY_RECORDS)),
    "a record that claims 2 GiB": (LOG, lambda: _of(0, encode(Raw(value=bytes(900_000), value_size=2**31 - 1)))),
    "a record of 2 GiB": (LOG, lambda: _of(0, varint(2**31 - 1) + bytes(900_000))),
    "a batch that claims 2 GiB": (LOG, lambda: _claiming(2**31 - 1)),
    "headers that claim everything": (LOG, lambda: headers_that_claim_everything(FILE_BYTES_MAX)),
    "many small batches": (LOG, lambda: b"".join(_of(0, encode(Raw()), base_offset=at) for at in range(13_000))),
    "zeros": (LOG, lambda: bytes(FILE_BYTES_MAX)),
    # the files beside it
    "an index of zeros": ("00000000000000000000.index", lambda: bytes(FILE_BYTES_MAX)),
    "a time index of ones": ("00000000000000000000.timeindex", lambda: b"\xff" * FILE_BYTES_MAX),
    "30,000 aborted transactions": (
        "00000000000000000000.txnindex",
        lambda: b"".join(struct.pack(">hqqqq", 0, 7, at, at + 1, at) for at in range(1, 30_000)),
    ),
    "a seal of 100,000 batches": ("00000000000000000000.seal", lambda: _seal(100_000)),
    "a snapshot of 22,000 producers": ("00000000000000000006.snapshot", lambda: _snapshot(22_000)),
    "slots of noise": (".commit", lambda: bytes(range(256)) * 4096),
    "a checkpoint of lines": ("leader-epoch-checkpoint", lambda: b"0\n200000\n" + b"0 0\n" * 200_000),
    "a checkpoint of ends of lines": ("leader-epoch-checkpoint", lambda: b"\n" * FILE_BYTES_MAX),
    "a manifest of brackets": ("../.pylog/manifest.json", lambda: b"[" * FILE_BYTES_MAX),
    "a manifest of lists": ("../.pylog/manifest.json", lambda: b'{"features": [' + b"[]," * 340_000 + b"[]]}"),
    "a topic of digits": ("../.pylog/topics/t.json", lambda: b'{"id":"a","partitions":' + b"9" * 1_000_000 + b"}"),
    "producer ids of digits": ("../.pylog/producer-ids", lambda: b"9" * FILE_BYTES_MAX),
}

DECOMPRESSED = {  # what is decompressed until the limit is reached
    "zstd of 120 MiB", "gzip of 160 MiB", "gzip of many members", "lz4 of 240 MiB",
}  # fmt: skip


def run(root: Path) -> Iterator[dict[str, object]]:
    """One line for each way into each log."""
    right = root / "right"
    with Log(right) as log:
        log.create_topic("t", index_interval_bytes=100)
        for at in range(3):
            for name in (b"a", b"b"):
                log.partition("t", 0).log.append_batch(batch_of(encode(Raw(value=name)), 1))
            if at < 2:
                log.partition("t", 0).log.roll()
    for step in directories.STEPS:  # everything is loaded before anything is measured
        step(Path(shutil.copytree(right, root / "warm", dirs_exist_ok=True)))
    for title, (file, make) in INPUTS.items():
        data = make()
        assert len(data) <= FILE_BYTES_MAX, f"{title} has {len(data)} bytes"
        log_path = root / "log"
        shutil.copytree(right, log_path)
        place = log_path / "t-0" / file
        if file == LOG:
            for other in (log_path / "t-0").glob("0*"):
                other.unlink()
            (log_path / "t-0" / ".commit").unlink()
        place.write_bytes(data)
        size = len(data)
        del data
        # A step takes seconds, and the other steps read the file in the same way.
        ways = directories.STEPS[:2] if title in DECOMPRESSED else directories.STEPS
        for step in ways:
            yield {"name": title, "file_bytes": size, "step": step.__name__.strip("_"), **measured(step, log_path)}
        shutil.rmtree(log_path)


def measured(step: Callable[[Path], str], path: Path) -> dict[str, object]:
    ctypes.CDLL(None).malloc_trim(0)  # what making the input took is given back first
    Path("/proc/self/clear_refs").write_text("5")
    before, started = engine.peak_bytes(), time.perf_counter()
    try:
        said = step(path)
    except PylogError as error:
        said = f"{type(error).__name__}: {str(error)[:200]}"
    return {
        "said": said,
        "grown_bytes": engine.peak_bytes() - before,
        "seconds": round(time.perf_counter() - started, 4),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="pylog-bounds-", dir=sys.argv[1]) as made, engine.quiet():
        for line in run(Path(made)):
            print(json.dumps(line), flush=True)
