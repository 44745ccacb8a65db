"""``pylog topics``"""

from __future__ import annotations

from pathlib import Path

import pytest

from pylog.codec import murmur2
from pylog.log import Log
from tests.cli.conftest import Run


def test_create_makes_the_log_and_the_topic(pylog: Run, log_dir: Path) -> None:
    assert pylog("topics", "create", "orders", "--partitions", "3") == (0, "orders created (3 partitions)\n", "")
    with Log(log_dir, create=False) as log:
        assert log.describe_topic("orders").partitions == 3


def test_create_leaves_a_directory_that_holds_something_else_as_it_is(pylog: Run, log_dir: Path) -> None:
    log_dir.mkdir()
    (log_dir / "notes.txt").touch()
    code, out, err = pylog("topics", "create", "orders")
    assert (code, out) == (3, "")
    assert "is neither a log (it has no .pylog), nor a Kafka broker's log directory, nor empty" in err
    assert [path.name for path in log_dir.rglob("*")] == ["notes.txt"]


def test_create_takes_options(pylog: Run, log: Log) -> None:
    ran = pylog("topics", "create", "t", "--config", "segment.ms=5", "--config", "segment_bytes=2048", "--json")
    assert pylog("topics", "create", "one", "--partitions", "1").out == "one created (1 partition)\n"
    (shown,) = ran.objects
    assert (shown["config"]["segment_ms"], shown["config"]["segment_bytes"]) == (5, 2048)
    assert log.describe_topic("t").config.segment_ms == 5
    id_ = log.describe_topic("t").id
    assert shown == {"topic": "t", "id": id_, "partitions": 1, "present": None, "config": shown["config"]}


def test_a_topic_is_created_for_javas_clients_and_produce_follows(pylog: Run, log: Log) -> None:
    assert pylog("topics", "create", "t", "--partitions", "7", "--config", "partitioner=murmur2").code == 0
    assert ["partitioner", "murmur2"] in [line.split() for line in pylog("topics", "describe", "t").lines]
    keys = [b"key %d" % n for n in range(40)]
    assert pylog("produce", "t", "--key-separator", "=", stdin=b"".join(key + b"=v\n" for key in keys)).code == 0
    found = {record.key: number for number in range(7) for record in log.partition("t", number).scan()}
    assert found == {key: (murmur2(key) & 0x7FFFFFFF) % 7 for key in keys}
    refused = pylog("topics", "alter", "t", "--config", "partitioner=murmur3")
    assert (refused.code, refused.out) == (2, "")
    assert "can't be changed from murmur2 to murmur3: the topic has 7 partitions, and producers may hold" in refused.err
    assert "expected one of murmur3, murmur2" in pylog("topics", "create", "u", "--config", "partitioner=crc32").err


@pytest.mark.parametrize("verb", ["create", "alter"])
def test_retention_is_set_with_kafkas_names(pylog: Run, log: Log, verb: str) -> None:
    if verb == "alter":
        log.create_topic("t", retention_ms=5)
    for given, option, value in (
        ("retention.ms=1000", "retention_ms", 1000),
        ("retention_bytes=-1", "retention_bytes", -1),
        ("retention=consumed", "retention", "consumed"),
        ("retention=none", "retention", None),
        ("cleanup.policy=none", "cleanup_policy", "none"),
        ("min.cleanable.dirty.ratio=0.1", "min_cleanable_dirty_ratio", 0.1),
    ):
        name = "t" if verb == "alter" else f"t-{option}-{value}"
        assert pylog("topics", verb, name, "--config", given).code == 0
        assert getattr(log.describe_topic(name).config, option) == value
    assert pylog("topics", verb, "u", "--config", "min_cleanable_dirty_ratio=much").code == 2


def test_create_refuses_a_topic_that_is_there_unless_told_not_to(pylog: Run, log: Log) -> None:
    log.create_topic("a.b")
    assert pylog("topics", "create", "a.b").code == 1
    assert pylog("topics", "create", "a.b", "--if-not-exists") == (0, "a.b is there already (1 partition)\n", "")
    assert pylog("topics", "create", "a_b", "--if-not-exists").code == 1  # another topic is in its way


@pytest.mark.parametrize("name", ["..", "a/b", "", "\x1b[31m", "x" * 250])
def test_a_name_that_is_none_is_wrong_usage(pylog: Run, name: str) -> None:
    code, out, err = pylog("topics", "create", name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "\x1b" not in err


def test_list_is_sorted(pylog: Run, log: Log) -> None:
    assert pylog("topics", "list") == (0, "", "")
    for name in ("b", "a"):
        log.create_topic(name)
    assert pylog("topics", "list").lines == ["a", "b"]
    assert pylog("topics", "list", "--json").objects == [{"topic": "a"}, {"topic": "b"}]


def test_describe_tells_of_all_or_of_some(pylog: Run, log: Log) -> None:
    for name in ("a", "b"):
        log.create_topic(name, partitions=2)
    assert [shown["topic"] for shown in pylog("topics", "describe", "--json").objects] == ["a", "b"]
    assert [shown["topic"] for shown in pylog("topics", "describe", "b", "--json").objects] == ["b"]
    ran = pylog("topics", "describe", "a")
    assert ran.lines[0] == f"a  2 partitions  id {log.describe_topic('a').id}"
    assert any(line.split() == ["retention_ms", "-1"] for line in ran.lines)
    assert pylog("topics", "describe", "nope").code == 3


def test_alter_changes_options_and_adds_partitions(pylog: Run, log: Log) -> None:
    log.create_topic("t")
    assert (
        pylog("topics", "alter", "t", "--config", "segment_bytes=2048", "--partitions", "2").out
        == "t altered (2 partitions)\n"
    )
    topic = log.describe_topic("t")
    assert (topic.partitions, topic.config.segment_bytes) == (2, 2048)
    assert pylog("topics", "alter", "t", "--partitions", "1").code == 2  # they only grow
    assert "only grow" in pylog("topics", "alter", "t", "--partitions", "1").err
    assert pylog("topics", "alter", "t", "--config", "segment_bytes=1").code == 2
    assert pylog("topics", "alter", "nope", "--partitions", "2").code == 3


def test_delete_is_for_good(pylog: Run, log: Log, log_dir: Path) -> None:
    log.create_topic("t")
    assert pylog("topics", "delete", "t") == (0, "t deleted\n", "")
    assert not (log_dir / "t-0").exists()
    assert pylog("topics", "delete", "t").code == 3
    assert pylog("topics", "delete", "t", "--if-exists") == (0, "", "")
    log.create_topic("t")
    assert pylog("topics", "delete", "t", "--json").objects == [{"topic": "t", "deleted": True}]


def test_internal_topics_are_shown_unless_told_not_to(pylog: Run, log: Log) -> None:
    log.create_topic("t")
    log.reset_offsets("g", ["t"], to="latest")
    assert pylog("topics", "list").lines == ["__consumer_offsets", "t"]
    assert pylog("topics", "list", "--exclude-internal").lines == ["t"]
    assert [shown["topic"] for shown in pylog("topics", "describe", "--json").objects] == ["__consumer_offsets", "t"]
    assert [shown["topic"] for shown in pylog("topics", "describe", "--exclude-internal", "--json").objects] == ["t"]
    for command in ("verify", "stats"):
        ran = pylog(command)
        assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in pylog("stats").lines[1:]] == ["__consumer_offsets-0", "t-0"]
    assert pylog("consume", "__consumer_offsets", "--from-beginning", "--json").objects[0]["offset"] == 0


def test_rename_and_repartition(pylog: Run, log: Log) -> None:
    log.create_topic("t", partitions=3)
    pylog("produce", "t", "--key-separator", "=", stdin=b"k=v\n")
    assert pylog("topics", "rename", "t", "u") == (0, "u is the new name of t (3 partitions)\n", "")
    ran = pylog("topics", "repartition", "u", "5", "--json")
    assert [shown["partitions"] for shown in ran.objects] == [5]
    assert log.describe_topic("u").partitions == 5
    assert [r.value for n in range(5) for r in log.partition("u", n).scan()] == [b"v"]
    missing = pylog("topics", "repartition", "t", "5")
    assert (missing.code, missing.out) == (pylog("topics", "describe", "t").code, "")
    assert "no topic 't'" in missing.err
    assert pylog("topics", "rename", "u", "__consumer_offsets").code != 0
