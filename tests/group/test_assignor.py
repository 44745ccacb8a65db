"""Assignors: every partition once, to a member that wants it; balanced; sticky ones move no more
than they must."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import ConfigError
from pylog.group.assignor import (
    ASSIGNORS,
    Share,
    Target,
    assign_range,
    assign_round_robin,
    assign_sticky,
    check_assignor,
)
from pylog.model import TopicPartition

TOPICS = ["a", "b", "c"]


@st.composite
def groups(draw: st.DrawFn, topics: int = 3, most: int = 6) -> tuple[dict[str, int], dict[str, Share]]:
    """Topics and members; what members have may be anything, even what is not there or what two
    claim."""
    names = TOPICS[:topics]
    partitions = {name: draw(st.integers(0, most)) for name in names}
    anything = st.builds(TopicPartition, st.sampled_from([*names, "gone"]), st.integers(0, most + 1))
    share = st.builds(Share, st.frozensets(st.sampled_from(names)), st.frozensets(anything))
    return partitions, draw(st.dictionaries(st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), share, max_size=5))


def all_of(partitions: dict[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in partitions for number in range(partitions[topic])]


def owners(target: Target) -> dict[TopicPartition, str]:
    return {partition: member for member, some in target.items() for partition in some}


@pytest.mark.slow
@pytest.mark.parametrize("name", ASSIGNORS)
@given(groups())
@pytest.mark.one_in(8)
def test_every_partition_goes_to_one_member_that_wants_it(
    name: str, group: tuple[dict[str, int], dict[str, Share]]
) -> None:
    partitions, members = group
    target = ASSIGNORS[name](partitions, members)
    assert set(target) == set(members)
    given_out = Counter(partition for some in target.values() for partition in some)
    wanted = {topic for share in members.values() for topic in share.topics}
    assert given_out == Counter(partition for partition in all_of(partitions) if partition.topic in wanted)
    assert all(partition.topic in members[member].topics for partition, member in owners(target).items())
    assert target == ASSIGNORS[name](dict(reversed(partitions.items())), dict(reversed(members.items())))


def unevenness(sizes: list[int]) -> int:
    return sum(size * size for size in sizes)


@pytest.mark.slow
@given(groups(topics=2, most=2))
def test_sticky_is_as_even_as_any_assignment_can_be(group: tuple[dict[str, int], dict[str, Share]]) -> None:
    partitions, members = group
    target = assign_sticky(partitions, members)
    choices = [
        readers
        for partition in all_of(partitions)
        if (readers := [member for member, share in members.items() if partition.topic in share.topics])
    ]
    best = min(unevenness([choice.count(member) for member in members]) for choice in product(*choices))
    assert unevenness([len(some) for some in target.values()]) == best


@pytest.mark.slow
@given(st.integers(0, 5), st.lists(st.frozensets(st.integers(0, 4)), min_size=1, max_size=4))
def test_with_one_subscription_sticky_moves_as_little_as_balance_allows(
    count: int, having: list[frozenset[int]]
) -> None:
    members, claimed = {}, set()
    for at, numbers in enumerate(having):
        mine = {TopicPartition("a", number) for number in numbers if number < count} - claimed
        claimed |= mine
        members[f"m{at}"] = Share(["a"], mine)
    target = assign_sticky({"a": count}, members)

    def kept(choice: dict[TopicPartition, str]) -> int:
        return sum(partition in members[member].has for partition, member in choice.items())

    most = 0
    for choice in product(members, repeat=count):
        sizes = [choice.count(member) for member in members]
        if max(sizes) - min(sizes) <= 1:
            most = max(most, kept(dict(zip(all_of({"a": count}), choice, strict=True))))
    assert kept(owners(target)) == most


@pytest.mark.slow
@given(groups())
def test_sticky_comes_to_rest(group: tuple[dict[str, int], dict[str, Share]]) -> None:
    partitions, members = group
    target = assign_sticky(partitions, members)
    again = assign_sticky(
        partitions, {member: Share(share.topics, target[member]) for member, share in members.items()}
    )
    assert again == target


def test_a_fourth_member_takes_one_of_each_of_three() -> None:
    three = assign_sticky({"a": 12}, {name: Share(["a"]) for name in ("x", "y", "z")})
    four = assign_sticky({"a": 12}, {**{name: Share(["a"], three[name]) for name in three}, "w": Share(["a"])})
    assert [len(four[name]) for name in ("x", "y", "z", "w")] == [3, 3, 3, 3]
    assert all(set(four[name]) < set(three[name]) for name in three)


def test_a_partition_passes_over_another_member_to_one_that_cannot_take_it_from_the_fullest() -> None:
    has = {
        "x": Share(["a", "b"], [TopicPartition("a", n) for n in range(4)]),
        "y": Share(["a", "b"], [TopicPartition("b", n) for n in range(3)]),
        "z": Share(["b"]),
    }
    assert [len(some) for some in assign_sticky({"a": 4, "b": 3}, has).values()] in ([2, 3, 2], [3, 2, 2])


def test_range_gives_contiguous_shares_and_equal_numbers_to_the_same_member() -> None:
    target = assign_range({"a": 5, "b": 5}, {"x": Share(["a", "b"]), "y": Share(["a", "b"])})
    assert (
        [n for topic, n in target["x"] if topic == "a"] == [n for topic, n in target["x"] if topic == "b"] == [0, 1, 2]
    )


def test_round_robin_deals_over_topics() -> None:
    target = assign_round_robin({"a": 1, "b": 2}, {"x": Share(["a", "b"]), "y": Share(["a", "b"])})
    assert target == {"x": (TopicPartition("a", 0), TopicPartition("b", 1)), "y": (TopicPartition("b", 0),)}


def test_round_robin_passes_those_that_do_not_want_the_topic() -> None:
    members = {"x": Share(["a"]), "y": Share(["b"]), "z": Share(["a", "b"])}
    assert assign_round_robin({"a": 2, "b": 3}, members) == {
        "x": (TopicPartition("a", 0),),
        "y": (TopicPartition("b", 0), TopicPartition("b", 2)),
        "z": (TopicPartition("a", 1), TopicPartition("b", 1)),
    }


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_topic_that_no_member_wants_goes_to_nobody(name: str) -> None:
    """The last member that wanted it may have left, while the group still knows the topic."""
    wanted = (TopicPartition("b", 0), TopicPartition("b", 1))
    assert ASSIGNORS[name]({"a": 3, "b": 2, "c": 1}, {"m": Share(["b"])}) == {"m": wanted}


def test_a_thousand_partitions_and_sixty_four_members_at_once() -> None:
    members = {f"m{at:02}": Share(["a"]) for at in range(64)}
    members["m00"] = Share(["a"], [TopicPartition("a", number) for number in range(1000)])
    sizes = [len(some) for some in assign_sticky({"a": 1000}, members).values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", ["", "Range", None, 3, ["range"]])
def test_an_unknown_assignor_is_refused_by_name(name: object) -> None:
    with pytest.raises(ConfigError, match="cooperative-sticky"):
        check_assignor(name)
