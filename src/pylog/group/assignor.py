"""Assignors: pure functions from members and topics to a target assignment.

Every partition goes to exactly one of the members that want its topic. The result depends only on
the arguments, so every member computes the same one.

- ``range``: a contiguous share of each topic. If it does not divide evenly, the first members get
  one more. For topics with equally many partitions, equal numbers go to the same member.
- ``round_robin``: all partitions in order, dealt out one by one.
- ``sticky`` and ``cooperative-sticky`` are the same here: as balanced as possible and, among the
  balanced assignments, one that moves few partitions. (Kafka's two differ in the protocol. pylog
  always uses the cooperative one: a member gives up only what moves.)

Source: Kafka's ``RangeAssignor``, ``RoundRobinAssignor``, ``CooperativeStickyAssignor``
(guarantees); KIP-429.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from pylog.errors import ConfigError
from pylog.model import TopicPartition

Target = dict[str, tuple[TopicPartition, ...]]


class Share(NamedTuple):
    """The topics that one member wants, and the partitions that it has."""

    topics: Collection[str]
    has: Collection[TopicPartition] = ()


Assignor = Callable[[Mapping[str, int], Mapping[str, Share]], Target]
"""From partition counts by topic and members by id to each member's partitions, sorted."""


def assign_range(partitions: Mapping[str, int], members: Mapping[str, Share]) -> Target:
    """See the module."""
    target: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic in sorted(partitions):
        readers = _readers(topic, members)
        start = 0
        for at, member in enumerate(readers):
            size = partitions[topic] // len(readers) + (at < partitions[topic] % len(readers))
            target[member] += [TopicPartition(topic, number) for number in range(start, start + size)]
            start += size
    return _sorted(target)


def assign_round_robin(partitions: Mapping[str, int], members: Mapping[str, Share]) -> Target:
    """See the module."""
    target: dict[str, list[TopicPartition]] = {member: [] for member in members}
    names = sorted(members)
    turn = 0
    for topic in sorted(partitions):
        if _readers(topic, members):
            for number in range(partitions[topic]):
                while topic not in members[names[turn % len(names)]].topics:
                    turn += 1
                target[names[turn % len(names)]].append(TopicPartition(topic, number))
                turn += 1
    return _sorted(target)


def assign_sticky(partitions: Mapping[str, int], members: Mapping[str, Share]) -> Target:
    """See the module."""
    held, free = _kept(partitions, members)
    for partition in free:
        readers = _readers(partition.topic, members)
        if readers:
            _give(held, min(readers, key=lambda member: (_count(held[member]), member)), partition)
    _balance(held, members)
    return _sorted({member: [p for some in topics.values() for p in some] for member, topics in held.items()})


ASSIGNORS: dict[str, Assignor] = {
    "range": assign_range,
    "round_robin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_sticky,
}


def check_assignor(name: object) -> None:
    """Raises ``ConfigError`` if there is no such assignor."""
    if not isinstance(name, str) or name not in ASSIGNORS:
        raise ConfigError(
            f"assignor={name!r}; there are {', '.join(map(repr, ASSIGNORS))}", option="assignor", value=name
        )


def _readers(topic: str, members: Mapping[str, Share]) -> list[str]:
    return sorted(member for member, share in members.items() if topic in share.topics)


def _sorted(target: Mapping[str, Sequence[TopicPartition]]) -> Target:
    return {member: tuple(sorted(partitions)) for member, partitions in target.items()}


# Sticky: the partitions of every member, by topic

_Held = dict[str, dict[str, list[TopicPartition]]]


def _count(topics: Mapping[str, list[TopicPartition]]) -> int:
    return sum(map(len, topics.values()))


def _give(held: _Held, member: str, partition: TopicPartition) -> None:
    held[member].setdefault(partition.topic, []).append(partition)


def _kept(partitions: Mapping[str, int], members: Mapping[str, Share]) -> tuple[_Held, list[TopicPartition]]:
    """Return what members keep (of two equal claims the first) and what is left, in order."""
    held: _Held = {member: {} for member in sorted(members)}
    taken: set[TopicPartition] = set()
    for member in held:
        for partition in sorted(members[member].has):
            is_there = 0 <= partition.partition < partitions.get(partition.topic, 0)
            if is_there and partition not in taken and partition.topic in members[member].topics:
                taken.add(partition)
                _give(held, member, partition)
    return held, [
        partition
        for topic in sorted(partitions)
        for partition in (TopicPartition(topic, number) for number in range(partitions[topic]))
        if partition not in taken
    ]


def _balance(held: _Held, members: Mapping[str, Share]) -> None:
    """Move partitions from the fullest possible member to one that has at least two fewer.
    A move may pass through other members. If no such chain is left, no assignment is more even."""
    counts = {member: _count(topics) for member, topics in held.items()}
    by_topic = {topic: _readers(topic, members) for share in members.values() for topic in share.topics}
    while True:
        least = min(counts.values(), default=0)
        givers = [member for member in held if counts[member] - least >= 2]
        fullest_first = sorted(givers, key=lambda member: (-counts[member], member))
        ways = (_way_down(giver, held, by_topic, counts) for giver in fullest_first)
        way = next(filter(None, ways), None)
        if way is None:
            return
        for source, topic, receiver in way:
            _give(held, receiver, held[source][topic].pop())
            if not held[source][topic]:
                del held[source][topic]
        counts[way[0][0]] -= 1
        counts[way[-1][2]] += 1


def _way_down(
    giver: str, held: _Held, by_topic: Mapping[str, list[str]], counts: Mapping[str, int]
) -> list[tuple[str, str, str]]:
    """The shortest chain of (from, topic, to) to the emptiest reachable member, [] unless it has
    at least two fewer than ``giver``."""
    came: dict[str, tuple[str, str] | None] = {giver: None}
    reached, best = deque([giver]), giver
    while reached:
        member = reached.popleft()
        for topic in held[member]:
            for receiver in by_topic[topic]:
                if receiver not in came:
                    came[receiver] = member, topic
                    reached.append(receiver)
                    if counts[receiver] < counts[best]:
                        best = receiver
    if counts[giver] - counts[best] < 2:
        return []
    way, at = [], best
    while (step := came[at]) is not None:
        way.append((step[0], step[1], at))
        at = step[0]
    return way[::-1]
