"""The same totals in pandas, straight from the package's data, and the comparison."""

from __future__ import annotations

from collections.abc import Sequence

from events import Cell, Counts, Table, total
from flights import load_flights


def pandas_table(airports: Sequence[str], limit: int | None) -> Table:
    flights = load_flights(airports, limit)
    groups = flights.groupby(["origin", "hour", "carrier"])["dep_delay"].agg(["size", "count", "sum"])
    return {
        Cell(*key): Counts(int(size), int(size - departed), int(delay_min))
        for key, size, departed, delay_min in zip(
            groups.index, groups["size"], groups["count"], groups["sum"], strict=True
        )
    }


def compare(name: str, found: Table, expected: Table) -> bool:
    """Print each comparison; whether all of them are equal."""
    agree = True
    for airport in sorted({cell.origin for cell in found | expected}):
        mine, theirs = (
            total(counts for cell, counts in table.items() if cell.origin == airport) for table in (found, expected)
        )
        for figure in Counts._fields:
            what = f"{airport} {figure.replace('_min', ' in minutes')}"
            agree &= _line(name, what, getattr(mine, figure), getattr(theirs, figure))
    different = {cell for cell in found | expected if found.get(cell) != expected.get(cell)}
    for cell in sorted(different):
        print(f"  {name}: {cell} is {found.get(cell)}, pandas has {expected.get(cell)}")
    same = len(expected) - len(different & expected.keys())
    return _line(name, "cells of airport × hour × carrier", same, len(expected)) and not different and agree


def compare_order(aircraft: int, steps_back: int) -> bool:
    return _line("board", f"steps back in time, over {aircraft:,} aircraft", steps_back, 0)


def _line(name: str, what: str, found: int, expected: int) -> bool:
    verdict = "ok" if found == expected else f"DIFFERENT: expected {expected:,}"
    print(f"  {name:<6} {what:<42} {found:>12,}  {verdict}")
    return found == expected
