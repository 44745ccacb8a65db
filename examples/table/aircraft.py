"""The topic of the example: a record for each departure, its key the aircraft, its value the flight
as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pylog import Log

sys.path.append(str(Path(__file__).parents[1] / "departures"))
from flights import load_flights

TOPIC = "aircraft"
AIRPORTS = ("EWR", "JFK", "LGA")


def departures(limit: int) -> list[tuple[bytes, bytes, int]]:
    """Key, value and scheduled time of the first flights of each airport, in the order of their
    times."""
    flights = load_flights(AIRPORTS, limit).dropna(subset=["tailnum"])
    columns = flights[["tailnum", "carrier", "flight", "origin", "dest", "scheduled_ms"]]
    return [
        (tail.encode(), encoded({"flight": f"{carrier}{flight}", "from": origin, "to": to, "ms": at}), at)
        for tail, carrier, flight, origin, to, at in columns.itertuples(index=False, name=None)
    ]


def encoded(state: dict[str, Any]) -> bytes:
    """A state as it is in the log, and in the server's answers."""
    return json.dumps(state).encode()


def scan(log: Log) -> dict[bytes, bytes]:
    """The newest state of each aircraft, by reading the whole topic."""
    found = {}
    for number in log.describe_topic(TOPIC).numbers:
        found.update({record.key: record.value for record in log.partition(TOPIC, number).scan()})
    return found
