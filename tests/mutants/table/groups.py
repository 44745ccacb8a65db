"""Bugs in how a group shares partitions, finds out who is gone, and knows how far it has come."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PROTOCOL = "tests/group/test_protocol.py"

MUTANTS = (
    Mutant(
        "a member commits for partitions of others",
        "group/membership.py",
        "        others = sorted(set(partitions) - me.owned)\n",
        "        others: list[TopicPartition] = []\n",
        "who was expelled and came back puts the group behind what another has committed",
        (f"{_PROTOCOL}::test_a_commit_for_a_partition_of_another_is_refused",),
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
)
