"""Bugs in how a stream of Spark finds what is new, and where it stands."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STREAM = "tests/spark/test_stream.py"


MUTANTS = (
    Mutant(
        "a stream's first batch does not say where it started",
        "spark/source/stream.py",
        "        if start == self._initial:",
        "        if False:",
        "a query that starts at the latest offsets loses the records of its first batch if that has to come again",
        (f"{_STREAM}::test_where_it_started_is_known_after_a_crash_in_the_first_batch",),
    ),
    Mutant(
        "a replayed batch starts where Spark says",
        "spark/source/stream_offsets.py",
        "    return decode(start) | (decode(end.get(FROM, {})) if start != end else {})\n",
        "    return decode(start)\n",
        "the same",
        (f"{_STREAM}::test_where_it_started_is_known_after_a_crash_in_the_first_batch",),
    ),
    Mutant(
        "a stream with a limit starves small partitions",
        "spark/source/trigger_limits.py",
        "    return math.ceil(share) if share < 1 else math.floor(share)\n",
        "    return math.floor(share)\n",
        "a partition that is little behind is never read",
        (f"{_STREAM}::test_a_batch_takes_of_each_partition_as_it_is_behind",),
    ),
    Mutant(
        "a stream does not look at the catalog again",
        "spark/source/watched_partitions.py",
        "        if version is None or version != self._version:\n",
        "        if self._version is None:\n",
        "topics that come while a query runs are not read",
        (f"{_STREAM}::test_topics_and_partitions_that_come_are_read_from_their_first_record",),
    ),
    Mutant(
        "a stream keeps to the topic that was there",
        "spark/source/watched_partitions.py",
        "if found.get(p) == partition.source}",
        "if p in found}",
        "a topic deleted and created anew is not noticed",
        (f"{_STREAM}::test_a_topic_created_anew_is_noticed_although_it_has_as_many_records",),
    ),
    Mutant(
        "available now waits for more",
        "spark/source/stream.py",
        "        may_wait = self._target is None and not",
        "        may_wait = not",
        "a query that is to end at what is there leaves some of it",
        (f"{_STREAM}::test_available_now_neither_waits_for_more_nor_takes_a_partition_that_came_since_for_lost",),
    ),
    Mutant(
        "a partition that comes is read from its end",
        "spark/source/stream.py",
        "OffsetRange(starts.get(topic_partition, 0), until)",
        "OffsetRange(starts.get(topic_partition, until), until)",
        "the first records of new partitions are lost",
        (f"{_STREAM}::test_topics_and_partitions_that_come_are_read_from_their_first_record",),
    ),
    Mutant(
        "a topic created anew is told by its length alone",
        "spark/source/stream.py",
        "    return bool(ids.get(topic) and known.get(topic)) and ids[topic] != known[topic]\n",
        "    return False\n",
        "a query goes on in the midst of other records, as if nothing had happened",
        (f"{_STREAM}::test_a_topic_created_anew_is_noticed_although_it_has_as_many_records",),
    ),
    Mutant(
        "a batch that is planned is read of the topic that came since",
        "spark/source/stream.py",
        "                if _differ({topic_partition.topic: source.known_id}, planned_ids, topic_partition.topic):\n",
        "                if False:\n",
        "records of a topic created anew come twice",
        (f"{_STREAM}::test_what_was_lost_fails_the_query_or_is_passed_over",),
    ),
    Mutant(
        "what is not decided counts as cut",
        "spark/source/stream.py",
        "            p: position if position <= there[p][1].high_watermark else readable[p].end\n",
        "            p: min(position, readable[p].end)\n",
        "records are read a second time when their transaction is decided",
        (f"{_STREAM}::test_offsets_that_are_not_decided_yet_are_no_loss",),
    ),
    Mutant(
        "a stream with a limit in bytes weighs all there is",
        "partition/read/split_points.py",
        "        if base >= end or (enough is not None and total >= enough):\n",
        "        if base >= end:\n",
        "each micro-batch costs in proportion to the backlog",
        (f"{_STREAM}::test_a_limit_in_bytes_costs_what_it_takes_not_what_there_is",),
    ),
    Mutant(
        "a stream takes a segment of its limit for all there is",
        "spark/source/stream.py",
        "*offsets, limits.bytes_max + 1)",
        "*offsets, limits.bytes_max)",
        "one micro-batch takes the whole backlog",
        (f"{_STREAM}::test_a_limit_that_a_segment_fills_ends_there",),
    ),
)
