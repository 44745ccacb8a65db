"""One airport's process: sends its departures in order of scheduled time, as fast as it can.

python producer.py DIRECTORY EWR
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from events import AIRPORTS, PLANS, TOPIC, Departure, encode
from flights import load_flights

from pylog import Log, Producer
from pylog.errors import PylogError


def replay(directory: str, airport: str, limit: int | None) -> None:
    flights = load_flights([airport], limit)
    began = time.monotonic()
    # Leaving the producer's block waits until every record is acknowledged, and raises if one could
    # not be written.
    with Log(directory, create=False) as log, Producer(log, acks="all", linger_ms=50, compression="zstd") as producer:
        producer.send(PLANS, str(len(flights)).encode(), key=airport.encode()).result()
        for departure in departures(flights):
            producer.send(TOPIC, **encode(departure))
    seconds = time.monotonic() - began
    print(f"{airport}: sent {len(flights):,} departures in {seconds:.1f} s ({len(flights) / seconds:,.0f}/s)")


def departures(flights: pd.DataFrame) -> Iterator[Departure]:
    rows: Iterable[Any] = flights.itertuples(index=False)
    for row in rows:
        yield Departure(
            scheduled_ms=row.scheduled_ms,
            origin=row.origin,
            dest=row.dest,
            carrier=row.carrier,
            flight=row.flight,
            aircraft=None if pd.isna(row.tailnum) else row.tailnum,
            delay_min=None if pd.isna(row.dep_delay) else int(row.dep_delay),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Send one airport's departures to the log.")
    parser.add_argument("directory")
    parser.add_argument("airport", choices=AIRPORTS)
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    arguments = parser.parse_args()
    try:
        replay(arguments.directory, arguments.airport, arguments.limit)
    except PylogError as error:
        sys.exit(f"{arguments.airport}: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
