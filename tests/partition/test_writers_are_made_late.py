"""What writes to a partition is made by its first change."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pylog.errors import Closed
from pylog.partition import partition_log
from pylog.partition.write.durability import Durability
from pylog.partition.write.writer import PartitionWriter
from tests.partition.logs import one, open_partition
from tests.producer.fakes import call_in_thread


def test_reading_makes_nothing_that_writes(tmp_path: Path) -> None:
    with closing(open_partition(tmp_path / "t-0")) as writing, closing(open_partition(tmp_path / "t-0")) as reading:
        writing.append(one("a"), acks="all")
        assert [record.value for record in reading.scan(0)] == [b"a"]
        assert reading.durable_offset == 1
        assert not reading.log.is_syncing_here()
        assert reading.log._writing is None
        reading.close()
        with pytest.raises(Closed):
            reading.append(one("b"), acks=1)


def test_two_threads_that_change_it_first_have_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_partition(tmp_path / "t-0")) as partition:
        writers: list[PartitionWriter] = []

        def overtaken(*arguments: object) -> Durability:
            monkeypatch.undo()
            call_in_thread(lambda: partition.append(one("first"), acks=1)).join()
            writers.append(partition.log.writable())
            return Durability(*arguments)

        monkeypatch.setattr(partition_log, "Durability", overtaken)
        assert partition.append(one("second"), acks="all").base_offset == 1
        assert writers == [partition.log.writable()]


def test_a_close_during_the_first_change_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_partition(tmp_path / "t-0")) as partition:

        def overtaken(*arguments: object) -> Durability:
            call_in_thread(partition.close).join()
            return Durability(*arguments)

        monkeypatch.setattr(partition_log, "Durability", overtaken)
        for _ in range(2):
            with pytest.raises(Closed):
                partition.append(one("late"), acks=1)
    with closing(open_partition(tmp_path / "t-0")) as again:
        assert again.latest_offset == 0
