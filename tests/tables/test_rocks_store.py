"""A table in RocksDB: its directory is not trusted, damage is never the end of the keys, and
closing it closes RocksDB."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Log, ProducerRecord
from pylog.errors import Closed, ConfigError, StorageError
from tests.tables.scans import needs_rocksdict, scan

pytestmark = needs_rocksdict

KEYS = 3000


@pytest.fixture
def topic(log: Log) -> Log:
    log.create_topic("t")
    log.partition("t", 0).append([ProducerRecord(b"x" * 200, b"%05d" % number) for number in range(KEYS)], acks=1)
    return log


def opened(log: Log, path: Path, **options: Any) -> Any:
    return pylog.table(log, "t", store="rocksdict", directory=path, **options)


def spoil_the_middle(path: Path) -> None:
    """Of the largest file of values."""
    largest = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(largest.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 100] = bytes(byte ^ 0x55 for byte in data[middle : middle + 100])
    largest.write_bytes(data)


def test_damage_is_an_error_and_not_the_end_of_the_keys(topic: Log, tmp_path: Path) -> None:
    opened(topic, tmp_path / "table").close()
    spoil_the_middle(tmp_path / "table" / "rocksdb")
    with opened(topic, tmp_path / "table") as table:
        every: list[Callable[[], object]] = [
            lambda: len(table),
            lambda: list(iter(table)),
            lambda: dict(table.items()),
            lambda: [table[b"%05d" % number] for number in range(KEYS)],
        ]
        for call in every:
            with pytest.raises(StorageError, match="delete the directory"):
                call()


def test_a_table_closes_while_it_is_iterated(topic: Log, tmp_path: Path) -> None:
    table = opened(topic, tmp_path / "table")
    begun = [iter(table), iter(table.items()), iter(table.values())]
    for iterator in begun:
        next(iterator)
    table.close()
    for iterator in begun:
        with pytest.raises(Closed):
            next(iterator)
    with opened(topic, tmp_path / "table") as again:  # RocksDB was closed, too
        assert len(again) == KEYS
    with pytest.raises(Closed):
        table.get(b"00001")


def test_a_table_that_is_opened_again_has_the_same_options(topic: Log, tmp_path: Path) -> None:
    path = tmp_path / "table" / "rocksdb"
    for _ in range(2):
        opened(topic, tmp_path / "table").close()
        said = (path / "LOG").read_text()
        assert "filter_policy: bloomfilter" in said
        assert f"capacity : {32 << 20}" in said


def test_only_the_user_may_read_the_directory(topic: Log, tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.mkdir(mode=0o755)
    opened(topic, path).close()
    assert (path / "rocksdb").stat().st_mode & 0o777 == 0o700


def test_what_a_hostile_directory_has_is_never_unpickled(topic: Log, tmp_path: Path) -> None:
    """Made by rocksdict in its usual mode, where values are pickled objects: loading one of these
    would end the test."""
    directory = tmp_path / "table" / "rocksdb"
    directory.mkdir(parents=True)
    program = f"""
import os, rocksdict
class Evil:
    def __reduce__(self): return (os._exit, (9,))
db = rocksdict.Rdict({str(directory)!r}, rocksdict.Options(raw_mode={{raw}}))
for key in (b"i", b"p", b"k", b"k00001", "i", 1): db[key] = {{value}}
db.close()
"""
    for raw, value in (("False", "Evil()"), ("True", "__import__('pickle').dumps(Evil())")):
        program_of = program.format(raw=raw, value=value).replace(', "i", 1)', ")" if raw == "True" else ', "i", 1)')
        subprocess.run([sys.executable, "-c", program_of], check=True, timeout=60)
        if raw == "False":
            with pytest.raises(StorageError, match="delete the directory"):
                opened(topic, tmp_path / "table")
        else:
            with opened(topic, tmp_path / "table") as table:
                assert dict(table.items()) == scan(topic)
        for file in directory.iterdir():
            file.unlink()


@pytest.mark.parametrize(
    ("value", "position"),
    [
        *((b"", position) for position in (b"", b"\xff" * 28, b"\0" * 28, b"\x7f" * 28)),
        *((value, b"") for value in (b"2", b"1 x", b"2 x", b"\xff" * 2000, b"2 " + b"x" * 2000)),
    ],
)
def test_whatever_the_store_has_as_identity_and_position_the_table_is_a_scan(
    topic: Log, tmp_path: Path, value: bytes, position: bytes
) -> None:
    opened(topic, tmp_path / "table").close()
    program = f"""
import rocksdict
db = rocksdict.Rdict({str(tmp_path / "table" / "rocksdb")!r}, rocksdict.Options(raw_mode=True))
db[b"i"] = {value!r} if {value!r} else db[b"i"]
db[b"p" + bytes(4)] = {position!r}
db.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    with opened(topic, tmp_path / "table") as table:
        assert dict(table.items()) == scan(topic)


def test_a_table_is_not_saved_in_its_log(topic: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(topic.path.parent)
    with Log(topic.path.name) as named_shortly:
        for inside in (topic.path, topic.path / "t-0", topic.path / "table", Path(topic.path.name, "table")):
            for log in (topic, named_shortly):
                with pytest.raises(ConfigError, match="outside"):
                    opened(log, inside)
            assert not (inside / "table.lock").exists()


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_that_ends_as_python_does_leaves_rocksdb_to_its_parent(topic: Log, tmp_path: Path) -> None:
    program = f"""
import os, sys, pylog
log = pylog.Log({str(topic.path)!r})
table = pylog.table(log, "t", store="rocksdict", directory={str(tmp_path / "table")!r})
found = iter(table.items())
next(found)
if os.fork() == 0:
    try:
        next(found)
    except pylog.errors.PylogError:
        sys.exit(3)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
print(len(table), len(list(found)))
"""
    env = {**os.environ, "PYTHONWARNINGS": "ignore", "PYLOG_PURE_PYTHON": "1"}  # so modules are freed at the end
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env)
    assert run.stdout.split() == [str(KEYS), str(KEYS - 1)], run.stderr
