"""``.pylog/manifest.json``: says that a directory is a pylog log, and of which format. Written once, atomically."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pylog.errors import CorruptSegment, FormatVersionError
from pylog.storage import FileSystem, read_whole, write_atomically

FORMAT = 1
_LIMIT_BYTES = 1 << 20


class Manifest(NamedTuple):
    """The facts of a log that never change."""

    log_id: str
    locks: str
    created_ms: int


def read_manifest(filesystem: FileSystem, path: str) -> Manifest | None:
    """The manifest, or None where there is none. ``FormatVersionError`` for a newer format."""
    try:
        content = read_json(filesystem, path)
    except FileNotFoundError:
        return None
    if content.get("format") != FORMAT:
        raise FormatVersionError(
            f"{path} has format {content.get('format')!r}, this pylog knows {FORMAT}; upgrade pylog",
            path=path,
            version=content.get("format"),
            expected=FORMAT,
        )
    unknown = content.get("features", [])
    if unknown:
        raise FormatVersionError(
            f"{path} needs features this pylog does not have: {unknown!r}", path=path, features=unknown
        )
    try:
        return Manifest(str(content["log_id"]), str(content["locks"]), int(content["created_ms"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptSegment(f"{path} lacks or garbles {error}", path=path, position=0) from error


def write_manifest(filesystem: FileSystem, path: str, locks: str, now_ms: int) -> Manifest:
    manifest = Manifest(_random_uuid(filesystem), locks, now_ms)
    write_json(filesystem, path, {"format": FORMAT, **manifest._asdict()})
    return manifest


def _random_uuid(filesystem: FileSystem) -> str:
    """A UUID of version 4, as ``str(uuid4())`` writes it; the ``uuid`` module would cost each start two milliseconds."""
    bits = int.from_bytes(filesystem.random_bytes(16), "big")
    bits = bits & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x4000 << 64 | 0x8000 << 48
    digits = f"{bits:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def read_json(filesystem: FileSystem, path: str) -> dict[str, Any]:
    """A small JSON object. ``CorruptSegment`` where it is something else."""
    data = read_whole(filesystem, path, _LIMIT_BYTES)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptSegment(f"{path} is not JSON: {error}", path=path, position=0) from error
    if not isinstance(content, dict):
        raise CorruptSegment(f"{path} holds a {type(content).__name__}, expected an object", path=path, position=0)
    return content


def write_json(filesystem: FileSystem, path: str, content: dict[str, Any]) -> None:
    """Durable on return."""
    write_atomically(filesystem, path, (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())
