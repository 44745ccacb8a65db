"""``pylog erase``"""

from __future__ import annotations

from pathlib import Path

from pylog.log import Log
from tests.cli.conftest import Run


def test_erase_says_what_went_from_each_partition(pylog: Run, log: Log, tmp_path: Path) -> None:
    log.create_topic("t", partitions=2, partitioner="murmur2")
    assert pylog("produce", "t", "--key-separator", ":", stdin=b"a:1\nb:2\na:3\nc:4\nd:5\n").code == 0
    ran = pylog("erase", "t", "--key", "a", "--key-base64", "Yg==", "--json")
    assert ran.code == 0
    assert [(done["partition"], done["topic"]) for done in ran.objects] == [(0, "t"), (1, "t")]
    assert sum(done["records"] for done in ran.objects) == 3
    keys = tmp_path / "keys"
    keys.write_bytes(b"c\nabsent\n")
    ran = pylog("erase", "t", "--from-file", keys)
    assert [line for line in ran.lines if "1 record erased before offset" in line and "(1 segment, " in line]
    assert pylog("erase", "t", "--from-file", "-", "--tombstones", "yes", stdin=b"d").out.count("1 tombstone") == 1
    left = [record for number in range(2) for record in log.partition("t", number).scan()]
    assert [(record.key, record.value) for record in left] == [(b"d", None)]


def test_what_is_wrong_usage(pylog: Run, log: Log) -> None:
    log.create_topic("t")
    assert pylog("erase", "t").code == 2
    assert "is not base64" in pylog("erase", "t", "--key-base64", "~").err
    assert pylog("erase", "u", "--key", "a").code == 3
