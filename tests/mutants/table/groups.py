"""Bugs in how a group shares partitions, finds out who is gone, and knows how far it has come."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PROTOCOL = "tests/group/test_protocol.py"
_ONE_PREEMPTION = f"{_PROTOCOL}::test_members_meet_in_every_order_with_one_preemption"
_STATE = "tests/group/test_state.py"
_FILE = "tests/group/test_state_file.py"
_GAPS = "tests/partition/test_recovery_gaps.py"
_POWER = "tests/group/test_power_loss.py"

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
        "a member takes what another still owns",
        "group/state.py",
        "    owned = (me.owned - released) | (me.target - others)\n",
        "    owned = (me.owned - released) | me.target\n",
        "two members read a partition under one generation",
        (_STATE, _ONE_PREEMPTION),
    ),
    Mutant(
        "who moves keeps what is not its own any more",
        "group/state.py",
        "    owned = (me.owned - released) | (me.target - others)\n",
        "    owned = me.owned | (me.target - others)\n",
        "a partition that was given up is read by nobody",
        (_STATE, _ONE_PREEMPTION),
    ),
    Mutant(
        "whoever has looked for too long is believed",
        "group/membership.py",
        "            self._absence.restart()  # after such a pause this member can't know that others were silent\n",
        "            pass\n",
        "after a pause of the machine all members expel each other",
        (f"{_PROTOCOL}::test_members_that_were_all_stopped_do_not_expel_each_other",),
    ),
    Mutant(
        "a member is expelled for the time of the tick alone",
        "group/liveness.py",
        "            if (silent_s - TICK_S) * 1000 > max(group.members[id_].max_poll_interval_ms, _SILENCE_MIN_MS)\n",
        "            if silent_s > 0\n",
        "members that work are thrown out, and their records come twice",
        (f"{_PROTOCOL}::test_a_member_may_be_silent_for_its_max_poll_interval_and_no_longer",),
    ),
    Mutant(
        "a member does not hold the lock on its file",
        "group/membership.py",
        "        self._alive.try_acquire()\n",
        "",
        "all members count as dead at once",
        (_ONE_PREEMPTION,),
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
        (_FILE,),
    ),
    Mutant(
        "a state of another boot counts",
        "group/state_file.py",
        "        if slot is None or slot.boot != self._boot:\n",
        "        if slot is None:\n",
        "after a loss of power members that are nowhere keep their partitions",
        (_FILE,),
    ),
    Mutant(
        "a member that was known is taken for another that came in its place",
        "group/state_file.py",
        "        return before[1] if before is not None and before[0] == item else _member(item)\n",
        "        return before[1] if before is not None else _member(item)\n",
        "what a member has taken or given up is not seen by the others",
        (f"{_FILE}::test_what_a_known_member_has_now_is_what_counts",),
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
        "a durable commit leaves the records before it to the page cache",
        "group/truncation.py",
        "        partition.sync(end, None if timeout_s is None else int(timeout_s * 1000))\n",
        "        pass\n",
        "after a loss of power the group is ahead of a log whose records are gone",
        (f"{_POWER}::test_offsets_that_were_reset_to_the_end_are_not_beyond_it_when_the_power_was_lost",),
    ),
    Mutant(
        "a commit counts whatever the power has taken",
        "group/truncation.py",
        "    if NO_LEADER_EPOCH < committed.leader_epoch < partition.leader_epoch:\n",
        "    if False:\n",
        "records that got the offsets of lost ones are passed over",
        (_POWER,),
    ),
    Mutant(
        "a recovery goes on in the same leader epoch",
        "partition/repair/recovery.py",
        "        epochs.begin_another(end, max(newest, slots.leader_epoch))\n",
        "        epochs.end_at(end)\n",
        "records that got the offsets of lost ones can't be told from them",
        (_POWER,),
    ),
    Mutant(
        "a new leader epoch may be lost with the power",
        "partition/repair/recovery.py",
        "    epochs.save(directory.filesystem, directory.path, durable=slots is not None)\n",
        "    epochs.save(directory.filesystem, directory.path, durable=False)\n",
        "the same number names two epochs",
        (_POWER,),
    ),
    Mutant(
        "the number of an epoch of which nothing is left is used anew",
        "partition/epochs.py",
        "        newest = max(self.latest, known)\n",
        "        newest = max((start.epoch for start in self.starts if start.start_offset < end_offset), default=-1)\n",
        "offsets committed under it seem to be of what was written since",
        (f"{_GAPS}::test_a_recovery_begins_another_leader_epoch_and_offsets_of_lost_records_are_told_by_theirs",),
    ),
    Mutant(
        "a consumer's commits lead back to what owns them",
        "consumer/group_assignment.py",
        "self.requested.is_subscribed)",
        "lambda: self.requested.is_subscribed())",
        "a consumer that is forgotten stays a member until the garbage collector runs",
        ("tests/group/test_member_liveness.py::test_a_forgotten_consumer_leaves_its_group_without_the_collector",),
    ),
)
