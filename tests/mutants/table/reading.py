"""Bugs in what is read: damage that passes, records that nobody may see, indexes that mislead."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FLIPS = "tests/segment/test_bit_flips.py"
_INDEXES = "tests/partition/test_lost_transaction_indexes.py"

MUTANTS = (
    Mutant(
        "a batch's checksum is not looked at",
        "segment/reader.py",
        "        try:\n            view.check_crc()\n        except own(CorruptRecord) as damage:\n",
        "        try:\n            pass\n        except CorruptRecord as damage:\n",
        "a record with a flipped bit is returned",
        (f"{_FLIPS}::test_flipped_bits_of_a_sealed_segment_are_found_at_positions",),
    ),
    Mutant(
        "a gap between batches is not noticed",
        "segment/reader.py",
        "            and header.base_offset != next_offset\n",
        "            and False\n",
        "a flipped offset passes for another record",
        (f"{_FLIPS}::test_a_flipped_offset_in_an_active_segment_never_passes_for_another_record",),
    ),
    Mutant(
        "reading goes past the published end",
        "partition/read/reader.py",
        "        return segment, segment.size() if closed else state.written_end\n",
        "        return segment, segment.size()\n",
        "half an append of a living writer is read, or called damage",
        (
            "tests/partition/test_visibility_of_changes.py::test_at_any_moment_of_an_append_others_see_whole_records_and_nothing_else",
        ),
    ),
    Mutant(
        "read_committed does not stop at open transactions",
        "partition/read/visibility.py",
        "    return min(end, state.last_stable_offset) if isolation_level == READ_COMMITTED else end\n",
        "    return end\n",
        "records are read whose transaction may still be aborted",
        ("tests/partition/test_producers.py::test_read_committed_stops_at_the_first_open_transaction",),
    ),
    Mutant(
        "the index is believed",
        "segment/reader.py",
        "        return position if agrees and self.base_offset <= header.base_offset <= offset else 0\n",
        "        return position\n",
        "a damaged index makes records disappear",
        ("tests/index/test_indexes.py::test_an_index_that_points_to_other_batches_hides_no_record",),
    ),
    Mutant(
        "the active segment has the least time of its last batch",
        "partition/write/writer.py",
        "self._end.publish_end(grant, state, segment, min(state.least_timestamp_ms, least_ms))",
        "self._end.publish_end(grant, state, segment, least_ms)",
        "a range of times leaves out late records of the active segment",
        ("tests/partition/test_time_ranges.py::test_no_record_is_left_out",),
    ),
    Mutant(
        "gzip decompresses without a limit",
        "codec/compression.py",
        "            if len(output) > limit_bytes:\n                raise _beyond_limit(GZIP, limit_bytes)\n",
        "",
        "a small batch takes all memory",
        ("tests/codec/test_compression.py::test_the_limit_is_exact_and_the_error_names_limit_and_codec",),
    ),
    Mutant(
        "a transaction index is believed, whatever the seal records",
        "partition/read/aborted.py",
        "    if digest is None or digest.matches_index(directory.filesystem, directory.path, base):\n",
        "    if True:\n",
        "read_committed shows aborted records after their index was lost",
        (f"{_INDEXES}::test_no_reader_believes_an_index_that_is_not_the_one_the_seal_records",),
    ),
    Mutant(
        "what was read of the segment is not compared with the seal",
        "partition/read/aborted.py",
        "    if AbortedDigest.of(found) != digest and rising_seal(",
        "    if False and rising_seal(",
        "read_committed shows aborted records if the producers before a segment are forgotten, too",
        (f"{_INDEXES}::test_if_the_batches_do_not_show_what_the_seal_records_reading_says_so",),
    ),
    Mutant(
        "a seal of another partition is taken for the segment's own",
        "segment/seal.py",
        "    if found and expected and found != expected:\n",
        "    if False:\n",
        "records of another partition are returned after its files were exchanged with this one's",
        ("tests/partition/test_swapped_segments.py",),
    ),
)
