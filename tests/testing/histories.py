"""Histories for tests: a small language for tiny ones, and a generator that plays a log which keeps
its promises.

Operations are parted by ``;``. Each is a process, a type, a function, and then: ``7@0`` (value 7 at
offset 0), ``7`` (its offset is not known), ``?@0`` (an altered value), ``@5`` (a position), ``-``
(an unknown one), ``u:`` (of partition u from here on; else of t), ``sent``, ``polled`` and
``positions`` (of a txn: what follows; first of t), ``atomic``, ``final``, ``g3`` (of group g in
generation 3), ``T=6.5`` (the time; else 1 ms after the operation before).
"""

from __future__ import annotations

import random
from typing import Any

from pylog.testing.history import (
    ASSIGN,
    BEGIN,
    CRASH,
    DELETE,
    FAIL,
    INFO,
    INVOKE,
    OK,
    POLL,
    SEND,
    TRANSACTION,
    Operation,
)


def history(text: str) -> list[Operation]:
    operations: list[Operation] = []
    time = 0.0
    for words in (part.split() for part in text.split(";") if part.strip()):
        time += 0.001
        operation = _operation(words, time)
        operations.append(operation)
        time = operation.time
    return operations


def _operation(words: list[str], time: float) -> Operation:
    process, kind, f, *rest = words
    fields: dict[str, Any] = {"time": time, "sent": {}, "polled": {}, "positions": {}}
    to, name = {"send": "sent", "poll": "polled", "begin": "sent", "txn": "sent"}.get(f, "positions"), "t"
    for word in rest:
        value, _, offset = word.partition("@")
        if word.endswith(":"):
            name = word[:-1]
            if to == "polled":
                fields["polled"].setdefault(name, [])
        elif word.startswith("T="):
            fields["time"] = float(word[2:])
        elif word in ("sent", "polled", "positions"):
            to, name = word, "t"
        elif word[0] == "g" and word[1:].isdigit():
            fields["group"], fields["generation"] = "g", int(word[1:])
        elif word in ("atomic", "final"):
            fields[word] = True
        elif to == "positions":
            fields["positions"][name] = int(offset) if offset else None
        else:
            pair = [int(offset) if offset else None, None if value == "?" else int(value)]
            fields[to].setdefault(name, []).append(pair)
    if f == "poll":
        fields["polled"].setdefault("t", []) if not fields["polled"] else None
    return Operation(int(process), kind, f, **fields)


class Player:
    """Producers that fail, crash and are answered late; transactions; consumers; deletions: all as
    a right log would have it."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random = random.Random(seed)
        self.logs: dict[str, list[int | None]] = {"t": [], "u": []}  # None is of an aborted transaction
        self.starts = dict.fromkeys(self.logs, 0)
        self.operations: list[Operation] = []
        self.next_value = 0
        self.time = 0.0
        self.cursors: dict[int, dict[str, int]] = {}
        self.pending: list[tuple[int, Operation]] = []  # answers on their way
        for step in range(steps):
            does = (self.send, self.send, self.transaction, self.poll, self.poll, self.assign, self.delete)
            self.random.choice(does)(step)
            self.deliver(step)
        self.deliver(1 << 30)
        self.read_all()

    def add(self, process: int, type: str, f: str, **fields: Any) -> None:
        self.time += self.random.random() * 0.01
        self.operations.append(Operation(process, type, f, self.time, **fields))

    def deliver(self, step: int) -> None:
        due = [answer for at, answer in self.pending if at <= step]
        self.pending = [(at, answer) for at, answer in self.pending if at > step]
        for answer in due:
            self.add(answer.process, answer.type, answer.f, sent=answer.sent)

    def send(self, step: int) -> None:
        """Every send is of a process of its own, so any number may be under way."""
        process, atomic = 1000 + step, self.random.random() < 0.3
        names = [self.random.choice("tu")] if atomic else self.random.sample("tu", self.random.choice((1, 2)))
        sent = {name: [self.next_value + i for i in range(self.random.choice((1, 2, 5)))] for name in names}
        sent = {name: [self.value() for _ in values] for name, values in sent.items()}
        asked = {name: [[None, value] for value in values] for name, values in sent.items()}
        self.add(process, INVOKE, SEND, sent=asked, atomic=atomic)
        fate = self.random.choice((OK, OK, OK, FAIL, INFO, CRASH))
        happens = fate == OK or (fate in (INFO, CRASH) and self.random.random() < 0.5)
        where = {
            name: [[self.append(name, v) if happens else None, v] for v in values] for name, values in sent.items()
        }
        if fate == CRASH:
            self.add(process, INFO, CRASH)
        else:
            answer = Operation(process, fate, SEND, sent=where if fate == OK else asked)
            self.pending.append((step + self.random.choice((0, 0, 1, 5)), answer))

    def transaction(self, step: int) -> None:
        process = 2000 + step
        names = self.random.sample("tu", self.random.choice((1, 2)))
        sent = {name: [self.value() for _ in range(self.random.choice((1, 2, 5)))] for name in names}
        asked = {name: [[None, value] for value in values] for name, values in sent.items()}
        self.add(process, INVOKE, BEGIN, sent=asked)
        fate = self.random.choice((OK, OK, FAIL, INFO, CRASH, ""))
        happens = fate == OK or (fate in (INFO, CRASH) and self.random.random() < 0.5)
        where = {name: [[self.append(name, v if happens else None), v] for v in vs] for name, vs in sent.items()}
        if fate in (OK, INFO, CRASH):
            self.add(process, INVOKE, TRANSACTION)
        if fate in (OK, FAIL, INFO):
            answer = Operation(process, fate, TRANSACTION, sent=asked if fate == FAIL else where)
            self.pending.append((step + self.random.choice((0, 0, 1, 5)), answer))
        else:
            self.add(process, INFO, CRASH)

    def value(self) -> int:
        self.next_value += 1
        return self.next_value

    def append(self, name: str, value: int | None) -> int:
        self.logs[name].append(value)
        return len(self.logs[name]) - 1

    def assign(self, _: int) -> None:
        process = self.random.randrange(3)
        old = self.cursors.get(process, {})
        names = self.random.sample("tu", self.random.choice((1, 2)))
        places = {name: None if name in old and self.random.random() < 0.5 else self.starts[name] for name in names}
        self.cursors[process] = {name: old[name] if at is None else at for name, at in places.items()}
        self.add(process, OK, ASSIGN, positions=places)

    def poll(self, _: int) -> None:
        process = self.random.randrange(3)
        cursors = self.cursors.get(process, {})
        got: dict[str, list[list[int]]] = {}  # offset and value
        for name in cursors:
            first = max(cursors[name], self.starts[name])
            values = self.logs[name][first : first + self.random.choice((0, 1, 3, 100))]
            got[name] = [[first + i, value] for i, value in enumerate(values) if value is not None]
            cursors[name] = first + len(values)
        self.add(process, OK, POLL, polled=got)

    def delete(self, _: int) -> None:
        name = self.random.choice("tu")
        if self.random.random() < 0.2:
            before = self.random.randint(self.starts[name], len(self.logs[name]))
            self.add(9, INVOKE, DELETE, positions={name: before})
            self.starts[name] = before
            self.add(9, OK, DELETE, positions={name: before})

    def read_all(self) -> None:
        self.add(0, OK, ASSIGN, positions=dict(self.starts))
        for name, values in self.logs.items():
            start = self.starts[name]
            pairs = [[start + i, value] for i, value in enumerate(values[start:]) if value is not None]
            for first in range(0, len(pairs) or 1, 50):
                self.add(0, OK, POLL, polled={name: pairs[first : first + 50]}, final=True)
