"""What a workload asked of a log and what it was told, and whether a log found later keeps to that.

Every attempt to append has values that no other has. It ends as acknowledged (with its first
offset), refused (certainly not in the log), or unknown. A log keeps its word if its records are the
attempts in their order, each whole: all that had to survive, each at its offset; none that was
refused; and none behind one that is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pylog import Log, TopicPartition
from pylog.checks import OFFSETS_TOPIC
from pylog.group.admin import GroupAdmin
from pylog.partition import Partition

Sender = tuple[int, int, str]
ACKNOWLEDGED, REFUSED, UNKNOWN = "acknowledged", "refused", "unknown"
BY_APPEND = "append"  # as the way of a sender; any other is a producer


@dataclass
class Attempt:
    """One append."""

    number: int
    sender: Sender
    values: tuple[bytes, ...]
    outcome: str = UNKNOWN
    offset: int = -1

    @property
    def end(self) -> int:
        return self.offset + len(self.values)


@dataclass
class TopicLedger:
    """One topic of one partition, in one of its lives. ``there`` is what its creator and its
    deleter were told, if they were."""

    name: str
    there: bool | None = None
    delete_asked: bool = False
    create_asked: bool = False  # since then: it may be an empty one already
    attempts: list[Attempt] = field(default_factory=list)
    durable_end: int = 0  # everything below was acknowledged as durable
    start_asked: int = 0  # the greatest log start that may be found
    start_acknowledged: int = 0  # the least
    partitions: tuple[int, int] = (1, 1)  # the least and the most
    max_message_bytes: frozenset[int] = frozenset()  # those that may be set; any, where it is empty

    def begin(self, sender: Sender, values: Sequence[bytes]) -> Attempt:
        attempt = Attempt(len(self.attempts), sender, tuple(values))
        self.attempts.append(attempt)
        return attempt

    def end_life(self) -> None:
        """The topic was deleted: what producers hold may still be written, to the next topic of
        this name."""
        self.attempts = [a for a in self.attempts if a.outcome == UNKNOWN and a.sender[2] != BY_APPEND]

    def acknowledged(self) -> dict[int, bytes]:
        """The acknowledged values by offset."""
        return {a.offset + i: v for a in self.attempts if a.outcome == ACKNOWLEDGED for i, v in enumerate(a.values)}

    def fingerprint(self) -> tuple[object, ...]:
        """Equal where the same was promised to the same senders, whoever they are this time."""
        senders: dict[Sender, int] = {}
        attempts = tuple(
            (senders.setdefault(a.sender, len(senders)), a.outcome, a.offset, a.values) for a in self.attempts
        )
        starts = self.start_asked, self.start_acknowledged
        config = self.partitions, tuple(sorted(self.max_message_bytes))
        return self.name, self.there, self.delete_asked, self.create_asked, self.durable_end, starts, config, attempts

    def must_be_there(self, *, power_lost: bool) -> bool | None:
        """None where nobody can know. Who got a record acknowledged knows, even if the creator died
        before it was told."""
        if self.there is None and not self.delete_asked and (self.durable_end if power_lost else self.written_end):
            return True
        return self.there

    @property
    def written_end(self) -> int:
        return max((a.end for a in self.attempts if a.outcome == ACKNOWLEDGED), default=0)


@dataclass
class GroupLedger:
    """What one group has committed of one topic. Whoever commits, commits more than was committed
    before."""

    asked: set[int] = field(default_factory=set)
    written: int = 0  # the greatest that was acknowledged
    durable: int = 0  # and the greatest of which it was said that no loss of power takes it back

    def fingerprint(self) -> tuple[object, ...]:
        return tuple(sorted(self.asked)), self.written, self.durable


class Ledger:
    """All topics of a workload, and what groups have committed of them. A topic that is created
    again begins a new life."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicLedger] = {}
        self.groups: dict[tuple[str, str], GroupLedger] = {}
        self.sent = 0
        self.has_deleted = False

    def begin_life(self, name: str) -> TopicLedger:
        """A topic that was not there is being created."""
        topic, before = TopicLedger(name), self.topics.get(name)
        if before is not None:
            before.end_life()
            for number, attempt in enumerate(before.attempts):
                attempt.number = number
            topic.attempts = before.attempts
        self.topics[name] = topic
        return topic

    def new_values(self, count: int, size: int) -> list[bytes]:
        """Values that were never sent before."""
        first, self.sent = self.sent, self.sent + count
        return [
            b"%d:" % number + bytes((number + at) % 251 for at in range(size)) for number in range(first, self.sent)
        ]

    def copy(self) -> Ledger:
        """As it stands, for a check later."""
        made = Ledger()
        made.sent, made.has_deleted = self.sent, self.has_deleted
        for name, topic in self.topics.items():
            made.topics[name] = replace(topic, attempts=[replace(a) for a in topic.attempts])
        for key, group in self.groups.items():
            made.groups[key] = replace(group, asked=set(group.asked))
        return made

    def fingerprint(self) -> tuple[object, ...]:
        """Equal where the same was promised."""
        topics = tuple(topic.fingerprint() for topic in self.topics.values())
        return topics, tuple((key, group.fingerprint()) for key, group in self.groups.items())

    def problems(self, log: Log, *, power_lost: bool) -> list[str]:
        """What the log says that it must not, or does not say that it must."""
        found: list[str] = []
        names = set(log.topics())
        for name, topic in self.topics.items():
            expected = topic.must_be_there(power_lost=power_lost)
            if expected is not None and expected != (name in names):
                found.append(f"topic {name}: expected {'there' if expected else 'gone'}, the log has {sorted(names)}")
            if name in names and not (topic.create_asked and log.partition(name, 0).latest_offset == 0):
                found += config_problems(topic, log) + topic_problems(topic, log.partition(name, 0), power_lost)
        made = {OFFSETS_TOPIC} if self.groups else set()
        found += [f"topic {name}: nobody created it" for name in names - set(self.topics) - made]
        for (name, topic_name), group in self.groups.items():
            if topic_name in names:
                found += group_problems(name, topic_name, group, log, power_lost)
        return found


def group_problems(name: str, topic: str, group: GroupLedger, log: Log, power_lost: bool) -> list[str]:
    partition = TopicPartition(topic, 0)
    found = log.manager.part(GroupAdmin).committed(name).get(partition)
    offset, least = 0 if found is None else found.offset, group.durable if power_lost else group.written
    if offset < least:
        return [f"group {name}: committed {offset} of {topic}, acknowledged was {least}"]
    if offset and offset not in group.asked:
        return [f"group {name}: committed {offset} of {topic}, which nobody asked for"]
    end = log.partition(*partition).latest_offset
    if offset > end and (offset <= group.durable or not power_lost):
        return [f"group {name}: committed {offset} of {topic}, which ends at {end}"]
    return []


def config_problems(topic: TopicLedger, log: Log) -> list[str]:
    described = log.describe_topic(topic.name)
    least, most = topic.partitions
    if not least <= described.partitions <= most:
        return [f"{topic.name}: has {described.partitions} partitions, expected {least} to {most}"]
    limit = described.config.max_message_bytes
    if topic.max_message_bytes and limit not in topic.max_message_bytes:
        return [f"{topic.name}: max_message_bytes is {limit}, expected one of {sorted(topic.max_message_bytes)}"]
    ends = [log.partition(topic.name, number).latest_offset for number in range(1, described.partitions)]
    return [f"{topic.name}: a partition that nobody wrote to ends at {end}" for end in ends if end]


def topic_problems(topic: TopicLedger, partition: Partition, power_lost: bool) -> list[str]:
    earliest, latest = partition.earliest_offset, partition.latest_offset
    if not topic.start_acknowledged <= earliest <= topic.start_asked:
        return [f"{topic.name}: begins at {earliest}, expected {topic.start_acknowledged} to {topic.start_asked}"]
    required = topic.durable_end if power_lost else topic.written_end
    if latest < required:
        return [f"{topic.name}: ends at {latest}, but was acknowledged up to {required}"]
    records = list(partition.scan())
    if [record.offset for record in records] != list(range(earliest, latest)):
        return [f"{topic.name}: offsets {[record.offset for record in records]}, expected {earliest} to {latest}"]
    return _order_problems(topic, earliest, [record.value for record in records])


def _order_problems(topic: TopicLedger, earliest: int, values: list[bytes]) -> list[str]:
    """Find the attempt of each value: whole, where it was acknowledged to be, and behind its
    sender's earlier ones."""
    owners = {value: attempt for attempt in topic.attempts for value in attempt.values}
    latest_of: dict[Sender, int] = {}
    at = 0
    while at < len(values):
        attempt = owners.get(values[at])
        if attempt is None or attempt.outcome == REFUSED:
            return [
                f"{topic.name}: {values[at]!r} at offset {earliest + at} was {'refused' if attempt else 'never sent there'}"
            ]
        first = attempt.values.index(values[at])
        whole = list(attempt.values[first:])
        if values[at : at + len(whole)] != whole or (first > 0 and (at > 0 or earliest == 0)):
            return [f"{topic.name}: attempt {attempt.number} stands in part at offset {earliest + at}: {values[at:]}"]
        if attempt.outcome == ACKNOWLEDGED and attempt.offset != earliest + at - first:
            return [
                f"{topic.name}: attempt {attempt.number} is at {earliest + at - first}, acknowledged at {attempt.offset}"
            ]
        if attempt.number <= latest_of.get(attempt.sender, -1):
            return [f"{topic.name}: attempt {attempt.number} of {attempt.sender} stands behind a later one"]
        latest_of[attempt.sender] = attempt.number
        at += len(whole)
    missing = [a for a in topic.attempts if a.outcome == ACKNOWLEDGED and earliest <= a.offset < earliest + len(values)]
    found = set(values)
    return [
        f"{topic.name}: attempt {a.number} is missing at {a.offset}" for a in missing if not found.issuperset(a.values)
    ]
