"""Compressed payloads: what is written, what is read, and what is refused before it costs
memory."""

from __future__ import annotations

import contextlib
import gzip
import os
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.codec.compression import DEFAULT_DECOMPRESSED_LIMIT, codec_id, codec_name, compress, decompress
from pylog.codec.format import CODEC_NAMES, GZIP, LZ4, SNAPPY, ZSTD
from pylog.errors import ConfigError, CorruptRecord, MissingCodec

COMPRESSED = [GZIP, SNAPPY, LZ4, ZSTD]
LIMIT = DEFAULT_DECOMPRESSED_LIMIT
XERIAL = bytes.fromhex("82534e415050590000000001" + "00000001")
TEXT = b"".join(b"line %d of some text that repeats itself\n" % i for i in range(5000))  # 200 KB, several blocks

zstandard = pytest.importorskip("zstandard")
lz4_frame = pytest.importorskip("lz4.frame")
snappy = pytest.importorskip("cramjam").snappy


def raw_snappy(data: bytes) -> bytes:
    return bytes(snappy.compress_raw(data))


def skippable(data: bytes, number: int = 0) -> bytes:
    return struct.pack("<II", 0x184D2A50 + number, len(data)) + data


def zstd_without_size(data: bytes, **options: Any) -> bytes:
    stream = zstandard.ZstdCompressor(**options).compressobj()
    return bytes(stream.compress(data) + stream.flush())


# There and back


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
@settings(max_examples=60)
@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.sampled_from([0, 1, 32767, 32768, 32769, 65535, 65536, 65537, 131072, 131073, 300_000]).map(bytes),
        st.integers(0, len(TEXT)).map(lambda n: TEXT[:n]),
    ),
    kind=st.sampled_from([bytes, bytearray, memoryview]),
)
def test_what_is_compressed_comes_back(codec: int, data: bytes, kind: Callable[[bytes], Any]) -> None:
    compressed = compress(codec, kind(data), None)
    assert type(compressed) is bytes
    assert decompress(codec, kind(compressed), len(data)) == data
    assert decompress(codec, compressed, LIMIT) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_same_data_is_always_compressed_to_the_same_bytes(codec: int) -> None:
    assert len({compress(codec, TEXT, None) for _ in range(5)}) == 1
    assert len(compress(codec, TEXT, None)) < len(TEXT) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "levels"),
    [(GZIP, range(1, 10)), (LZ4, range(1, 18)), (ZSTD, [-131072, -5, -1, 0, 1, 3, 9, 19, 22])],
    ids=["gzip", "lz4", "zstd"],
)
def test_every_level_comes_back(codec: int, levels: list[int]) -> None:
    text = TEXT[:70_000]
    for level in levels:
        assert decompress(codec, compress(codec, text, level), len(text)) == text
    assert len(compress(codec, text, levels[-1])) < len(compress(codec, text, levels[0]))


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (GZIP, 0),
        (GZIP, 10),
        (GZIP, -1),
        (LZ4, 0),
        (LZ4, 18),
        (ZSTD, 23),
        (ZSTD, "3"),
        (ZSTD, 3.0),
        (SNAPPY, 0),
        (SNAPPY, 1),
    ],
)
def test_a_level_the_codec_does_not_have_is_refused(codec: int, level: Any) -> None:
    with pytest.raises(ConfigError, match=CODEC_NAMES[codec]):
        compress(codec, b"", level)


def test_codecs_have_names_and_numbers() -> None:
    for number, name in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        assert (codec_id(name), codec_name(number)) == (number, name)
    for wrong in ("GZIP", "", "brotli"):
        with pytest.raises(ConfigError, match="none, gzip, snappy, lz4, zstd"):
            codec_id(wrong)
    for number in (-1, 5, 7):
        with pytest.raises(ConfigError):
            codec_name(number)
        with pytest.raises(ConfigError):
            compress(number, b"", None)
        with pytest.raises(CorruptRecord):
            decompress(number, b"", LIMIT)


# What is written is what Kafka asks for


def test_gzip_has_no_name_and_no_time() -> None:
    compressed = compress(GZIP, TEXT, None)
    assert compressed[:8] == bytes.fromhex("1f8b080000000000")
    assert gzip.decompress(compressed) == TEXT


def test_lz4_has_independent_blocks_of_64_kib_without_sizes_and_checksums() -> None:
    compressed = compress(LZ4, TEXT, None)
    assert compressed[:7] == bytes.fromhex("04224d18604082")
    assert lz4_frame.get_frame_info(compressed)["block_linked"] is False
    assert lz4_frame.decompress(compressed) == TEXT


def test_snappy_is_framed_as_xerial_does_with_blocks_of_32_kib() -> None:
    compressed = compress(SNAPPY, TEXT, None)
    assert compressed[:16] == XERIAL
    blocks, position = [], 16
    while position < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, position)
        blocks.append(bytes(snappy.decompress_raw(compressed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert b"".join(blocks) == TEXT
    assert {len(block) for block in blocks[:-1]} == {32768}


def test_zstd_is_one_plain_frame() -> None:
    compressed = compress(ZSTD, TEXT, None)
    parameters = zstandard.get_frame_parameters(compressed)
    assert (parameters.content_size, parameters.dict_id, parameters.has_checksum) == (len(TEXT), 0, False)
    assert zstandard.ZstdDecompressor().decompress(compressed) == TEXT


# What others write is read


OTHERS = {
    "gzip with name": (
        GZIP,
        gzip.compress(TEXT[:100])[:3]
        + b"\x08"
        + gzip.compress(TEXT[:100])[4:10]
        + b"name\0"
        + gzip.compress(TEXT[:100])[10:],
    ),
    "gzip members": (GZIP, gzip.compress(TEXT[:50]) + gzip.compress(b"") + gzip.compress(TEXT[50:100])),
    "zstd frames": (ZSTD, zstandard.compress(TEXT[:50]) + zstandard.compress(b"") + zstandard.compress(TEXT[50:100])),
    "zstd without size": (ZSTD, zstd_without_size(TEXT[:100])),
    "zstd without size, frames": (
        ZSTD,
        zstd_without_size(TEXT[:30]) + zstd_without_size(b"") + zstd_without_size(TEXT[30:100]),
    ),
    "zstd with checksum": (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT[:100])),
    "zstd with skippable frames": (ZSTD, skippable(b"") + zstandard.compress(TEXT[:100]) + skippable(b"x" * 300, 15)),
    "lz4 with sizes and checksums": (
        LZ4,
        lz4_frame.compress(TEXT[:100], content_checksum=True, block_checksum=True, block_linked=False),
    ),
    "lz4 frames": (LZ4, compress(LZ4, TEXT[:50], None) + compress(LZ4, b"", None) + compress(LZ4, TEXT[50:100], None)),
    "lz4 with skippable frames": (LZ4, skippable(b"x" * 70) + compress(LZ4, TEXT[:100], None) + skippable(b"")),
    "lz4 of 4 MiB blocks": (
        LZ4,
        lz4_frame.compress(TEXT[:100], block_size=lz4_frame.BLOCKSIZE_MAX4MB, block_linked=False),
    ),
    "snappy raw": (SNAPPY, raw_snappy(TEXT[:100])),
    "snappy streams": (
        SNAPPY,
        compress(SNAPPY, TEXT[:50], None) + compress(SNAPPY, b"", None) + compress(SNAPPY, TEXT[50:100], None),
    ),
    "snappy with version in the wrong byte order": (
        SNAPPY,
        XERIAL[:8] + b"\1\0\0\0\1\0\0\0" + compress(SNAPPY, TEXT[:100], None)[16:],
    ),
    "snappy of one large block": (
        SNAPPY,
        XERIAL + struct.pack(">i", len(raw_snappy(TEXT[:100]))) + raw_snappy(TEXT[:100]),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_writers_frames_are_read(name: str) -> None:
    codec, data = OTHERS[name]
    assert decompress(codec, data, 100) == TEXT[:100]
    with pytest.raises(CorruptRecord):
        decompress(codec, data, 99)


def test_large_frames_of_others_are_read() -> None:
    data = TEXT * 20
    assert decompress(ZSTD, zstd_without_size(data), len(data)) == data
    assert (
        decompress(LZ4, lz4_frame.compress(data, block_size=lz4_frame.BLOCKSIZE_MAX4MB, block_linked=False), len(data))
        == data
    )
    assert decompress(GZIP, gzip.compress(data) * 3, 3 * len(data)) == data * 3


def test_lz4_blocks_that_depend_on_one_another_are_refused_as_kafka_does() -> None:
    with pytest.raises(CorruptRecord, match="depend"):
        decompress(LZ4, lz4_frame.compress(TEXT, block_linked=True), LIMIT)
    with pytest.raises(CorruptRecord, match="depend"):
        decompress(LZ4, compress(LZ4, TEXT, None) + lz4_frame.compress(TEXT, block_linked=True), LIMIT)


# The limit


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", [1, 100, 65536, len(TEXT), 3_000_000])
def test_the_limit_is_exact_and_the_error_names_limit_and_codec(codec: int, size: int) -> None:
    data = (TEXT * 20)[:size]
    compressed = compress(codec, data, None)
    assert decompress(codec, compressed, size) == data
    with pytest.raises(
        CorruptRecord, match=f"{CODEC_NAMES[codec]} payload holds more than the limit of {size - 1} bytes"
    ) as raised:
        decompress(codec, compressed, size - 1)
    assert (raised.value.codec, raised.value.limit_bytes) == (CODEC_NAMES[codec], size - 1)


def test_the_limit_of_a_zstd_frame_that_does_not_say_its_size_is_named() -> None:
    compressor = zstandard.ZstdCompressor(write_checksum=False).compressobj()
    frame = compressor.compress(TEXT) + compressor.flush()
    assert decompress(ZSTD, frame, len(TEXT)) == TEXT
    with pytest.raises(CorruptRecord, match=f"zstd payload holds more than the limit of {len(TEXT) - 1} bytes"):
        decompress(ZSTD, frame, len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_limit_of_nothing_holds(codec: int) -> None:
    assert decompress(codec, compress(codec, b"", None), 0) == b""
    with pytest.raises(CorruptRecord):
        decompress(codec, compress(codec, b"x", None), 0)


def zstd_bomb(blocks: int) -> bytes:
    """Blocks of one byte repeated 128 Ki times, four bytes each, in a frame that does not say its
    size."""
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return bytes.fromhex("28b52ffd0058") + block * blocks + b"\1\0\0"


def lz4_bomb(size: int) -> bytes:
    return bytes(
        lz4_frame.compress(bytes(size), block_size=lz4_frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False)
    )


def gzip_bomb(size: int) -> bytes:
    squeeze = zlib.compressobj(6, zlib.DEFLATED, 31)
    return b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(size >> 20)) + squeeze.flush()


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (GZIP, lambda: gzip_bomb(128 << 20)),
    "gzip members": (GZIP, lambda: gzip_bomb(2 << 20) * 64),
    "zstd repeated bytes": (ZSTD, lambda: zstd_bomb(8 * 1024)),
    "zstd blocks": (ZSTD, lambda: zstd_without_size(b"pylog, " * (18 << 20))),
    "zstd with size": (ZSTD, lambda: bytes(zstandard.compress(bytes(128 << 20)))),
    "zstd frames": (ZSTD, lambda: bytes(zstandard.compress(bytes(16 << 20)) * 64)),
    "zstd claims 2**62": (ZSTD, lambda: bytes.fromhex("28b52ffde0") + (2**62).to_bytes(8, "little") + b"\1\0\0"),
    "zstd claims 16 MiB": (ZSTD, lambda: bytes.fromhex("28b52ffda0") + (1 << 24).to_bytes(4, "little") + b"\1\0\0"),
    "zstd window of 2 GiB": (ZSTD, lambda: bytes.fromhex("28b52ffd00a8") + b"\1\0\0"),
    "lz4": (LZ4, lambda: lz4_bomb(128 << 20)),
    "lz4 frames": (LZ4, lambda: lz4_bomb(16 << 20) * 16),
    "snappy claims 4 GiB": (SNAPPY, lambda: b"\xff\xff\xff\xff\x0f"),
    "snappy claims 16 MiB": (SNAPPY, lambda: b"\x80\x80\x80\x08" + bytes(100)),
    "snappy raw": (SNAPPY, lambda: raw_snappy(bytes(64 << 20))),
    "xerial claims 4 GiB": (SNAPPY, lambda: XERIAL + struct.pack(">i", 5) + b"\xff\xff\xff\xff\x0f"),
    "xerial": (
        SNAPPY,
        lambda: XERIAL + (struct.pack(">i", len(raw_snappy(bytes(32768)))) + raw_snappy(bytes(32768))) * 2000,
    ),
}


REFUSED_AT_SIGHT = {name for name in BOMBS if "claims" in name} | {
    "zstd repeated bytes",
    "zstd with size",
    "zstd window of 2 GiB",
    "snappy raw",
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process's memory is read from /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_corrupt_and_its_memory_bounded(name: str) -> None:
    """In a process of its own: what the peak grows by is the limit, once as output and once in the
    library, at most."""
    codec, make = BOMBS[name]
    script = (
        "import re, sys\n"
        "from pylog.codec.compression import compress, decompress\n"
        "from pylog.errors import CorruptRecord\n"
        "peak_kib = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "codec, limit = int(sys.argv[1]), int(sys.argv[2])\n"
        "decompress(codec, compress(codec, b'warm', None), 10)\n"
        "bomb = sys.stdin.buffer.read()\n"
        "before = peak_kib()\n"
        "try:\n"
        "    decompress(codec, bomb, limit)\n"
        "except CorruptRecord:\n"
        "    print(peak_kib() - before)\n"
    )
    limit = 20 << 20
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(codec), str(limit)], input=make(), env=paths, capture_output=True, check=True
    )
    grown_bytes = int(done.stdout) * 1024
    assert grown_bytes <= (1 << 20 if name in REFUSED_AT_SIGHT else 2 * limit + (6 << 20))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("zstd claims 16 MiB", "claims 16777216 bytes, but its blocks hold at most 0"),
        ("zstd claims 2**62", "claims 4611686018427387904 bytes, but its blocks hold at most 0"),
        ("zstd repeated bytes", f"more than the limit of {LIMIT} bytes"),
        ("snappy claims 4 GiB", f"more than the limit of {LIMIT} bytes"),
        ("snappy claims 16 MiB", "claims 16777216 bytes in a block of 104"),
    ],
)
def test_a_claim_is_compared_with_what_the_input_can_hold(name: str, words: str) -> None:
    codec, make = BOMBS[name]
    with pytest.raises(CorruptRecord, match=words):
        decompress(codec, make(), LIMIT)


@pytest.mark.parametrize("make", [zstd_without_size, zstandard.compress], ids=["without size", "with size"])
def test_a_zstd_frame_that_is_cut_off_is_told_from_one_too_large(make: Callable[[bytes], bytes]) -> None:
    frame = make(os.urandom(1000))
    for size in range(20, len(frame)):
        with pytest.raises(CorruptRecord, match="cut off"):
            decompress(ZSTD, frame[:size], 1000)


# Damage


@pytest.mark.parametrize("name", [*OTHERS, *map(str, COMPRESSED)])
def test_every_truncation_is_corrupt_or_ends_between_frames(name: str) -> None:
    codec, data = OTHERS[name] if name in OTHERS else (int(name), compress(int(name), TEXT[:100], None))
    for size in range(len(data)):
        try:
            output = decompress(codec, data[:size], 100)
        except CorruptRecord as error:
            assert CODEC_NAMES[codec] in str(error)  # noqa: PT017 - both ways may be right
        else:
            assert TEXT[:100].startswith(output)
            assert "frames" in name or codec in (GZIP, SNAPPY) or output == TEXT[:100]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_no_truncation_of_what_we_write_is_read_as_whole(codec: int) -> None:
    compressed = compress(codec, TEXT[:70_000], None)
    for size in {*range(0, len(compressed), 97), *range(40), *range(len(compressed) - 40, len(compressed))}:
        try:
            assert decompress(codec, compressed[:size], LIMIT) != TEXT[:70_000]
        except CorruptRecord:
            continue
        assert codec == SNAPPY  # whose framing has no end: the records' count finds that some are missing


@pytest.mark.parametrize("name", [*OTHERS, *map(str, COMPRESSED)])
def test_a_flipped_bit_is_never_more_than_corrupt(name: str) -> None:
    codec, data = OTHERS[name] if name in OTHERS else (int(name), compress(int(name), TEXT[:100], None))
    damaged = bytearray(data)
    for bit in range(8 * len(data)):
        damaged[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(CorruptRecord):
            assert len(decompress(codec, bytes(damaged), 5000)) <= 5000
        damaged[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("codec", COMPRESSED)
@settings(max_examples=150)
@given(noise=st.binary(max_size=60), offset=st.integers(0, 40))
def test_noise_is_never_more_than_corrupt(codec: int, noise: bytes, offset: int) -> None:
    start = compress(codec, TEXT[:50], None)[:offset]
    for data in (noise, start + noise):
        with contextlib.suppress(CorruptRecord):
            assert len(decompress(codec, data, 5000)) <= 5000


@pytest.mark.parametrize("codec", COMPRESSED)
def test_nothing_and_trailing_noise_are_corrupt(codec: int) -> None:
    with pytest.raises(CorruptRecord):
        decompress(codec, b"", LIMIT)
    for rest in (b"\0", b"\xff" * 30, b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", XERIAL[:12]):
        with pytest.raises(CorruptRecord):
            decompress(codec, compress(codec, TEXT[:100], None) + rest, LIMIT)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 1, 11, 13, 2**31 - 1, -2108469695])
def test_a_xerial_block_of_a_wrong_size_is_corrupt(size: int) -> None:
    block = raw_snappy(b"some bytes")
    assert len(block) == 12
    for data in (
        XERIAL + struct.pack(">i", size) + block,
        compress(SNAPPY, b"x", None) + struct.pack(">i", size) + block,
    ):
        fits = 0 < size <= len(block)  # then it is snappy that finds the block wrong
        with pytest.raises(CorruptRecord, match="snappy: corrupt input" if fits else f"block of {size} bytes, but"):
            decompress(SNAPPY, data, LIMIT)


@pytest.mark.parametrize("version", [0, -1, -(2**31)])
def test_a_xerial_version_below_the_first_is_corrupt(version: int) -> None:
    with pytest.raises(CorruptRecord, match="xerial version"):
        decompress(SNAPPY, XERIAL[:8] + struct.pack(">ii", version, 1) + compress(SNAPPY, b"x", None)[16:], LIMIT)


@pytest.mark.slow
def test_many_empty_parts_take_time_in_proportion() -> None:
    """A decoder that copies the rest of the input for each part would take minutes here."""
    count = 50_000
    for codec, part in (
        (GZIP, gzip.compress(b"")),
        (ZSTD, zstandard.compress(b"")),
        (ZSTD, skippable(b"")),
        (LZ4, compress(LZ4, b"", None)),
        (SNAPPY, XERIAL),
        (ZSTD, b""),
    ):
        data = part * count if part else bytes.fromhex("28b52ffd0058") + b"\0\0\0" * 10 * count + b"\1\0\0"
        assert decompress(codec, data, 0) == b""


# Libraries and threads


@pytest.mark.parametrize(("codec", "package"), [(SNAPPY, "cramjam"), (LZ4, "lz4"), (ZSTD, "zstandard")])
def test_a_missing_library_is_named_with_what_to_install(
    codec: int, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed = compress(codec, b"x", None)
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)

    def work() -> None:
        for call in (
            lambda: compress(codec, b"x", 2 if codec == ZSTD else None),
            lambda: decompress(codec, compressed, 10),
        ):
            with pytest.raises(MissingCodec, match="pip install") as raised:
                call()
            assert (raised.value.codec, raised.value.package) == (CODEC_NAMES[codec], package)
        done.append(True)

    done: list[bool] = []
    thread = threading.Thread(target=work)  # one that has no context of before
    thread.start()
    thread.join()
    assert done


def test_libraries_are_loaded_when_they_are_used() -> None:
    script = (
        "import sys, pylog.codec.batch as batch\n"
        "from pylog.codec import RecordEncoder\n"
        "encoder = RecordEncoder(100); encoder.append(1, b'', b'', ())\n"
        "batch.build_batch(encoder)\n"
        "print(sorted({'zstandard', 'lz4', 'cramjam', 'pyarrow', 'pyspark'} & set(sys.modules)))"
    )
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=paths, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_threads_do_not_disturb_one_another(codec: int) -> None:
    texts = [TEXT[i * 1000 : i * 1000 + 60_000] for i in range(4)]
    right: list[int] = []

    def work(number: int) -> None:
        if all(decompress(codec, compress(codec, texts[number], None), 60_000) == texts[number] for _ in range(30)):
            right.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(right) == [0, 1, 2, 3]
