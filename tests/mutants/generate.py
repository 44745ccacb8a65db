"""Makes mutants by rule from the source, tries a sample, and says how many the tests catch and
which they don't.

    python -m tests.mutants generate --sample 300 --seed 1 [--lines FILE] [--files
    partition/write/writer.py …] [--tests tests/partition …]

First the tests run once under coverage, so that a mutant is tried on those alone that run its line;
``--lines`` keeps what was found for the next time. A survivor is a missing assertion, or is written
into equivalent.py with the reason.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.mutants import lines
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutant import PACKAGE
from tests.mutants.operators import Change, changed_source, changes
from tests.mutants.trial import Trial, try_all

ROOMS = ("codec", "consumer", "group", "index", "partition", "producer", "segment", "storage", "transaction")
FILES = sorted(
    str(file.relative_to(PACKAGE))
    for room in ROOMS
    for file in (PACKAGE / room).rglob("*.py")
    if "verify" not in file.parts and file.name != "__init__.py"
)
EXHAUSTIVE = (
    *("flipped", "prefix", "any_content", "small_files", "time_index_of", "AgainstAList", "indexes_after_an_outage"),
    *("anywhere", "any_step", "in_every_order", "in_all_orders", "at_random", "meet", "other_batches"),
    *("passes_for_another", "guarded_page"),
)
TESTS = [
    *(f"tests/{room}" for room in ROOMS),
    *("tests/test_format_stability.py", "tests/catalog/test_disposal.py"),
]
FILTERS = [
    *("-m", "not spark and not soak and not engine and not (slow and one_in) and not processes"),
    *("-k", " and ".join(f"not {part}" for part in EXHAUSTIVE)),
]
SECONDS_OF_TESTS = (4.0, 60.0)  # the quickest tests of the line first; what survives them is tried on more


class Made(NamedTuple):
    file: str
    change: Change

    @property
    def name(self) -> str:
        return f"{self.file}:{self.change.line} {self.change.what}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants generate", description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--lines", type=Path, help="where to keep which tests run which line")
    parser.add_argument("--files", nargs="+", default=FILES, choices=FILES, metavar="FILE")
    parser.add_argument(
        "--tests", nargs="+", default=TESTS, metavar="PATH", help="which tests to run, of those that are quick"
    )
    options = parser.parse_args(arguments)
    known = options.lines or Path(tempfile.mkdtemp()) / "lines.json"
    if not known.exists():
        lines.record(known, FILES, [*options.tests, *FILTERS])
    made = [Made(file, change) for file in options.files for change in changes((PACKAGE / file).read_text())]
    judged = [mutant for mutant in made if (mutant.file, mutant.change.what) not in EQUIVALENT]
    sample = random.Random(options.seed).sample(judged, min(options.sample, len(judged)))
    counts = Counter(try_sample(sample, lines.load(known), options.jobs))
    caught, all_tried = counts["caught"], sum(counts.values())
    print(
        f"{len(made)} mutants, {len(made) - len(judged)} of them equivalent; of {all_tried} tried with seed {options.seed} "
        f"{caught} caught: {caught / max(all_tried, 1):.1%}"
    )
    return 0


def try_sample(sample: list[Made], known: lines.Lines, jobs: int) -> list[str]:
    """The outcome of each; survivors are shown."""
    left = {mutant.name: mutant for mutant in sample}
    outcomes = ["caught"] * len(sample)
    for most_seconds in SECONDS_OF_TESTS:
        trials = [trial_of(mutant, known.of(mutant.file, mutant.change.line, most_seconds)) for mutant in left.values()]
        left = {}
        for trial, verdict in try_all(trials, jobs):
            if verdict.outcome == "survived":  # what cannot even run is noticed, too
                left[trial.name] = next(mutant for mutant in sample if mutant.name == trial.name)
                if most_seconds == SECONDS_OF_TESTS[-1]:
                    print(f"survived  {trial.name}   ({verdict.by})", flush=True)
    outcomes[: len(left)] = ["survived"] * len(left)
    return outcomes


def trial_of(mutant: Made, tests: list[str]) -> Trial:
    source = changed_source((PACKAGE / mutant.file).read_text(), mutant.change)
    return Trial(mutant.name, mutant.file, source, tuple(tests))
