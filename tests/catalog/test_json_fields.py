"""Whatever a field of the manifest or of a topic's file holds: a value that is lawful there, or a
typed error that names it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pylog.catalog import Catalog, Layout, TopicConfig, read_manifest
from pylog.catalog.manifest import read_json
from pylog.catalog.settings import read_settings
from pylog.catalog.topic import PARTITIONS_MAX
from pylog.clock import SystemClock
from pylog.errors import CorruptSegment, FormatVersionError, PylogError, StorageError
from pylog.log import Log
from pylog.storage import OsFileSystem
from tests.partition.logs import one

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-5, 5) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
ODD = [
    float("inf"),
    float("nan"),
    1.0,
    True,
    2**63,
    -(2**63) - 1,
    10**4000,
    "\ud800",
    "x" * 10**6,
    [[]] * 9,
    {},
    "",
    None,
    0,
    "1",
]
MISSING = object()


def is_int(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


MANIFEST: dict[str, Callable[[Any], bool]] = {
    "format": lambda value: is_int(value, 1, 1),
    "features": lambda value: value == [] or value is MISSING,
    "log_id": lambda value: isinstance(value, str) and value != "",
    "locks": lambda value: value in ("ofd", "flock"),
    "created_ms": lambda value: is_int(value, -(2**63), 2**63 - 1),
}
INT32_MAX = 2**31 - 1
TOPIC: dict[str, Callable[[Any], bool]] = {
    "id": lambda value: isinstance(value, str) and re.fullmatch("[A-Za-z0-9_-]{1,64}", value) is not None,
    "partitions": lambda value: is_int(value, 1, PARTITIONS_MAX),
    "earlier_ids": lambda value: (
        value is MISSING or (isinstance(value, list) and all(isinstance(each, str) for each in value))
    ),
    "config": lambda value: value == {},
    "config.segment_bytes": lambda value: is_int(value, 1024, INT32_MAX) or value is MISSING,
    "config.segment_ms": lambda value: is_int(value, 1, 2**63 - 1) or value is MISSING,
    "config.segment_index_bytes": lambda value: is_int(value, 24, INT32_MAX) or value is MISSING,
    "config.index_interval_bytes": lambda value: is_int(value, 0, INT32_MAX) or value is MISSING,
    "config.max_message_bytes": lambda value: is_int(value, 128, INT32_MAX) or value is MISSING,
    "config.message_timestamp_type": lambda value: value in ("CreateTime", "LogAppendTime") or value is MISSING,
    "config.compression_type": lambda value: (
        value in ("producer", "none", "gzip", "snappy", "lz4", "zstd") or value is MISSING
    ),
    "config.retention_ms": lambda value: is_int(value, -1, 2**63 - 1) or value is MISSING,
    "config.retention_bytes": lambda value: is_int(value, -1, 2**63 - 1) or value is MISSING,
    "config.partitioner": lambda value: value in ("murmur3", "murmur2") or value is MISSING,
    "config.writable": lambda value: isinstance(value, bool) or value is MISSING,
    "config.no_such_option": lambda value: value is MISSING,
    "config.cleanup": lambda value: value == {} or value is MISSING,
    "config.cleanup.retention_ms": lambda value: is_int(value, -1, 2**63 - 1) or value is MISSING,
    "config.cleanup.retention_bytes": lambda value: is_int(value, -1, 2**63 - 1) or value is MISSING,
    "config.cleanup.retention": lambda value: value in (None, "consumed") or value is MISSING,
    "config.cleanup.retention_clock": lambda value: value in ("record", "append") or value is MISSING,
    "config.cleanup.cleanup_policy": lambda value: (
        value in ("delete", "compact", "compact,delete", "delete,compact", "none") or value is MISSING
    ),
    "config.cleanup.min_cleanable_dirty_ratio": lambda value: (
        (type(value) in (int, float) and 0 <= value <= 1) or value is MISSING
    ),
    "config.cleanup.min_compaction_lag_ms": lambda value: is_int(value, 0, 2**63 - 1) or value is MISSING,
    "config.cleanup.max_compaction_lag_ms": lambda value: is_int(value, 1, 2**63 - 1) or value is MISSING,
    "config.cleanup.delete_retention_ms": lambda value: is_int(value, 0, 2**63 - 1) or value is MISSING,
    "config.cleanup.no_such_option": lambda value: value is MISSING,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log")
    with Log(path) as log:
        log.create_topic("t")
    return path


def write_with(path: Path, whole: dict[str, Any], field: str, value: object) -> None:
    """The file with one field another, or without it; ``config.x`` is a field of ``config``."""
    content = json.loads(json.dumps(whole))
    *above, name = field.split(".")
    place = content
    for outer in above:
        place = place.setdefault(outer, {})
    place.pop(name, None)
    if value is not MISSING:
        place[name] = value
    path.write_text(json.dumps(content))


def check_error(error: PylogError, path: Path, field: str) -> None:
    assert isinstance(error, CorruptSegment | FormatVersionError)
    assert error.path == str(path)
    assert error.field == field or error.field.startswith(f"{field}.")
    assert str(path) in str(error)
    assert field.rpartition(".")[2] in str(error)
    assert len(str(error)) < 600 + len(str(path))


@pytest.mark.slow
@given(st.sampled_from(sorted(MANIFEST)), VALUES | st.sampled_from([*ODD, MISSING]))
@settings(max_examples=500)
@example("created_ms", float("inf"))
@example("format", True)
def test_a_manifest_is_read_or_its_field_is_named(root: Path, field: str, value: object) -> None:
    whole = {"format": 1, "log_id": "x", "locks": "ofd", "created_ms": 0}
    path = root / "manifest.json"
    write_with(path, whole, field, value)
    try:
        read_manifest(OsFileSystem(), str(path))
    except PylogError as error:
        assert not MANIFEST[field](value)
        check_error(error, path, field)
    else:
        assert MANIFEST[field](value)


@pytest.mark.slow
@given(st.sampled_from(sorted(TOPIC)), VALUES | st.sampled_from([*ODD, MISSING]))
@settings(max_examples=1000)
def test_a_topics_file_is_read_or_its_field_is_named(root: Path, field: str, value: object) -> None:
    path = root / ".pylog" / "topics" / "t.json"
    write_with(path, {"id": "x", "partitions": 1, "config": {}}, field, value)
    catalog = Catalog(OsFileSystem(), SystemClock(), Layout(str(root)), TopicConfig())
    try:
        catalog.describe("t")
    except PylogError as error:
        assert not TOPIC[field](value)
        check_error(error, path, field)
    else:
        assert TOPIC[field](value)


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "nul", "[" * 10_000, '{"a":' * 900 + "1" + "}" * 900, "1" * 5000, "\0" * 9]
)
def test_a_file_that_holds_no_object_is_a_typed_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises((CorruptSegment, FormatVersionError)) as caught:
        read_manifest(OsFileSystem(), str(path))
    assert caught.value.path == str(path)
    assert len(str(caught.value)) < 600 + len(str(path))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_json_in_another_encoding_is_damage(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes('{"format": 1}'.encode(encoding))
    with pytest.raises(CorruptSegment, match="it is not JSON"):
        read_json(OsFileSystem(), str(path))


@pytest.mark.parametrize("name", ["manifest.json", "topics/t.json"])
def test_a_named_pipe_in_place_of_a_file_is_a_typed_error(tmp_log_dir: Path, name: str) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
    path = tmp_log_dir / ".pylog" / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StorageError, match=path.name), Log(tmp_log_dir) as log:
        log.describe_topic("t")


@pytest.mark.parametrize("text", ["9" * 64, str(2**63), str(2**63 - 1000 + 1)])
def test_producer_ids_that_nobody_can_have_are_damage(tmp_log_dir: Path, text: str) -> None:
    Log(tmp_log_dir).close()
    (tmp_log_dir / ".pylog" / "producer-ids").write_text(text)
    with Log(tmp_log_dir) as log, pytest.raises(CorruptSegment, match="producer-ids"):
        log.manager.next_producer_id()


@pytest.mark.parametrize("offset", ["-1", str(2**63), "9" * 30, "x"])
def test_a_log_start_that_is_no_offset_is_damage(tmp_path: Path, offset: str) -> None:
    with Log(tmp_path / "ours") as log:
        log.create_topic("t")
        log.partition("t", 0).append(one("v"), acks=1)
    (tmp_path / "ours" / "t-0").rename(tmp_path / "t-0")
    (tmp_path / "t-0" / ".commit").unlink()  # as Kafka would have it
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    with pytest.raises(CorruptSegment, match="log-start-offset-checkpoint"):
        Log(tmp_path)


@given(st.sampled_from(["max_bytes", "no_such_option"]), VALUES | st.sampled_from([*ODD, MISSING]))
def test_the_options_of_a_log_are_read_or_their_field_is_named(root: Path, field: str, value: object) -> None:
    path = root / "settings.json"
    write_with(path, {}, field, value)
    lawful = value is MISSING or (field == "max_bytes" and is_int(value, -1, 2**63 - 1))
    try:
        read_settings(OsFileSystem(), str(path))
    except PylogError as error:
        assert not lawful
        check_error(error, path, field)
    else:
        assert lawful
