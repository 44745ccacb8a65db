"""The event of this example: one scheduled departure as a record of the topic ``departures``.

key        the aircraft's tail number, so that its flights stay in order; none if it is unknown
timestamp  the scheduled departure, in UTC
headers    carrier and origin
value      the rest as JSON: {"flight": 1545, "dest": "IAH", "delay_min": 2}; no delay: cancelled
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from pylog import Record

TOPIC = "departures"
PARTITIONS = 6
PLANS = "plans"  # a topic beside it: how many departures each producer is about to send

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "La Guardia"}
TIME_ZONE = "America/New_York"


class Departure(NamedTuple):
    """One flight as it was scheduled, and how late it left (minutes; early is negative; None if it
    never did)."""

    scheduled_ms: int
    origin: str
    dest: str
    carrier: str
    flight: int
    aircraft: str | None
    delay_min: int | None


class Cell(NamedTuple):
    """What is counted together. ``hour`` is the scheduled hour on the clocks of New York."""

    origin: str
    hour: int
    carrier: str


class Counts(NamedTuple):
    """``delay_min`` is the sum over the flights that left."""

    flights: int
    cancelled: int
    delay_min: int


Table = dict[Cell, Counts]  # made three times: by the board, by Spark, by pandas


def total(counts: Iterable[Counts]) -> Counts:
    counts = list(counts)
    return Counts(*(sum(getattr(each, figure) for each in counts) for figure in Counts._fields))


def encode(departure: Departure) -> dict[str, Any]:
    """The arguments of ``Producer.send``."""
    value = {"flight": departure.flight, "dest": departure.dest, "delay_min": departure.delay_min}
    return {
        "value": json.dumps(value).encode(),
        "key": None if departure.aircraft is None else departure.aircraft.encode(),
        "timestamp_ms": departure.scheduled_ms,
        "headers": [("carrier", departure.carrier.encode()), ("origin", departure.origin.encode())],
    }


def decode(record: Record) -> Departure:
    headers = {name: data.decode() for name, data in record.headers if data is not None}
    value = json.loads(record.value)
    return Departure(
        scheduled_ms=record.timestamp_ms,
        origin=headers["origin"],
        dest=value["dest"],
        carrier=headers["carrier"],
        flight=value["flight"],
        aircraft=None if record.key is None else record.key.decode(),
        delay_min=value["delay_min"],
    )
