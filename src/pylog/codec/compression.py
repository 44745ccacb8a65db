"""Compresses and decompresses payloads; ``decompress`` never returns more than the caller's limit.

The framing of each codec is Kafka's. The libraries zlib, zstandard, and of the extra ``codecs``
lz4 and cramjam (for snappy), are imported at first use. Sizes in the input are compared with
the limit, and with what the input can hold, before memory is allocated. Several frames, members or
xerial streams in a row are read as one. Output depends only on data, level and library version.
"""

from __future__ import annotations

import threading  # a compression context serves one thread at a time
import zlib
from collections.abc import Callable
from typing import Any

from pylog.codec.format import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    LZ4_BLOCK_INDEPENDENT_BIT,
    LZ4_FRAME_MAGIC,
    NONE,
    SKIPPABLE_FRAME_MAGIC,
    SNAPPY,
    SNAPPY_MAX_RATIO,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER_STRUCT,
    XERIAL_MAGIC,
    XERIAL_SIZE_STRUCT,
    XERIAL_VERSION,
    ZSTD,
    ZSTD_MAX_BLOCK_BYTES,
    Buffer,
)
from pylog.errors import ConfigError, CorruptRecord, MissingCodec
from pylog.interrupts import own

DEFAULT_DECOMPRESSED_LIMIT = 128 * 1024 * 1024  # of one batch; larger ones are not compressed

_LEVELS = {  # lowest, highest, default
    GZIP: (1, 9, 6),
    LZ4: (1, 17, 1),
    ZSTD: (-131072, 22, 3),
}
_INPUT_STEP = 64 * 1024  # zlib copies input that it has not read yet
_OUTPUT_STEP = 1024 * 1024  # at most this much is decompressed before it is counted

# A zstandard context takes longer to make than a batch to compress
_of_this_thread = threading.local()


def codec_id(name: str) -> int:
    if name not in CODEC_NAMES:
        raise ConfigError(f"compression codec {name!r}, expected one of {', '.join(CODEC_NAMES)}", codec=name)
    return CODEC_NAMES.index(name)


def codec_name(codec: int) -> str:
    if not 0 <= codec < len(CODEC_NAMES):
        raise ConfigError(f"compression codec {codec!r}, expected 0 to {len(CODEC_NAMES) - 1}", codec=codec)
    return CODEC_NAMES[codec]


def compress(codec: int, data: Buffer, level: int | None) -> bytes:
    """``data`` compressed. ``ConfigError`` for a level that the codec does not have,
    ``MissingCodec``."""
    name = codec_name(codec)
    if codec == NONE:
        return bytes(data)
    if codec not in _LEVELS:
        if level is not None:
            raise _wrong_level(f"but {name} has no levels", name, level)
        return _compress_snappy(data)
    lowest, highest, usual = _LEVELS[codec]
    if level is None:
        level = usual
    if not isinstance(level, int) or not lowest <= level <= highest:
        raise _wrong_level(f"expected {lowest} to {highest} for {name}", name, level)
    return _COMPRESSORS[codec](data, level)


def _wrong_level(why: str, codec: str, level: object) -> ConfigError:
    return ConfigError(f"compression level {level!r}, {why}", option="compression_level", codec=codec, level=level)


def decompress(codec: int, data: Buffer, limit_bytes: int) -> bytes | bytearray:
    """``data`` decompressed. ``CorruptRecord`` if that is more than ``limit_bytes``, or if the
    input is cut off, damaged or followed by other bytes; ``MissingCodec`` without the codec's
    library."""
    if codec == NONE:
        return bytes(data)
    if codec not in _DECOMPRESSORS:
        raise CorruptRecord(f"compression codec {codec}, expected 0 to {len(CODEC_NAMES) - 1}", codec=codec)
    return _DECOMPRESSORS[codec](memoryview(data), limit_bytes)


def _beyond_limit(codec: int, limit_bytes: int) -> CorruptRecord:
    name = CODEC_NAMES[codec]
    return CorruptRecord(
        f"{name} payload holds more than the limit of {limit_bytes} bytes for the records of one batch; a consumer with a "
        "greater fetch_max_bytes reads up to that",
        codec=name,
        limit_bytes=limit_bytes,
    )


def _invalid(codec: int, position: int, reason: object) -> CorruptRecord:
    name = CODEC_NAMES[codec]
    return CorruptRecord(f"{name} payload at position {position}: {reason}", codec=name, payload_position=position)


def _missing(codec: int, package: str) -> MissingCodec:
    name = CODEC_NAMES[codec]
    return MissingCodec(
        f"codec {name} needs the package {package}: pip install 'pylog-embedded[codecs]', or pip install {package}",
        codec=name,
        package=package,
    )


# gzip: RFC 1952, without name and time


def _compress_gzip(data: Buffer, level: int) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: memoryview, limit_bytes: int) -> bytes | bytearray:
    output = bytearray()
    position = 0
    while True:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        start = position
        while not member.eof:
            if position == len(data):
                raise _invalid(GZIP, start, f"cut off at {position}")
            step = data[position : position + _INPUT_STEP]
            room = min(limit_bytes - len(output) + 1, _OUTPUT_STEP)  # never 0: zlib takes it for no limit
            try:
                output += member.decompress(step, room)
            except zlib.error as error:
                raise _invalid(GZIP, start, error) from error
            if len(output) > limit_bytes:
                raise _beyond_limit(GZIP, limit_bytes)
            rest = member.unused_data if member.eof else member.unconsumed_tail  # at the end both may hold it
            position += len(step) - len(rest)
        if position == len(data):
            return output


# zstd: frames of RFC 8878


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise _missing(ZSTD, "zstandard") from None
    return zstandard


def _compress_zstd(data: Buffer, level: int) -> bytes:
    compressors: dict[int, Any] | None = getattr(_of_this_thread, "compressors", None)
    if compressors is None:
        compressors = _of_this_thread.compressors = {}
    if level not in compressors:
        compressors[level] = _zstandard().ZstdCompressor(level=level)
    compressed: bytes = compressors[level].compress(data)
    return compressed


def _decompress_zstd(data: memoryview, limit_bytes: int) -> bytes | bytearray:
    zstandard = _zstandard()
    decompressor = getattr(_of_this_thread, "decompressor", None)
    if decompressor is None:
        decompressor = _of_this_thread.decompressor = zstandard.ZstdDecompressor()
    outputs: list[bytes] = []
    room = limit_bytes
    position = 0
    while position < len(data) or not outputs:
        if _is_skippable(data, position):
            position = _skip_frame(ZSTD, data, position)
            outputs.append(b"")
            continue
        try:
            parameters = zstandard.get_frame_parameters(data[position:])
            header_bytes = zstandard.frame_header_size(data[position:])
        except zstandard.ZstdError as error:
            raise _invalid(ZSTD, position, error) from error
        end, least, most = _measure_zstd_frame(data, position, header_bytes, parameters.has_checksum)
        size = parameters.content_size
        if size == zstandard.CONTENTSIZE_UNKNOWN:
            size = min(most, room)
        elif size > most:
            raise _invalid(ZSTD, position, f"claims {size} bytes, but its blocks hold at most {most}")
        if max(size, least) > room:
            raise _beyond_limit(ZSTD, limit_bytes)
        try:
            output = decompressor.decompress(data[position:end], max_output_size=max(size, 1))
        except zstandard.ZstdError as error:
            if most > room and "did not decompress full frame" in str(error):
                # the frame is complete, so the room did not suffice
                raise _beyond_limit(ZSTD, limit_bytes) from error
            raise _invalid(ZSTD, position, error) from error
        outputs.append(output)
        room -= len(output)
        position = end
    return outputs[0] if len(outputs) == 1 else b"".join(outputs)


def _measure_zstd_frame(data: memoryview, start: int, header_bytes: int, has_checksum: bool) -> tuple[int, int, int]:
    """The end of a frame, and the least and most bytes it can hold, from its block headers."""
    position = start + header_bytes
    least = most = 0
    is_last = False
    while not is_last:
        block = int.from_bytes(data[position : position + 3], "little")
        if position + 3 > len(data):
            raise _invalid(ZSTD, start, f"cut off at {len(data)}")
        is_last = bool(block & 1)
        kind, size = block >> 1 & 3, block >> 3
        if kind in (0, 1):  # raw, or one byte repeated
            least += size
            most += size
        else:
            most += ZSTD_MAX_BLOCK_BYTES
        position += 3 + (1 if kind == 1 else size)
    position += 4 if has_checksum else 0
    if position > len(data):
        raise _invalid(ZSTD, start, f"cut off at {len(data)}, expected {position} bytes")
    return position, least, most


def _is_skippable(data: memoryview, position: int) -> bool:
    return int.from_bytes(data[position : position + 4], "little") in SKIPPABLE_FRAME_MAGIC


def _skip_frame(codec: int, data: memoryview, position: int) -> int:
    end = position + 8 + int.from_bytes(data[position + 4 : position + 8], "little")
    if end > len(data):
        raise _invalid(codec, position, f"cut off at {len(data)}, expected {end} bytes")
    return end


# lz4: frames of version 1, independent blocks of 64 KiB, as Kafka requires


def _lz4_frame() -> Any:
    try:
        import lz4.frame
    except ImportError:
        raise _missing(LZ4, "lz4") from None
    return lz4.frame


def _compress_lz4(data: Buffer, level: int) -> bytes:
    frame = _lz4_frame()
    compressed: bytes = frame.compress(
        data,
        compression_level=level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return compressed


def _decompress_lz4(data: memoryview, limit_bytes: int) -> bytes | bytearray:
    frame = _lz4_frame()
    output = bytearray()
    position = 0
    while position < len(data) or position == 0:
        if _is_skippable(data, position):
            position = _skip_frame(LZ4, data, position)
            continue
        if data[position : position + 4] != LZ4_FRAME_MAGIC or len(data) < position + 5:
            raise _invalid(LZ4, position, f"not a frame of version 1: {bytes(data[position : position + 5]).hex()}")
        if not data[position + 4] & LZ4_BLOCK_INDEPENDENT_BIT:
            raise _invalid(LZ4, position, "its blocks depend on each other, which Kafka does not allow")
        context = frame.create_decompression_context()
        start, is_whole = position, False
        step = min(4 * len(data) + XERIAL_BLOCK_BYTES, _OUTPUT_STEP)
        while not is_whole:
            room = min(limit_bytes - len(output) + 1, step)
            try:
                piece, taken, is_whole = frame.decompress_chunk(context, data[position:], max_length=room)
            except own(RuntimeError) as error:
                raise _invalid(LZ4, start, error) from error
            if not piece and not taken and not is_whole:
                raise _invalid(LZ4, start, f"cut off at {len(data)}")
            output += piece
            position += taken
            step = _OUTPUT_STEP
            if len(output) > limit_bytes:
                raise _beyond_limit(LZ4, limit_bytes)
    return output


# snappy: raw blocks of 32 KiB in the framing of xerial's snappy-java; a bare raw block is read too


def _snappy() -> Any:
    try:
        import cramjam
    except ImportError:
        raise _missing(SNAPPY, "cramjam") from None
    return cramjam.snappy


def _compress_snappy(data: Buffer) -> bytes:
    snappy = _snappy()
    view = memoryview(data)
    parts = [XERIAL_HEADER_STRUCT.pack(XERIAL_MAGIC, XERIAL_VERSION, XERIAL_VERSION)]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += XERIAL_SIZE_STRUCT.pack(len(block)), block
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit_bytes: int) -> bytes | bytearray:
    if not _is_xerial(data, 0):
        return _decompress_snappy_block(data, 0, len(data), limit_bytes, limit_bytes)
    output = bytearray()
    position = 0
    while position < len(data):
        if _is_xerial(data, position):  # at the start, and between concatenated streams
            position = _pass_xerial_header(data, position)
            continue
        if position + XERIAL_SIZE_STRUCT.size > len(data):
            raise _invalid(SNAPPY, position, f"cut off at {len(data)}")
        (size,) = XERIAL_SIZE_STRUCT.unpack_from(data, position)
        position += XERIAL_SIZE_STRUCT.size
        if not 0 < size <= len(data) - position:
            raise _invalid(SNAPPY, position, f"block of {size} bytes, but {len(data) - position} remain")
        room = limit_bytes - len(output)
        output += _decompress_snappy_block(data, position, position + size, room, limit_bytes)
        position += size
    return output


def _is_xerial(data: memoryview, position: int) -> bool:
    return data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC


def _pass_xerial_header(data: memoryview, position: int) -> int:
    end = position + XERIAL_HEADER_STRUCT.size
    if end > len(data):
        raise _invalid(SNAPPY, position, f"xerial header cut off at {len(data)}")
    _, version, _ = XERIAL_HEADER_STRUCT.unpack_from(data, position)
    # as in snappy-java; a larger one may be 1 in the wrong byte order, which was seen
    if version < XERIAL_VERSION:
        raise _invalid(SNAPPY, position, f"xerial version {version}, expected {XERIAL_VERSION}")
    return end


def _decompress_snappy_block(data: memoryview, start: int, end: int, room: int, limit_bytes: int) -> bytes:
    snappy = _snappy()
    block = data[start:end]
    try:
        size = snappy.decompress_raw_len(block)
        if size > room:
            raise _beyond_limit(SNAPPY, limit_bytes)
        if not block or size > len(block) * SNAPPY_MAX_RATIO:
            raise _invalid(SNAPPY, start, f"claims {size} bytes in a block of {len(block)}")
        return bytes(snappy.decompress_raw(block))
    except own(CorruptRecord):
        raise
    except own(Exception) as error:  # cramjam.DecompressionError
        raise _invalid(SNAPPY, start, error) from error


_COMPRESSORS: dict[int, Callable[[Buffer, int], bytes]] = {
    GZIP: _compress_gzip,
    LZ4: _compress_lz4,
    ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[int, Callable[[memoryview, int], bytes | bytearray]] = {
    GZIP: _decompress_gzip,
    SNAPPY: _decompress_snappy,
    LZ4: _decompress_lz4,
    ZSTD: _decompress_zstd,
}
