"""Bugs in how processes and threads share a partition: locks, publication, catching up, forks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_READER = "tests/partition/test_disasters.py::test_reading_only_changes_no_byte"
_WRITER = "tests/partition/test_disasters.py::test_a_writer_recovers_what_is_whole_and_goes_on"
_FULL = "tests/partition/test_durability.py::test_with_the_disk_full_at_any_moment_each_append_is_there_or_not_appended"
_OS = "tests/storage/test_os_filesystem.py"
_PUBLICATION = "tests/partition/test_publication.py"
_SLOTS = "tests/partition/test_commit_slots.py"

MUTANTS = (
    Mutant(
        "no look at the tail that a dead writer left",
        "partition/writer_view.py",
        "        if size > state.written_end:\n",
        "        if False:\n",
        "what a killed writer left stands behind the next record, and is found there by recovery",
        (f"{_WRITER}[a killed writer left a whole batch]",),
    ),
    Mutant(
        "the checksum of an adopted tail is not looked at",
        "partition/writer_view.py",
        "scan = self._adopt_up_to(segment, size, check_crc=True)",
        "scan = self._adopt_up_to(segment, size, check_crc=False)",
        "a batch that a killed writer has written in part becomes a record",
        (f"{_WRITER}[a killed writer left half a batch]",),
    ),
    Mutant(
        "the tail's checksum is never computed",
        "partition/writer_view.py",
        "next_offset=segment.next_offset, dense=True, check_crc=check_crc",
        "next_offset=segment.next_offset, dense=True, check_crc=False",
        "a batch of the right length with other bytes in it is adopted from a killed writer",
        (f"{_WRITER}[a killed writer left a batch with a wrong byte]",),
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
        "the lock is on a data file",
        "partition/writer_lock.py",
        'lock = place.filesystem.lock(f"{place.directory}/{LOCK}")',
        'lock = place.filesystem.lock(f"{place.directory}/{COMMIT_SLOTS}")',
        "whoever deletes the topic, or runs another version, does not exclude this writer",
        (f"{_PUBLICATION}::test_a_writer_waits_for_whoever_holds_the_lock_file",),
    ),
    Mutant(
        "the lock is released before what was appended is published",
        "partition/writer.py",
        "                self._fold(segment, position, header)\n            self._publish_end(state, segment)\n",
        "                self._fold(segment, position, header)\n            self._lock._to_release.release()\n"
        "            self._publish_end(state, segment)\n",
        "another process appends at the same offset",
        (f"{_PUBLICATION}::test_the_lock_is_held_from_the_first_write_of_an_append_to_its_publication",),
    ),
    Mutant(
        "the lock is not taken at all",
        "partition/writer_lock.py",
        "        if not lock.try_acquire():\n            self._wait(lock, timeout_ms)\n",
        "",
        "two processes append at the same offset",
        (f"{_PUBLICATION}::test_the_lock_is_held_from_the_first_write_of_an_append_to_its_publication",),
    ),
    Mutant(
        "a lock stays taken after an exception",
        "partition/writer_lock.py",
        "                self._to_release.release()\n",
        "                pass\n",
        "one failed append locks everybody out",
        (f"{_PUBLICATION}::test_the_lock_is_held_from_the_first_write_of_an_append_to_its_publication",),
    ),
    Mutant(
        "a forked child unlocks what it inherited",
        "storage/os_lock.py",
        "        opened, held = self._open, self._held\n",
        "        self.release()\n        opened, held = self._open, self._held\n",
        "the parent's lock is gone while it appends",
        (f"{_OS}::test_a_forked_child_that_abandons_a_lock_leaves_it_to_the_parent",),
    ),
    Mutant(
        "a forked child keeps the lock's descriptor",
        "storage/os_lock.py",
        "        after_fork_in_child(self.give_back)\n",
        "",
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
        "a forked child draws its parent's producer ids",
        "producer_ids.py",
        "        self._mutex = threading.RLock()\n        self._left = []\n",
        "        self._mutex = threading.RLock()\n",
        "two producers have one id, and the batches of one pass for repeats of the other's",
        ("tests/producer/test_fork.py::test_a_child_draws_no_id_that_its_parent_draws",),
    ),
    Mutant(
        "a slot is published before the bytes are written",
        "partition/writer.py",
        "            segment.append(batch, header, min_timestamp_ms)\n",
        "            self._lock.slots.publish(\n"
        "                state.successor(\n"
        "                    written_end=position + header.size_bytes,\n"
        "                    log_end_offset=header.last_offset + 1,\n"
        "                    high_watermark=header.last_offset + 1,\n"
        "                )\n"
        "            )\n"
        "            segment.append(batch, header, min_timestamp_ms)\n",
        "readers go where nothing is yet",
        (f"{_PUBLICATION}::test_at_any_moment_of_an_append_others_see_whole_records_and_nothing_else",),
    ),
    Mutant(
        "both slots are written in one place",
        "partition/commit_slots.py",
        "SLOT_BYTES * (state.sequence & 1)",
        "0",
        "a writer killed while it publishes leaves nothing that is valid",
        (f"{_SLOTS}::test_a_torn_publication_leaves_what_was_published_before",),
    ),
    Mutant(
        "the older slot wins",
        "partition/commit_slots.py",
        "% _SEQUENCE_LIMIT >= _SEQUENCE_LIMIT // 2:",
        "% _SEQUENCE_LIMIT < _SEQUENCE_LIMIT // 2:",
        "what was published last is not seen",
        (f"{_SLOTS}::test_the_slot_published_last_is_the_one_that_counts",),
    ),
    Mutant(
        "slot sequences do not wrap",
        "partition/commit_slots.py",
        "(_sequence(first) - _sequence(second)) % _SEQUENCE_LIMIT >= _SEQUENCE_LIMIT // 2:",
        "_sequence(first) < _sequence(second):",
        "after 2**32 publications the log stands still",
        (f"{_SLOTS}::test_the_slot_published_last_is_the_one_that_counts",),
    ),
    Mutant(
        "a slot's checksum is not looked at",
        "partition/commit_slots.py",
        "len(data) != SLOT_BYTES or _CRC.unpack_from(data)[0] != crc32c(data[_CRC.size :])",
        "len(data) != SLOT_BYTES",
        "a slot caught in the middle of a write is believed",
        (f"{_SLOTS}::test_a_torn_publication_leaves_what_was_published_before",),
    ),
    Mutant(
        "the boot's name is not compared by writers",
        "partition/writer_view.py",
        "        if state is None or state.boot != self._place.boot:\n",
        "        if state is None:\n",
        "after a loss of power the ends of the last boot are believed, and zeros are records",
        (f"{_WRITER}[power lost, a page inside a batch]",),
    ),
    Mutant(
        "the boot's name is not compared by readers",
        "partition/published.py",
        "return state if state is not None and state.boot == self._boot else self._assess(state)",
        "return state if state is not None else self._assess(state)",
        "after a loss of power a reader believes the ends of the last boot",
        (f"{_READER}[power lost, a page inside a batch]",),
    ),
    Mutant(
        "a roll is published after its file was made",
        "partition/writer.py",
        "        segment.finish()\n        self._state = state = self._lock.slots.publish(\n",
        "        segment.finish()\n        self._place.segment_writer(end).close()\n"
        "        self._state = state = self._lock.slots.publish(\n",
        "a writer killed in between leaves a segment that nothing points to",
        (f"{_PUBLICATION}::test_a_roll_is_published_before_its_file_is_made",),
    ),
    Mutant(
        "what others appended is not taken in",
        "partition/writer_view.py",
        "                self._adopt_up_to(self._segment, state.written_end, check_crc=False)\n",
        "                pass\n",
        "every append after another process's is a recovery, or lands on its records",
        (f"{_PUBLICATION}::test_what_others_appended_is_taken_in_without_a_recovery",),
    ),
    Mutant(
        "that others appended is not noticed",
        "partition/writer_view.py",
        "        elif state.sequence != known.sequence:\n",
        "        elif False:\n",
        "what another process published, such as a durable end, is taken back by the next append",
        (f"{_PUBLICATION}::test_what_others_appended_is_taken_in_without_a_recovery",),
    ),
    Mutant(
        "a lock whose file was removed counts as held",
        "partition/writer_lock.py",
        "        if not lock.is_in_place():\n",
        "        if False:\n",
        "two processes write at once, each under a lock of its own",
        (
            "tests/processes/test_removed_files.py::test_two_processes_on_two_files_of_one_name_overwrite_nothing[.lock]",
            "tests/processes/test_removed_files.py::test_a_writer_does_not_go_on_in_a_backup_that_was_put_in_its_place",
        ),
    ),
    Mutant(
        "a roll does not ask whether others read the slots it publishes to",
        "partition/writer.py",
        "        if is_due:\n            self._check_before_roll()\n",
        "",
        "where .commit was removed, two processes roll to one offset, and one truncates what the other has appended",
        (
            "tests/processes/test_removed_files.py::test_two_processes_on_two_files_of_one_name_overwrite_nothing[.commit]",
        ),
    ),
    Mutant(
        "a batch of others that is half taken in counts as known",
        "partition/writer_view.py",
        "        known, self._state = self._state, None  # an exception",
        "        known = self._state  # an exception",
        "Ctrl-C in the midst of it makes a repeat be appended twice",
        ("tests/partition/test_interrupts.py",),
    ),
    Mutant(
        "producers of others are not taken in",
        "partition/writer_view.py",
        "            segment.adopt(position, header)\n            if header.producer_id >= 0:\n"
        "                self._fold(segment, position, header)\n        self._state = known",
        "            segment.adopt(position, header)\n        self._state = known",
        "a repeat that comes through another process is appended twice",
        ("tests/partition/test_producers.py::test_a_duplicate_sent_through_another_handle_is_recognised",),
    ),
    Mutant(
        "the bytes of a failed append stay",
        "partition/writer.py",
        "                segment.cut(before.written_end, before.log_end_offset)\n",
        "",
        "what was said not to be appended is adopted by the next writer",
        (f"{_FULL}[pwrite]",),
    ),
    Mutant(
        "a failed append keeps what it thought it knew",
        "partition/writer.py",
        "        self._state = self._segment = None  # the next use reads everything anew\n",
        "",
        "the next append goes behind bytes that are gone",
        (f"{_FULL}[pwrite]",),
    ),
    Mutant(
        "an append that was perhaps published is said not to be there",
        "partition/writer.py",
        "            if before is None or self._lock.slots.read() != before:\n",
        "            if before is None:\n",
        "a record that others have read is cut, and is said not to be appended",
        (f"{_PUBLICATION}::test_an_append_that_fails_behind_its_publication_has_an_unknown_outcome",),
    ),
    Mutant(
        "a deleted partition's writers go on",
        "partition/lifecycle.py",
        "            slots.pwrite(bytes(FILE_BYTES), 0)\n",
        "            pass\n",
        "a process with open files appends to a topic that is gone, and acknowledges it",
        (
            "tests/catalog/test_catalog.py::test_appending_to_a_deleted_topic_says_that_it_is_gone",
            "tests/catalog/test_catalog.py::test_a_topic_created_anew_is_another_one_for_handles_of_the_old",
        ),
    ),
    Mutant(
        "a topic created anew under the name is not noticed",
        "partition/place.py",
        '        """\n        self.settings()\n',
        '        """\n',
        "a handle of the old topic reads and writes the new one's records",
        ("tests/catalog/test_catalog.py::test_a_topic_created_anew_is_another_one_for_handles_of_the_old",),
    ),
    Mutant(
        "a topic's file is written in place",
        "catalog/manifest.py",
        '    write_atomically(filesystem, path, (json.dumps(content, indent=2, sort_keys=True) + "\\n").encode())\n',
        "    file = filesystem.open_appendable(path)\n    file.truncate(0)\n"
        '    file.pwrite((json.dumps(content, indent=2, sort_keys=True) + "\\n").encode(), 0)\n    file.sync()\n'
        '    file.close()\n    filesystem.sync_directory(path.rpartition("/")[0])\n',
        "a process killed while it alters a topic leaves no topic",
        ("tests/catalog/test_kills.py",),
    ),
    Mutant(
        "a forked child keeps its parent's watch",
        "storage/os_watch.py",
        "        self._lock = threading.RLock()\n        self.close()\n",
        "        self._lock = threading.RLock()\n",
        "the child takes away the events that its parent waits for",
        ("tests/storage/test_watch.py::test_a_child_has_given_its_parents_watch_up",),
    ),
    Mutant(
        "a partition is opened while the log is closed",
        "log.py",
        "            self._check_open()  # else it would be opened behind the back of ``close``\n",
        "",
        "records are appended to a closed log, whose files nobody gives back",
        ("tests/test_log.py::test_a_partition_is_not_opened_while_another_thread_closes_the_log",),
    ),
    Mutant(
        "paused partitions are watched",
        "consumer/waiting.py",
        " if lane.partition is not None and not lane.paused)",
        " if lane.partition is not None)",
        "a consumer is woken by every append to what it has paused, for nothing",
        ("tests/consumer/test_real_log.py::test_what_is_paused_wakes_nobody",),
    ),
    Mutant(
        "a lock that is held is closed because it is idle",
        "storage/os_lock.py",
        "        self._held, self.release = opened, opened.unlock\n",
        "        self.release = opened.unlock\n",
        "another process appends at the same offset",
        ("tests/storage/test_descriptor_pool.py::test_a_lock_that_is_held_is_never_closed",),
    ),
    Mutant(
        "a file that was closed because it was idle is taken for whatever stands in its place",
        "storage/os_filesystem.py",
        "        if identity_of(opened.number) != known_as:\n",
        "        if False:\n",
        "a reader goes on in another topic's file, or in the copy of a segment",
        ("tests/storage/test_descriptor_pool.py::test_another_file_in_its_place_is_not_taken_for_it[replaced]",),
    ),
)
