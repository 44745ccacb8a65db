"""Bugs in what a topic records: the hash that places its keys, and what is kept."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PARTITIONER = "tests/producer/test_topic_partitioner.py"
_RETENTION = "tests/catalog/test_retention.py"
_PRODUCER = "producer/partitioner.py"

MUTANTS = (
    Mutant(
        "a producer follows no topic",
        _PRODUCER,
        "        if named is None:\n            return KEY_HASHES[topic_partitioner]\n",
        '        if named is None:\n            return KEY_HASHES["murmur3"]\n',
        "two producers put one key into two partitions",
        (f"{_PARTITIONER}::test_keys_go_where_the_topics_hash_says",),
    ),
    Mutant(
        "a producer that names another hash is let through",
        _PRODUCER,
        "        if self.hashes_keys:\n            raise refusal\n",
        "        if self.hashes_keys:\n            return KEY_HASHES[str(named)]\n",
        "two producers put one key into two partitions, and nobody is told",
        (f"{_PARTITIONER}::test_a_producer_that_names_another_hash_is_refused_with_both_and_the_remedy",),
    ),
    Mutant(
        "round_robin places records with a key",
        _PRODUCER,
        "        return refuse\n",
        "        return None\n",
        "one key is in several partitions, and nobody is told",
        (f"{_PARTITIONER}::test_what_ignores_the_topics_hash_takes_records_without_a_key_alone",),
    ),
    Mutant(
        "a producer keeps the hash of a topic that was",
        "producer/topic_cache.py",
        "        topic.key_hash = key_hash\n",
        "        topic.key_hash = topic.key_hash or key_hash\n",
        "a producer that runs places keys otherwise than those that start now",
        (f"{_PARTITIONER}::test_a_producer_follows_a_topic_that_changes_its_hash_or_is_created_again",),
    ),
    Mutant(
        "the hash changes under records",
        "catalog/catalog.py",
        "        if before != after and topic.partitions > 1:\n",
        "        if False:\n",
        "a key is in two partitions, before the change and after it",
        (f"{_PARTITIONER}::test_the_hash_changes_only_where_keys_have_one_place",),
    ),
    Mutant(
        "an older version is locked out of every topic",
        "catalog/catalog.py",
        '            del config["partitioner"]\n',
        "            pass\n",
        "versions that place keys in the same way take the topic for damaged",
        (
            f"{_PARTITIONER}::test_a_topic_of_before_is_murmur3_and_an_older_version_refuses_only_what_it_would_place_wrongly",
        ),
    ),
    Mutant(
        "Kafka's directories are hashed as pylog's",
        "catalog/kafka_catalog.py",
        "TopicConfig(partitioner=MURMUR2)",
        'TopicConfig(partitioner="murmur3")',
        "who looks for a key's partition looks into the wrong one",
        (f"{_PARTITIONER}::test_kafkas_directories_are_murmur2",),
    ),
    Mutant(
        "a recorded week of retention is believed",
        "catalog/topic.py",
        "    return config._replace(retention_ms=UNLIMITED, retention_bytes=UNLIMITED)\n",
        "    return config\n",
        "a later version deletes what nobody has asked it to delete",
        (f"{_RETENTION}::test_the_week_that_was_recorded_for_every_topic_is_read_as_unlimited",),
    ),
    Mutant(
        "retention is accepted and does nothing",
        "manager/opening.py",
        "        if here in RETENTION and value != UNLIMITED:\n",
        "        if False:\n",
        "a disk fills up whose owner has set a limit",
        (f"{_RETENTION}::test_retention_is_refused_wherever_it_is_set",),
    ),
)
