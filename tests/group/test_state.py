"""What may become of a group: random histories of joining, leaving, and reconciling, against what
must always hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pylog.group.state import (
    NONE,
    Group,
    GroupTopic,
    Member,
    appeared_since,
    reconciled,
    with_member,
    with_starts,
    with_subscription,
    without_members,
)
from pylog.model import TopicPartition

NAMES = ["a", "b"]


def member(id_: str, topics: frozenset[str], instance_id: str = "") -> Member:
    return Member(id_, instance_id, "", "host", 1, 1, 0, 1000, 1000, topics)


class Histories(RuleBasedStateMachine):
    """Members know what the group told them last; ``held`` is what they read by that."""

    @initialize()
    def begin(self) -> None:
        self.group = Group()
        self.topics = {"a": GroupTopic("id-a", 3)}
        self.held: dict[str, frozenset[TopicPartition]] = {}
        self.joins = 0

    @rule(topics=st.frozensets(st.sampled_from(NAMES), min_size=1))
    def join(self, topics: frozenset[str]) -> None:
        self.joins += 1
        before = self.group
        self.group = with_member(before, member(f"m{self.joins}", topics), "cooperative-sticky", self.topics)
        assert self.group.generation == before.generation + 1
        self.held[f"m{self.joins}"] = NONE

    @rule(number=st.integers(0, 9))
    def leave_or_die(self, number: int) -> None:
        ids = sorted(self.group.members)
        if ids:
            gone = ids[number % len(ids)]
            self.group = without_members(self.group, {gone}, self.topics)
            del self.held[gone]

    @rule(number=st.integers(0, 9))
    def poll(self, number: int) -> None:
        """Give up what is no longer one's own, publish that, take what is free."""
        ids = sorted(self.group.members)
        if ids:
            me = self.group.members[ids[number % len(ids)]]
            self.held[me.id] &= me.target
            self.group = reconciled(self.group, me.id, me.owned.keys() - me.target)
            self.held[me.id] = frozenset(self.group.members[me.id].owned.keys() & me.target)

    @rule(number=st.integers(0, 9), topics=st.frozensets(st.sampled_from(NAMES)))
    def subscribe(self, number: int, topics: frozenset[str]) -> None:
        ids = sorted(self.group.members)
        if ids:
            self.group = with_subscription(self.group, ids[number % len(ids)], topics, self.topics)

    @rule(name=st.sampled_from(NAMES), more=st.integers(0, 3))
    def grow(self, name: str, more: int) -> None:
        known = self.topics.get(name, GroupTopic(f"id-{name}", 0))
        self.topics[name] = known._replace(partitions=known.partitions + more + (not known.partitions))

    @invariant()
    def no_partition_has_two_owners_or_targets(self) -> None:
        for field in ("owned", "target"):
            every = [p for m in self.group.members.values() for p in getattr(m, field)]
            assert len(every) == len(set(every))

    @invariant()
    def nobody_reads_what_another_owns(self) -> None:
        for id_, held in self.held.items():
            others = NONE.union(*(m.owned for other, m in self.group.members.items() if other != id_))
            assert not held & others
            assert held <= self.group.members[id_].owned.keys()

    def teardown(self) -> None:
        """When all poll in turn, everything comes to rest, and every partition has one owner."""
        if not hasattr(self, "group") or not self.group.members:
            return
        for _ in range(2):
            for id_ in sorted(self.group.members):
                me = self.group.members[id_]
                self.group = reconciled(self.group, id_, me.owned.keys() - me.target)
        assert self.group.is_settled
        wanted = {name for m in self.group.members.values() for name in m.topics}
        assert NONE.union(*(member.owned for member in self.group.members.values())) == {
            TopicPartition(name, number)
            for name, topic in self.group.topics.items()
            if name in wanted
            for number in range(topic.partitions)
        }


TestHistories = pytest.mark.slow(Histories.TestCase)
TestHistories.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)

WANTED = frozenset({"a"})
TOPICS = {"a": GroupTopic("1", 4)}


def test_only_what_moves_moves() -> None:
    group = with_member(Group(), member("m1", WANTED), "cooperative-sticky", {"a": GroupTopic("1", 12)})
    for id_ in ("m2", "m3"):
        group = with_member(group, member(id_, WANTED), "cooperative-sticky", {"a": GroupTopic("1", 12)})
    for id_ in ("m1", "m2", "m3"):
        group = reconciled(group, id_, group.members[id_].owned.keys() - group.members[id_].target)
    before = {id_: m.owned.keys() for id_, m in group.members.items()}
    group = with_member(group, member("m4", WANTED), "cooperative-sticky", {"a": GroupTopic("1", 12)})
    assert sum(len(before[id_] - group.members[id_].target) for id_ in before) == 3
    assert len(group.members["m4"].target) == 3


def test_what_a_member_keeps_is_its_own_since_it_took_it() -> None:
    group = reconciled(with_member(Group(), member("m1", WANTED), "cooperative-sticky", TOPICS), "m1", NONE)
    first = group.members["m1"]
    group = with_member(group, member("m2", WANTED), "cooperative-sticky", TOPICS)
    moved = first.owned.keys() - group.members["m1"].target
    group = reconciled(reconciled(group, "m1", moved), "m2", NONE)
    assert group.members["m1"].owned == dict.fromkeys(first.target - moved, 1)
    assert group.members["m2"].owned == dict.fromkeys(moved, 2)
    group = reconciled(without_members(group, {"m2"}, TOPICS), "m1", NONE)
    assert group.members["m1"].owned == dict.fromkeys(first.target - moved, 1) | dict.fromkeys(moved, 3)


def test_a_static_member_that_comes_back_takes_nothing_from_others() -> None:
    group = with_member(Group(), member("m1", WANTED, "one"), "range", TOPICS)
    group = with_member(group, member("m2", WANTED, "two"), "range", TOPICS)
    group = reconciled(group, "m1", NONE)
    again = with_member(group, member("m3", WANTED, "one"), "range", TOPICS)
    assert sorted(again.members) == ["m2", "m3"]
    assert again.members["m3"].target == group.members["m1"].target
    assert again.members["m2"].target == group.members["m2"].target
    assert again.members["m3"].owned == {}
    assert again.generation == group.generation + 1


def test_what_was_owned_of_a_topic_that_was_created_again_is_owned_no_more() -> None:
    group = reconciled(with_member(Group(), member("m1", WANTED), "sticky", TOPICS), "m1", NONE)
    group = with_starts(group, {TopicPartition("a", 0): 7})
    again = with_subscription(group, "m1", WANTED, {"a": GroupTopic("2", 4)})
    assert again.members["m1"].owned == {}
    assert again.starts == dict.fromkeys(again.members["m1"].target, 0)  # whoever takes it reads all of it
    assert appeared_since(group, again) == again.members["m1"].target
    assert len(again.members["m1"].target) == 4


def test_starts_are_kept_while_there_are_members_and_the_first_one_counts() -> None:
    group = with_member(Group(), member("m1", WANTED), "sticky", TOPICS)
    group = with_starts(group, {TopicPartition("a", 0): 7})
    group = with_starts(group, {TopicPartition("a", 0): 9, TopicPartition("a", 1): 3})
    assert group.starts == {TopicPartition("a", 0): 7, TopicPartition("a", 1): 3}
    group = without_members(with_member(group, member("m2", WANTED), "sticky", TOPICS), {"m1"}, TOPICS)
    assert group.starts[TopicPartition("a", 0)] == 7
    assert without_members(group, {"m2"}, {}).starts == {}


def test_cells_are_used_again() -> None:
    group = Group(members={"a": member("a", WANTED)._replace(cell=1), "b": member("b", WANTED)._replace(cell=3)})
    assert group.free_cell() == 2
    assert Group().free_cell() == 1


@given(st.integers(0, 5))
def test_a_group_without_members_divides_nothing(generation: int) -> None:
    group = without_members(Group(generation, "sticky", {"m": member("m", WANTED)}, TOPICS), {"m"}, TOPICS)
    assert (group.generation, dict(group.members), dict(group.topics)) == (generation + 1, {}, {})
