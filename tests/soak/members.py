"""A worker that is a member of a consumer group: it reads what the group gives it, and commits
after each record or poll."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pylog import Consumer, Log, Record, TopicPartition
from pylog.errors import CommitFailed, ForkedHandle, LogLocked, NotAppended, OutcomeUnknown
from pylog.testing.history import ASSIGN, COMMIT, FAIL, INFO, INVOKE, OK, POLL, decode_value

if TYPE_CHECKING:
    from tests.soak.workers import Worker

GROUP = "readers"
CLOSES = 0.003  # of all polls


class Member:
    """One consumer after the other. What it tells: partitions as they come and go, what it got,
    what it committed."""

    def __init__(self, worker: Worker, log: Log) -> None:
        self._worker = worker
        self._random = worker.random
        self._log = log
        self._consumer: Consumer | None = None

    def work(self) -> None:
        """Join, if it is no member; poll and commit once; now and then leave."""
        if self._consumer is None:
            self._join()
        if self._random.random() < CLOSES:
            self._leave()
        else:
            self._poll()

    def _join(self) -> None:
        self._consumer = Consumer(
            self._log,
            group_id=GROUP,
            auto_offset_reset="earliest",
            max_poll_records=self._random.choice((10, 100, 1_000)),
            max_poll_interval_ms=self._worker.orders.max_poll_interval_ms,
        )
        try:
            self._consumer.subscribe("chaos", on_assigned=self._got, on_revoked=self._gives_up, on_lost=self._lost)
        except LogLocked:
            self._consumer = None
            raise

    def _leave(self) -> None:
        assert self._consumer is not None
        try:
            self._consumer.close()
        finally:
            self._consumer = None
            self._worker.tell(INFO, ASSIGN, group=GROUP)  # if it was expelled, nobody told it
        self._worker.say("left")

    # Partitions that come and go

    def _got(self, partitions: list[TopicPartition]) -> None:
        assert self._consumer is not None
        self._tell_assignment({name_of(p): self._consumer.position(p) for p in partitions})

    def _gives_up(self, partitions: list[TopicPartition]) -> None:
        self._tell_assignment({}, without=partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._worker.say("lost")
        self._tell_assignment({}, without=partitions, type=INFO)

    def _tell_assignment(
        self, new: dict[str, int | None], without: Sequence[TopicPartition] = (), type: str = OK
    ) -> None:
        assert self._consumer is not None
        kept = {name_of(p): None for p in self._consumer.assignment() if p not in without}
        generation = self._consumer.group_metadata().generation
        self._worker.tell(type, ASSIGN, positions={**kept, **new}, group=GROUP, generation=max(generation, 0))

    # Records

    def _poll(self) -> None:
        assert self._consumer is not None
        asker = self._worker.number
        records = self._consumer.poll(0.02)
        polled: dict[str, list[Any]] = {name_of(p): [] for p in self._consumer.assignment()}
        for record in records:
            polled.setdefault(f"{record.topic}-{record.partition}", []).append(
                [record.offset, decode_value(record.value)]
            )
        self._worker.tell(OK, POLL, polled=polled)
        self._worker.is_still(asker)
        for positions in self._to_commit(records):
            if not self._commit(positions):
                break

    def _to_commit(self, records: list[Record]) -> list[Mapping[TopicPartition, int]]:
        """Behind each record, or behind all."""
        behind = [{TopicPartition(r.topic, r.partition): r.offset + 1} for r in records]
        if len(records) > 10 or self._random.random() < 0.7:
            return [{partition: offset for one in behind for partition, offset in one.items()}] if behind else []
        return list(behind)

    def _commit(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Whether it was accepted. What was read of a partition that others have now, they read
        again."""
        consumer, tell = self._consumer, self._worker.tell
        assert consumer is not None
        asker, generation = self._worker.number, max(consumer.group_metadata().generation, 0)
        named = {name_of(partition): offset for partition, offset in positions.items()}
        tell(INVOKE, COMMIT, positions=named, group=GROUP, generation=generation)
        answer = INFO
        try:
            if self._random.random() < 0.5:
                consumer.commit(positions)
            else:
                consumer.commit_async(positions, self._raise)
            answer = OK
        except (CommitFailed, LogLocked):
            answer = FAIL
        except (NotAppended, OutcomeUnknown):
            if self._worker.number == asker:
                raise
        if self._worker.number != asker:
            raise ForkedHandle("the parent tells what became of it")
        tell(answer, COMMIT, positions=named, group=GROUP, generation=generation)
        return answer == OK

    @staticmethod
    def _raise(_offsets: object, error: Exception | None) -> None:
        if error is not None:
            raise error


def name_of(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
