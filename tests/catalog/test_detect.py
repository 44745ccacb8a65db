"""A log that lost its manifest is not taken for Kafka's directory, nor for a place to create a log
in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pylog.errors import CorruptSegment, StorageError
from pylog.log import Log
from tests.partition.logs import one, snapshot_of, values
from tests.storage.filesystems import StandIn
from tests.system import fail


@pytest.fixture
def root(tmp_log_dir: Path) -> Path:
    """A log with a topic and a record, whose producer ids were drawn."""
    for _ in range(2):
        with Log(tmp_log_dir) as log:
            if not log.topics():
                log.create_topic("t")
                log.partition("t", 0).append(one("v"), acks=1)
            log.manager.next_producer_id()
    return tmp_log_dir


def without(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    ("lost", "trace"),
    [
        ([".pylog/manifest.json"], ".pylog/producer-ids"),
        ([".pylog/manifest.json", ".pylog/producer-ids"], ".pylog/topics/t.json"),
        ([".pylog/manifest.json", ".pylog/producer-ids", "t-0"], ".pylog/topics/t.json"),
        ([".pylog/manifest.json", ".pylog/topics", "t-0"], ".pylog/producer-ids"),
        ([".pylog/manifest.json", ".pylog/topics", ".pylog/producer-ids"], ".pylog"),
        ([".pylog/manifest.json", ".pylog/topics", ".pylog/producer-ids", "t-0/.commit"], ".pylog"),
        ([".pylog"], "t-0/.commit"),
    ],
)
def test_a_lost_manifest_is_a_typed_error_and_nothing_is_changed(
    root: Path, lost: list[str], trace: str, read_only: bool
) -> None:
    without(root, *lost)
    before = snapshot_of(root)
    with pytest.raises(CorruptSegment, match=r"manifest\.json is lost; restore .*\.pylog from a copy") as caught:
        Log(root, read_only=read_only)
    assert (caught.value.path, caught.value.trace) == (f"{root}/.pylog/manifest.json", f"{root}/{trace}")
    assert snapshot_of(root) == before


def test_a_manifest_that_is_put_back_opens_the_log(root: Path) -> None:
    manifest = (root / ".pylog/manifest.json").read_bytes()
    without(root, ".pylog/manifest.json")
    with pytest.raises(CorruptSegment):
        Log(root)
    (root / ".pylog/manifest.json").write_bytes(manifest)
    with Log(root) as log:
        assert values(log.partition("t", 0).read(0)) == ["v"]


def test_a_directory_that_cannot_be_looked_into_hides_no_other(root: Path) -> None:
    class Denied(StandIn):
        def names(self, path: str) -> list[str]:
            return fail(StorageError("denied", path=path)) if path.endswith("/s-0") else super().names(path)

    without(root, ".pylog")
    (root / "s-0").mkdir()
    (root / "r-0").write_text("a file")
    with pytest.raises(CorruptSegment) as caught:
        Log(root, filesystem=Denied())
    assert caught.value.trace == f"{root}/t-0/.commit"


def test_partitions_that_were_given_to_a_broker_are_kafkas(root: Path) -> None:
    without(root, ".pylog")
    (root / "meta.properties").write_text("version=1\n")
    with Log(root) as log:
        assert log.is_kafka_directory
        assert values(log.partition("t", 0).read(0)) == ["v"]


def test_the_creation_of_a_log_that_was_cut_off_before_the_manifest_is_made_good(root: Path) -> None:
    without(root, ".pylog/manifest.json", ".pylog/topics/t.json", ".pylog/producer-ids", "t-0")
    assert (root / ".pylog/topics").is_dir()
    with Log(root) as log:
        assert log.topics() == []
        log.create_topic("t")
