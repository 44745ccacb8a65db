"""Bugs in where a stream of Spark stands, and in when its sink says that a batch is done."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a sink does not sync what it has published",
        "spark/sink/publishing.py",
        "            self._sync(part)\n",
        "            pass\n",
        "a loss of power takes records that are never written again",
        (
            "tests/spark/test_sink_commit.py::test_a_query_that_starts_again_after_any_crash_writes_each_record_once[power]",
        ),
    ),
    Mutant(
        "a stream's first batch does not say where it started",
        "spark/source/stream.py",
        "        if start == self._initial:",
        "        if False:",
        "a query that starts at the latest offsets loses the records of its first batch if that has to come again",
        ("tests/spark/test_stream.py::test_where_it_started_is_known_after_a_crash_in_the_first_batch",),
    ),
)
