"""Bugs in who may use what: owners, modes, and what stands where a file should be."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a directory is given away whatever is in it",
        "storage/permissions.py",
        "(os.fstat(descriptor).st_uid != ROOT or os.listdir(descriptor))",
        "os.fstat(descriptor).st_uid != ROOT",
        "the owner of a log has root give it another directory of root's",
        ("tests/processes/test_owners.py::test_what_was_put_in_place_of_a_new_directory_is_not_given_away",),
    ),
    Mutant(
        "a directory that is missing was deleted with its topic",
        "partition/directory.py",
        "            (self.find_topic or self.settings)()\n        except own(TopicNotFound) as error:",
        "            raise TopicNotFound('')\n        except TopicNotFound as error:",
        "who has removed a partition's directory is told that the topic was deleted",
        ("tests/partition/test_missing_directory.py",),
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
        "a commit has its time for each lock",
        "consumer/commit_tracker.py",
        "partial(store.append, self._group_id, news, left_s=left_s, missing=gone)\n",
        "partial(store.append, self._group_id, news, missing=gone)\n",
        "a commit with a time of a quarter of a second takes half a minute",
        ("tests/group/test_stopped_holder.py",),
    ),
    Mutant(
        "a log is looked for again in the directory of each moment",
        "storage/os_filesystem.py",
        '        return here if path == "." else os.path.join(here, path)\n',
        "        return path\n",
        "a process that changes its directory goes on in another log",
        ("tests/test_log.py::test_a_log_stays_where_it_is_when_the_process_goes_to_another_directory",),
    ),
)
