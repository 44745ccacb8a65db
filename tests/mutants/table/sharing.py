"""Bugs in how processes and threads share a partition: locks, publication, catching up, forks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WRITER = "tests/partition/test_damage_table.py::test_a_writer_recovers_what_is_whole_and_goes_on"
_OS = "tests/storage/test_os_filesystem.py"
_MERGING = "tests/topic_changes/test_merging.py"
_REPARTITION = "tests/topic_changes/test_repartition.py"
_PUBLICATION = "tests/partition/test_visibility_of_changes.py"
_INTERRUPTS = "tests/test_interrupts.py"

MUTANTS = (
    Mutant(
        "the checksum of an adopted tail is not looked at",
        "partition/write/log_end.py",
        "scan = self._adopt_up_to(segment, size, check_crc=True)",
        "scan = self._adopt_up_to(segment, size, check_crc=False)",
        "a batch that a killed writer has written in part becomes a record",
        (f"{_WRITER}[a killed writer left half a batch]",),
    ),
    Mutant(
        "a POSIX lock instead of an open file description's",
        "storage/os_lock.py",
        "fcntl.fcntl(opened.number, fcntl.F_OFD_SETLK, _ACQUIRE)",
        "fcntl.fcntl(opened.number, fcntl.F_SETLK, _ACQUIRE)",
        "the lock vanishes when anything in the process closes another descriptor of the file",
        (f"{_OS}::test_closing_another_descriptor_of_the_file_keeps_the_lock",),
    ),
    Mutant(
        "the lock is released before what was appended is published",
        "partition/write/writer.py",
        "            self._end.publish_end(grant, state",
        "            self._lock._to_release.release()\n            self._end.publish_end(grant, state",
        "another process appends at the same offset",
        (f"{_PUBLICATION}::test_the_lock_is_held_from_the_first_write_of_an_append_to_its_publication",),
    ),
    Mutant(
        "the lock is not taken at all",
        "partition/write/lock.py",
        "                    if not lock.try_acquire():\n                        self._wait(lock, timeout_ms)\n",
        "",
        "two processes append at the same offset",
        (f"{_PUBLICATION}::test_the_lock_is_held_from_the_first_write_of_an_append_to_its_publication",),
    ),
    Mutant(
        "a topic is read-only before the append under way is over",
        "manager/manager.py",
        "        partition.settle(int(LOCK_TIMEOUT_S * 1000))\n        partition.sync(",
        "        partition.sync(",
        "a record is appended to a topic that is read-only",
        ("tests/catalog/test_read_only_topics.py::test_the_call_waits_for_an_append_under_way",),
    ),
    Mutant(
        "nothing is refused after a topic was repartitioned",
        "producer/topic_cache.py",
        "            if topic.id in found.earlier_ids:",
        "            if False:",
        "later records of a key are before those that have failed",
        ("tests/producer/test_changed_topics.py::test_the_first_record_after_a_repartition_is_refused",),
    ),
    Mutant(
        "a copy keeps what was deleted from its topic meanwhile",
        "topic_changes/repartition.py",
        "        if copy.is_outdated():",
        "        if False:",
        "deleted records come back",
        (f"{_REPARTITION}::test_records_deleted_meanwhile_do_not_come_back",),
    ),
    Mutant(
        "old partitions are copied one after another",
        "topic_changes/merging.py",
        "key=order.__getitem__",
        "key=lambda _: 0",
        "the newer value of a key that was in two partitions comes first",
        (f"{_MERGING}::test_random_histories_keep_the_order_of_each_key_and_the_positions_of_groups",),
    ),
    Mutant(
        "a copy goes on beside an open transaction",
        "topic_changes/merging.py",
        "            elif stream.is_blocked:\n                return\n",
        "",
        "the older value of a key comes last, if it was in a transaction",
        (f"{_MERGING}::test_a_transaction_that_was_open_before_a_key_moved_holds_back_what_follows",),
    ),
    Mutant(
        "a group's position counts the records of a part in another order",
        "topic_changes/merging.py",
        "inclusive=stream.number <= first.number",
        "inclusive=True",
        "a group misses records after a repartition",
        (f"{_MERGING}::test_a_part_that_is_read_again_is_the_same",),
    ),
    Mutant(
        "a change records more than can be read again",
        "catalog/changes.py",
        "        if size_bytes > _LIMIT_BYTES:",
        "        if False:",
        "neither name of the topic is found, ever",
        ("tests/topic_changes/test_drafts.py::test_a_change_with_more_commits_than_can_be_read_again_is_refused",),
    ),
    Mutant(
        "the removal of an old partition is not completed",
        "catalog/finishing.py",
        "            remove_all_condemned(filesystem, layout)  #",
        "            #",
        "the records of a repartitioned topic stay on the disk, where no erasure finds them",
        (f"{_REPARTITION}::test_a_kill_or_a_power_loss_at_any_step_leaves_the_old_or_the_new_partitions",),
    ),
    Mutant(
        "a forked child keeps the lock's descriptor",
        "storage/os_lock.py",
        "from pylog.storage.fork import after_fork_in_child, forks\n",
        "from pylog.storage.fork import forks\n\n\ndef after_fork_in_child(_): ...\n\n\n",
        "a parent that died stays locked out by its child",
        (f"{_OS}::test_a_forked_child_keeps_no_lock_of_its_parent_alive",),
    ),
    Mutant(
        "a forked child keeps what the parent had buffered",
        "producer/producer.py",
        "        after_fork_in_child(self._forget_parent)\n",
        "",
        "both write the same records",
        ("tests/producer/test_fork.py::test_records_sent_before_a_fork_are_written_once_by_the_parent",),
    ),
    Mutant(
        "a commit of an offset that was durable once is not synced",
        "consumer/commit_tracker.py",
        "durable and (is_new or self._durable.get(name) != at.offset)\n",
        "durable and self._durable.get(name) != at.offset\n",
        "a power failure takes it, and the group continues at the commit before it",
        ("tests/group/test_power_loss.py",),
    ),
    Mutant(
        "a consumer without members trusts its memory of what is committed",
        "consumer/commit_tracker.py",
        "        if not is_member and not automatic:\n",
        "        if False:\n",
        "commit() returns, and the group stays where another process has set it",
        ("tests/group/test_commits.py",),
    ),
    Mutant(
        "a commit in a topic that was deleted meanwhile is appended",
        "group/offsets.py",
        '            elif topic is not None and committed.topic_id in ("", topic.id) and name not in missing:\n',
        "            elif True:\n",
        "it comes after the tombstone, and counts in a new topic of that name",
        ("tests/group/test_deleted_topics.py::test_no_commit_comes_after_the_tombstone_in_any_order",),
    ),
    Mutant(
        "a commit in a topic that was renamed or repartitioned is left out",
        "group/ownership.py",
        "        if topic_id in ids:\n",
        "        if False:\n",
        "the application takes its records for committed, and the group reads them again",
        (
            (
                "tests/group/test_commits_of_changed_topics.py"
                "::test_a_commit_of_a_changed_topic_is_refused_before_any_member_has_noticed"
            ),
        ),
    ),
    Mutant(
        "a transaction commits its records without the offsets of a topic that has changed",
        "transaction/offsets.py",
        "            require_unchanged(self._manager, group, missing)\n",
        "",
        "the group reads the same input again: its results count twice",
        (
            (
                "tests/group/test_commits_of_changed_topics.py"
                "::test_a_transaction_is_refused_if_the_topic_changes_before_the_decision"
            ),
        ),
    ),
    Mutant(
        "a member takes a partition of another topic that has the name",
        "consumer/group_assignment.py",
        "                if partition.topic_id != group.topics[name.topic].id:\n",
        "                if False:\n",
        "it skips the records before the position of the old one",
        (
            (
                "tests/group/test_changed_topics.py"
                "::test_a_topic_that_is_created_again_while_a_member_takes_it_is_read_from_its_beginning"
            ),
        ),
    ),
    Mutant(
        "a slot is published before the bytes are written",
        "partition/write/writer.py",
        "            segment.append(batch, header)\n",
        "            self._lock.slots.publish(\n"
        "                state.successor(\n"
        "                    written_end=position + header.size_bytes,\n"
        "                    log_end_offset=header.last_offset + 1,\n"
        "                    high_watermark=header.last_offset + 1,\n"
        "                )\n"
        "            )\n"
        "            segment.append(batch, header)\n",
        "readers go where nothing is yet",
        (f"{_PUBLICATION}::test_at_any_moment_of_an_append_others_see_whole_records_and_nothing_else",),
    ),
    Mutant(
        "old slots go before the lock of those who know only them",
        "partition/commit_slots.py",
        "        fence()\n        # First the older",
        "        self._output.pwrite(HEAD, 0)\n        fence()\n        # First the older",
        "killed in between, it leaves writers of version 1 with a lock that is in place",
        (
            "tests/partition/test_slots_upgrade.py::test_a_writer_of_version_1_appends_at_no_moment_of_it_to_what_is_upgraded",
        ),
    ),
    Mutant(
        "the boot's name is not compared by writers",
        "partition/write/log_end.py",
        "        if state is None or state.boot != self._directory.boot:\n",
        "        if state is None:\n",
        "after a loss of power the ends of the last boot are believed, and zeros are records",
        (f"{_WRITER}[power lost, a page inside a batch]",),
    ),
    Mutant(
        "a roll is published after its file was made",
        "partition/write/log_end.py",
        "        segment.finish()\n        self._state = state = grant.publish(\n",
        "        segment.finish()\n        self._place.segment_writer(end).close()\n"
        "        self._state = state = grant.publish(\n",
        "a writer killed in between leaves a segment that nothing points to",
        (f"{_PUBLICATION}::test_a_roll_is_published_before_its_file_is_made",),
    ),
    Mutant(
        "a lock whose file was removed counts as held",
        "partition/write/lock.py",
        "                    if self._is_replaced or not lock.is_in_place():\n",
        "                    if self._is_replaced:\n",
        "two processes write at once, each under a lock of its own",
        (
            "tests/processes/test_removed_files.py::test_two_processes_on_two_lock_files_overwrite_nothing",
            "tests/processes/test_removed_files.py::test_a_writer_does_not_go_on_in_a_backup_that_was_put_in_its_place",
        ),
    ),
    Mutant(
        "verify drops what it has found whenever the list of segments has changed",
        "partition/verify/partition.py",
        "        closed = [at for at in _beside(base, listed) if at <= base]\n"
        "        return self._sizes_of(closed) != {at: self._sizes.get(at) for at in closed}\n",
        "        return True\n",
        "damage in a log in use is not told: a roll changes the list",
        (
            "tests/partition/test_swap_failures.py::test_verify_finds_what_is_wrong_although_a_writer_rolls_and_deletes_meanwhile",
        ),
    ),
    Mutant(
        "a batch of others that is half taken in counts as known",
        "partition/write/log_end.py",
        "        known, self._state = self._state, None  # an exception",
        "        known = self._state  # an exception",
        "Ctrl-C in the midst of it makes a repeat be appended twice",
        ("tests/partition/test_interrupts.py",),
    ),
    Mutant(
        "the bytes of a failed append stay",
        "partition/write/log_end.py",
        "                segment.cut(before.written_end, before.log_end_offset)\n",
        "",
        "what was said not to be appended is adopted by the next writer",
        (
            "tests/partition/test_durability.py::test_with_the_disk_full_at_any_moment_each_append_is_there_or_not_appended[pwrite]",
        ),
    ),
    Mutant(
        "an append that was perhaps published is said not to be there",
        "partition/write/log_end.py",
        "            if before is None or grant.slots.read() != before:\n",
        "            if before is None:\n",
        "a record that others have read is cut, and is said not to be appended",
        (f"{_PUBLICATION}::test_an_append_that_fails_behind_its_publication_has_an_unknown_outcome",),
    ),
    Mutant(
        "a signal handler's exception is taken for an answer",
        "interrupts.py",
        "    return kinds if trace is None or trace.tb_next is None or not is_foreign(error) else ()\n",
        "    return kinds\n",
        "a TimeoutError of pytest-timeout is swallowed, or a segment is copied as if its sync had failed",
        (f"{_INTERRUPTS}::test_a_handlers_error_in_a_sync_is_not_taken_for_the_disks",),
    ),
    Mutant(
        "a descriptor is a number for a moment",
        "storage/descriptors.py",
        "    return next(owned(map(partial(os.open, dir_fd=directory), (name,), (flags,), (mode,))))\n",
        "    number = os.open(name, flags, mode, dir_fd=directory)\n    return _OWNER(number)\n",
        "each exception of a signal handler right after an open leaves a descriptor open",
        (f"{_INTERRUPTS}::test_an_exception_at_any_place_leaves_no_descriptor",),
    ),
    Mutant(
        "a file is closed while another thread uses its number",
        "storage/descriptor_pool.py",
        "        self.number = -1\n",
        "        self.number = -1\n        self._owner.close()\n",
        "the call reads or writes the file that is opened next",
        ("tests/storage/test_descriptor_pool.py",),
    ),
    Mutant(
        "offsets that were left out are taken for those of a deleted topic",
        "transaction/offsets.py",
        "sorted(claim.offsets.keys() - pending - set(gone))",
        "sorted(n for n in claim.offsets.keys() - pending - set(gone) if n.topic in claim.topic_ids)",
        "a transaction commits without them if their topic has its name again",
        (
            (
                "tests/group/test_commits_of_changed_topics.py"
                "::test_a_transaction_is_refused_if_the_topic_was_missing_as_its_offsets_were_appended"
            ),
        ),
    ),
    Mutant(
        "a group appears while a topic changes",
        "group/directory.py",
        "        while_holding(self.filesystem, self.clock, self._groups_lock, self._make, timeout_s)\n",
        "        self._make()\n",
        "its first commit is lost, and a transaction repeats its input",
        (
            (
                "tests/group/test_commits_of_changed_topics.py"
                "::test_no_first_commit_of_a_group_is_lost_with_a_rename_in_any_order"
            ),
        ),
    ),
)
