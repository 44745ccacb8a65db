"""What has to be on the medium before the next step is taken: the order of writes, syncs, renames
and removals."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.errors import OutcomeUnknown
from pylog.manager.producer_ids import ProducerIds
from tests.partition.logs import ManualClock, bases, file_of, flip, log_file, one, open_partition, prepare, snapshot_of
from tests.storage.filesystems import Faulty, OtherBoot, io_error


def steps(filesystem: Faulty, directory: Path) -> list[tuple[str, str]]:
    """What was done, with names below the directory: ``.`` is the directory itself."""
    return [
        (operation, path.removeprefix(f"{directory}").lstrip("/") or ".") for operation, path in filesystem.operations
    ]


def failing_syncs(path_ends: str = ".log") -> Faulty:
    def hook(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(path_ends):
            raise io_error(path)

    return Faulty(hook)


def test_a_new_partition_is_durable_when_it_is_laid_out(tmp_path: Path) -> None:
    filesystem = Faulty()
    prepare(tmp_path / "t-0", filesystem)
    done = steps(filesystem, tmp_path / "t-0")
    assert ("sync", ".commit") in done[done.index(("pwrite", ".commit")) :]
    assert done[-1] == ("sync_directory", ".")


def test_the_copy_of_a_segment_takes_its_place_durably_before_it_is_trusted(directory: Path) -> None:
    filesystem = failing_syncs()
    partition = open_partition(directory, filesystem)
    filesystem.operations.clear()
    partition.append(one("a"), acks="all")
    done, log = steps(filesystem, directory), log_file(directory).name
    order = [
        ("sync", log),
        ("open", log.replace(".log", ".unsynced")),
        ("sync", f"{log}.rewrite"),
        ("replace", log),
        ("sync_directory", "."),
        ("remove", log.replace(".log", ".unsynced")),
    ]
    found = [done.index(step) for step in order]
    assert found == sorted(found)


def test_what_was_cut_from_a_durable_segment_is_cut_on_the_medium_before_records_of_the_next_are_durable(
    directory: Path,
) -> None:
    """Else a power failure brings back what a killed writer had left there, and the recovery would
    cut the log in front of the next segment."""
    killed = open_partition(directory)
    killed.append(one("a"), acks="all")
    with log_file(directory).open("ab") as file:
        file.write(b"the beginning of a batch")
    filesystem = Faulty()
    next_writer = open_partition(directory, filesystem)
    next_writer.log.roll()
    assert ("truncate", log_file(directory).name) in steps(filesystem, directory)
    filesystem.operations.clear()
    next_writer.append(one("b"), acks="all")
    assert ("sync", log_file(directory).name) in steps(filesystem, directory)


def test_a_segment_that_is_damaged_is_not_replaced_by_a_copy(directory: Path) -> None:
    partition = open_partition(directory, failing_syncs())
    for value in ("a", "b"):
        partition.append(one(value), acks=1)
    flip(log_file(directory), 66)
    before = log_file(directory).read_bytes()
    with pytest.raises(OutcomeUnknown, match="damaged at position 0"):
        partition.log.sync(2)
    assert log_file(directory).read_bytes() == before
    assert partition.durable_offset == 0


def test_recovery_syncs_what_it_keeps_and_the_directory_before_it_publishes(directory: Path) -> None:
    partition = open_partition(directory, OtherBoot(1))
    for number in range(3):
        partition.append(one(f"{number}"), acks=1)
        if number < 2:
            partition.log.roll()
    partition.close()
    filesystem = Faulty()
    recovered = open_partition(directory, filesystem)
    assert recovered.durable_offset == 3
    done = steps(filesystem, directory)
    done = done[: done.index(("pwrite", ".commit"))]
    for base in bases(directory):
        assert ("sync", log_file(directory, base).name) in done
        if base < 2:
            for kind in (".index", ".timeindex"):
                assert ("sync", file_of(directory, base, kind).name) in done
    assert ("sync_directory", ".") in done[max(n for n, (operation, _) in enumerate(done) if operation == "open") :]


def test_the_new_log_start_is_on_the_medium_before_a_file_goes(directory: Path) -> None:
    filesystem = Faulty()
    partition = open_partition(directory, filesystem)
    for number in range(3):
        partition.append(one(f"{number}"), acks=1)
        partition.log.roll()
    filesystem.operations.clear()
    partition.log.delete_before(2)
    done = [step for step in steps(filesystem, directory) if step[0] in {"pwrite", "sync", "replace", "remove"}]
    at = done.index(("pwrite", ".commit"))
    assert done[at + 1 : at + 3] == [("pwrite", ".commit"), ("sync", ".commit")]
    assert {name.partition(".")[2] for _, name in done[:at]} == {"snapshot", "snapshot.tmp"}, (
        "what will be left of producers"
    )
    assert bases(directory) == [2, 3]


def test_producer_ids_are_reserved_durably_before_the_first_is_used(tmp_path: Path) -> None:
    filesystem = Faulty()
    ids = ProducerIds(filesystem, ManualClock(), f"{tmp_path}/producer-ids")
    first = ids.next()
    done = [step for step in steps(filesystem, tmp_path) if step[0] != "lock"]
    assert [operation for operation, _ in done] == ["open", "truncate", "pwrite", "sync", "replace", "sync_directory"]
    filesystem.operations.clear()
    assert ids.next() == first + 1
    assert filesystem.operations == []


def test_nothing_is_changed_where_a_recovery_may_not_cut(directory: Path) -> None:
    partition = open_partition(directory, OtherBoot(1))
    partition.append(one("a"), acks="all")
    partition.close()
    flip(log_file(directory), 66)
    before = snapshot_of(directory)
    filesystem = Faulty()
    with pytest.raises(Exception, match="below the durable end"):
        open_partition(directory, filesystem).append(one("b"), acks=1)
    assert snapshot_of(directory) == before
    assert {operation for operation, _ in filesystem.operations} <= {"open", "lock"}
