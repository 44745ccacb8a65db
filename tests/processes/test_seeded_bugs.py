"""Bugs put into pylog on purpose: processes that are killed, and the check of their history, must
find every one.

pytest -m engine tests/processes/test_seeded_bugs.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pylog.consumer.fetcher import Fetcher
from pylog.errors import NotAppended, PylogError
from pylog.log import Log
from pylog.model import AppendResult
from pylog.partition import partition_log
from pylog.partition.partition import Partition
from pylog.partition.read.reader import PartitionReader
from pylog.partition.segments import Segments
from pylog.partition.write import deletion
from pylog.partition.write.batch_input import encoded_batch
from pylog.partition.write.log_end import LogEnd
from pylog.partition.write.writer import PartitionWriter
from pylog.producer.producer import Producer
from pylog.storage.os_filesystem import OsFileSystem
from pylog.storage.os_lock import OsFileLock
from tests.processes.seeding import now_and_then, put
from tests.processes.sharing import forked, result_of
from tests.soak import chaos

pytestmark = [
    pytest.mark.engine,
    pytest.mark.processes,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="chaos needs Linux"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
SECONDS = 8.0
TURNS = 10  # what needs a kill at the right moment may want more than one


def locks_exclude_nobody() -> None:
    put(OsFileSystem, "locks_exclude", lambda self, path: True)
    put(OsFileLock, "try_acquire", lambda self: True)


def what_a_dead_writer_left_is_not_looked_at() -> None:
    put(LogEnd, "_repair_tail", lambda self, grant, state, segment: None)


def a_segment_too_many_is_deleted() -> None:
    right = deletion.files_before

    def files_before(names: list[str], offset: int) -> Iterator[str]:
        following = Segments.among(names).after(offset)
        return right(names, offset if following is None else following)

    put(deletion, "files_before", files_before)


def more_is_deleted_than_was_asked_for() -> None:
    right = PartitionWriter.delete_before
    put(
        PartitionWriter, "delete_before",
        lambda self, offset, timeout_ms, allowed=None: right(self, offset + 7, timeout_ms, allowed),
    )  # fmt: skip


def an_end_is_not_published() -> None:
    right = LogEnd.publish_end

    def publish(self: Any, *arguments: Any) -> None:
        if not now_and_then(0.2):
            right(self, *arguments)

    put(LogEnd, "publish_end", publish)


def a_reader_passes_a_batch_over() -> None:
    right = PartitionReader.fetch

    def fetch(self: Any, *arguments: Any, **options: Any) -> Any:
        fetched = right(self, *arguments, **options)
        return fetched._replace(batches=fetched.batches[1:]) if len(fetched.batches) > 1 and now_and_then() else fetched

    put(PartitionReader, "fetch", fetch)


def a_poll_repeats_its_last_record() -> None:
    right = Fetcher.collect

    def collect(self: Any, *arguments: Any) -> Any:
        records = right(self, *arguments)
        return [*records, records[-1]] if records and now_and_then() else records

    put(Fetcher, "collect", collect)


def a_child_sends_what_its_parent_has_buffered() -> None:
    put(Producer, "_forget_parent", lambda self: None)


def an_append_is_refused_that_stands() -> None:
    right = PartitionWriter.append

    def append(self: Any, *arguments: Any, **options: Any) -> AppendResult:
        result = right(self, *arguments, **options)
        if now_and_then():
            raise NotAppended("it is there")
        return result

    put(PartitionWriter, "append", append)


def an_append_is_done_twice() -> None:
    right = Partition.append

    def append(self: Any, records: Any, **options: Any) -> AppendResult:
        if now_and_then():
            right(self, records, **options)
        return right(self, records, **options)

    put(Partition, "append", append)


def an_append_says_another_offset() -> None:
    right = PartitionWriter.append

    def append(self: Any, *arguments: Any, **options: Any) -> AppendResult:
        result = right(self, *arguments, **options)
        return result._replace(base_offset=result.base_offset + 1) if now_and_then() else result

    put(PartitionWriter, "append", append)


def an_append_writes_nothing() -> None:
    right = PartitionWriter.append

    def append(self: Any, *arguments: Any, **options: Any) -> AppendResult:
        if now_and_then():
            end = self.recovered(1000).log_end_offset
            return AppendResult(end, end, -1, False)
        return right(self, *arguments, **options)

    put(PartitionWriter, "append", append)


def records_of_a_batch_change_places() -> None:
    right = encoded_batch

    def encode(records: Iterable[Any], *arguments: Any) -> tuple[bytearray, int]:
        some = list(records)
        return right(some[::-1] if now_and_then(0.2) else some, *arguments)

    put(partition_log, "encoded_batch", encode)


def a_batch_loses_a_record() -> None:
    right = encoded_batch

    def encode(records: Iterable[Any], *arguments: Any) -> tuple[bytearray, int]:
        some = list(records)
        return right(some[:-1] if len(some) > 1 and now_and_then(0.1) else some, *arguments)

    put(partition_log, "encoded_batch", encode)


def a_record_goes_to_another_partition() -> None:
    right = Log.partition
    put(
        Log, "partition",
        lambda self, topic, number: right(self, topic, number ^ 1 if topic == "chaos" and now_and_then() else number),
    )  # fmt: skip


BUGS: list[Callable[[], None]] = [
    locks_exclude_nobody, what_a_dead_writer_left_is_not_looked_at, a_segment_too_many_is_deleted,
    more_is_deleted_than_was_asked_for, an_end_is_not_published, a_reader_passes_a_batch_over,
    a_poll_repeats_its_last_record, a_child_sends_what_its_parent_has_buffered, an_append_is_refused_that_stands,
    an_append_is_done_twice, an_append_says_another_offset, an_append_writes_nothing, records_of_a_batch_change_places,
    a_batch_loses_a_record, a_record_goes_to_another_partition,
]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_found(bug: Callable[[], None], tmp_path: Path, seed: int) -> None:
    def run_with_it(turn: int) -> list[str]:
        bug()
        directory = tmp_path / str(turn)
        directory.mkdir()
        try:
            return chaos.run(SECONDS, seed + turn, directory, settings=chaos.CI).problems
        except PylogError as error:  # found as well: in the controller's own calls
            return [repr(error)]
        except AssertionError as error:
            if "nothing is known of the partition" not in str(error):  # what a writer says without an end
                raise
            return [repr(error)]

    found = (result_of(forked(partial(run_with_it, turn))) for turn in range(TURNS))
    problems: list[str] = next(filter(None, found), [])
    print(*problems[:10], sep="\n")
    assert problems
    assert not [problem for problem in problems if re.search(r"(Type|Attribute|Name)Error", problem)], (
        "the bug is broken"
    )
