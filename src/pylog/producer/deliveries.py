"""The deliveries of one ``send_many`` or ``send_arrow``: a sequence that makes each ``Delivery`` when it is asked for.

A million records sent at once share a few hundred batches; what is kept is which run of them is in which batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

from pylog.checks import OfOneProcess
from pylog.model import RecordMetadata
from pylog.producer.batch import ProducerBatch
from pylog.producer.delivery import Delivery


class Runs:
    """Records on one way into the log, in order: in which batch, and at which index there, the n-th of them is."""

    __slots__ = ("_firsts", "_starts", "batches", "count")

    def __init__(self) -> None:
        self.count = 0
        self._starts: list[int] = []
        self.batches: list[ProducerBatch] = []
        self._firsts: list[int] = []

    def add(self, batch: ProducerBatch, first: int, count: int) -> None:
        """So many records more, from index ``first`` of the batch on."""
        self._starts.append(self.count)
        self.batches.append(batch)
        self._firsts.append(first)
        self.count += count

    def delivery(self, number: int, timestamp_ms: int) -> Delivery:
        run = bisect_right(self._starts, number) - 1
        delivery = Delivery()
        delivery.batch = self.batches[run]
        delivery.index = self._firsts[run] + number - self._starts[run]
        delivery.timestamp_ms = timestamp_ms
        return delivery


class Deliveries(OfOneProcess, Sequence[Delivery]):
    """What became of many records, in the order of the values sent."""

    __slots__ = ("_runs", "_timestamp_ms")

    _instead = Delivery._instead

    def __init__(self, runs: Runs, timestamp_ms: int) -> None:
        self._runs = runs
        self._timestamp_ms = timestamp_ms

    def __len__(self) -> int:
        return self._runs.count

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Delivery]: ...

    def __getitem__(self, index: int | slice) -> Delivery | Sequence[Delivery]:
        numbers = range(len(self))[index]
        if isinstance(numbers, range):
            return [self._delivery(number) for number in numbers]
        return self._delivery(numbers)

    def _delivery(self, number: int) -> Delivery:
        return self._runs.delivery(number, self._timestamp_ms)

    def __iter__(self) -> Iterator[Delivery]:
        return map(self._delivery, range(len(self)))

    def done(self) -> bool:
        """Whether the outcome of every record is known."""
        return all(delivery.done() for delivery in self)

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """Where each record stands, once all are acknowledged; raises as ``Delivery.result`` for the first that failed."""
        return [delivery.result(timeout) for delivery in self]

    def __repr__(self) -> str:
        return f"<Deliveries of {len(self)} record{'' if len(self) == 1 else 's'}>"


class SpreadDeliveries(Deliveries):
    """The same for records spread over partitions: ``ways[n]`` is the number of the runs that the n-th record is in."""

    __slots__ = ("_places", "_spread", "_ways")

    def __init__(self, spread: dict[int, Runs], ways: list[int], timestamp_ms: int) -> None:
        super().__init__(Runs(), timestamp_ms)
        self._spread = spread
        self._ways = ways
        self._places: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._ways)

    def _delivery(self, number: int) -> Delivery:
        if not self._places:  # of each way: the records on it
            places: dict[int, list[int]] = {way: [] for way in self._spread}
            for place, way in enumerate(self._ways):
                places[way].append(place)
            self._places = places
        way = self._ways[number]
        return self._spread[way].delivery(bisect_left(self._places[way], number), self._timestamp_ms)


class ListedDeliveries(Deliveries):
    """The same for records that were entered one by one, each with its own time."""

    __slots__ = ("_listed",)

    def __init__(self, listed: list[Delivery]) -> None:
        super().__init__(Runs(), 0)
        self._listed = listed

    def __len__(self) -> int:
        return len(self._listed)

    def _delivery(self, number: int) -> Delivery:
        return self._listed[number]


class JoinedDeliveries(Deliveries):
    """Several, one behind the other."""

    __slots__ = ("_count", "_parts", "_starts")

    def __init__(self) -> None:
        super().__init__(Runs(), 0)
        self._count = 0
        self._starts: list[int] = []
        self._parts: list[Deliveries] = []

    def add(self, part: Deliveries) -> None:
        """These come next."""
        self._starts.append(self._count)
        self._parts.append(part)
        self._count += len(part)

    def __len__(self) -> int:
        return self._count

    def _delivery(self, number: int) -> Delivery:
        at = bisect_right(self._starts, number) - 1
        return self._parts[at][number - self._starts[at]]

    def __iter__(self) -> Iterator[Delivery]:
        return chain.from_iterable(self._parts)
