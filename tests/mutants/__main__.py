"""Tries bugs that are put into the library on purpose, and says which test catches each.

python -m tests.mutants NAME…                              those whose names contain one of these
python -m tests.mutants --all [--json] [--jobs 2]          every one in tests/mutants/table
python -m tests.mutants generate --sample 300 --seed 1     made by rule from the source: generate.py
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant, Stale
from tests.mutants.trial import Trial, Verdict, try_all


def main() -> int:
    if sys.argv[1:2] == ["generate"]:
        from tests.mutants import generate

        return generate.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a mutant's name")
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.all or any(name in mutant.name for name in options.names)]
    if not chosen:
        parser.error("no mutant of such a name; --all tries every one")
    verdicts = [*stale(chosen)]
    for name, verdict in verdicts:
        show(name, verdict, as_json=options.json)
    good = [mutant for mutant in chosen if mutant.name not in {name for name, _ in verdicts}]
    for trial, verdict in try_all((*controls(good), *map(trial_of, good)), options.jobs):
        verdicts.append((trial.name, verdict))
        show(trial.name, verdict, as_json=options.json)
    missed = [name for name, verdict in verdicts if not is_right(name, verdict)]
    if not options.json:
        print(f"{len(chosen)} mutants, {len(missed)} not as it should be" + "".join(f"\n    {name}" for name in missed))
    return 1 if missed else 0


CONTROL = "(no bug)"


def controls(mutants: list[Mutant]) -> list[Trial]:
    """The same tests on the library as it is: they must pass."""
    sets = dict.fromkeys(mutant.caught_by for mutant in mutants)
    filtered = [chosen for chosen in sets if {"-k", "-m"} & {*chosen}]
    plain = dict.fromkeys(test for chosen in sets if chosen not in filtered for test in chosen)
    return [Trial(CONTROL, "", "", arguments) for arguments in [tuple(plain), *filtered] if arguments]


def trial_of(mutant: Mutant) -> Trial:
    return Trial(mutant.name, mutant.file, mutant.source(), mutant.caught_by)


def stale(mutants: list[Mutant]) -> list[tuple[str, Verdict]]:
    """Those whose place in the source has changed."""
    found = []
    for mutant in mutants:
        try:
            mutant.source()
        except Stale as error:
            found.append((mutant.name, Verdict("broken", str(error), 0.0)))
    return found


def is_right(name: str, verdict: Verdict) -> bool:
    return verdict.outcome == ("survived" if name == CONTROL else "caught")


def show(name: str, verdict: Verdict, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"name": name, **verdict._asdict(), "right": is_right(name, verdict)}), flush=True)
    else:
        shown = "passed" if (name, verdict.outcome) == (CONTROL, "survived") else verdict.outcome
        print(f"{shown:9} {verdict.seconds:5.1f} s  {name}\n{'':20}{verdict.by}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
