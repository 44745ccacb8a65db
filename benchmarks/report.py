"""What came out of a run: tables to read (Markdown), and JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from typing import Any

from benchmarks.rounds import Result, Spread
from benchmarks.workload import Figure, Value
from pylog.codec import COMPILED

UNITS = {
    "records_per_s": "rec/s", "bytes_per_s": "B/s", "core_percent": "% of a core", "bytes": "B", "ms": "ms", "us": "µs",
    "bytes_per_cpu_s": "B/s of processor time", "per_cpu_s": "per second of processor time", "per_s": "per second", "_s": "s",
}  # fmt: skip


def number(value: float, unit: str) -> str:
    """As people write it: 2.94 M rec/s."""
    if unit == "x":
        return f"{value:.2f}x"
    if unit in ("%", "% of a core", "ms", "µs"):
        return f"{value:.3g} {unit}" if value < 1_000 else f"{value:,.0f} {unit}"
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return (
                f"{value / size:.3g} {prefix}{unit}" if unit.startswith("B") else f"{value / size:.3g} {prefix} {unit}"
            )
    return f"{value:.3g} {unit}"


def unit_of(metric: str) -> tuple[str, str]:
    """Of ``send_records_per_s``: what is left of its name, and the unit."""
    for ending, unit in UNITS.items():
        if metric.endswith(ending):
            return metric.removesuffix(ending).rstrip("_").replace("_", " "), unit
    return metric, ""


def bound(figure: Figure) -> str:
    """What is asked of the figure."""
    if figure.at_least is not None:
        return f"≥ {number(figure.at_least, figure.unit)}"
    assert figure.at_most is not None
    return f"≤ {number(figure.at_most, figure.unit)}"


def spread_text(spread: Spread, unit: str) -> str:
    """The median, and the least and most of the rounds."""
    return f"{number(spread.median, unit)} ({number(spread.least, unit)} to {number(spread.most, unit)})"


def measured(result: Result) -> str:
    """A table of what each contender measured."""
    lines = [f"**{result.workload.name}**: {result.workload.summary}. {result.rounds} rounds.", ""]
    lines += ["| contender | median (least to most) | settings |", "| --- | --- | --- |"]
    for contender in result.workload.contenders:
        samples = result.samples.get(contender.name)
        if samples is None:
            lines.append(f"| {contender.name} | missing: {result.missing.get(contender.name, '')} | |")
            continue
        parts = []
        for metric in samples[0]:
            name, unit = unit_of(metric)
            spread = Spread.of(result.values(Value(contender.name, metric)) or [])
            parts.append(f"{name} {spread_text(spread, unit)}".strip())
        lines.append(f"| {contender.name} | {'; '.join(parts)} | {contender.settings} |")
    return "\n".join(lines)


def figures(results: Iterable[Result], share: float = 1.0) -> str:
    """A table of the figures to reach, and what was reached; of a smoke run no verdict. A sentence
    if there are none."""
    results = [result for result in results if result.workload.figures]
    if not results:
        return "These workloads have no figures to reach."
    lines = [
        "| workload | beside, or of | to reach | measured: median (least to most) | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for result in results:
        for figure in result.workload.figures:
            spread = result.spread(figure)
            if spread is None:
                lines.append(f"| `{result.workload.name}` | {figure.title} | {bound(figure)} | missing | |")
                continue
            verdict = "reached" if figure.reached(spread.median) else "**not reached**"
            if share < 1:
                verdict = "smoke run"
            text = spread_text(spread, figure.unit)
            lines.append(f"| `{result.workload.name}` | {figure.title} | {bound(figure)} | {text} | {verdict} |")
    if share < 1:
        lines += ["", "This was a smoke run: its figures say that everything runs, and nothing about how fast."]
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """What kind of machine it is; no name of one."""
    model = "unknown"
    try:
        with open("/proc/cpuinfo") as info:
            model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), model)
    except OSError:
        pass
    return {
        "processor": model, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(), "compiled_codec": COMPILED, "load": os.getloadavg()[0],
    }  # fmt: skip


def as_json(results: Iterable[Result], share: float) -> dict[str, Any]:
    """Everything: each sample of each round."""
    return {
        "machine": machine(),
        "share_of_a_full_run": share,
        "workloads": {
            result.workload.name: {
                "summary": result.workload.summary,
                "rounds": result.rounds,
                "settings": {contender.name: contender.settings for contender in result.workload.contenders},
                "samples": result.samples,
                "missing": result.missing,
                "figures": [
                    {
                        "title": figure.title, "unit": figure.unit, "at_least": figure.at_least, "at_most": figure.at_most,
                        **({} if (spread := result.spread(figure)) is None else {
                            "median": spread.median, "least": spread.least, "most": spread.most,
                            **({"reached": figure.reached(spread.median)} if share == 1 else {}),
                        }),
                    }
                    for figure in result.workload.figures
                ],
            }
            for result in results
        },
    }  # fmt: skip
