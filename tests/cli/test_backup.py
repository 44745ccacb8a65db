"""``pylog backup``."""

from __future__ import annotations

from pathlib import Path

from pylog import Log, ProducerRecord
from tests.cli.conftest import Run


def test_backup_says_what_was_copied_and_what_was_kept(pylog: Run, log: Log, tmp_path: Path) -> None:
    log.create_topic("t", segment_bytes=1024)
    for _ in range(3):
        log.partition("t", 0).append([ProducerRecord(b"x" * 900, timestamp_ms=1000)], acks=1)
    copy = tmp_path / "copy"
    ran = pylog("backup", copy)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("1 topic, 1 partition: 3.")
    (found,) = pylog("backup", copy, "--json").objects
    assert (found["type"], found["path"], found["topics"], found["partitions"]) == ("backup", str(copy), 1, 1)
    assert (found["copied_segments"], found["kept_segments"]) == (1, 2)
    assert found["ends"] == [{"topic": "t", "partition": 0, "end_offset": 3}]
    assert pylog("verify", "--log", copy).code == 0
    assert pylog("consume", "t", "--log", copy, "--from-beginning", "--json").lines


def test_the_exit_code_tells_why_nothing_was_copied(pylog: Run, log: Log, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    ran = pylog("backup", tmp_path / "file")
    assert (ran.code, ran.out) == (1, "")
    assert "is no directory; it stays as it is" in ran.err
    assert pylog("backup", Path(log.path, "copy")).code == 2
    assert pylog("backup", tmp_path / "copy", "--log", tmp_path / "none").code == 3
    assert pylog("backup").code == 2
