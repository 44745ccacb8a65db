"""Producer ids: which are drawn, and what becomes of the log if the file that counts them is lost
or is an older copy."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pylog import Log, Producer
from pylog.errors import NotAppended
from pylog.storage import OsFileSystem
from tests.partition.logs import values

KAFKA_IDS_END = 2**40
RANDOM_END = 2**62


class Drawing(OsFileSystem):
    """Draws these bytes for producer ids, and has other bytes from a seed."""

    def __init__(self, seed: int, drawn: bytes | None = None) -> None:
        self._random = Random(seed)
        self._drawn = drawn

    def random_bytes(self, size: int) -> bytes:
        return self._drawn if self._drawn is not None and size == 8 else self._random.randbytes(size)


def send(log: Log, value: str, topic: str = "t") -> int:
    """The offset at which a new producer's record was acknowledged."""
    with Producer(log) as producer:
        return producer.send(topic, value.encode(), partition=0).result().offset


def test_a_new_logs_ids_are_none_of_kafkas(tmp_log_dir: Path, seed: int) -> None:
    with Log(tmp_log_dir, filesystem=Drawing(seed)) as log:
        first = log.manager.next_producer_id()
        assert KAFKA_IDS_END <= first < RANDOM_END
        assert first % 1000 == 0
        assert [log.manager.next_producer_id() for _ in range(1500)] == [first + n for n in range(1, 1501)]
    assert (tmp_log_dir / ".pylog" / "producer-ids").read_text() == f"{first + 2000}\n"


def test_two_logs_have_no_id_in_common(tmp_path: Path) -> None:
    with Log(tmp_path / "a") as a, Log(tmp_path / "b") as b:
        assert abs(a.manager.next_producer_id() - b.manager.next_producer_id()) > 1_000_000


@pytest.mark.parametrize("drawn", [bytes(8), b"\xff" * 8, (2**62 - 2**40).to_bytes(8, "big")])
def test_the_ends_of_what_is_drawn(tmp_log_dir: Path, drawn: bytes) -> None:
    with Log(tmp_log_dir, filesystem=Drawing(0, drawn)) as log:
        first = log.manager.next_producer_id()
    assert KAFKA_IDS_END <= first < RANDOM_END
    assert first % 1000 == 0


def test_a_log_of_an_earlier_version_goes_on_counting(tmp_log_dir: Path) -> None:
    Log(tmp_log_dir).close()
    (tmp_log_dir / ".pylog" / "producer-ids").write_text("3000\n")
    with Log(tmp_log_dir) as log:
        assert log.manager.next_producer_id() == 3000


@pytest.mark.parametrize("first", [None, "1000\n"], ids=["new", "counted from 0"])
def test_records_of_a_producer_after_the_file_was_lost_are_in_the_log(tmp_log_dir: Path, first: str | None) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
    if first is not None:
        (tmp_log_dir / ".pylog" / "producer-ids").write_text(first)
    with Log(tmp_log_dir) as one, Log(tmp_log_dir) as other:
        assert [send(one, "a"), send(other, "b")] == [0, 1]
        (tmp_log_dir / ".pylog" / "producer-ids").unlink()
        with Log(tmp_log_dir) as third:
            assert [send(third, "c"), send(third, "d"), send(one, "e"), send(other, "f")] == [2, 3, 4, 5]
            assert values(third.partition("t", 0).read(0)) == ["a", "b", "c", "d", "e", "f"]
            assert third.verify().problems == []


def test_records_of_a_producer_with_anothers_id_are_not_acknowledged(tmp_log_dir: Path) -> None:
    """An older copy of the file was put back: the log takes the first record for a repeat, and has
    it not."""
    ids = tmp_log_dir / ".pylog" / "producer-ids"
    with Log(tmp_log_dir) as log:
        log.create_topic("t")
        log.manager.next_producer_id()
    older = ids.read_text()
    with Log(tmp_log_dir) as log:
        assert send(log, "1") == 0
    ids.write_text(older)
    with (
        Log(tmp_log_dir) as log,
        pytest.raises(NotAppended, match=r"another producer's records in t-0.*remove that file"),
    ):
        send(log, "2")
    ids.unlink()
    with Log(tmp_log_dir) as log:
        assert send(log, "2") == 1
        assert values(log.partition("t", 0).read(0)) == ["1", "2"]
