"""Draws a run: pylog beside its rivals, costs against size, and how far each figure is from what it
should be."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import bound, number
from benchmarks.rounds import Result, Spread
from benchmarks.workload import Value, Workload

OURS, THEIRS, SHORT = "#1b6ca8", "#b8bcc2", "#d1495b"
CURVES = {
    "size": ("append_us", "fetch_us", "seek_us", "pread_us", "open_ms", "recover_ms"),
    "partitions": ("send_records_per_s", "consume_records_per_s"),
    "append_shared": ("records_per_s",),
}


BARS = {
    "append_send": "Writing, records/s",
    "consume": "Reading, records/s",
    "spark_kafka": "Spark, sum(length(value)), records/s",
}
OWN = ("pylog", "pylog-jvm")


def problem_of(path: Path, workloads: Sequence[Workload]) -> str | None:
    """Why no plot of these could be drawn there, to be known before they have run."""
    try:
        import matplotlib as mpl  # noqa: F401
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        return "--plot needs matplotlib, which is not installed: pip install -r benchmarks/requirements.txt"
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in known:
        return f"--plot {path}: matplotlib writes no files of that name; name it {path.stem or 'results'}.png"
    if workloads and not any(workload.figures or workload.name in {*BARS, *CURVES} for workload in workloads):
        return f"--plot: there is nothing to draw of {', '.join(workload.name for workload in workloads)}"
    return None


_ROW_INCHES, _LINE_INCHES = 4.2, 0.19  # of a panel, and of a figure in the last one


def draw(results: Sequence[Result], path: Path) -> bool:
    """A PNG of what these results have. False if they have nothing to draw. ``ImportError`` without
    matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    by_name = {result.workload.name: result for result in results if _has_drawn(result)}
    panels: list[Callable[[Any], None]] = [
        lambda axes, name=name, title=title: _bars(axes, by_name[name], title)
        for name, title in BARS.items()
        if name in by_name
    ]
    panels += [lambda axes, result=by_name[name]: _curves(axes, result) for name in CURVES if name in by_name]
    if distances := _distances(results):
        panels.append(lambda axes: _logarithmic(axes, distances))
    if not panels:
        return False
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    heights = [_ROW_INCHES] * rows
    heights[-1] = max(_ROW_INCHES, len(distances) * _LINE_INCHES)
    figure, grid = plt.subplots(
        rows, columns, figsize=(7.5 * columns, sum(heights)), squeeze=False, height_ratios=heights
    )
    for axes, panel in zip(grid.flat, panels, strict=False):
        panel(axes)
    for axes in list(grid.flat)[len(panels) :]:
        axes.axis("off")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that labels are too long for a tight layout
        figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def _has_drawn(result: Result) -> bool:
    """Whether any contender measured what its bars or curves are of."""
    metrics = CURVES.get(result.workload.name, ("records_per_s",))
    return any(metric in samples[0] for samples in result.samples.values() for metric in metrics)


def _bars(axes: Any, result: Result, title: str) -> None:
    """One bar a contender, the least and the most of its rounds as a line."""
    spreads = {
        name: Spread.of(result.values(Value(name, "records_per_s")) or [])
        for name in reversed([contender.name for contender in result.workload.contenders])
        if "records_per_s" in result.samples.get(name, [{}])[0]
    }
    names = list(spreads)
    medians = [spread.median for spread in spreads.values()]
    errors = [
        [spread.median - spread.least for spread in spreads.values()],
        [spread.most - spread.median for spread in spreads.values()],
    ]
    axes.barh(names, medians, xerr=errors, color=[OURS if name in OWN else THEIRS for name in names], capsize=3)
    for at, spread in enumerate(spreads.values()):
        axes.text(spread.most, at, f"  {number(spread.median, '')}", va="center", fontsize=9)
    axes.set_xlim(right=1.18 * max(spread.most for spread in spreads.values()))
    axes.set_title(title)
    axes.ticklabel_format(axis="x", style="plain")
    axes.xaxis.set_major_formatter(lambda value, _: number(value, "").strip() if value else "0")
    _bare(axes)


def _curves(axes: Any, result: Result) -> None:
    """What the contenders measured, beside the first of them."""
    top, first = 1.5, ""
    for metric in CURVES[result.workload.name]:
        names = [one.name for one in result.workload.contenders if metric in result.samples.get(one.name, [{}])[0]]
        if not names:
            continue
        first = names[0]
        medians = [Spread.of(result.values(Value(name, metric)) or []).median for name in names]
        relative = [median / medians[0] for median in medians]
        top = max(top, 1.15 * max(relative))
        axes.plot(names, relative, marker="o", label=metric.replace("_per_s", "/s").replace("_", " "))
    axes.axhline(1, color=THEIRS, linewidth=1, zorder=0)
    axes.set_ylim(0, top)
    axes.set_title(f"{result.workload.name}: beside {first}")
    axes.legend(frameon=False)
    _bare(axes)


_Distance = tuple[str, float, str, bool]


def _distances(results: Sequence[Result]) -> list[_Distance]:
    """Of each figure how many times as good as asked it is; with its name, what to say of it, and
    whether it was reached."""
    rows: list[_Distance] = []
    for result in results:
        for figure in result.workload.figures:
            spread = result.spread(figure)
            if spread is not None and spread.median > 0:
                asked = figure.at_least if figure.at_least is not None else figure.at_most
                assert asked is not None
                times = spread.median / asked if figure.at_least is not None else asked / spread.median
                text = f"{number(spread.median, figure.unit)}, asked {bound(figure)}"
                rows.append((f"{result.workload.name}: {figure.title}", times, text, figure.reached(spread.median)))
    return rows[::-1]


def _logarithmic(axes: Any, rows: Sequence[_Distance]) -> None:
    """Distances on a logarithmic axis: 1 is what was to be reached."""
    axes.barh(range(len(rows)), [times - 1 for _, times, _, _ in rows], left=1,
              color=[OURS if good else SHORT for *_, good in rows])  # fmt: skip
    axes.set_yticks(range(len(rows)), [label for label, *_ in rows], fontsize=6.5)
    axes.set_xscale("log")
    for at, (_, times, text, _) in enumerate(rows):
        axes.text(max(times, 1) * 1.05, at, text, va="center", fontsize=6)
    axes.set_xlim(0.3, 20 * max(times for _, times, *_ in rows))
    axes.axvline(1, color="black", linewidth=1)
    axes.set_title("Figures to reach: times as good as asked")
    _bare(axes)


def _bare(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
