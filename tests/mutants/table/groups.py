"""Bugs in how a group shares partitions, finds out who is gone, and knows how far it has come."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PROTOCOL = "tests/group/test_protocol.py"
_OFFSETS = "tests/group/test_transactional_offsets.py"
_PENDING = "tests/group/test_pending_offsets.py"

MUTANTS = (
    Mutant(
        "a member commits for partitions of others",
        "group/ownership.py",
        "        if partition not in owned:\n",
        "        if False:\n",
        "who was expelled and came back puts the group behind what another has committed",
        (f"{_PROTOCOL}::test_a_commit_for_a_partition_of_another_is_refused",),
    ),
    Mutant(
        "a partition that was lost and taken again is committed",
        "group/ownership.py",
        "        if owned[partition] > partitions[partition]:\n",
        "        if False:\n",
        "a transaction commits records that are read again from the group's position, and delivered twice",
        (f"{_OFFSETS}::test_a_partition_that_was_lost_and_taken_again_is_not_committed",),
    ),
    Mutant(
        "dead members stay",
        "group/membership.py",
        "            gone |= self._absence.gone(group, self.id, now_s)\n",
        "",
        "partitions of a killed process are read by nobody until max_poll_interval_ms is over",
        (f"{_PROTOCOL}::test_a_kill_at_any_step_leaves_a_group_that_goes_on",),
    ),
    Mutant(
        "the state is written over the one that is published",
        "group/state_file.py",
        "        if before is not None and before.position < SLOTS_BYTES + len(data):\n",
        "        if False:\n",
        "a kill in the midst of it leaves no group, and every member joins anew",
        ("tests/group/test_state_file.py",),
    ),
    Mutant(
        "a checkpoint of commits counts for another life of the topic",
        "group/offsets.py",
        "            and checkpoint.topic_id == partition.log.topic_id\n",
        "",
        "a group goes on at offsets of commits that are gone",
        ("tests/group/test_offsets.py::test_a_checkpoint_of_another_life_of_the_topic_says_nothing",),
    ),
    Mutant(
        "a commit counts whatever the power has taken",
        "group/truncation.py",
        "    if NO_LEADER_EPOCH < committed.leader_epoch < partition.leader_epoch:\n",
        "    if False:\n",
        "records that got the offsets of lost ones are passed over",
        ("tests/group/test_power_loss.py",),
    ),
    Mutant(
        "the group's lock is free again before a transaction is decided",
        "transaction/offsets.py",
        "        lock.holding(partial(self._decide, group, decide), while_waiting=beat)\n",
        "        lock.holding(partial(self._decide, group, bool), while_waiting=beat)\n        decide()\n",
        "an expelled member commits what its successor reads again",
        (f"{_OFFSETS}::test_an_expelled_member_does_not_commit_what_its_successor_reads_again",),
    ),
    Mutant(
        "a member that takes a partition over does not wait for a pending offset",
        "consumer/group_assignment.py",
        "        committed = self._groups.decided(self.group_id, partitions, timeout_s)\n",
        "        committed = self._groups.committed(self.group_id)\n",
        "it reads again what a repeated commit_transaction commits",
        (f"{_OFFSETS}::test_a_commit_of_unknown_outcome_is_waited_for_and_can_be_repeated",),
    ),
    Mutant(
        "committed offsets are read read_committed",
        "group/offsets.py",
        "isolation_level=WITH_MARKERS",
        "isolation_level='read_committed'",
        "the open transaction of one group hides the later commits of all others",
        (f"{_PENDING}::test_a_commit_of_another_group_while_a_transaction_is_open_is_read_at_once",),
    ),
    Mutant(
        "a pending offset wins over a later commit",
        "group/pending_offsets.py",
        "            if key in offsets and offsets[key].at < at:\n",
        "            if False:\n",
        "a group goes back to an earlier offset, and reads records again",
        (f"{_PENDING}::test_a_later_commit_of_the_same_partition_wins_over_an_earlier_pending_one",),
    ),
    Mutant(
        "a checkpoint passes a pending offset",
        "group/offsets.py",
        "next_offset = read_offset if pending_offset is None else min(read_offset, pending_offset)",
        "next_offset = read_offset",
        "processes that begin at the checkpoint never learn of the commit",
        (f"{_PENDING}::test_a_checkpoint_does_not_pass_a_pending_offset",),
    ),
)
