"""Bugs in who may use what: owners, modes, and what stands where a file should be."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_OWNERS = "tests/processes/test_owners.py"

MUTANTS = (
    Mutant(
        "files that root makes stay root's",
        "storage/open_safely.py",
        "            permissions.give_to_owner(descriptor.fileno(), above, path)\n",
        "",
        "a service can't open what root left in its log",
        (f"{_OWNERS}::test_the_owner_goes_on_with_its_log_after_root_has_used_it",),
    ),
    Mutant(
        "files of a member keep the member's own group",
        "storage/permissions.py",
        "if is_root or above.st_mode & _FOR_THE_GROUP else found.st_gid",
        "if is_root else found.st_gid",
        "the owner of a log without a setgid bit can't open what a member of its group left in it",
        (f"{_OWNERS}::test_the_owner_goes_on_after_a_member_of_its_group",),
    ),
    Mutant(
        "a directory is given away whatever is in it",
        "storage/permissions.py",
        "(os.fstat(descriptor).st_uid != ROOT or os.listdir(descriptor))",
        "os.fstat(descriptor).st_uid != ROOT",
        "the owner of a log has root give it another directory of root's",
        (f"{_OWNERS}::test_what_was_put_in_place_of_a_new_directory_is_not_given_away",),
    ),
    Mutant(
        "a directory that a killed process of root's left is nobody's to repair",
        "storage/os_filesystem.py",
        "if not is_new and (mode is not None or not permissions.works_for_another(around)):",
        "if not is_new:",
        "a service stays locked out of a directory, because root's process was killed as it made it",
        (f"{_OWNERS}::test_a_directory_that_a_killed_process_of_roots_left_is_given_when_it_is_next_wanted",),
    ),
    Mutant(
        "memory is taken for as much as a file may hold",
        "storage/os_filesystem.py",
        "            size = min(size, max(self.size() - position, 0))\n",
        "            pass\n",
        "a process with little memory can't read a checkpoint of 50 bytes",
        ("tests/processes/test_small_memory.py",),
    ),
    Mutant(
        "what may not be looked at is not there",
        "storage/os_filesystem.py",
        "        if error.errno in _NOTHING_THERE:\n",
        "        if True:\n",
        "a log in a directory that may not be entered is no log, and is made anew with create=True",
        (
            "tests/processes/test_other_users.py::test_a_directory_that_may_not_be_entered_is_not_taken_for_a_missing_log",
        ),
    ),
    Mutant(
        "a directory that is missing was deleted with its topic",
        "partition/directory.py",
        "            (self.find_topic or self.settings)()\n        except own(TopicNotFound):",
        "            raise TopicNotFound('')\n        except TopicNotFound:",
        "who has removed a partition's directory is told that the topic was deleted",
        ("tests/partition/test_missing_directory.py",),
    ),
    Mutant(
        "Spark does not ask whether the topic is there",
        "spark/source/directory.py",
        "        if catalog.describe(topic).id != self.topic_id:",
        "        if False:",
        "a topic that was deleted and created again is damaged",
        ("tests/partition/test_missing_directory.py",),
    ),
    Mutant(
        "a FIFO in place of a member's lock is an error for all",
        "group/liveness.py",
        '        if "kind" not in error.facts:\n            raise\n',
        "        raise\n",
        "who puts a FIFO in place of a member's lock keeps all others from joining",
        ("tests/group/test_irregular_files.py",),
    ),
    Mutant(
        "a member's lock that can't be looked at is nobody's",
        "group/liveness.py",
        '        if "kind" not in error.facts:\n            raise\n',
        "",
        "a process without a descriptor left takes the partitions of members that live",
        ("tests/group/test_irregular_files.py::test_a_member_whose_lock_may_not_be_looked_at_is_not_taken_for_gone",),
    ),
    Mutant(
        "close has no time of its own",
        "consumer/group_assignment.py",
        "        self.tracker.begin_to_close(timeout_s)\n",
        "",
        "close(timeout=0.5) waits for 30 s if a process is stopped with the group's lock",
        ("tests/group/test_stopped_holder.py",),
    ),
    Mutant(
        "a commit waits for a stopped writer of the records",
        "group/truncation.py",
        "None if timeout_s is None else int(timeout_s * 1000)",
        "None",
        "a commit takes two minutes if a producer is stopped with the partition's lock",
        ("tests/group/test_stopped_holder.py",),
    ),
    Mutant(
        "a commit has its time for each lock",
        "consumer/commit_tracker.py",
        "partial(store.append, self._group_id, news, left_s=left_s)\n",
        "partial(store.append, self._group_id, news)\n",
        "a commit with a time of a quarter of a second takes half a minute",
        ("tests/group/test_stopped_holder.py",),
    ),
)
