"""The pure rules of what a consumer reads."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.checks import partition_of, partitions_of
from pylog.consumer.subscription import Subscription, Topic, change_of
from pylog.errors import ConfigError
from pylog.model import TopicPartition

EXISTING = ["__consumer_offsets", "orders", "orders-old", "payments"]


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("orders", ["orders"]),
        (["payments", "orders", "orders"], ["orders", "payments"]),
        ({"not-there-yet"}, ["not-there-yet"]),
        ("__consumer_offsets", ["__consumer_offsets"]),
        (re.compile("orders"), ["orders"]),  # the whole name, as in Kafka
        (re.compile("orders.*"), ["orders", "orders-old"]),
        (re.compile(".*"), ["orders", "orders-old", "payments"]),
        (re.compile("nothing"), []),
    ],
)
def test_a_subscription_means_these_topics(asked: object, wanted: list[str]) -> None:
    assert Subscription.of(asked).wanted(EXISTING) == wanted


@pytest.mark.parametrize("asked", [None, 7, b"orders", ["orders", 7], [b"orders"], re.compile(b"orders")])
def test_what_names_no_topics_is_refused(asked: object) -> None:
    with pytest.raises(ConfigError):
        Subscription.of(asked)


A0, A1, A2, B0 = (TopicPartition(*pair) for pair in [("a", 0), ("a", 1), ("a", 2), ("b", 0)])


@pytest.mark.parametrize(
    ("current", "topics", "removed", "added"),
    [
        ({}, [], [], []),
        ({}, [Topic("a", 1, range(2)), Topic("b", 2, range(1))], [], [A0, A1, B0]),
        ({A0: 1, A1: 1}, [Topic("a", 1, range(2))], [], []),
        ({A0: 1}, [Topic("a", 1, range(3))], [], [A1, A2]),
        ({A0: 1}, [Topic("a", 1, (1, 2))], [A0], [A1, A2]),
        ({A0: 1, B0: 2}, [Topic("a", 1, range(1))], [B0], []),
        ({A0: 1, A1: 1}, [Topic("a", 9, range(2))], [A0, A1], [A0, A1]),  # another topic of the same name
    ],
)
def test_a_change_of_the_catalog_is_a_change_of_partitions(
    current: dict[TopicPartition, object],
    topics: list[Topic],
    removed: list[TopicPartition],
    added: list[TopicPartition],
) -> None:
    assert change_of(current, topics) == (removed, added)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3)).map(lambda pair: TopicPartition(*pair)), st.integers(0, 1)
    ),
    st.lists(
        st.builds(Topic, st.sampled_from("abc"), st.integers(0, 1), st.sets(st.integers(0, 3)).map(sorted)),
        unique_by=lambda topic: topic.name,
    ),
)
def test_applying_a_change_gives_exactly_the_partitions_of_the_topics(
    current: dict[TopicPartition, object], topics: list[Topic]
) -> None:
    removed, added = change_of(current, topics)
    after = {partition: id_ for partition, id_ in current.items() if partition not in removed}
    assert not after.keys() & set(added)
    ids = {topic.name: topic.id for topic in topics}
    after |= {partition: ids[partition.topic] for partition in added}
    assert after == {TopicPartition(topic.name, number): topic.id for topic in topics for number in topic.numbers}


def test_a_plain_pair_is_as_good_as_a_topic_partition() -> None:
    assert partition_of(("a", 0)) == A0
    assert partitions_of([("a", 0), A0, A1]) == [A0, A1]


@pytest.mark.parametrize("value", ["a", ("a",), ("a", "0"), ("a", True), (b"a", 0), None, ["a", 0]])
def test_what_is_no_partition_is_refused(value: object) -> None:
    with pytest.raises(ConfigError):
        partition_of(value)


@pytest.mark.parametrize("several", ["orders", A0, 7, None])
def test_partitions_are_given_as_several(several: object) -> None:
    with pytest.raises(ConfigError, match="several"):
        partitions_of(several)
