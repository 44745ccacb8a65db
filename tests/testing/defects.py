"""One thing that goes wrong, put into a clean history. Each takes a history and what draws the
place; None where it has none.

They are what bugs of a log look like from outside, not what the checker is known to look for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from pylog.testing.history import ASSIGN, BEGIN, CRASH, FAIL, INFO, INVOKE, OK, SEND, TRANSACTION, Operation

History = list[Operation]
Defect = Callable[[History, random.Random], "History | None"]


def records(history: History, *, final: bool) -> Iterator[tuple[int, str, int]]:
    """Where records were read: the operation's place, the partition, the place in the poll."""
    for number, operation in enumerate(history):
        if operation.final == final:
            for name, pairs in operation.polled.items():
                yield from ((number, name, place) for place in range(len(pairs)))


def changed(history: History, number: int, field: str, name: str, pairs: list[Any]) -> History:
    operation = history[number]
    new = operation._replace(**{field: {**getattr(operation, field), name: pairs}})
    return [*history[:number], new, *history[number + 1 :]]


def without(history: History, name: str, value: int) -> History:
    """The same without a record, wherever it was read."""

    def kept(partition: str, pairs: Any) -> list[Any]:
        return [pair for pair in pairs if (partition, pair[1]) != (name, value)]

    return [op._replace(polled={n: kept(n, pairs) for n, pairs in op.polled.items()}) for op in history]


def one_of(random_: random.Random, found: list[Any]) -> Any:
    return random_.choice(found) if found else None


def lost(history: History, random_: random.Random) -> History | None:
    """An acknowledged record is in no poll."""
    acknowledged = {
        (n, v) for op in history if op.f == SEND and op.type == OK for n, ps in op.sent.items() for _, v in ps
    }
    there = [history[at].polled[name][place] for at, name, place in records(history, final=True)]
    names = [name for _, name, _ in records(history, final=True)]
    chosen = one_of(random_, sorted({(n, v) for n, (_, v) in zip(names, there, strict=True)} & acknowledged))
    if chosen is None:
        return None
    return without(history, *chosen)


def swapped(history: History, random_: random.Random) -> History | None:
    """Two records that follow each other have changed places, in one poll."""
    found = [(at, name, place) for final in (True, False) for at, name, place in records(history, final=final)]
    chosen = one_of(random_, [(at, name, place) for at, name, place in found if place])
    if chosen is None:
        return None
    at, name, place = chosen
    pairs = list(history[at].polled[name])
    pairs[place - 1 : place + 1] = [pairs[place], pairs[place - 1]]
    return changed(history, at, "polled", name, pairs)


def exchanged(history: History, random_: random.Random) -> History | None:
    """The values of two records have changed places in the log, so every poll sees it."""
    pairs = [(name, history[at].polled[name][place]) for at, name, place in records(history, final=True)]
    sent = {
        v: number for number, op in enumerate(history) if op.type == INVOKE for _, ps in op.sent.items() for _, v in ps
    }
    near = [
        (name, a[1], b[1]) for (name, a), (other, b) in pairwise(pairs) if name == other and sent[a[1]] == sent[b[1]]
    ]
    chosen = one_of(random_, near)
    if chosen is None:
        return None
    name, one, two = chosen
    turn = {one: two, two: one}
    return [
        op._replace(
            polled={n: [[o, turn.get(v, v)] if n == name else [o, v] for o, v in ps] for n, ps in op.polled.items()}
        )
        for op in history
    ]


def repeated(history: History, random_: random.Random) -> History | None:
    """A record stands in the log a second time, at its end."""
    chosen = one_of(random_, list(records(history, final=True)))
    if chosen is None:
        return None
    at, name, place = chosen
    last = max(number for number, n, _ in records(history, final=True) if n == name)
    pairs = list(history[last].polled[name])
    return changed(
        history, last, "polled", name, [*pairs, [(pairs[-1][0] or 0) + 1, history[at].polled[name][place][1]]]
    )


def altered(history: History, random_: random.Random) -> History | None:
    """A record is not what was sent."""
    chosen = one_of(random_, [*records(history, final=True), *records(history, final=False)])
    if chosen is None:
        return None
    at, name, place = chosen
    pairs = [list(pair) for pair in history[at].polled[name]]
    pairs[place][1] = None
    return changed(history, at, "polled", name, pairs)


def misplaced(history: History, random_: random.Random) -> History | None:
    """A record of another partition."""
    found = list(records(history, final=True))
    one, two = one_of(random_, [f for f in found if f[1] == "t"]), one_of(random_, [f for f in found if f[1] == "u"])
    if one is None or two is None:
        return None
    pairs = [list(pair) for pair in history[one[0]].polled["t"]]
    pairs[one[2]][1] = history[two[0]].polled["u"][two[2]][1]
    return changed(history, one[0], "polled", "t", pairs)


def refused_and_there(history: History, random_: random.Random) -> History | None:
    """A send is said to have failed, and its records are in the log."""
    there = {(name, history[at].polled[name][place][1]) for at, name, place in records(history, final=True)}
    sends = [
        number
        for number, op in enumerate(history)
        if op.f == SEND and op.type == OK and any((n, v) in there for n, ps in op.sent.items() for _, v in ps)
    ]
    chosen = one_of(random_, sends)
    if chosen is None:
        return None
    return [*history[:chosen], history[chosen]._replace(type=FAIL), *history[chosen + 1 :]]


def acknowledged_elsewhere(history: History, random_: random.Random) -> History | None:
    """An acknowledgement names another offset than the record has."""
    there = {(name, history[at].polled[name][place][1]) for at, name, place in records(history, final=True)}
    sends = [
        (number, name, place)
        for number, op in enumerate(history)
        if op.f == SEND and op.type == OK
        for name, pairs in op.sent.items()
        for place, (_, value) in enumerate(pairs)
        if (name, value) in there
    ]
    chosen = one_of(random_, sends)
    if chosen is None:
        return None
    number, name, place = chosen
    pairs = [list(pair) for pair in history[number].sent[name]]
    pairs[place][0] += random_.choice((-1, 1, 7) if pairs[place][0] else (1, 7))
    return changed(history, number, "sent", name, pairs)


def cut(history: History, random_: random.Random) -> History | None:
    """The end of the log is gone, though it was acknowledged or read."""
    known = {
        (n, v)
        for op in history
        if op.type == OK and not op.final
        for f in (op.sent, op.polled)
        for n, ps in f.items()
        for _, v in ps
    }
    ends = {name: (at, place) for at, name, place in records(history, final=True)}
    gone = [(name, at) for name, (at, place) in ends.items() if (name, history[at].polled[name][place][1]) in known]
    chosen = one_of(random_, gone)
    if chosen is None:
        return None
    name, at = chosen
    return changed(history, at, "polled", name, list(history[at].polled[name])[:-1])  # fmt: skip


def missed(history: History, random_: random.Random) -> History | None:
    """A consumer does not get what one poll should have brought, and goes on behind it."""
    found = []
    for number, name, place in records(history, final=False):
        if place == 0 and _next_poll(history, number, name) is not None:
            found.append((number, name))
    chosen = one_of(random_, found)
    return None if chosen is None else changed(history, chosen[0], "polled", chosen[1], [])


def read_again(history: History, random_: random.Random) -> History | None:
    """A consumer gets the last record of a poll again in its next one."""
    found = []
    for number, name, place in records(history, final=False):
        if place == 0 and (after := _next_poll(history, number, name)) is not None:
            found.append((number, after, name))
    chosen = one_of(random_, found)
    if chosen is None:
        return None
    number, after, name = chosen
    return changed(history, after, "polled", name, [history[number].polled[name][-1], *history[after].polled[name]])


def _next_poll(history: History, number: int, name: str) -> int | None:
    """The next operation in which the same process goes on reading the partition; None where it
    seeks before.

    Not where records in between are to be deleted: what is deleted nobody misses.
    """
    process = history[number].process
    positions = [at for op in history if op.f == "delete" for n, at in op.positions.items() if n == name]
    if (history[number].polled[name][-1][0] or 0) < max((at or 0 for at in positions), default=0):
        return None
    for after in range(number + 1, len(history)):
        operation = history[after]
        if operation.process == process and operation.f == ASSIGN:
            return None
        if operation.process == process and operation.polled.get(name):
            return after
    return None


def read_before_sent(history: History, random_: random.Random) -> History | None:
    """A record is read by somebody before it is sent."""
    sent = {
        (n, v): number
        for number, op in enumerate(history)
        if op.type == INVOKE
        for n, ps in op.sent.items()
        for _, v in ps
    }
    chosen = one_of(random_, list(records(history, final=True)))
    if chosen is None:
        return None
    at, name, place = chosen
    pair = history[at].polled[name][place]
    invoked = sent[name, pair[1]]
    poll = Operation(77, OK, "poll", history[invoked].time, polled={name: [pair]})
    return [*history[:invoked], poll, *history[invoked:]]


def torn(history: History, random_: random.Random) -> History | None:
    """Of a batch that nobody was told of, one record is missing in the log, and those behind it
    have moved up."""
    answered = {op.process for op in history if op.f == SEND and op.type in (OK, FAIL)}
    final = {(name, history[at].polled[name][place][1]) for at, name, place in records(history, final=True)}
    batches = [
        (name, [v for _, v in pairs])
        for op in history
        if op.atomic and op.type == INVOKE and op.process not in answered
        for name, pairs in op.sent.items()
        if len(pairs) > 1 and all((name, v) in final for _, v in pairs)
    ]
    chosen = one_of(random_, batches)
    if chosen is None:
        return None
    name, values = chosen
    return without(history, name, random_.choice(values))


def transactions(history: History) -> Iterator[tuple[int, list[tuple[str, int]], str]]:
    """Where each begins, its records in the final log, and its fate: a type, or "crash"."""
    final = {(name, history[at].polled[name][place][1]) for at, name, place in records(history, final=True)}
    for number, op in enumerate(history):
        if op.f == BEGIN:
            fates = [o.type if o.f == TRANSACTION else CRASH for o in history[number + 1 :] if o.process == op.process]
            values = [(name, value) for name, pairs in op.sent.items() for _, value in pairs if value is not None]
            yield number, [value for value in values if value in final], fates[-1]


def torn_transaction(history: History, random_: random.Random) -> History | None:
    """Of a transaction that nobody was told of, one record is missing in the log."""
    deleted = {name for op in history if op.f == "delete" for name in op.positions}  # it may have been among those
    found = [
        (name, value)
        for _, there, fate in transactions(history)
        for name, value in there
        if len(there) > 1 and fate in (INFO, CRASH) and name not in deleted
    ]
    chosen = one_of(random_, found)
    return None if chosen is None else without(history, *chosen)


def aborted_and_there(history: History, random_: random.Random) -> History | None:
    """A transaction is said to be aborted, and its records are in the log."""
    begun = {history[number].process for number, there, fate in transactions(history) if there and fate == OK}
    found = [n for n, op in enumerate(history) if op.f == TRANSACTION and op.type == OK and op.process in begun]
    chosen = one_of(random_, found)
    return None if chosen is None else [*history[:chosen], history[chosen]._replace(type=FAIL), *history[chosen + 1 :]]


def read_while_open(history: History, random_: random.Random) -> History | None:
    """A record of a transaction is read before the commit."""
    chosen = one_of(random_, [(number, there) for number, there, _ in transactions(history) if there])
    if chosen is None:
        return None
    number, there = chosen
    name, value = random_.choice(there)
    offset = next(history[at].polled[name][place][0] for at, n, place in records(history, final=True)
                  if n == name and history[at].polled[name][place][1] == value)  # fmt: skip
    poll = Operation(77, OK, "poll", history[number].time, polled={name: [[offset, value]]})
    return [*history[: number + 1], poll, *history[number + 1 :]]


DEFECTS: list[Defect] = [
    *(lost, swapped, exchanged, repeated, altered, misplaced, refused_and_there, acknowledged_elsewhere, cut, missed),
    *(read_again, read_before_sent, torn, torn_transaction, aborted_and_there, read_while_open),
]
