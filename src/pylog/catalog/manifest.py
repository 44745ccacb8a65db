"""``.pylog/manifest.json`` marks a directory as a log, of one format. Written once, atomically."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pylog.codec.format import INT64_MAX, INT64_MIN
from pylog.errors import CorruptSegment, FormatVersionError
from pylog.interrupts import own
from pylog.storage import FileSystem, read_whole, write_atomically

if TYPE_CHECKING:
    from typing import TypeGuard

FORMAT = 1
_LIMIT_BYTES = 1 << 20
RESTORE = "; restore the file from a copy"
"""How the error for a damaged file ends."""
_LOCK_KINDS = ("ofd", "flock")


class Manifest(NamedTuple):
    """The facts of a log that never change."""

    log_id: str
    locks: str
    created_ms: int


def read_manifest(filesystem: FileSystem, path: str) -> Manifest | None:
    """The manifest, or None if there is none. ``FormatVersionError`` for a newer format."""
    try:
        content = read_json(filesystem, path)
    except own(FileNotFoundError):
        return None
    version = content.get("format")
    if not is_whole(version) or version != FORMAT:
        raise FormatVersionError(
            f"{path} has format {reprlib.repr(version)}, this pylog knows {FORMAT}; upgrade pylog",
            path=path, field="format", version=version, expected=FORMAT,
        )  # fmt: skip
    features = content.get("features", [])
    if not isinstance(features, list):
        raise damaged_field(path, "features", features, "a list")
    if features:
        raise FormatVersionError(
            f"{path} needs features this pylog does not have: {reprlib.repr(features)}; upgrade pylog",
            path=path, field="features", features=features,
        )  # fmt: skip
    return _facts(path, content)


def _facts(path: str, content: dict[str, Any]) -> Manifest:
    log_id, locks, created_ms = (content.get(field) for field in Manifest._fields)
    if not isinstance(log_id, str) or not log_id:
        raise damaged_field(path, "log_id", log_id, "a UUID")
    if not isinstance(locks, str) or locks not in _LOCK_KINDS:
        raise damaged_field(path, "locks", locks, f"one of {', '.join(_LOCK_KINDS)}")
    if not is_whole(created_ms) or not INT64_MIN <= created_ms <= INT64_MAX:
        raise damaged_field(path, "created_ms", created_ms, "milliseconds since 1970 in 64 bits")
    return Manifest(log_id, locks, created_ms)


def write_manifest(filesystem: FileSystem, path: str, locks: str, now_ms: int) -> Manifest:
    manifest = Manifest(_random_uuid(filesystem), locks, now_ms)
    write_json(filesystem, path, {"format": FORMAT, **manifest._asdict()})
    return manifest


def _random_uuid(filesystem: FileSystem) -> str:
    """A UUID of version 4, like ``str(uuid4())``: importing ``uuid`` would take 2 ms."""
    bits = int.from_bytes(filesystem.random_bytes(16), "big")
    bits = bits & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x4000 << 64 | 0x8000 << 48
    digits = f"{bits:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def read_json(filesystem: FileSystem, path: str, limit_bytes: int = _LIMIT_BYTES) -> dict[str, Any]:
    """A small JSON object. ``CorruptSegment`` if the file is something else."""
    data = read_whole(filesystem, path, limit_bytes)
    try:
        content = json.loads(data.decode())  # else json would detect the encoding, and import for it
    except own(ValueError, RecursionError) as error:
        raise CorruptSegment(f"{path} is damaged: it is not JSON ({error}){RESTORE}", path=path, position=0) from error
    if not isinstance(content, dict):
        raise CorruptSegment(
            f"{path} is damaged: it holds {reprlib.repr(content)}, expected an object{RESTORE}",
            path=path, position=0,
        )  # fmt: skip
    return content


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a JSON value is a whole number: neither ``1.0`` nor ``true``."""
    return isinstance(value, int) and not isinstance(value, bool)


def damaged_field(path: str, field: str, value: object, expected: str) -> CorruptSegment:
    """The error for a field of a file that is missing or invalid."""
    return CorruptSegment(
        f"{path} is damaged: {field} is {reprlib.repr(value)}, expected {expected}{RESTORE}",
        path=path, position=0, field=field, value=value, expected=expected,
    )  # fmt: skip


def write_json(
    filesystem: FileSystem, path: str, content: dict[str, Any], check: Callable[[int], object] | None = None
) -> None:
    """Durable on return. ``check`` is called with the size before anything is written, and may
    raise."""
    data = (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()
    if check is not None:
        check(len(data))
    write_atomically(filesystem, path, data)
