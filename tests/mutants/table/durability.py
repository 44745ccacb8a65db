"""Bugs in what an acknowledgement means: syncs that are missing, too early, too late or of the
wrong thing."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_OS = "tests/storage/test_os_filesystem.py"
_DURABILITY = "tests/partition/test_durability.py"
_OTHERS = "tests/simulation/test_unsynced_names.py"

MUTANTS = (
    Mutant(
        "no sync of the directory for a new segment",
        "partition/write/durability.py",
        "            self._filesystem.sync_directory(self._path)\n",
        "",
        "an acknowledged record is lost with the power, because the name of its file was never on the medium",
        (f"{_DURABILITY}::test_acks_all_returns_after_the_log_and_its_directory_were_synced",),
    ),
    Mutant(
        "a small file renamed before it was synced",
        "storage/atomic_file.py",
        "        if durable:\n            file.sync()\n",
        "",
        "a loss of power leaves a manifest or a topic's file without content",
        (f"{_OS}::test_a_durable_replacement_syncs_the_file_before_the_rename_and_the_directory_after",),
    ),
    Mutant(
        "a sync that failed is tried again",
        "partition/repair/failed_syncs.py",
        "                self.mark(base)\n                return error\n",
        "            file.sync()\n",
        "the second sync succeeds although the pages of the first are gone",
        (f"{_DURABILITY}::test_a_sync_that_failed_once_is_answered_with_a_new_file",),
    ),
    Mutant(
        "a sync counts although another process saw the file fail",
        "partition/write/log_end.py",
        "        if any(map(self._failed_syncs.is_marked, synced)):\n            return False\n",
        "",
        "a durable end is published for pages that a failed sync has dropped",
        (f"{_DURABILITY}::test_a_sync_that_another_process_saw_fail_before_it_was_published_is_made_again",),
    ),
    Mutant(
        "the new log start is not synced before files go",
        "partition/write/writer.py",
        "        grant.sync_slots()  # also an unchanged log start: its own sync may have failed\n",
        "",
        "after a loss of power the log begins at offsets whose segments are gone",
        ("tests/partition/test_sync_order.py::test_the_new_log_start_is_on_the_medium_before_a_file_goes",),
    ),
    Mutant(
        "a topic that another process made is taken to be durable",
        "partition/write/durability.py",
        "            self._sync_catalog()\n",
        "",
        "after a loss of power the topic is gone, and with it records that were acknowledged as durable",
        (f"{_OTHERS}::test_the_power_leaves_a_topic_and_the_log_whose_maker_was_killed_at_any_step",),
    ),
    Mutant(
        "a topic is made durable before it is looked at",
        "manager/manager.py",
        "                described = self.describe_topic(name)\n"
        "                catalog.make_durable()  # its creator may not have done so yet\n",
        "                catalog.make_durable()\n                described = self.describe_topic(name)\n",
        "another one, created in between, is returned, and gone after a loss of power",
        (f"{_OTHERS}::test_a_topic_created_anew_while_another_looks_at_it_is_durable_when_that_returns",),
    ),
    Mutant(
        "directories go before the deletion is durable",
        "catalog/catalog.py",
        "        filesystem.sync_directory(layout.topics)  # again: the deleter may have died before its sync\n",
        "",
        "after a loss of power the topic is there again, without its directories",
        (f"{_OTHERS}::test_a_deletion_of_another_is_durable_before_anything_of_the_topic_goes",),
    ),
    Mutant(
        "a log without its count of producer ids begins at 0 again",
        "manager/producer_ids.py",
        "            first = self._random_start()\n",
        "            first = 1000\n",
        "a Kafka broker hands out the same ids; and a count that was lost hands out those of running producers again",
        (
            "tests/test_producer_ids.py::test_a_new_logs_ids_are_none_of_kafkas",
            "tests/test_producer_ids.py::test_records_of_a_producer_after_the_file_was_lost_are_in_the_log",
        ),
    ),
    Mutant(
        "slots that a failed sync took back stay so",
        "partition/commit_slots.py",
        "            self._output.pwrite(raw, 0)\n",
        "",
        "the next writer believes slots of long ago, and writes over what is durable",
        ("tests/simulation/test_failed_syncs.py::test_slots_that_a_failed_sync_took_back_are_put_back",),
    ),
)
