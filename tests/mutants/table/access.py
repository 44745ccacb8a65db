"""Bugs in who may use what: owners, modes, and what stands where a file should be."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_OWNERS = "tests/processes/test_owners.py"

MUTANTS = (
    Mutant(
        "files that root makes stay root's",
        "storage/regular.py",
        "            owners.give_to_owner(descriptor, above, path)\n",
        "",
        "a service can't open what root left in its log",
        (f"{_OWNERS}::test_the_owner_goes_on_with_its_log_after_root_has_used_it",),
    ),
    Mutant(
        "files of a member keep the member's own group",
        "storage/owners.py",
        "if is_root or above.st_mode & _FOR_THE_GROUP else found.st_gid",
        "if is_root else found.st_gid",
        "the owner of a log without a setgid bit can't open what a member of its group left in it",
        (f"{_OWNERS}::test_the_owner_goes_on_after_a_member_of_its_group",),
    ),
    Mutant(
        "a directory is given away whatever is in it",
        "storage/owners.py",
        "(os.fstat(descriptor).st_uid != ROOT or os.listdir(descriptor))",
        "os.fstat(descriptor).st_uid != ROOT",
        "the owner of a log has root give it another directory of root's",
        (f"{_OWNERS}::test_what_was_put_in_place_of_a_new_directory_is_not_given_away",),
    ),
    Mutant(
        "a directory that a killed process of root's left is nobody's to repair",
        "storage/os_filesystem.py",
        "if not is_new and (mode is not None or not owners.works_for_another(around)):",
        "if not is_new:",
        "a service stays locked out of a directory, because root's process was killed as it made it",
        (f"{_OWNERS}::test_a_directory_that_a_killed_process_of_roots_left_is_given_when_it_is_next_wanted",),
    ),
)
