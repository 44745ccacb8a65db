"""Runs of pytest side by side: each file of tests is one run's."""

from __future__ import annotations

import functools
from pathlib import Path

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
