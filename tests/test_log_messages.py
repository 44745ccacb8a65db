"""What pylog logs, and the text of its errors, is one printable line, whatever the names and files
it speaks of."""

from __future__ import annotations

import ast
import logging
import pickle
import re
import sys
from pathlib import Path

import pytest

from pylog.consumer import Consumer
from pylog.errors import ConfigError, PylogError, StorageError
from pylog.log import Log
from pylog.producer import Producer
from tests.partition.logs import log_file, many
from tests.storage.every_file import live
from tests.storage.filesystems import OtherBoot

EVIL = "a\nERROR root: all is lost\r\t\x1b[2J\x9b\u2028\u202e\u2066\udcff"
PACKAGE = Path(__file__).parents[1] / "src" / "pylog"


@pytest.mark.parametrize("kind", [PylogError, ConfigError, StorageError])
def test_the_text_of_an_error_is_one_printable_line(kind: type[PylogError]) -> None:
    error = kind(f"no {EVIL}", path=EVIL)
    assert str(error).isprintable()
    assert str(error) == ("no a\\nERROR root: all is lost\\r\\t\\x1b[2J\\x9b\\u2028\\u202e\\u2066\\udcff")
    assert error.path == EVIL
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(kind("grüße, 日本: 'a b'")) == "grüße, 日本: 'a b'"


@pytest.mark.slow
def test_the_text_of_an_error_is_printable_for_every_code_point() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    shown = str(PylogError(every))
    assert shown.isprintable()
    assert shown.splitlines() == [shown]


def test_what_is_logged_of_a_hostile_place_is_one_printable_line_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    root = tmp_path / EVIL
    live(root)  # a sync that fails
    (root / ".pylog" / "topics" / f"{EVIL}.json").write_text("{}")  # a name that no topic can have
    directory = root / "t-1"
    with Log(root) as log:
        for _ in range(3):
            log.partition("t", 1).append(many("a", "b"))
            log.partition("t", 1).log.roll()
        log.partition("t", 1).append(many("a", "b"))
        (root / "s-0" / EVIL).mkdir(parents=True)
        log.create_topic("s")  # something of others is moved aside
    for seal in directory.glob("*.seal"):
        seal.write_bytes(b"torn")
    (directory / "leader-epoch-checkpoint").write_text(EVIL, errors="surrogateescape")
    with log_file(directory, 6).open("ab") as file:
        file.write(bytes(100))
    with Log(root, filesystem=OtherBoot(7)) as log:  # power was lost, and a tail is torn
        log.partition("t", 1).append(many("c"))
        log.partition("t", 1).log.roll()
        log.partition("t", 1).append(many("d"))
    with Log(root) as log, Consumer(log) as consumer, Producer(log, acks=1) as producer:
        with max(directory.glob("*.log")).open("ab") as file:
            file.write(bytes(100))  # a writer died
        log.partition("t", 1).append(many("e"))
        consumer.subscribe(["not-there", "t"])
        consumer.poll(0.0)
        producer.send("t", b"v").add_done_callback(lambda _: 1 // 0)
        producer.flush()
        log.delete_topic("t")
        consumer.poll(0.0)
    assert len(caplog.records) > 10
    assert {record.name for record in caplog.records} >= {"pylog.catalog", "pylog.partition", "pylog.consumer"}
    for record in caplog.records:
        assert record.getMessage().isprintable(), record


@pytest.mark.slow
def test_every_call_that_logs_says_how_its_data_is_shown() -> None:
    """``%r`` escapes, ``%d`` and ``%g`` are numbers; ``%s`` is for errors, whose text is printable,
    and for lawful names."""
    found: list[str] = []
    for file in PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and re.fullmatch(
                r"logger\.(debug|info|warning|error|exception|critical)", ast.unparse(call.func)
            ):
                text, *data = call.args
                where = f"{file.name}:{call.lineno}"
                assert isinstance(text, ast.Constant), f"{where}: the text of a message is a constant"
                assert isinstance(text.value, str), f"{where}: it is a text"
                assert text.value.isprintable()
                for how, what in zip(re.findall("%[a-z]", text.value), data, strict=False):
                    if how == "%s":
                        found.append(re.sub(r".*\.", "", ast.unparse(what)))
    assert {name for name in found if re.search("path|directory|place|file|value|key", name)} == set()
    assert len(found) > 20
