"""One record as a line: JSON with stable keys, or text by a format string.

``%t`` topic, ``%p`` partition, ``%o`` offset, ``%T`` timestamp in milliseconds, ``%d`` date and
time in UTC, ``%k`` key, ``%v`` value, ``%h`` headers as ``name=value,name=value``, ``%K`` and
``%V`` bytes in key and value (-1 for null), ``%%`` a percent sign; ``\\n``, ``\\t`` and ``\\\\``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pylog.cli.exits import UsageError
from pylog.cli.output import bytes_field, safe, safe_bytes, time_text
from pylog.model import Header, Record

DEFAULT_FORMAT = "%v"

_FIELDS: dict[str, Callable[[Record], str]] = {
    "t": lambda record: safe(record.topic),
    "p": lambda record: str(record.partition),
    "o": lambda record: str(record.offset),
    "T": lambda record: str(record.timestamp_ms),
    "d": lambda record: time_text(record.timestamp_ms),
    "k": lambda record: safe_bytes(record.key),
    "v": lambda record: safe_bytes(record.value),
    "h": lambda record: headers_text(record.headers),
    "K": lambda record: str(_size(record.key)),
    "V": lambda record: str(_size(record.value)),
    "%": lambda _: "%",
}
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}
_TOKEN = re.compile(r"%(.?)|(\\.?)|([^%\\]+)", re.DOTALL)


def text_format(text: str) -> Callable[[Record], str]:
    """The function that renders a record by a format string. ``UsageError`` for an invalid one."""
    parts: list[Callable[[Record], str]] = []
    for match in _TOKEN.finditer(text):
        field, escape, literal = match.groups()
        if field is not None:
            if field not in _FIELDS:
                raise UsageError(f"format {text!r}: no field %{field}; there are %{' %'.join(_FIELDS)}")
            parts.append(_FIELDS[field])
        else:
            parts.append(_constant(unescaped(escape) if escape else literal))
    if len(parts) == 1:
        return parts[0]
    return lambda record: "".join([part(record) for part in parts])


def unescaped(text: str) -> str:
    """Decode ``\\n``, ``\\t`` and ``\\\\`` of an option; ``UsageError`` for other escapes."""

    def replace(match: re.Match[str]) -> str:
        if match[0] not in _ESCAPES:
            raise UsageError(f"{text!r}: no escape {match[0]!r}; there are \\n, \\t and \\\\")
        return _ESCAPES[match[0]]

    return re.sub(r"\\.?", replace, text, flags=re.DOTALL)


def record_fields(record: Record) -> dict[str, Any]:
    """A record for JSON: UTF-8 keys, values and header values as text, others as ``…_base64``."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **bytes_field("key", record.key),
        **bytes_field("value", record.value),
        "headers": [{"key": name, **bytes_field("value", value)} for name, value in record.headers],
    }


def headers_text(headers: tuple[Header, ...]) -> str:
    return ",".join(f"{safe(name)}={safe_bytes(value)}" for name, value in headers)


def _constant(text: str) -> Callable[[Record], str]:
    return lambda _: text


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
