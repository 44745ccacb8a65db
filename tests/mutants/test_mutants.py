"""The tests are tested: each bug in tests/mutants/table is put into a copy of the library, and its
tests notice."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import pytest

from tests.mutants.__main__ import CONTROL
from tests.mutants.catalogue import MUTANTS
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutant import PACKAGE, Mutant, Stale
from tests.mutants.operators import changes

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_changes_one_place_of_the_source_as_it_is(mutant: Mutant) -> None:
    source = mutant.source()
    assert source != (PACKAGE / mutant.file).read_text()
    ast.parse(source)
    assert mutant.breaks
    assert mutant.caught_by
    for test in mutant.caught_by:
        file, _, name = test.partition("::")
        if file.startswith("tests/"):
            assert (ROOT / file).exists(), f"{mutant.name}: no {test}"
            assert not name or names_of(ROOT / file) >= {*name.partition("[")[0].split("::")}, (
                f"{mutant.name}: no {test}"
            )


@cache
def names_of(file: Path) -> set[str]:
    """The functions and classes of a test file."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)}


def test_every_mutant_has_a_name_of_its_own() -> None:
    assert [name for name, times in Counter(mutant.name for mutant in MUTANTS).items() if times > 1] == []


def test_a_mutant_whose_place_has_moved_says_what_to_do() -> None:
    with pytest.raises(Stale, match=r"'x': its old text stands 0 times in src/pylog/clock.py.*nothing is right"):
        Mutant("x", "clock.py", "no such text", "", "nothing is right", ()).source()


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "share",
    [pytest.param(1 / 24, marks=pytest.mark.one_in(4), id="some"), pytest.param(1, marks=pytest.mark.engine, id="all")],
)
def test_every_mutant_is_caught_and_without_one_the_tests_pass(share: float, seed: int) -> None:
    some = [mutant.name for mutant in Random(seed).sample(MUTANTS, int(len(MUTANTS) * share))]
    chosen = {mutant.name for mutant in MUTANTS if any(name in mutant.name for name in some)}
    run = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "--json", *some],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = [json.loads(line) for line in run.stdout.splitlines()]
    assert [verdict for verdict in verdicts if not verdict["right"]] == [], run.stderr
    assert {verdict["name"] for verdict in verdicts} == {CONTROL, *chosen}
    assert run.returncode == 0


@pytest.mark.slow
def test_an_equivalent_mutant_is_still_made() -> None:
    """Else its reason stands for nothing, or for another change than the one that was looked at."""
    files = {file for file, _ in EQUIVALENT}
    made = {(file, change.what) for file in files for change in changes((PACKAGE / file).read_text())}
    assert [key for key in EQUIVALENT if key not in made] == []
