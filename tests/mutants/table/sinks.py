"""Bugs in how Spark's sink stages, decides and publishes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COMMIT = "tests/spark/test_sink_commit.py"
_CRASHES = f"{_COMMIT}::test_a_query_that_starts_again_after_any_crash_writes_each_record_once"
_KILLS, _POWER = f"{_CRASHES}[kill]", f"{_CRASHES}[power]"
_SAVES = f"{_COMMIT}::test_a_save_is_in_the_log_wholly_or_not_at_all_once_others_have_committed[power]"

MUTANTS = (
    Mutant(
        "a sink publishes a batch that comes again",
        "spark/sink/commit.py",
        "        if state is not None and batch_id <= state.batch_id:\n",
        "        if False:\n",
        "after a restart a micro-batch is in the log twice",
        (f"{_COMMIT}::test_a_batch_that_comes_again_adds_nothing_and_leaves_nothing",),
    ),
    Mutant(
        "a sink forgets what it was about",
        "spark/sink/commit.py",
        "        if intent is None:\n            return state\n        if state is None",
        "        if True:\n            return state\n        if state is None",
        "a commit that a crash cut short is appended again from its beginning",
        (_KILLS,),
    ),
    Mutant(
        "a sink goes on from the beginning",
        "spark/sink/publishing.py",
        "        there = self._records_there(partition, share) if again else 0\n",
        "        there = 0\n",
        "a commit that a crash cut short can't be taken up again",
        (f"{_COMMIT}::test_a_commit_of_which_some_is_in_goes_on_where_it_was_even_if_others_wrote_meanwhile",),
    ),
    Mutant(
        "a sink takes a forgotten producer for one that has written nothing",
        "spark/sink/publishing.py",
        "            expected = (view.header.last_sequence + 1) & MAX_SEQUENCE\n",
        "            pass\n",
        "a commit that is taken up again days later is in the log twice",
        (f"{_COMMIT}::test_a_producer_that_was_forgotten_is_found_again_in_the_log",),
    ),
    Mutant(
        "a sink's sequences do not wrap",
        "spark/sink/publishing.py",
        "        sequence = (part.share.first_sequence + passed) & MAX_SEQUENCE\n",
        "        sequence = part.share.first_sequence + passed\n",
        "a query's 2**31st record of a partition is its last",
        (f"{_COMMIT}::test_sequences_go_on_from_the_beginning_behind_the_last_there_is",),
    ),
    Mutant(
        "a sink does not sync what it has published",
        "spark/sink/publishing.py",
        "            self._sync(part)\n",
        "            pass\n",
        "a loss of power takes records that are never written again",
        (_POWER,),
    ),
    Mutant(
        "a task does not sync what it has staged",
        "spark/sink/staging.py",
        "        self.sync()\n",
        "",
        "a loss of power leaves a commit that can't be carried out",
        (_POWER,),
    ),
    Mutant(
        "a sink decides before the names of the files are durable",
        "spark/sink/commit.py",
        "        directory.filesystem.sync_directory(directory.path)  # the names of the files\n",
        "",
        "a loss of power leaves a commit that can't be carried out",
        (_SAVES,),
    ),
    Mutant(
        "a save forgets its commit before that is durable",
        "spark/sink/commit.py",
        "        if directory.is_save:  # no state would show that an intent, back after a power failure, was carried out\n",
        "        if False:\n",
        "after a loss of power an intent comes back whose files are gone",
        (_SAVES,),
    ),
    Mutant(
        "an abort removes what is decided",
        "spark/sink/commit.py",
        "            if staged not in decided:\n",
        "            if True:\n",
        "a commit whose answer was lost can't be carried out",
        (f"{_COMMIT}::test_an_abort_spares_what_is_decided",),
    ),
    Mutant(
        "a sink commits to a later topic of the same name",
        "spark/sink/publishing.py",
        "    return partition if partition.topic_id == target.topic_id else None\n",
        "    return partition\n",
        "records of a topic that was deleted turn up in its successor",
        (f"{_COMMIT}::test_a_topic_deleted_after_the_commit_takes_its_records_with_it",),
    ),
    Mutant(
        "a sink cleans up what a later batch has staged",
        "spark/sink/commit.py",
        "            if batch_of(name) <= batch_id:\n",
        "            if True:\n",
        "a driver that was thought dead removes what its successor is about to commit",
        (f"{_COMMIT}::test_an_attempt_that_nobody_commits_adds_nothing_and_goes_with_the_next_commit",),
    ),
    Mutant(
        "a staged file's bytes are not compared",
        "spark/sink/staging.py",
        "        if self._crc != staged.crc:\n",
        "        if False:\n",
        "bytes that the disk has changed are published under a new checksum",
        ("tests/spark/test_sink_hostile.py",),
    ),
)
