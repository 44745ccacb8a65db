"""What a process knows of topics, and of names that are missing, holds until any process changes a topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog import Log
from pylog.catalog import Catalog, KafkaCatalog, TopicDescription
from pylog.errors import TopicNotFound


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked for in the directory."""
    looked: list[str] = []
    for kind in (Catalog, KafkaCatalog):
        describe = kind.describe

        def noted(catalog: object, name: str, *more: str, describe=describe) -> TopicDescription:  # type: ignore[no-untyped-def]
            looked.append(name)
            return describe(catalog, name, *more)  # type: ignore[no-any-return]

        monkeypatch.setattr(kind, "describe", noted)
    return looked


def test_each_name_is_looked_for_once(tmp_log_dir: Path, looks: list[str]) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("there")
        for _ in range(3):
            assert list(log.manager.existing_topics(["there", "missing", "no name"])) == ["there"]
        assert sorted(looks) == ["missing", "no name", "there"]


def test_a_missing_topic_is_found_as_soon_as_another_process_has_created_it(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        for number in range(20):
            name = f"t{number}"
            assert not log.manager.existing_topics([name])
            other.create_topic(name)
            assert list(log.manager.existing_topics([name])) == [name]
            other.delete_topic(name)
            assert not log.manager.existing_topics([name])


def test_a_topic_that_is_created_during_the_look_is_found_at_the_next(
    tmp_log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(tmp_log_dir) as log, Log(tmp_log_dir) as other:
        describe = Catalog.describe

        def too_early(catalog: Catalog, name: str, *more: str) -> TopicDescription:
            try:
                return describe(catalog, name, *more)
            finally:
                monkeypatch.setattr(Catalog, "describe", describe)
                other.create_topic(name)
                assert not log.manager.existing_topics(["another"])  # as another thread may ask

        monkeypatch.setattr(Catalog, "describe", too_early)
        assert not log.manager.existing_topics(["t"])
        assert list(log.manager.existing_topics(["t"])) == ["t"]


def test_who_asks_for_a_missing_topic_by_name_is_told_what_is_there(tmp_log_dir: Path) -> None:
    with Log(tmp_log_dir) as log:
        log.create_topic("there")
        for _ in range(2):
            assert not log.manager.existing_topics(["t"])
            with pytest.raises(TopicNotFound, match="topics: there"):
                log.describe_topic("t")


def test_kafkas_topics_are_looked_for_each_time(tmp_log_dir: Path, looks: list[str]) -> None:
    """They may appear in the same tick of the clock as the look, which the directory's time does not show."""
    (tmp_log_dir / "there-0").mkdir(parents=True)
    (tmp_log_dir / "there-0" / f"{0:020}.log").touch()
    with Log(tmp_log_dir, read_only=True) as log:
        assert log.is_kafka_directory
        for _ in range(2):
            assert list(log.manager.existing_topics(["there", "missing"])) == ["there"]
        assert sorted(looks) == ["missing", "missing", "there"]
