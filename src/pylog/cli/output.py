"""Everything the command line prints. Data cannot steer a terminal, and one answer is one line.

Text shows control characters, marks that change the reading direction, invisible characters and
lone surrogates as backslash escapes (``\\x1b``, ``\\u202e``), and bytes that are not UTF-8 as
``\\xff``. A backslash is not escaped, so harmless text is unchanged. JSON is ASCII. Both are the
same on a terminal, in a file or in a pipe: docs/cli.md.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

# C0, DEL and C1; Arabic letter mark, zero width space, left-to-right and right-to-left marks; line
# and paragraph separator, bidi embeddings and overrides; invisible operators, bidi isolates,
# deprecated format characters; surrogates; byte order mark; interlinear annotation; tags. The zero
# width joiners stay: scripts and emoji need them.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def safe(text: str) -> str:
    """``text`` with everything escaped that could steer a terminal, hide, or begin a new line."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return _SHORT.get(character) or (f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}")


def safe_bytes(data: bytes | None) -> str:
    """Bytes as safe text: UTF-8, else ``\\xff``; ``null`` for None."""
    return "null" if data is None else safe(data.decode("utf-8", "backslashreplace"))


def json_line(fields: dict[str, Any]) -> str:
    """One JSON object on one line of printable ASCII."""
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).replace("\x7f", "\\u007f")


def bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """``{name: text}`` if the bytes are UTF-8, else ``{name_base64: …}``; None is ``{name:
    null}``."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def time_text(timestamp_ms: int | None) -> str:
    """``2023-11-14T22:13:20.000Z``; the number if no calendar has it, ``-`` for none."""
    if timestamp_ms is None or timestamp_ms == -1:
        return "-"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size_text(size_bytes: int) -> str:
    """``12.3 MiB``"""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(duration_ms: int) -> str:
    """``4.2 s``, ``3.0 min``, ``20.5 h``, ``31.0 d``"""
    for unit, unit_ms in (("s", 1000), ("min", 60_000), ("h", 3_600_000)):
        if duration_ms < 120 * unit_ms:
            return f"{duration_ms / unit_ms:.1f} {unit}"
    return f"{duration_ms / 86_400_000:.1f} d"


def count_text(count: int, thing: str) -> str:
    """``1 batch``, ``2 batches``, ``3 records``"""
    plural = "es" if thing.endswith(("s", "ch")) else "s"
    return f"{count} {thing if count == 1 else thing + plural}"


def print_line(text: str) -> None:
    """One line of safe text on stdout."""
    sys.stdout.write(safe(text) + "\n")


def print_json(fields: dict[str, Any]) -> None:
    sys.stdout.write(json_line(fields) + "\n")


def print_answer(as_json: bool, fields: dict[str, Any], text: str) -> None:
    """One line on stdout: JSON, or safe text."""
    sys.stdout.write((json_line(fields) if as_json else safe(text)) + "\n")


def table_lines(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Columns of safe text, numbers aligned right. Nothing if there are no rows."""
    cells = [[safe(str(cell)) for cell in row] for row in rows]
    if not cells:
        return []
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    to_the_right = [
        all(re.fullmatch(r"-|[0-9.,]+( \w+)?", cell) for cell in column) and {*column} != {"-"}
        for column in zip(*cells, strict=True)
    ]
    return [
        "  ".join([
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_the_right, strict=True)
        ]).rstrip()
        for line in [list(titles), *cells]
    ]  # fmt: skip


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    sys.stdout.write("".join([line + "\n" for line in table_lines(titles, rows)]))


def complain(kind: str, text: str) -> None:
    """One line on stderr: ``pylog: error: …``"""
    sys.stdout.flush()
    sys.stderr.write(f"pylog: {kind}: {safe(text)}\n")
    sys.stderr.flush()
