"""Every step of a batch from every state: the table here is written by hand, and the batch has to
keep it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple, cast

import pytest

from pylog.codec import RecordEncoder
from pylog.codec.batch import read_header
from pylog.codec.format import MAX_SEQUENCE
from pylog.errors import DeliveryTimeout, ForkedHandle, NotAppended, OutcomeUnknown, PylogError, StorageFull
from pylog.model import AppendResult, TopicPartition
from pylog.producer import batch as batch_module
from pylog.producer.batch import (
    ABANDONED,
    APPENDED,
    BUILT,
    CALLED_BACK,
    CLOSED,
    NO_IDENTITY,
    OPEN,
    SETTLED,
    Driver,
    ProducerBatch,
    ProducerIdentity,
    State,
)
from pylog.producer.buffer_pool import BufferPool
from pylog.producer.delivery import Delivery
from pylog.producer.metrics import ProducerMetrics

LIMIT_BYTES = 1000
IDENTITY = ProducerIdentity(7, 2, is_transactional=False)
RESULT = AppendResult(40, 41, -1, False)
FAILURE = NotAppended("no")


class Made(NamedTuple):
    """A batch of two records, alone in its pool."""

    batch: ProducerBatch
    pool: BufferPool
    deliveries: list[Delivery]


def made(*, acks: int = 1) -> Made:
    pool = BufferPool(10 * LIMIT_BYTES)
    pool.reserved_bytes = LIMIT_BYTES  # as make_current does
    batch = ProducerBatch(
        cast(Driver, None), TopicPartition("t", 3), RecordEncoder(LIMIT_BYTES), LIMIT_BYTES, 1.0, 2.0, acks == 0
    )
    deliveries = [batch.append(Delivery, batch, 1000 + number, None, b"v", ()) for number in range(2)]
    return Made(batch, pool, cast("list[Delivery]", deliveries))


STEPS: dict[str, Callable[[Made], object]] = {
    "close": lambda made: made.batch.close(),
    "build": lambda made: made.batch.build(0, None, IDENTITY, 10),
    "interrupted": lambda made: made.batch.interrupted(),
    "appended": lambda made: made.batch.appended(RESULT),
    "succeed": lambda made: made.batch.settle(None, made.pool),
    "fail": lambda made: made.batch.settle(FAILURE, made.pool),
    "call back": lambda made: made.batch.call_back(),
    "abandon": lambda made: made.batch.abandon(ForkedHandle("forked")),
}
WAY: dict[State, list[str]] = {
    OPEN: [],
    CLOSED: ["close"],
    BUILT: ["close", "build"],
    APPENDED: ["close", "build", "appended"],
    SETTLED: ["close", "build", "appended", "succeed"],
    CALLED_BACK: ["close", "build", "appended", "succeed", "call back"],
    ABANDONED: ["close", "abandon"],
}
ILLEGAL = None
_SAME = dict.fromkeys(STEPS, ABANDONED)
NEXT: dict[State, dict[str, State | type[Exception] | None]] = {
    OPEN: {"close": CLOSED, "abandon": ABANDONED},
    CLOSED: {"build": BUILT, "interrupted": CLOSED, "fail": SETTLED, "abandon": ABANDONED},
    BUILT: {"interrupted": BUILT, "appended": APPENDED, "fail": SETTLED, "abandon": ABANDONED},
    APPENDED: {"interrupted": APPENDED, "succeed": SETTLED, "fail": SETTLED, "abandon": ABANDONED},
    SETTLED: {
        "interrupted": SETTLED, "succeed": SETTLED, "fail": SETTLED, "call back": CALLED_BACK, "abandon": ABANDONED,
    },
    CALLED_BACK: {
        "interrupted": CALLED_BACK, "succeed": CALLED_BACK, "fail": CALLED_BACK, "call back": CALLED_BACK,
        "abandon": ABANDONED,
    },
    ABANDONED: {**_SAME, "build": ForkedHandle},
}  # fmt: skip


def fields(batch: ProducerBatch) -> dict[str, object]:
    return {name: getattr(batch, name) for name in ProducerBatch.__slots__ if name not in {"callbacks", "observed"}}


def brought_to(state: State, *, acks: int = 1) -> Made:
    new = made(acks=acks)
    for step in WAY[state]:
        STEPS[step](new)
    assert new.batch.state is state
    return new


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
def test_a_step_leads_where_the_table_says_or_is_refused_and_changes_nothing(state: State, step: str) -> None:
    new = brought_to(state)
    before, reserved_bytes = fields(new.batch), new.pool.reserved_bytes
    then = NEXT[state].get(step, ILLEGAL)
    if isinstance(then, State):
        STEPS[step](new)
        assert new.batch.state is then
        assert new.batch.done == (then >= SETTLED)
        if then is state and step != "interrupted" and state is not ABANDONED:
            assert (fields(new.batch), new.pool.reserved_bytes) == (before, reserved_bytes)
        assert new.pool.reserved_bytes == (0 if SETTLED <= then < ABANDONED else reserved_bytes)
    else:
        with pytest.raises(then or AssertionError, match="t-3"):
            STEPS[step](new)
        assert (fields(new.batch), new.pool.reserved_bytes) == (before, reserved_bytes)


def test_an_illegal_step_names_the_state_and_the_step() -> None:
    with pytest.raises(AssertionError, match="a batch to t-3 is OPEN: no step 'appended' from there"):
        made().batch.appended(RESULT)


def test_a_built_batch_carries_its_identity_and_its_first_sequence() -> None:
    batch = brought_to(CLOSED).batch
    header = read_header(batch.build(0, None, ProducerIdentity(7, 2, is_transactional=True), MAX_SEQUENCE))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, MAX_SEQUENCE)
    assert header.is_transactional
    assert (batch.identity.id, batch.next_sequence) == (7, 1)
    plain = brought_to(CLOSED).batch
    header = read_header(plain.build(0, None, NO_IDENTITY, 5))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert not header.is_transactional


@pytest.mark.parametrize("acks", [0, 1])
def test_a_failed_batch_has_an_error_unless_nobody_asks_for_it(acks: int) -> None:
    new = brought_to(BUILT, acks=acks)
    assert new.batch.done == (acks == 0)
    assert new.batch.settle(FAILURE, new.pool)
    assert new.batch.error is (None if acks == 0 else FAILURE)


def test_a_batch_without_acks_tells_no_offset() -> None:
    assert brought_to(APPENDED, acks=0).batch.base_offset == -1
    assert brought_to(APPENDED, acks=1).batch.base_offset == 40


@pytest.mark.parametrize(
    ("state", "error"), [(CLOSED, ForkedHandle), (APPENDED, ForkedHandle), (SETTLED, None), (CALLED_BACK, None)]
)
def test_an_abandoned_batch_keeps_an_outcome_that_was_known_and_runs_no_callbacks(
    state: State, error: type[PylogError] | None
) -> None:
    new = brought_to(state)
    seen: list[object] = []
    if state < CALLED_BACK:
        new.batch.add_callback(seen.append, new.deliveries[0])
    new.batch.abandon(ForkedHandle("forked"))
    new.batch.call_back()
    assert seen == []
    assert type(new.batch.error) is (type(None) if error is None else error)
    new.batch.add_callback(seen.append, new.deliveries[1])  # of the child
    assert seen == [new.deliveries[1]]


@pytest.mark.parametrize("error", [DeliveryTimeout("locked"), StorageFull("full"), NotAppended("refused")])
def test_a_batch_that_was_not_appended_may_be_in_the_log_only_if_an_append_before_was_interrupted(
    error: NotAppended,
) -> None:
    batch = brought_to(CLOSED).batch
    batch.interrupted()
    assert batch.outcome_after(error) is error
    batch = brought_to(BUILT).batch
    batch.interrupted()
    assert isinstance(batch.outcome_after(error), OutcomeUnknown)


@pytest.mark.parametrize(
    ("state", "step", "called"), [(OPEN, "close", "TakenRecords"), (CLOSED, "build", "build_batch")]
)
def test_a_fork_in_the_middle_of_a_step_leaves_the_batch_to_the_parent(
    state: State, step: str, called: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = brought_to(state)
    work = getattr(batch_module, called)

    def handler_forks_first(*arguments: Any, **options: Any) -> object:
        new.batch.abandon(ForkedHandle("forked"))
        return work(*arguments, **options)

    monkeypatch.setattr(batch_module, called, handler_forks_first)
    with contextlib.suppress(ForkedHandle):
        STEPS[step](new)
    assert new.batch.state is ABANDONED
    with pytest.raises(ForkedHandle):
        STEPS["build"](new)


class Ctrl_C(BaseException):  # noqa: N801
    """Of a signal handler."""


def interrupted_at_call(number: int, work: Callable[[], object]) -> bool:
    """Run ``work``, and raise at the start of the n-th call of a function of batch.py. False if
    there are not so many."""
    left = number

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != batch_module.__file__:
            return None
        if event == "call":  # where Python runs signal handlers
            left -= 1
            if left < 0:
                raise Ctrl_C
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Ctrl_C:
        return True
    finally:
        sys.settrace(before)
    return False


def steps_of(made: Made) -> Iterator[str]:
    """Those that are left to be done, as the sender decides it: by the state alone."""
    while made.batch.state < CALLED_BACK:
        yield {OPEN: "close", CLOSED: "build", BUILT: "appended", APPENDED: "succeed", SETTLED: "call back"}[
            made.batch.state
        ]


def test_interrupted_at_the_start_of_any_call_a_batch_ends_as_if_it_was_not() -> None:
    expected = fields(brought_to(CALLED_BACK).batch)
    for number in range(100):
        new = made()
        seen: list[object] = []
        new.batch.add_callback(seen.append, new.deliveries[0])

        def work(new: Made = new) -> None:
            for step in steps_of(new):
                STEPS[step](new)

        was_interrupted = interrupted_at_call(number, work)
        work()
        new.batch.call_back()
        assert seen == new.deliveries[:1], f"call {number}"
        assert new.pool.reserved_bytes == 0
        same = {name: value for name, value in fields(new.batch).items() if name not in {"append", "encoder"}}
        assert same == {name: expected[name] for name in same}, f"call {number}"
        if not was_interrupted:
            break
    assert number > 4


def test_metrics_count_a_batch_when_it_is_settled() -> None:
    new = brought_to(SETTLED)

    class Nothing:
        def buffered_bytes(self) -> int:
            return 0

    metrics = ProducerMetrics(new.pool, cast(Any, Nothing()))
    metrics.count(new.batch, None)
    failed = brought_to(BUILT)
    failed.batch.settle(OutcomeUnknown("?"), failed.pool)
    metrics.count(failed.batch, failed.batch.error)
    unsynced = brought_to(APPENDED)
    unsynced.batch.settle(OutcomeUnknown("?"), unsynced.pool)
    metrics.count(unsynced.batch, unsynced.batch.error)
    counts = metrics.snapshot()
    assert (counts["records_sent"], counts["records_failed"], counts["records_unknown"]) == (2, 4, 4)
    assert (counts["batches_sent"], counts["batches_failed"]) == (2, 2)  # one was appended and could not be synced
    assert counts["batch_size_avg"] == counts["bytes_sent"] / 2 == new.batch.size_bytes
