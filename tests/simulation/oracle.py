"""Whether a machine, after whatever happened to it, holds what the ledger says, repairs itself
alone, and goes on."""

from __future__ import annotations

from collections.abc import Callable

from pylog import Log, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.errors import PylogError
from pylog.group.admin import GroupAdmin
from pylog.partition.verify import Problem
from pylog.testing.machine import Machine
from tests.simulation.actors import ROOT, Actor, World
from tests.simulation.ledger import ACKNOWLEDGED, UNKNOWN, GroupLedger, Ledger, TopicLedger


def problems(machine: Machine, ledger: Ledger, *, power_lost: bool) -> list[str]:
    """Open the log with a new process and check all that is promised. The machine and the ledger
    are used up."""
    return _check(machine, ledger, power_lost, _goes_on, _stays)


def problems_found_at_once(machine: Machine, ledger: Ledger, *, power_lost: bool) -> list[str]:
    """The same without going on: for very many machines, beside ``problems`` for some."""
    return _check(machine, ledger, power_lost)


def _check(machine: Machine, ledger: Ledger, power_lost: bool, *later: Callable[[Actor], list[str]]) -> list[str]:
    if not any(topic.there or topic.attempts for topic in ledger.topics.values()) and not _is_log(machine):
        return []  # not even the log was acknowledged
    world = World(machine)
    world.ledger = ledger
    actor = world.actor()
    try:
        found = ledger.problems(actor.log, power_lost=power_lost)
        found += [f"verify: {problem}" for problem in _verified(actor.log, ledger, power_lost)]
        for check in later:
            found = found or check(actor)
    except PylogError as error:
        return [f"{type(error).__name__}: {error}"]
    return found + world.seen + [f"{type(error).__name__}: {error}" for error in world.errors]


def _verified(log: Log, ledger: Ledger, power_lost: bool) -> list[Problem]:
    """What ``verify`` finds. A directory may stay of a topic whose creation never returned, and
    that is lost."""
    unmade = {topic.name for topic in ledger.topics.values() if topic.must_be_there(power_lost=power_lost) is None}
    if not any(group.durable for group in ledger.groups.values()):
        unmade.add(OFFSETS_TOPIC)
    return [
        problem
        for problem in log.verify().problems
        if not (power_lost and problem.topic in unmade and "belongs to no topic" in problem.problem)
    ]


def _is_log(machine: Machine) -> bool:
    return f"{ROOT}/.pylog/manifest.json" in machine.disk.contents()


def _goes_on(actor: Actor) -> list[str]:
    """Topics can be made again, records appended, segments rolled, groups joined; and it is all
    there."""
    ledger = actor.world.ledger
    for topic in ledger.topics.values():
        _settle(topic, actor.log)
    for (name, topic_name), group in ledger.groups.items():
        _settle_group(group, name, topic_name, actor.log)
    for name, topic in list(ledger.topics.items()):
        if not topic.there:
            actor.create(name)
        actor.append(name, acks="all")
        actor.roll(name)
        actor.append(name, 2)
    for name, topic_name in ledger.groups:
        _reads_to_the_end(actor, name, topic_name)
    found = ledger.problems(actor.log, power_lost=False)
    found += [f"later, verify: {problem}" for problem in actor.log.verify().problems]
    actor.close()
    return found


def _settle(topic: TopicLedger, log: Log) -> None:
    """What the log holds is held from here on. What is unknown and not in it may still be adopted
    by the next append."""
    unknown = [attempt for attempt in topic.attempts if attempt.outcome == UNKNOWN]
    topic.attempts.clear()
    topic.start_acknowledged = topic.start_asked = 0
    topic.there = topic.name in log.topics()
    if topic.there:
        partition = log.partition(topic.name, 0)
        topic.start_acknowledged = topic.start_asked = partition.earliest_offset
        records = list(partition.scan())
        for record in records:
            attempt = topic.begin((0, 0, "found"), [record.value])
            attempt.outcome, attempt.offset = ACKNOWLEDGED, record.offset
        values = {record.value for record in records}
        topic.attempts += [attempt for attempt in unknown if not values.intersection(attempt.values)]
    topic.durable_end = topic.written_end


def _settle_group(group: GroupLedger, name: str, topic: str, log: Log) -> None:
    """What is committed, a commit that was cut off by a death with it; or the end of the log where
    the power has taken more: others will have the offsets behind it."""
    log.manager.part(GroupAdmin).offsets.recover_last_commit(name, 1.0)
    found = log.manager.part(GroupAdmin).committed(name).get(TopicPartition(topic, 0))
    group.written = group.durable = 0 if found is None else min(found.offset, log.partition(topic, 0).latest_offset)
    group.asked = {group.written}


def _reads_to_the_end(actor: Actor, group: str, name: str) -> None:
    """A member that is alone by now reads on, and commits all."""
    known, partition = actor.world.ledger.groups[group, name], actor.log.partition(name, 0)
    start, end = max(known.written, partition.earliest_offset), partition.latest_offset
    actor.polled.clear()
    actor.join(group, name)
    for _ in range(end + 3):
        actor.poll()
    actor.commit(group)
    actor.leave()
    passed_over = sorted(set(range(start, end)) - actor.polled)
    if passed_over:
        actor.world.seen.append(f"group {group}: a new member passed over {name} {passed_over} of {start} to {end}")
    if known.written != end:
        actor.world.seen.append(f"group {group}: a new member committed {known.written} of {name}, which ends at {end}")


def _stays(actor: Actor) -> list[str]:
    """A second opening that only reads changes no byte."""
    machine = actor.world.machine
    before = machine.disk.contents()
    process = machine.process()
    with process.open_log(ROOT) as log:
        for name in log.topics():
            list(log.partition(name, 0).scan())
    after = machine.disk.contents()
    return [f"opened once more, {path} changed" for path in before | after if before.get(path) != after.get(path)]
