"""``.pylog/settings.json``: options of a whole log, for every process. Missing: the defaults.

The manifest, which is written once, can't have them.
"""

from __future__ import annotations

import reprlib
from typing import Any, NamedTuple

from pylog.catalog.manifest import damaged_field, is_whole, read_json, write_json
from pylog.codec.format import INT64_MAX
from pylog.errors import FormatVersionError
from pylog.interrupts import own
from pylog.storage import FileSystem


class LogSettings(NamedTuple):
    """``max_bytes``: the bound of all files of all partitions. -1: none."""

    max_bytes: int = -1

    def as_dict(self) -> dict[str, Any]:
        """The options by name."""
        return self._asdict()


def read_settings(filesystem: FileSystem, path: str) -> LogSettings:
    """Return the settings; raise ``CorruptSegment``, or ``FormatVersionError`` if a later version
    wrote an option."""
    try:
        content = read_json(filesystem, path)
    except own(FileNotFoundError):
        return LogSettings()
    for option in content.keys() - set(LogSettings._fields):
        raise FormatVersionError(
            f"{path} has the option {reprlib.repr(option)}, which this pylog does not know; upgrade pylog",
            path=path, field=option,
        )  # fmt: skip
    max_bytes = content.get("max_bytes", -1)
    if not is_whole(max_bytes) or not -1 <= max_bytes <= INT64_MAX:
        raise damaged_field(path, "max_bytes", max_bytes, f"an int from -1 to {INT64_MAX}")
    return LogSettings(max_bytes)


def write_settings(filesystem: FileSystem, path: str, settings: LogSettings) -> LogSettings:
    """Durable on return. The caller holds the catalog's lock."""
    write_json(filesystem, path, settings.as_dict())
    return settings
