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
        "producer/sender.py",
        "        if partition.topic_id != buffer.topic.id:\n",
        "        if False:\n",
        "two batches with one number: the second passes for a repeat, and is acknowledged unwritten",
        ("tests/producer/test_through_log.py",),
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
        "a producer follows no topic",
        "producer/partitioner.py",
        "        if named is None:\n            return KEY_HASHES[topic_partitioner]\n",
        '        if named is None:\n            return KEY_HASHES["murmur3"]\n',
        "two producers put one key into two partitions",
        ("tests/producer/test_topic_partitioner.py::test_keys_go_where_the_topics_hash_says",),
    ),
)
