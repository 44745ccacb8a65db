"""Bugs in where keys go and what is a repeat: batches that are appended twice, refused or lost."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a repeat is appended",
        "partition/producers/state.py",
        "            if batch.first_sequence == first and batch.last_sequence == header.last_sequence:\n",
        "            if False:\n",
        "a batch sent again is refused, or is there twice",
        ("tests/partition/test_producers.py::test_each_of_the_last_five_batches_is_recognised_with_its_first_offsets",),
    ),
    Mutant(
        "what is buffered for a deleted topic joins the next one of its name",
        "producer/buffer.py",
        "        if partition.topic_id != self.topic.id:\n",
        "        if False:\n",
        "two batches with one number: the second passes for a repeat, and is acknowledged unwritten",
        ("tests/producer/test_producer_over_a_log.py",),
    ),
    Mutant(
        "producers of old records are forgotten at once",
        "partition/producers/snapshots.py",
        "PRODUCER_EXPIRATION_MS, segments.bases[-2] if len(segments.bases) > 1 else 0)",
        "PRODUCER_EXPIRATION_MS, 1 << 62)",
        "a backfill that repeats a batch after an interruption has it appended twice",
        ("tests/partition/test_producer_expiry.py",),
    ),
    Mutant(
        "named producers are forgotten after a day",
        "partition/producers/packed.py",
        "        end = (found if found >= 0 else ~found) * PRODUCER_ENTRY_BYTES",
        "        end = len(self._data)",
        "an import that is started again later is appended twice",
        ("tests/producer/test_named.py::test_a_day_without_records_and_deleted_segments_forget_no_named_producer",),
    ),
    Mutant(
        "a batch follows one that failed",
        "producer/named.py",
        "        if buffer.next_sequence not in (batch.previous_sequence + 1, batch.next_sequence):\n",
        "        if False:\n",
        "the failed batch counts as sent, and is lost",
        ("tests/producer/test_named.py::test_a_batch_that_was_opened_after_a_failed_one_fails_too",),
    ),
    Mutant(
        "a repeat succeeds before it is durable",
        "producer/named.py",
        "        if batches and self._is_durable:\n",
        "        if False:\n",
        "a power failure takes a record whose delivery has succeeded",
        (
            "tests/producer/test_named.py::test_what_an_earlier_process_left_unsynced_is_synced_before_its_repeat_succeeds",
        ),
    ),
    Mutant(
        "an inbox saves over another consumer",
        "consumer/stored_offsets.py",
        "        if count != 1:\n",
        "        if False:\n",
        "records are processed twice",
        ("tests/outbox/test_stored_offsets.py",),
    ),
    Mutant(
        "the relay sends and commits no position",
        "outbox/relay.py",
        "        sent = (next_batch(self._log.manager, self._group) or 1) - 1\n",
        "        sent = 0\n",
        "after a crash, rows that are not deleted yet are sent again",
        ("tests/outbox/test_outbox.py",),
    ),
    Mutant(
        "a producer follows no topic",
        "producer/partitioner.py",
        "        if named is None:\n            return KEY_HASHES[topic_partitioner]\n",
        '        if named is None:\n            return KEY_HASHES["murmur3"]\n',
        "two producers put one key into two partitions",
        ("tests/producer/test_topic_partitioner.py::test_keys_go_where_the_topics_hash_says",),
    ),
)
