"""No character of data steers a terminal: over every code point and every byte."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.cli.formats import record_fields, text_format
from pylog.cli.output import (
    bytes_field,
    count_text,
    duration_text,
    json_line,
    print_table,
    safe,
    safe_bytes,
    size_text,
    time_text,
)
from pylog.log import Log
from pylog.model import ProducerRecord, Record
from tests.cli.conftest import Run, environment

# Said here once more, in the words of the promise, not with the expression that is tested.
CONTROLS = {*range(0x20), *range(0x7F, 0xA0)}
BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
LINES = {0x2028, 0x2029}
SURROGATES = {*range(0xD800, 0xE000)}
TAGS = {*range(0xE0000, 0xE0080)}
FORBIDDEN = CONTROLS | BIDI | LINES | SURROGATES | TAGS
EVERY_CODE_POINT = range(sys.maxunicode + 1)


def record_of(text: str) -> Record:
    data = text.encode("utf-8", "surrogatepass")
    return Record("t", 0, 7, 1_700_000_000_000, data, data, ((text, data),))


@pytest.mark.slow
def test_of_all_code_points_none_that_is_forbidden_comes_through() -> None:
    assert len(EVERY_CODE_POINT) == 1_114_112
    through = {code for code in EVERY_CODE_POINT if chr(code) in safe(chr(code))}
    assert through & FORBIDDEN == set()
    assert {code for code in EVERY_CODE_POINT if not safe(chr(code)).isprintable()} <= through - FORBIDDEN


def test_all_code_points_in_one_text_give_one_line_without_any_that_is_forbidden() -> None:
    shown = safe("".join(map(chr, EVERY_CODE_POINT)))
    assert set(map(ord, shown)) & FORBIDDEN == set()
    assert shown.splitlines() == [shown]


@pytest.mark.slow
def test_what_steers_nothing_is_left_as_it_is() -> None:
    """Only controls, formats, separators of lines and surrogates are ever escaped; not the joiners
    of scripts and emoji."""
    escaped = {code for code in EVERY_CODE_POINT if safe(chr(code)) != chr(code)}
    assert {unicodedata.category(chr(code)) for code in escaped} <= {"Cc", "Cf", "Cs", "Zl", "Zp", "Cn"}
    assert {0x5C, 0x200C, 0x200D, 0xA0, 0x3000, 0xE000} & escaped == set()
    assert all(safe(text) == text for text in ("grüße", "日本語 テキスト", "👩‍👩‍👧", '{"a": "b\\n"}', "می‌خواهم"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("\u202e\u2066", "\\u202e\\u2066"),
        ("\U000e0041", "\\U000e0041"),
        ("\udc80", "\\udc80"),
    ],
)
def test_an_escape_reads_as_python_would_write_it(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_every_byte_alone_and_between_others_is_shown_without_control() -> None:
    for byte in range(256):
        for data in (bytes([byte]), b"a" + bytes([byte]) + b"\xc3", b"\xc2" + bytes([byte])):
            assert set(map(ord, safe_bytes(data))) & FORBIDDEN == set(), data
    shown = safe_bytes(bytes(range(256)))
    assert set(map(ord, shown)) & FORBIDDEN == set()
    assert "\\xff" in shown


def test_none_is_null() -> None:
    assert (safe_bytes(None), safe_bytes(b"")) == ("null", "")


@pytest.mark.slow
def test_every_format_field_of_every_code_point_is_safe() -> None:
    render = text_format("%t %p %o %T %d %k %v %h %K %V %%")
    for start in range(0, len(EVERY_CODE_POINT), 4096):
        text = "".join(map(chr, EVERY_CODE_POINT[start : start + 4096]))
        shown = render(record_of(text)._replace(topic=text))
        assert set(map(ord, shown)) & FORBIDDEN == set()


@pytest.mark.slow
def test_json_of_every_code_point_is_printable_ascii_and_says_the_same() -> None:
    for start in range(0, len(EVERY_CODE_POINT), 4096):
        text = "".join(map(chr, EVERY_CODE_POINT[start : start + 4096]))
        line = json_line({"text": text, text: 1})
        assert re.fullmatch("[ -~]*", line)
        shown = json.loads(line)["text"]  # in which a pair of surrogates has become one code point
        assert shown.encode("utf-16", "surrogatepass") == text.encode("utf-16", "surrogatepass")
        assert re.fullmatch("[ -~]*", json_line(record_fields(record_of(text))))


def test_json_of_every_byte_is_text_or_base64_and_says_the_same() -> None:
    for byte in range(256):
        fields = json.loads(json_line(bytes_field("value", bytes([byte]))))
        ((name, value),) = fields.items()
        assert name == ("value" if byte < 0x80 else "value_base64")
        assert (value.encode() if byte < 0x80 else base64.b64decode(value)) == bytes([byte])
    assert bytes_field("key", None) == {"key": None}


@given(st.text(), st.text())
def test_escaping_needs_only_a_character_at_a_time(first: str, second: str) -> None:
    assert safe(first + second) == safe(first) + safe(second)
    assert safe(safe(first)) == safe(first)
    assert set(map(ord, safe(first))) & FORBIDDEN == set()


@given(st.binary())
def test_bytes_of_any_kind_are_shown_safely_on_one_line(data: bytes) -> None:
    shown = safe_bytes(data)
    assert set(map(ord, shown)) & FORBIDDEN == set()
    ((name, value),) = json.loads(json_line(bytes_field("v", data))).items()
    assert (value.encode() if name == "v" else base64.b64decode(value)) == data


SAMPLE = [
    "\x1b]0;title\x07",
    "\x9b31m",
    "\u202eabc",
    "\x7f",
    "a\rb",
    "\x00",
    "\u2066\u2069",
    "\U000e0041",
    "plain é 日本",
]


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [(), ("--json",), ("--format", "%t|%k|%v|%h")], ids=["text", "json", "format"])
def test_a_terminal_gets_none_of_it(log: Log, log_dir: Path, arguments: tuple[str, ...]) -> None:
    log.create_topic("t")
    for text in SAMPLE:
        log.partition("t", 0).append([ProducerRecord(text.encode(), text.encode(), [(text, text.encode())])], acks=1)
    log.partition("t", 0).append([ProducerRecord(bytes(range(256)), bytes(range(128, 256)))], acks=1)
    shown = on_a_terminal(log_dir, "consume", "t", "--from-beginning", *arguments)
    assert set(map(ord, shown)) & FORBIDDEN <= {0x0A, 0x0D}  # the terminal's own line ends
    assert shown.count("\r\n") == shown.count("\n") == shown.count("\r") == len(SAMPLE) + 1


@pytest.mark.processes
def test_a_terminal_gets_none_of_it_in_errors_and_file_names(log: Log, log_dir: Path, tmp_path: Path) -> None:
    evil = "\x1b[2J\x9b\u202e"
    (tmp_path / f"{evil}.log").write_bytes(b"junk" * 30)
    shown = on_a_terminal(log_dir, "dump", str(tmp_path / f"{evil}.log"))
    shown += on_a_terminal(log_dir, "consume", f"{evil}\n")
    shown += on_a_terminal(log_dir, "topics", "list", "--log", str(tmp_path / evil))
    shown += on_a_terminal(log_dir, evil)
    shown += on_a_terminal(log_dir, "produce", "t", "--acks", evil)
    assert set(map(ord, shown)) & FORBIDDEN <= {0x0A, 0x0D}
    assert shown.count("\\x1b[2J") >= 5


@pytest.mark.processes
def test_raw_bytes_are_refused_to_a_terminal(log: Log, log_dir: Path) -> None:
    log.create_topic("t")
    log.partition("t", 0).append([ProducerRecord(b"\x1b[2J")], acks=1)
    shown = on_a_terminal(log_dir, "consume", "t", "--from-beginning", "--raw")
    assert "\x1b" not in shown
    assert "--raw would let data steer the terminal" in shown


def test_raw_bytes_go_to_a_pipe_as_they_are(log: Log, pylog: Run) -> None:
    log.create_topic("t")
    log.partition("t", 0).append([ProducerRecord(bytes(range(256))), ProducerRecord(None)], acks=1)
    assert pylog("consume", "t", "--from-beginning", "--raw").out.encode("latin-1") == bytes(range(256)) + b"\n\n"


def on_a_terminal(log_dir: Path, *argv: str) -> str:
    """What a terminal receives of stdout and stderr."""
    parent, child = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pylog", *argv],
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=child,
        env=environment(log_dir),
    )
    os.close(child)
    shown = b""
    try:
        while piece := os.read(parent, 65536):
            shown += piece
    except OSError:  # how Linux says that the other side is closed
        pass
    finally:
        os.close(parent)
        process.wait()
    return shown.decode()


def test_a_terminal_that_speaks_only_ascii_gets_ascii(log: Log, log_dir: Path) -> None:
    log.create_topic("t")
    log.partition("t", 0).append([ProducerRecord("é日".encode())], acks=1)
    shown = subprocess.run(
        [sys.executable, "-m", "pylog", "consume", "t", "--from-beginning"],
        env=environment(log_dir, PYTHONUTF8="0", PYTHONIOENCODING="ascii"), capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert shown == b"\\xe9\\u65e5\n"


# Numbers and times


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (None, "-"),
        (-1, "-"),
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_007, "2023-11-14T22:13:20.007Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (2**63 - 1, str(2**63 - 1)),
        (-(2**63), str(-(2**63))),
    ],
)
def test_a_time_is_utc_or_a_number(timestamp_ms: int | None, shown: str) -> None:
    assert time_text(timestamp_ms) == shown


def test_sizes_and_counts_read_well() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 1536 << 20, 5 << 40)] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 GiB", "5.0 TiB",
    ]  # fmt: skip
    assert [count_text(n, thing) for n, thing in ((1, "batch"), (2, "batch"), (0, "record"))] == [
        "1 batch", "2 batches", "0 records",
    ]  # fmt: skip


def test_a_table_has_numbers_to_the_right_and_safe_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "SIZE"), [("a\x1b", 5), ("bbb", 1234)])
    assert capsys.readouterr().out.splitlines() == ["NAME   SIZE", "a\\x1b     5", "bbb    1234"]
    print_table(("SIZE", "NAME"), [(1, "-"), ("-", "-")])  # and what is not there stands where it would
    assert capsys.readouterr().out.splitlines() == ["SIZE  NAME", "   1  -", "   -  -"]
    print_table(("NAME",), [])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0.0 s"), (4249, "4.2 s"), (119_900, "119.9 s"), (180_000, "3.0 min"), (3 * 3_600_000, "3.0 h"),
        (31 * 86_400_000, "31.0 d"),
    ],
)  # fmt: skip
def test_a_duration_has_the_unit_that_suits_it(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
