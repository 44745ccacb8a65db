"""Runs of pytest side by side: each file of tests is one run's."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tests import conftest


def test_a_file_is_of_the_run_that_comes_to_it_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "SHARED", str(tmp_path))
    one, other = (functools.cache(conftest.is_mine.__wrapped__) for _ in range(2))
    assert [one("a"), other("a"), other("b"), one("b"), one("a")] == [True, False, True, False, True]


def test_the_files_on_spark_are_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    here, beside = Path(__file__), conftest.TESTS / "codec" / "test_batch.py"
    assert (conftest.claim_of(here), conftest.claim_of(beside)) == ("test_sharing.py", "codec test_batch.py")
    monkeypatch.setattr(conftest, "ON_SPARK", {here, beside})
    assert conftest.claim_of(here) == conftest.claim_of(beside) == "spark"


class Named:
    """A test of pytest's, as far as ``leave_to_engines`` looks at it."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid = nodeid
        self.marks = [*marks]

    def get_closest_marker(self, name: str) -> Any:
        return next((mark.mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark)


@pytest.mark.parametrize(
    ("marks", "one_in"),
    [([pytest.mark.one_in(4)], 4), ([pytest.mark.slow], 3), ([pytest.mark.slow, pytest.mark.one_in(4)], 4)],
    ids=["one_in", "slow", "both"],
)
def test_of_tests_that_take_long_each_run_has_some_and_all_runs_together_have_all(
    monkeypatch: pytest.MonkeyPatch, marks: list[pytest.MarkDecorator], one_in: int
) -> None:
    names = [*(f"a.py::test_one[{number}]" for number in range(8)), "a.py::test_two", "b.py::test_one[0]"]
    had = []
    for seed in range(one_in):
        monkeypatch.setattr(conftest, "RUN_SEED", seed)
        items: list[Any] = [*(Named(name, *marks) for name in names), Named("c.py::test_short")]
        conftest.leave_to_engines(items)
        left = [item.nodeid for item in items if item.get_closest_marker("engine") is None]
        assert left.pop() == "c.py::test_short"
        assert sum("a.py::test_one" in name for name in left) in (8 // one_in, -(-8 // one_in))
        had += left
    assert sorted(had) == sorted(names)


def test_what_scripts_test_leaves_is_what_its_engines_run_selects() -> None:
    settings, script = (conftest.TESTS.parent.joinpath(*path) for path in (["setup.cfg"], ["scripts", "test"]))
    assert '-m "not soak and not engine"\n' in settings.read_text()
    assert '\nleft_to_engines="engine and not soak"\n' in script.read_text()
