"""Options that commands share, and how their values are parsed.

The log is ``--log DIR``, before or after the command, or the environment variable PYLOG_LOG.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, BinaryIO

from pylog.cli.exits import UsageError

if TYPE_CHECKING:
    from pylog.log import Log

LOG_VARIABLE = "PYLOG_LOG"
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")

# No default in a command's parser, so that a value before the command stays.
_UNSET = argparse.SUPPRESS

Commands = Any
"""The type that ``ArgumentParser.add_subparsers`` returns; argparse has no public name for it."""


def log_options() -> argparse.ArgumentParser:
    """``--log`` and ``--json``, as a parent of a command's parser."""
    options = json_option()
    options.add_argument(
        "--log", metavar="DIR", default=_UNSET, help=f"the directory of the log (default: ${LOG_VARIABLE})"
    )
    return options


def json_option() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("--json", action="store_true", default=_UNSET, help="one JSON object per line")
    return options


def open_log(arguments: argparse.Namespace, *, writing: bool | None = None, create: bool = False) -> Log:
    """The log of ``--log`` or the environment, read-only for a command that ``only_reads``. If that
    depends on its options, the command says whether it is ``writing``."""
    path = arguments.log or os.environ.get(LOG_VARIABLE)
    if not path:
        raise UsageError(f"which log? Name its directory with --log DIR or in ${LOG_VARIABLE}")
    from pylog.log import Log

    return Log(path, create=create, read_only=bool(arguments.only_reads) if writing is None else not writing)


def open_input(path: str | None, otherwise: str) -> AbstractContextManager[BinaryIO]:
    """The file, or stdin for None. ``UsageError`` without stdin: ``otherwise`` is what to do."""
    if path is not None:
        return open(path, "rb")
    if sys.stdin is None:
        raise UsageError(f"there is no stdin to read from; {otherwise}")
    return nullcontext(sys.stdin.buffer)


def whole_number(least: int | None = None) -> Any:
    """An argparse type: an int that is at least ``least``."""

    def whole_number(text: str) -> int:
        if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit() or len(text) > 19:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
        number = int(text)
        if least is not None and number < least:
            raise argparse.ArgumentTypeError(f"{number}: expected {least} or more")
        return number

    return whole_number


TIME_FORMS = (
    "milliseconds since 1970, ISO 8601 (2024-05-01T12:00:00Z; UTC unless it says otherwise), or a duration ago (PT1H)"
)


def moment_ms(text: str, now_ms: int) -> int:
    """A time: milliseconds since 1970, ISO 8601 (UTC by default), or how long ago (``PT1H``)."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    if text[:1] in ("P", "p"):
        from pylog.consumer.reset import parse_duration_ms

        return max(0, now_ms - parse_duration_ms(text))
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else ""))
    except ValueError:
        raise UsageError(
            f"time {text!r}: expected milliseconds since 1970, 2024-05-01T12:00:00Z, or a duration ago such as PT1H"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return max(0, since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000)


def topic_config(pairs: list[str]) -> dict[str, Any]:
    """``["retention.ms=1000"]`` as keywords of ``Log.create_topic``, or with Kafka's names."""
    from pylog.catalog import TopicConfig
    from pylog.checks import meant
    from pylog.manager.opening import ELSEWHERE

    known = TopicConfig().as_dict()
    chosen: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        option = name.replace(".", "_").replace("-", "_")
        if not equals:
            raise UsageError(f"--config {pair!r}: expected OPTION=VALUE")
        if option not in known:
            raise UsageError(f"--config {pair!r}: no option {name!r}; {meant(option, known, ELSEWHERE)}")
        chosen[option] = _typed(option, value, known[option])
    return chosen


def _typed(option: str, value: str, default: object) -> object:
    if isinstance(default, bool):
        if value not in ("true", "false"):
            raise UsageError(f"--config {option}={value}: expected true or false")
        return value == "true"
    if isinstance(default, int | float):
        try:
            return type(default)(value)
        except ValueError:
            kind = "whole number" if isinstance(default, int) else "number"
            raise UsageError(f"--config {option}={value}: {value!r} is no {kind}") from None
    return None if default is None and value == "none" else value


def header_pair(text: str) -> tuple[str, bytes]:
    """An argparse type: ``name=value`` of ``--header``."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE")
    return name, os.fsencode(value)
