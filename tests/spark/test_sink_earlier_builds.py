"""A log whose sinks committed by intents, as builds before transactions did, goes on exactly once.

``tests/data/spark-intents`` was written by such a build, whose drivers were killed:

A  batches 0 and 1 are in the log, batch 2 is decided, and eight of its ten records are in
B  batch 0 is in, without a trace        C  batch 7 is in, without a trace
D  batch 0 is in, and its intent was not removed yet
S  a save is decided, and nothing of it is in
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pylog import Log
from pylog.codec.checksum import crc32c
from pylog.errors import CorruptSegment, LogLocked
from pylog.group.position import POSITION
from pylog.partition.producers import state as producer_state
from pylog.storage import OsFileSystem
from tests.spark.writing import Driver, names, values
from tests.storage.filesystems import Faulty

A, B, C, D = (f"b6405dfa-6965-48da-8e67-00000000000{number}" for number in range(4))
EVERY = 19  # steps; another seed begins with another one
S, OTHER = "save-" + 32 * "7", "save-" + 32 * "9"
INTENT = json.loads((Path(__file__).parents[1] / f"data/spark-intents/log/.pylog/spark/{A}/intent").read_bytes()[9:])


@pytest.fixture
def root(tmpfs_dir: Path) -> Path:
    copied: Path = shutil.copytree(Path(__file__).parents[1] / "data/spark-intents/log", tmpfs_dir / "log")
    return copied


def rows(name: str, batch_id: int) -> list[list[bytes]]:
    return [[b"%s-%d-%d-%d" % (name.encode(), batch_id, task, n) for n in range(5)] for task in (0, 1)]


def all_of(*batches: tuple[str, int]) -> Counter[bytes]:
    return Counter(row for batch in batches for task in rows(*batch) for row in task)


BEFORE = (("0", 0), ("0", 1), ("1", 0), ("2", 7), ("3", 0))
FINISHED = (*BEFORE, ("0", 2), ("S7", 0))


def found(root: Path) -> Counter[bytes]:
    with Log(root, read_only=True) as log:
        partitions = values(log)
    for partition in partitions:  # the records of a task stay in their order
        for name, batch_id in FINISHED:
            for task in rows(name, batch_id):
                mine = [row for row in partition if row in task]
                assert mine == sorted(mine)
    return Counter(row for partition in partitions for row in partition)


def next_batches(root: Path) -> dict[str, int]:
    with Log(root, read_only=True) as log:
        offsets = {group: log.describe_group(group).partitions[POSITION].committed for group in log.groups()}
    return {group: committed.offset for group, committed in offsets.items() if committed is not None}


def test_the_log_is_as_described(root: Path) -> None:
    partly = found(root) - all_of(*BEFORE)
    assert len(partly) == 8
    assert not partly - all_of(("0", 2))


@pytest.mark.parametrize("forgotten", [False, True])
def test_any_commit_finishes_what_all_sinks_have_left(
    root: Path, forgotten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if forgotten:  # as after a day and two segments, or after very many other producers
        monkeypatch.setattr(producer_state.ProducerStates, "next_sequence", lambda *_: None)
        monkeypatch.setattr(producer_state.ProducerStates, "duplicate_of", lambda *_: None)
    Driver(root, OTHER).write([])
    assert found(root) == all_of(*FINISHED)
    assert next_batches(root) == {f"spark:{A}": 3, f"spark:{B}": 1, f"spark:{C}": 8, f"spark:{D}": 1}
    assert names(root / ".pylog/spark") == []


@pytest.mark.parametrize(
    ("sink_id", "name", "last"), [(A, "0", 2), (B, "1", 0), (C, "2", 7), (D, "3", 0)], ids=["A", "B", "C", "D"]
)
def test_a_query_goes_on_where_it_was(root: Path, sink_id: str, name: str, last: int) -> None:
    for batch_id in (last, last + 1, last + 1):
        Driver(root, sink_id).write(rows(name, batch_id), batch_id)
    assert found(root) == all_of(*FINISHED, (name, last + 1))
    assert next_batches(root)[f"spark:{sink_id}"] == last + 2


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.one_in(8)
def test_whatever_is_killed_meanwhile_the_next_commit_finishes_it_once(root: Path, tmpfs_dir: Path, seed: int) -> None:
    steps = seed % EVERY
    while True:
        copied = shutil.copytree(root, tmpfs_dir / "copied")
        survived = _survives(copied, steps)
        Driver(copied, A).write(rows("0", 2), 2)
        Driver(copied, A).write(rows("0", 3), 3)
        assert found(copied) == all_of(*FINISHED, ("0", 3)), steps
        assert [path for path in (copied / ".pylog/spark").rglob("*") if path.is_file()] == []
        shutil.rmtree(copied)
        if survived:
            break
        steps += EVERY
    assert steps > 150


def _survives(root: Path, steps: int) -> bool:
    """Whether another process has committed before it was killed at this step."""

    def hook(_operation: str, _path: str) -> None:
        nonlocal steps
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        try:
            Driver(root, A, Faulty(hook)).write(rows("0", 2), 2)
            os._exit(0)
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == 0


def test_records_for_a_deleted_topic_are_dropped(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Log(root) as log:
        log.delete_topic("orders")
        log.create_topic("orders")
    Driver(root, OTHER).write([[b"a"]])
    assert found(root) == Counter([b"a"])
    assert "orders was deleted since a commit to it was decided; its 6 records go with it" in caplog.text


def test_a_driver_of_an_earlier_build_that_still_runs_is_waited_for(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = OsFileSystem().lock(str(root / ".pylog/spark" / A / "lock"))
    assert lock.try_acquire()
    with pytest.raises(LogLocked):
        Driver(root, A, deliveryTimeoutMs=50).write(rows("0", 3), 3)
    Driver(root, OTHER).write([])
    assert found(root) - all_of(("0", 2)) == all_of(*BEFORE, ("S7", 0))
    assert f"what sink {A} of an earlier build has left could not be finished" in caplog.text
    lock.close()


def signed(content: object) -> bytes:
    body = json.dumps(content).encode()
    return b"%08x\n" % crc32c(body) + body


def with_share(place: int, value: object) -> dict[str, Any]:
    share = [*INTENT["shares"][0]]
    share[place] = value
    return {"shares": [share]}


DAMAGED: list[bytes] = [
    b"",
    b"00000000\n",
    signed(INTENT)[:-1],
    signed([]),
    b"%08x\n" % crc32c(b"[" * 100_000) + b"[" * 100_000,
    *(signed({name: value for name, value in INTENT.items() if name != left_out}) for left_out in INTENT),
    *(
        signed({**INTENT, **wrong})
        for wrong in (
            {"version": 2},
            {"batch_id": -1},
            {"batch_id": True},
            {"producer_id": 2**63},
            {"files": 5},
            {"files": [["../../../x", 100, 7]]},
            {"files": [[INTENT["files"][0][0], 100]]},
            {"files": [[INTENT["files"][0][0], -1, 7]]},
            {"files": [[INTENT["files"][0][0], 100, 2**32]]},
            {"shares": [INTENT["shares"][0][:-1]]},
            {"shares": INTENT["shares"][:1]},
            with_share(0, None),
            with_share(2, -3),
            with_share(3, 2**31),
            with_share(3, 7),
            with_share(4, 0),
            with_share(5, -20),
        )
    ),
]


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_intent_stops_its_own_sink_and_no_other(
    root: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (root / ".pylog/spark" / A / "intent").write_bytes(data)
    with pytest.raises(CorruptSegment, match=f"{A}/intent is damaged: .*; restore it from a copy"):
        Driver(root, A).write(rows("0", 2), 2)
    assert (root / ".pylog/spark" / A / "intent").exists()
    Driver(root, OTHER).write([[b"a"]])
    assert found(root) - all_of(("0", 2)) == all_of(*BEFORE, ("S7", 0)) + Counter([b"a"])
    assert "could not be finished" in caplog.text


@pytest.mark.parametrize("content", [{"version": 1}, {"version": 1, "batch_id": -1, "producer_id": 5}])
def test_a_damaged_state_is_refused_by_name(root: Path, content: dict[str, Any]) -> None:
    (root / ".pylog/spark" / B / "state").write_bytes(signed(content))
    with pytest.raises(CorruptSegment, match="state is damaged"):
        Driver(root, B).write(rows("1", 1), 1)
