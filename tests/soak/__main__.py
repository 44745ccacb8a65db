"""Runs the parts of a soak in turns for a given time, each in a process of its own, and adds up
what they report.

    scripts/soak --hours 8
    scripts/soak chaos --minutes 10 --seed 7 --directory /dev/shm

Every turn has a seed of its own. What fails keeps its directory and prints the command that runs
the same turn again; processes meet as they do, so that repeats what was drawn, not what happened.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from tests.fuzz import soak as fuzz
from tests.simulation import soak as simulation
from tests.soak import (
    backups,
    chaos,
    full_disk,
    group_chaos,
    overload,
    retention,
    signal_trials,
    spark_copy,
    transactions,
)
from tests.soak.part import Run, run_apart

TURN_S = 900.0  # of all parts together; a history that is checked at its end must not grow for hours


class Part(NamedTuple):
    """``run(seconds, seed, directory)`` has an empty directory and a process of its own. ``share``:
    of the time.

    ``turn_s``: how long a turn of this part alone may take.
    """

    share: float
    run: Run
    turn_s: float = TURN_S


PARTS = {
    "chaos": Part(8, chaos.run),
    "chaos-full-disk": Part(2, chaos.run_full),
    "chaos-groups": Part(4, group_chaos.run),
    "overload": Part(1, overload.run),
    "transactions": Part(4, transactions.run),
    "transactions-one-history": Part(1, transactions.run_one_history, 24 * 3600),
    "transactions-simulated": Part(3, simulation.transactions, 24 * 3600),
    "retention": Part(4, retention.run, 24 * 3600),
    "retention-100-topics": Part(1, retention.run_hundred_topics),
    "backup": Part(2, backups.run),
    "full-disk": Part(1, full_disk.run),
    "power-cuts": Part(6, simulation.power_cuts),
    "simulated-kills": Part(1, simulation.kills),
    "kills-and-power": Part(2, simulation.kills_and_power),
    "faults": Part(3, simulation.faults),
    "syscalls": Part(1, simulation.syscalls),
    "signals": Part(1, signal_trials.run),
    "recoveries": Part(2, simulation.recoveries),
    "schedules": Part(4, simulation.schedules),
    "cleaner-schedules": Part(3, simulation.cleaner_schedules, 24 * 3600),
    "random-schedules": Part(2, simulation.random_schedules),
    "spark-copy": Part(4, spark_copy.run),
    "spark-executors": Part(2, spark_copy.run_on_a_cluster),
    "fuzz": Part(4, fuzz.as_part),
}


def main() -> int:
    options = parsed()
    names = options.parts or list(PARTS)
    seconds = options.hours * 3600 + options.minutes * 60 + options.seconds or 60.0
    seeds = random.Random(options.seed)
    say(options, f"{seconds:.0f} s of {', '.join(names)}, seed {options.seed}")
    figures: dict[str, Counter[str]] = {name: Counter() for name in names}
    problems: dict[str, list[str]] = {}
    turns = max(1, round(seconds / min(PARTS[name].turn_s for name in names)))
    shares = sum(PARTS[name].share for name in names)

    def take(turn: int, name: str, seed: int) -> None:
        part_s = seconds / turns * options.jobs * PARTS[name].share / shares
        outcome, kept = run_apart(name, PARTS[name].run, part_s, seed, options.directory)
        figures[name].update(outcome.figures)
        say(options, f"{turn + 1}/{turns} {name}: {described(outcome.figures)}")
        if outcome.problems:
            again = f"scripts/soak {name} --seconds {part_s:g} --seed {seed}"
            problems.setdefault(name, []).extend([*outcome.problems[:50], f"kept in {kept}; again: {again}"])
            say(options, "\n".join(problems[name]))

    with ThreadPoolExecutor(options.jobs) as pool:
        for turn in range(turns):
            drawn = [options.seed if turns == len(names) == 1 else seeds.randrange(1 << 32) for _ in names]
            list(pool.map(partial(take, turn), names, drawn))
    return report(options, figures, problems)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all, if none is named")
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=0.0, help="they add up; a minute, if none is given")
    parser.add_argument("--jobs", type=int, default=1, help="parts that run at once; a part may have several processes")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument(
        "--directory", help="where the logs are made, below; the system's temporary directory if not given"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the figures as one JSON object, and progress on stderr"
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return options


def report(options: argparse.Namespace, figures: dict[str, Counter[str]], problems: dict[str, list[str]]) -> int:
    if options.json:
        print(json.dumps({"seed": options.seed, "figures": figures, "problems": problems}, indent=2))
        return 1 if problems else 0
    width = max(len(name) for counts in figures.values() for name in counts) if any(figures.values()) else 0
    for part, counts in figures.items():
        print(f"\n{part}: {'FAILED' if part in problems else 'right'}")
        for name, count in counts.items():
            print(f"  {name:{width}}  {count:>12,.10g}")
    return 1 if problems else 0


def described(figures: dict[str, float]) -> str:
    return ", ".join(f"{count:,.10g} {name}" for name, count in figures.items())


def say(options: argparse.Namespace, text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr if options.json else sys.stdout, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise SystemExit(main())
