"""Bugs in compaction and retention: what is dropped too early, torn, or deleted although somebody
needs it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RACES = "tests/simulation/test_cleaner_schedules.py::test_a_race_ends_well_in_every_order_with_one_preemption"
_ALSO_LONG = ("-m", "not soak")
_ENDS = "tests/simulation/test_cleaner_schedules.py::test_what_is_wrong_is_found"
_SWAPS = "tests/partition/test_swap_failures.py"
_CONSUMED = "tests/cleaner/test_consumed.py"
_HOSTILE = "tests/partition/test_hostile_cleaning.py"
_TABLES = "tests/tables/test_compacted.py"

MUTANTS = (
    Mutant(
        "a segment is replaced after the partition's lock is free",
        "partition/compact/swap.py",
        "    writer.change_segments(decide, DEFAULT_TIMEOUT_MS)\n",
        "    decide(*writer.change_segments(lambda grant, state: (grant, state), DEFAULT_TIMEOUT_MS))\n",
        "an append, a deletion and a swap change the list of segments at the same time",
        (f"{_RACES}[compaction_and_append]", *_ALSO_LONG),
    ),
    Mutant(
        "a compaction replaces segments that others have deleted",
        "partition/compact/swap.py",
        "        _require_unchanged(directory, bases, end, size_bytes, state)\n",
        "",
        "records that were deleted come back",
        (f"{_RACES}[compaction_and_delete_records]", *_ALSO_LONG),
    ),
    Mutant(
        "two compactions of a partition at once",
        "partition/compact/engine.py",
        "            if not lock.try_acquire():\n",
        "            if lock.try_acquire() is None:\n",
        "two processes write the same files, and one puts the other's half in the place of a segment",
        (f"{_RACES}[compaction_and_compaction]", *_ALSO_LONG),
    ),
    Mutant(
        "tombstones are dropped before their horizon",
        "partition/compact/batches.py",
        "drops_tombstones=is_past)",
        "drops_tombstones=True)",
        "a reader that is behind never learns that the key was deleted",
        (_ENDS,),
    ),
    Mutant(
        "a tombstone's horizon has come at once",
        "partition/compact/batches.py",
        "    is_past = horizon_ms is not None and rules.time_ms >= horizon_ms\n",
        "    is_past = horizon_ms is not None\n",
        "the second compaction drops what the first one has marked",
        (_ENDS,),
    ),
    Mutant(
        "a compaction passes an open transaction",
        "partition/compact/plan.py",
        '        "a transaction is open": min(state.last_stable_offset, state.high_watermark),\n',
        "",
        "the records of a transaction count before it is decided, and older ones of their keys are gone if it aborts",
        ("tests/partition/test_compaction.py::test_an_open_transaction_ends_what_can_be_compacted",),
    ),
    Mutant(
        "aborted records count as the newest of their keys",
        "partition/compact/engine.py",
        "                        transactions.judge(view).is_unneeded\n                        or view.header.is_control\n",
        "                        (transactions.judge(view) and False)\n                        or view.header.is_control\n",
        "the committed record of the key is dropped, and nothing is left of the key",
        (_ENDS,),
    ),
    Mutant(
        "a swap is decided before the files are durable",
        "partition/compact/cleaned.py",
        "            file.sync()\n        self._write(",
        "            file.pread(0, 0)\n        self._write(",
        "a loss of power leaves an empty file in the place of three segments",
        ("tests/simulation/test_compactions.py::test_a_loss_of_power_at_any_step_leaves_the_newest_records",),
    ),
    Mutant(
        "a decided swap is believed under any name",
        "segment/swap_view.py",
        "    if seal.next_base <= base or (seal.positions and seal.first_offset < base):\n",
        "    if False:\n",
        "the file of another segment takes the place of the active one",
        (f"{_HOSTILE}::test_a_decision_under_the_name_of_another_segment_replaces_nothing",),
    ),
    Mutant(
        "a checkpoint of the cleaner is believed without its checksum",
        "partition/cleaner_checkpoint.py",
        "    if entry[3] != _checksum(directory, *before, number):\n",
        "    if entry[3] is None:\n",
        "a deleted key comes back: its tombstone goes, and the record before it counts as clean",
        (f"{_HOSTILE}::test_no_key_comes_back_by_a_checkpoint_with_any_content",),
    ),
    Mutant(
        "a recovery leaves the cleaner's checkpoint after the end that it has cut to",
        "partition/repair/recovery.py",
        "    if cleaned.first_dirty > end:",
        "    if cleaned.first_dirty < 0:",
        "records that get these offsets count as compacted: a tombstone goes, and its key comes back",
        (f"{_HOSTILE}::test_no_key_comes_back_if_the_disk_has_lost_segments_that_were_compacted",),
    ),
    Mutant(
        "doctor says nothing of what is over a limit and held",
        "cleaner/retention.py",
        "        if why and rule in (BY_SIZE, BY_TIME):\n",
        "        if False:\n",
        "an open transaction fills the disk, and nothing is overdue",
        ("tests/cleaner/test_maintain.py::test_what_has_been_held_for_a_day_is_a_problem",),
    ),
    Mutant(
        "leftovers are removed while an erasure or a compaction writes them",
        "partition/write/leftovers.py",
        "        if not lock.try_acquire() or not lock.is_in_place():\n",
        "        if lock.try_acquire() is None:\n",
        "no erasure ends while another process deletes records",
        ("tests/cleaner/test_maintain.py::test_the_files_of_an_erasure_under_way_stay",),
    ),
    Mutant(
        "maintenance finishes no swap",
        "cleaner/leftovers.py",
        "            partition.settle(target.timeout_ms)",
        "            bool(target.timeout_ms)",
        "a segment stays on the disk twice, for years if nobody appends",
        ("tests/cleaner/test_maintain.py::test_maintenance_removes_what_an_erasure_that_died_has_left",),
    ),
    Mutant(
        "compaction says after the swap that tombstones are gone",
        "partition/compact/engine.py",
        "        if dropped_to > self._cleaned.dropped_to:  # before readers can miss them\n"
        "            self._write(self._cleaned._replace(dropped_to=dropped_to))\n"
        "        bases = [segment.base for segment in group]\n"
        "        swap_in(directory, self._writer, bases, end, size_bytes, self.check_process)\n",
        "        bases = [segment.base for segment in group]\n"
        "        swap_in(directory, self._writer, bases, end, size_bytes, self.check_process)\n"
        "        if dropped_to > self._cleaned.dropped_to:\n"
        "            self._write(self._cleaned._replace(dropped_to=dropped_to))\n",
        "it is killed in between, and a table that has not read the tombstones keeps the keys forever",
        (f"{_TABLES}::test_a_crash_at_any_step_of_a_compaction_leaves_no_deleted_key_in_a_table",),
    ),
    Mutant(
        "a table does not ask for dropped tombstones after it has read",
        "tables/follower.py",
        "            if self._lacks_tombstones(each, position):\n",
        "            if not fetched.batches and self._lacks_tombstones(each, position):\n",
        "tombstones that go meanwhile are overlooked, and their keys stay in the table",
        (f"{_TABLES}::test_so_it_is_if_the_process_was_stopped_before_or_after_any_look",),
    ),
    Mutant(
        "a table believes that its start is as new as the log",
        "tables/follower.py",
        "start, cleaned.first_dirty)",
        "start, state.active_base)",
        "a key that it reads while its tombstone is compacted for the first time stays",
        (f"{_TABLES}::test_so_it_is_if_they_were_in_closed_segments_when_the_table_began",),
    ),
    Mutant(
        "a lookup by time trusts segments that were replaced meanwhile",
        "partition/read/times.py",
        "        if self._reader.published.current().segments_version != state.segments_version:\n",
        "        if False:\n",
        "a reader that begins at a time skips segments",
        (f"{_SWAPS}::test_a_lookup_by_time_skips_nothing_if_its_segment_is_replaced_before_its_seal_is_read",),
    ),
    Mutant(
        "a compaction that meets a deletion reports damage",
        "partition/compact/engine.py",
        "        if isinstance(error, FileNotFoundError) and log.current().log_start_offset > log_start:\n",
        "        if False:\n",
        "people restore a partition from a copy of which nothing is damaged",
        (f"{_RACES}[compaction_and_delete_records]", *_ALSO_LONG),
    ),
    Mutant(
        "retention asks for commits before members",
        "group/consumption.py",
        "        members_of = self._groups.reading(topic)  # before the commits: one that leaves in between has committed\n"
        "        commits = self._groups.offsets.settled_in(topic)\n",
        "        commits = self._groups.offsets.settled_in(topic)\n        members_of = self._groups.reading(topic)\n",
        "a member that begins and leaves in between is overlooked, and what its group has not committed is deleted",
        (_CONSUMED,),
    ),
    Mutant(
        "retention does not ask the groups again under the lock",
        "cleaner/cleaner.py",
        "        return config.retention != CONSUMED or self._consumption",
        "        return log_start >= 0 or self._consumption",
        "what a group needs that has joined meanwhile is deleted",
        (f"{_RACES}[consumed_and_join]", *_ALSO_LONG),
    ),
    Mutant(
        "what a group that has come meanwhile has committed counts, though it is not durable",
        "group/consumption.py",
        " and set(now.groups).issubset(known)",
        " and known is not None",
        "its members die, the power fails, and what it has to read again is deleted",
        (f"{_CONSUMED}::test_commits_of_a_group_that_came_since_the_last_look_may_be_lost",),
    ),
    Mutant(
        "a member returns records before it has committed where its group begins",
        "consumer/commit_tracker.py",
        "        self.commit(fresh, durable=True, named=False, timeout_s=left_s())\n",
        "",
        "what it has read is deleted when it dies before its first commit",
        (_CONSUMED,),
    ),
    Mutant(
        "a group's start that a dead member has committed is not made durable",
        "consumer/commit_tracker.py",
        "            commits.sync(left_s())\n        return held\n",
        "            commits.partition.log.latest_offset\n        return held\n",
        "without power the group is forgotten, and what its next member has read is deleted",
        (_CONSUMED,),
    ),
    Mutant(
        "a group's start supersedes offsets in an undecided transaction",
        "consumer/commit_tracker.py",
        "if name in committed or name not in undecided}",
        "if name in committed or name not in starts or True}",
        "records of a committed transaction are processed again",
        (_CONSUMED,),
    ),
)
