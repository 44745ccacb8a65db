"""What the parts of ``Consumer``, one file each, have of the whole."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import FunctionType
from typing import TypeVar

from pylog.consumer.assigned_partition import Lane
from pylog.consumer.assignment import Assignment
from pylog.consumer.fetcher import Fetcher
from pylog.consumer.flight import Flight
from pylog.consumer.offset_lookup import OffsetLookup

_Class = TypeVar("_Class", bound=type)


def of_consumer(part: _Class) -> _Class:
    """A class decorator: Python's own errors name the methods as the user does, ``Consumer.commit()``."""
    for name, method in vars(part).items():
        if isinstance(method, FunctionType):
            method.__qualname__ = f"Consumer.{name}"
    return part


class Parts:
    """One consumer."""

    _assignment: Assignment
    _fetcher: Fetcher
    _flight: Flight | None
    _lookup: OffsetLookup

    def _begin(self) -> AbstractContextManager[object]:
        """Around every call: ``Closed``, or ``WrongThread`` where another call is under way. Callbacks of the group may call."""
        raise NotImplementedError

    def _land(self) -> None:
        """End what an iteration has in hand."""
        raise NotImplementedError

    def _position(self, lane: Lane) -> int | None:
        """Where the lane is read on: inside of an iteration, behind the record being processed."""
        flight = self._flight
        return flight.position if flight is not None and flight.lane is lane else lane.position
