"""A record as a line of text."""

from __future__ import annotations

import pytest

from pylog.cli.exits import UsageError
from pylog.cli.formats import text_format
from pylog.model import Record

RECORD = Record("orders", 2, 17, 1_700_000_000_000, b"k", b"value", (("a", b"1"), ("b", None)))


@pytest.mark.parametrize(
    ("format", "shown"),
    [
        ("%v", "value"),
        ("%t-%p@%o", "orders-2@17"),
        ("%T %d", "1700000000000 2023-11-14T22:13:20.000Z"),
        ("%k=%v", "k=value"),
        ("%K %V", "1 5"),
        ("[%h]", "[a=1,b=null]"),
        ("100%%", "100%"),
        ("%k\\t%v\\n\\\\", "k\tvalue\n\\"),
        ("", ""),
        ("no field", "no field"),
        ("%o\n%v", "17\nvalue"),
    ],
)
def test_each_field_says_its_part(format: str, shown: str) -> None:
    assert text_format(format)(RECORD) == shown


def test_null_and_empty_are_told_apart_by_their_size() -> None:
    empty = RECORD._replace(key=None, value=b"")
    assert text_format("%k %K|%v %V")(empty) == "null -1| 0"


@pytest.mark.parametrize("format", ["%x", "%", "a%", "\\x", "\\"])
def test_what_means_nothing_is_refused(format: str) -> None:
    with pytest.raises(UsageError, match="there are"):
        text_format(format)
