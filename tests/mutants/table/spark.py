"""Bugs in where a stream of Spark stands, and in when its sink says that a batch is done."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a sink's transaction does not commit the batch's number",
        "spark/sink/commit.py",
        "            self._write(producer, files, {POSITION: batch_id + 1})\n",
        "            self._write(producer, files)\n",
        "a micro-batch that comes again after a crash is in the log twice",
        ("tests/spark/test_sink_commit.py::test_a_batch_that_comes_again_adds_nothing_and_leaves_nothing",),
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
