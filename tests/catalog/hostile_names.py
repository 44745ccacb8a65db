"""Names that try to leave their directory, or to take the place of another."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

PIECES = [
    *(
        "..",
        ".",
        "/",
        "\\",
        "\0",
        "\n",
        "-",
        "--",
        "_",
        " ",
        "\x1b",
        "\x7f",
        "~",
        "$HOME",
        "%2e%2e%2f",
        ":",
        "*",
        "?",
        "|",
    ),
    *(
        "con",
        "NUL",
        "com1",
        "aux.txt",
        "é",
        "e\u0301",
        "\uff0e\uff0e",
        "\u2215",
        "\udcff",
        "\ud800",
        "\U0001f4a5",
        "\ufb00",
    ),
    *(
        "a",
        "B",
        "0",
        "topic",
        "orders",
        ".pylog",
        "manifest.json",
        ".json",
        ".tmp",
        "-0",
        "-delete",
        "-stray",
        "\u202e",
    ),
    *("a" * 200, "b" * 49, "\u212a", "\u0131"),
    *("%", "%2E", "%2f", "%41", "A", "lock", ".lock", "\uffff"),
]


def hostile_names(draw: random.Random) -> Iterator[str]:
    """Every piece, every pair of them, and then mixtures without end."""
    yield from PIECES
    yield from map("".join, itertools.product(PIECES, repeat=2))
    while True:
        yield "".join(draw.choice(PIECES) for _ in range(draw.randrange(3, 9)))
