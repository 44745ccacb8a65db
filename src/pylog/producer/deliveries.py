"""The deliveries of one ``send_many`` or ``send_arrow``. Each ``Delivery`` is made on access.

A million records share a few hundred batches, so only the runs of records in batches are stored.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import overload

from pylog.checks import OfOneProcess
from pylog.model import RecordMetadata
from pylog.producer.batch import ProducerBatch
from pylog.producer.delivery import Delivery


class Runs:
    """Maps the n-th record sent to its batch and its index there."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        # For each run: the number of its first record, the batch, and the record's index there.
        self._runs: list[tuple[int, ProducerBatch, int]] = []

    def add(self, batch: ProducerBatch, first: int, count: int) -> None:
        """Add ``count`` records that begin at index ``first`` of the batch."""
        self._runs.append((self.count, batch, first))
        self.count += count

    def batches(self) -> Iterator[ProducerBatch]:
        """The batch of each run."""
        return (batch for _, batch, _ in self._runs)

    def delivery(self, number: int, timestamp_ms: int) -> Delivery:
        start, batch, first = self._runs[bisect_right(self._runs, number, key=itemgetter(0)) - 1]
        delivery = Delivery()
        delivery.batch = batch
        delivery.index = first + number - start
        delivery.timestamp_ms = timestamp_ms
        return delivery


class Deliveries(OfOneProcess, Sequence[Delivery]):
    """The outcomes of many records, in the order of the values sent."""

    __slots__ = ("_runs", "_timestamps_ms")

    _instead = Delivery._instead

    def __init__(self, runs: Runs, timestamps_ms: int | array[int]) -> None:
        self._runs = runs
        self._timestamps_ms = timestamps_ms  # one for all, or one each

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
        return self._runs.delivery(number, self._timestamp_ms(number))

    def _timestamp_ms(self, number: int) -> int:
        times = self._timestamps_ms
        return times[number] if isinstance(times, array) else times

    def __iter__(self) -> Iterator[Delivery]:
        return map(self._delivery, range(len(self)))

    def done(self) -> bool:
        """Whether the outcome of every record is known."""
        return all(delivery.done() for delivery in self)

    def result(self, timeout: float | None = None) -> list[RecordMetadata]:
        """The metadata of each record. Raises for the first failed one, like
        ``Delivery.result``."""
        return [delivery.result(timeout) for delivery in self]

    def __repr__(self) -> str:
        return f"<Deliveries of {len(self)} record{'' if len(self) == 1 else 's'}>"


class SpreadDeliveries(Deliveries):
    """Deliveries of reordered records: ``order[n]`` is the place of the n-th record of the runs."""

    __slots__ = ("_numbers", "_order")

    def __init__(self, runs: Runs, order: array[int], timestamps_ms: int | array[int]) -> None:
        super().__init__(runs, timestamps_ms)
        self._order = order
        self._numbers: array[int] | None = None

    def _delivery(self, number: int) -> Delivery:
        if self._numbers is None:  # for each place: its number in the runs
            numbers = self._order[:]
            for sent, place in enumerate(self._order):
                numbers[place] = sent
            self._numbers = numbers
        return self._runs.delivery(self._numbers[number], self._timestamp_ms(number))


class ListedDeliveries(Deliveries):
    """Deliveries of records that were added one by one, each with its own timestamp."""

    __slots__ = ("_listed",)

    def __init__(self, listed: list[Delivery]) -> None:
        super().__init__(Runs(), 0)
        self._listed = listed

    def __len__(self) -> int:
        return len(self._listed)

    def _delivery(self, number: int) -> Delivery:
        return self._listed[number]


class JoinedDeliveries(Deliveries):
    """Several ``Deliveries``, one after the other."""

    __slots__ = ("_parts", "_starts")

    def __init__(self) -> None:
        super().__init__(Runs(), 0)
        self._starts: list[int] = []
        self._parts: list[Deliveries] = []

    def add(self, part: Deliveries) -> None:
        """Append these deliveries."""
        self._starts.append(self._runs.count)
        self._parts.append(part)
        self._runs.count += len(part)

    def _delivery(self, number: int) -> Delivery:
        at = bisect_right(self._starts, number) - 1
        return self._parts[at][number - self._starts[at]]

    def __iter__(self) -> Iterator[Delivery]:
        return chain.from_iterable(self._parts)
