"""Who does what on a simulated machine: an actor is a process with a log open, and notes in the
ledger what it was told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import TypeVar

from pylog import Consumer, Log, Producer, ProducerRecord, TopicPartition
from pylog.errors import CommitFailed, NotAppended, OutcomeUnknown, PylogError, StorageError, TopicExists, TopicNotFound
from pylog.log import cleaner_of
from pylog.testing.machine import Killed, Machine, Process, Step
from tests.simulation.ledger import ACKNOWLEDGED, BY_APPEND, REFUSED, UNKNOWN, GroupLedger, Ledger, Sender

T = TypeVar("T")
ROOT = "/log"
ANY_START = 1 << 40  # retention removes closed segments, of any number by then


def kill_at(process: Process, number: int) -> None:
    def before(acting: Process, _step: Step) -> None:
        if acting is process and acting.steps == number:
            acting.kill()
            raise Killed

    process.machine.before_step.append(before)


class World:
    """A machine, its actors, and what was promised to them. The log is at ``root``."""

    def __init__(self, machine: Machine, root: str = ROOT) -> None:
        self.machine = machine
        self.root = root
        self.ledger = Ledger()
        self.errors: list[BaseException] = []  # what actors were told, in order
        self.seen: list[str] = []  # what must not be

    def actor(self) -> Actor:
        return Actor(self, self.machine.process())


class Actor:
    """A process that uses a log. After its death each of its calls does nothing."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self._log: Log | None = None
        self._producers: dict[int | str, Producer] = {}
        self._consumer: Consumer | None = None
        self.polled: set[int] = set()  # offsets, of all topics

    @property
    def log(self) -> Log:
        if self._log is None:
            self._log = self.process.open_log(self.world.root)
        return self._log

    def _who(self, through: str) -> Sender:
        """Whose order the log must keep: that of one thread of one process, in one of the ways to
        append."""
        return self.process.number, get_ident(), through

    def attempt(self, work: Callable[[], T]) -> T | None:
        """What ``work`` returns; None where it failed in a way that it may. Anything else is a
        finding."""
        if not self.process.is_alive:
            return None
        try:
            return work()
        except Killed:
            self.process.kill()
        except TopicNotFound as error:
            topic = self.world.ledger.topics.get(error.facts["topic"])
            # Else the process that was to create it may have died, or failed.
            if topic is None or topic.must_be_there(power_lost=False):
                self.world.errors.append(error)
        except (PylogError, KeyboardInterrupt, MemoryError) as error:
            self.world.errors.append(error)
        except BaseException as error:  # noqa: BLE001  (told to whoever looks)
            self.world.errors.append(error)
            self.world.seen.append(f"process {self.process.number}: {type(error).__name__}: {error}")
        return None

    # What is asked of the log

    def create(self, name: str, **config: int) -> None:
        def work() -> None:
            ledger = self.world.ledger
            if name not in ledger.topics or ledger.topics[name].there is False:
                ledger.begin_life(name)
            topic = ledger.topics[name]
            topic.create_asked = topic.delete_asked
            try:
                self.log.create_topic(name, **config)
                if topic.there is None:  # perhaps a deletion that failed had come far enough
                    topic = ledger.begin_life(name)
            except TopicExists:
                if topic.there is False:
                    raise
                self.log.create_topic(name, if_not_exists=True)  # durable on return, whoever made it
            topic.there = True

        self.attempt(work)

    def delete(self, name: str) -> None:
        def work() -> None:
            topic = self.world.ledger.topics[name]
            topic.there, topic.delete_asked, self.world.ledger.has_deleted = None, True, True
            with suppress(TopicNotFound):
                self.log.delete_topic(name)
            topic.there = False
            topic.end_life()

        self.attempt(work)

    def add_partition(self, name: str) -> None:
        """One more than there are."""

        def work() -> None:
            topic = self.world.ledger.topics[name]
            total = self.log.describe_topic(name).partitions + 1
            topic.partitions = topic.partitions[0], max(topic.partitions[1], total)
            self.log.add_partitions(name, total)
            topic.partitions = total, total

        self.attempt(work)

    def alter(self, name: str, max_message_bytes: int) -> None:
        def work() -> None:
            topic = self.world.ledger.topics[name]
            before = self.log.describe_topic(name).config.max_message_bytes
            topic.max_message_bytes |= {before, max_message_bytes}
            self.log.alter_topic(name, max_message_bytes=max_message_bytes)
            topic.max_message_bytes = frozenset({max_message_bytes})

        self.attempt(work)

    def append(self, name: str, count: int = 1, size: int = 40, acks: int | str = 1) -> None:
        self.attempt(lambda: self._append(name, count, size, acks))

    def _append(self, name: str, count: int, size: int, acks: int | str) -> None:
        topic = self.world.ledger.topics[name]
        values = self.world.ledger.new_values(count, size)
        attempt = topic.begin(self._who(BY_APPEND), values)
        try:
            partition = self.log.partition(name, 0)
        except PylogError:
            attempt.outcome = REFUSED
            raise
        try:
            result = partition.append(
                [ProducerRecord(value, timestamp_ms=1_000 + attempt.number) for value in values], acks=acks
            )
        except OutcomeUnknown:
            attempt.outcome = UNKNOWN
            raise
        except (NotAppended, TopicNotFound):
            attempt.outcome = REFUSED
            raise
        except PylogError as error:  # which says neither
            self.world.seen.append(f"append raised {type(error).__name__}: {error}")
            raise
        attempt.outcome, attempt.offset = ACKNOWLEDGED, result.base_offset
        if acks == "all":
            topic.durable_end = max(topic.durable_end, result.last_offset + 1)

    def send(self, name: str, count: int, size: int = 40, acks: int | str = 1) -> None:
        """Records through a producer of this actor's own, which repeats nothing twice; flushed."""
        self.attempt(lambda: self._send(name, count, size, acks))

    def _send(self, name: str, count: int, size: int, acks: int | str) -> None:
        topic = self.world.ledger.topics[name]
        producer = self._producers.get(acks)
        if producer is None:
            producer = self._producers[acks] = Producer(self.log, acks=acks, linger_ms=0)
        sent = []
        for value in self.world.ledger.new_values(count, size):
            attempt = topic.begin(self._who(f"send {acks}"), [value])
            try:
                sent.append((attempt, producer.send(name, value, partition=0)))
            except PylogError:
                attempt.outcome = REFUSED
                raise
        producer.flush()
        for attempt, delivery in sent:
            error = delivery.exception()
            if error is None:
                attempt.outcome, attempt.offset = ACKNOWLEDGED, delivery.result().offset
                if acks == "all":
                    topic.durable_end = max(topic.durable_end, attempt.end)
            elif isinstance(error, NotAppended):
                attempt.outcome = REFUSED
            elif not isinstance(error, OutcomeUnknown):
                self.world.seen.append(f"a delivery ended as {type(error).__name__}: {error}")
            if error is not None:
                self.world.errors.append(error)

    def sync(self, name: str) -> None:
        def work() -> None:
            partition = self.log.partition(name, 0)
            end = partition.latest_offset
            partition.log.sync(end)
            topic = self.world.ledger.topics[name]
            topic.durable_end = max(topic.durable_end, end)

        self.attempt(work)

    def roll(self, name: str) -> None:
        def work() -> None:
            self.log.partition(name, 0).log.roll()

        self.attempt(work)

    def delete_before(self, name: str, most: int) -> None:
        """Delete the records before offset ``most``, or all where there are fewer."""

        def work() -> None:
            topic = self.world.ledger.topics[name]
            partition = self.log.partition(name, 0)
            offset = min(most, partition.latest_offset)
            topic.start_asked = max(topic.start_asked, offset)
            partition.log.delete_before(offset)
            topic.start_acknowledged = max(topic.start_acknowledged, offset)

        self.attempt(work)

    def retain(self, name: str, **limits: int) -> None:
        """Retention by these limits: segments may go, as many as there are by then."""

        def work() -> None:
            topic = self.world.ledger.topics[name]
            partition = self.log.partition(name, 0).log
            topic.start_asked = ANY_START
            config = self.log.describe_topic(name).config.with_changes(limits)
            done = self.log.manager.part(cleaner_of).retain(partition, config)
            if done is not None and done.error:
                raise StorageError(f"retention failed: {done.error}")
            if done is not None:
                topic.start_acknowledged = max(topic.start_acknowledged, done.log_start_offset)

        self.attempt(work)

    def read(self, name: str) -> None:
        """Read all. What it sees must be as it was sent, by offset."""
        self.attempt(lambda: self._read(name))

    def _read(self, name: str) -> None:
        topic = self.world.ledger.topics[name]
        at = topic.acknowledged()
        refused = {v for a in topic.attempts if a.outcome == REFUSED for v in a.values}
        for record in self.log.partition(name, 0).scan():
            if at.get(record.offset, record.value) != record.value or record.value in refused:
                self.world.seen.append(f"{name}: read {record.value!r} at offset {record.offset}")

    # In a group

    def join(self, group: str, name: str) -> None:
        """Become a member that reads this topic."""

        def work() -> None:
            self._consumer = Consumer(self.log, group_id=group, auto_offset_reset="earliest", max_poll_records=2)
            self._consumer.subscribe(name)

        self.attempt(work)

    def poll(self) -> None:
        """Read some records, a while after the last time. They must be as they were sent."""

        def work() -> None:
            if self._consumer is None:
                return
            self.process.clock.sleep(0.25)
            for record in self._consumer.poll():
                self.polled.add(record.offset)
                topic = self.world.ledger.topics[record.topic]
                if topic.acknowledged().get(record.offset, record.value) != record.value:
                    self.world.seen.append(f"{record.topic}: polled {record.value!r} at offset {record.offset}")

        self.attempt(work)

    def commit(self, group: str, *, durable: bool = True) -> None:
        """Commit what was polled, if that is more than was committed."""

        def work() -> None:
            for partition in self._consumer.assignment() if self._consumer is not None else ():
                self._commit(group, partition, durable)

        self.attempt(work)

    def _commit(self, group: str, partition: TopicPartition, durable: bool) -> None:
        assert self._consumer is not None
        known = self.world.ledger.groups.setdefault((group, partition.topic), GroupLedger())
        offset = self._consumer.position(partition)
        if offset is None or offset <= max(known.asked, default=0):
            return
        known.asked.add(offset)
        errors: list[PylogError] = []
        try:
            if durable:
                self._consumer.commit({partition: offset})
            else:
                self._consumer.commit_async(
                    {partition: offset}, lambda _, error: errors.append(error) if error else None
                )
        except CommitFailed:
            known.asked.discard(offset)
            raise
        if errors:
            raise errors[0]
        known.written = max(known.written, offset)
        if durable:
            known.durable = max(known.durable, offset)

    def leave(self) -> None:
        def work() -> None:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

        self.attempt(work)

    def reset(self, group: str, name: str) -> None:
        """Have a group without members begin at the end."""

        def work() -> None:
            known = self.world.ledger.groups.setdefault((group, name), GroupLedger())
            offset = self.log.partition(name, 0).latest_offset
            known.asked.add(offset)
            self.log.reset_offsets(group, [name], to="latest")
            known.written = known.durable = max(known.written, offset)

        self.attempt(work)

    def reopen(self) -> None:
        self.close()
        self.attempt(lambda: self.log)

    def close(self) -> None:
        self.leave()
        self.attempt(lambda: self._log.close() if self._log is not None else None)
        self._log = None
        self._producers.clear()
