"""Prints every code point in every place that the command line has for data. Run by
``test_terminal.py`` on a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

from pylog.cli.main import main
from pylog.cli.output import complain, print_table

CHUNK = 8192
PLACES = ("text", "format", "table", "errors", "arguments", "logging")


def chunks(size: int = CHUNK) -> Iterator[str]:
    """All 1,114,112 code points."""
    for start in range(0, sys.maxunicode + 1, size):
        yield "".join(map(chr, range(start, start + size)))


def show(place: str, log_dir: str) -> int:
    """Print all of them there; how many lines that is."""
    if place in ("text", "format"):
        options = {"text": [], "format": ["--format", "%t|%p|%o|%T|%d|%k|%v|%h|%K|%V"]}[place]
        assert main(["consume", "t", "--from-beginning", "--log", log_dir, *options]) == 0
        return sum(1 for _ in chunks()) + 1
    if place == "arguments":
        return sum(map(_pass, chunks(1 << 16)))
    lines = 0
    for chunk in chunks():
        if place == "table":
            print_table(("TOPIC", "SIZE"), [(chunk, 1)])
        elif place == "errors":
            complain("error", chunk)
        else:
            _log(chunk)
        lines += 2 if place == "table" else 1
    return lines


def _pass(chunk: str) -> int:
    calls = [[chunk], ["dump", chunk], ["topics", "list", "--log", chunk]]
    assert all(main(arguments) != 0 for arguments in calls)
    return len(calls)


def _log(chunk: str) -> None:
    """As a warning of the library comes out while a command runs."""
    from pylog.cli.main import _library_warnings

    with _library_warnings():
        logging.getLogger("pylog.partition").warning("%s", chunk)


if __name__ == "__main__":
    lines = [show(place, sys.argv[1]) for place in sys.argv[2:]]
    sys.stdout.write(f"{sum(lines)} lines\n")
