"""Bugs in what is kept and what is cut when power was lost, slots are gone, or records are
deleted."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WRITER = "tests/partition/test_damage_table.py::test_a_writer_recovers_what_is_whole_and_goes_on"

MUTANTS = (
    Mutant(
        "recovery cuts damage below the durable end",
        "partition/read/assessment.py",
        "    if scan.next_offset < durable_offset:\n",
        "    if False:\n",
        "a flipped bit in acknowledged records becomes the loss of all that follow",
        (f"{_WRITER}[power lost, half a durable batch]",),
    ),
    Mutant(
        "recovery cuts what has whole batches behind it",
        "partition/read/assessment.py",
        "        if following is not None:\n",
        "        if False:\n",
        "with lost slots, one flipped bit costs all records behind it",
        (f"{_WRITER}[slots lost, damage before whole batches]",),
    ),
    Mutant(
        "the files of a deletion go whatever the slots say by then",
        "partition/write/deletion.py",
        " or state.log_start_offset < offset:\n        return None\n    if state.segments_version != version:\n"
        "        return False\n",
        " or state.log_start_offset < offset:\n        pass\n",
        "files go of a log that is to be recovered, or of a topic that is being deleted",
        ("tests/partition/test_deleting_many.py::test_files_go_only_while_the_log_says_that_they_may",),
    ),
    Mutant(
        "a symbolic link is followed for writing",
        "storage/open_safely.py",
        "FOR_WRITING = os.O_RDWR | os.O_NOFOLLOW",
        "FOR_WRITING = os.O_RDWR",
        "whoever may write into the directory has the log write to any file",
        ("tests/storage/test_os_filesystem.py::test_a_symbolic_link_is_never_followed_for_writing",),
    ),
    Mutant(
        "a hard link that was unlinked since it was opened is written",
        "storage/open_safely.py",
        "            named = os.stat(name, dir_fd=directory, follow_symlinks=False)\n",
        "            named = found\n",
        "who writes in the directory has the log write to a file elsewhere",
        ("tests/storage/test_links.py::test_a_hard_link_that_goes_when_it_was_opened_is_not_written",),
    ),
    Mutant(
        "a recovery within one boot does not say that it has begun",
        "partition/repair/recovery.py",
        "        slots = grant.publish(slots.successor(boot=another_boot(directory.boot)))\n",
        "        pass\n",
        "an error in its middle leaves the epoch checkpoint ahead of the log, and indexes without entries, for ever",
        (
            "tests/simulation/test_interrupted_recoveries.py::test_a_recovery_within_one_boot_that_is_cut_short_at_any_step_is_finished_by_the_next_writer",
        ),
    ),
    Mutant(
        "of a segment with gaps the last batches may be missing",
        "segment/seal.py",
        "        return max(offset, self.next_base) if offset > self.last_offset else offset\n",
        "        return max(offset, self.next_base)\n",
        "records that are gone are taken for what compaction has removed",
        ("tests/partition/test_rising_segments.py::test_a_missing_batch_of_a_compacted_segment_is_noticed",),
    ),
    Mutant(
        "a segment that is missing after one with gaps is passed",
        "partition/read/reader.py",
        " and (known_end := segment.gap_end(offset)) < following:\n",
        " and (known_end := segment.gap_end(offset)) < following and segment.dense:\n",
        "a reader passes over acknowledged records without an error",
        ("tests/partition/test_rising_segments.py::test_a_missing_segment_after_a_compacted_one_is_noticed",),
    ),
    Mutant(
        "a recovery cuts a segment that compaction has replaced",
        "partition/read/assessment.py",
        "            durable_offset = max(durable_offset, seal.next_base)\n",
        "            pass\n",
        "records that were durable are dropped with lost slots",
        ("tests/partition/test_rising_segments.py::test_a_missing_batch_of_a_compacted_segment_is_noticed",),
    ),
)
